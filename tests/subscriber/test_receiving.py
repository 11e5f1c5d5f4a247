"""Receiving over links: order, queues, handlers, fields of messages, ends of subscriptions."""

import pickle
import re
import threading

import pytest

import oz
from oz.errors import (
    ClosedError,
    ConfigurationError,
    NoRequest,
    PatternError,
    ProtocolError,
    Timeout,
)
from oz.options import Delivery, Limits, Options
from oz.publisher.last_values import LastValues
from oz.transport.endpoints import EndpointError
from oz.wire.links import Refusal
from support.ports import has_ipv6
from support.waiting import until


def subjects(sub, count):
    return [sub.receive(timeout=10).subject for _ in range(count)]


def ready(make, publisher, *patterns, **options):
    sub = make(publisher.endpoint, **options)
    for pattern in patterns:
        sub.subscribe(pattern)
    sub.wait_ready()
    return sub


def test_messages_arrive_in_order_and_only_if_they_match(make, publisher):
    sub = ready(make, publisher, "a.*")
    publisher.publish("a.1", "b.1", "a.2", "a.2.3", "a.3")
    assert subjects(sub, 3) == ["a.1", "a.2", "a.3"]
    with pytest.raises(Timeout, match=r"no message in 0\.05 s"):
        sub.receive(timeout=0.05)


def test_a_batch_arrives_whole_and_in_order(make, publisher):
    sub = ready(make, publisher, "a.>")
    publisher.publish_numbers("a.b", range(1_000), batch=100)
    assert [int(sub.receive(timeout=10).payload) for _ in range(1_000)] == list(range(1_000))
    assert sub.stats.received == sub.stats.delivered == 1_000


def test_receive_without_waiting_returns_what_is_there(make, publisher):
    sub = ready(make, publisher, "a")
    publisher.publish("a")
    assert until(lambda: attempt(sub)).subject == "a"


def attempt(sub):
    try:
        return sub.receive(timeout=0)
    except Timeout:
        return None


def test_receive_many_returns_messages_up_to_a_limit(make, publisher):
    sub = ready(make, publisher, "a")
    publisher.publish_numbers("a", range(10), batch=10)
    assert [int(one.payload) for one in sub.receive_many(4, timeout=10)] == [0, 1, 2, 3]
    assert [int(one.payload) for one in sub.receive_many(timeout=10)] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(Timeout):
        sub.receive_many(timeout=0.01)


def test_subscriptions_are_sent_without_a_call_of_the_program(make, publisher):
    sub = make(publisher.endpoint)
    sub.subscribe("a.*")
    sub.subscribe(["b.*", "c.*"])
    publisher.wait_for_patterns(3)
    publisher.publish("a.1", "b.1", "c.1", "d.1")
    assert subjects(sub, 3) == ["a.1", "b.1", "c.1"]


def test_many_subscriptions_before_the_first_answer(make, publisher):
    publisher.stall()
    sub = make(publisher.endpoint, filtering="publisher")
    for number in range(2_000):
        sub.subscribe(f"n.{number}.*")
    publisher.resume()
    sub.wait_ready()
    publisher.publish("n.0.x", "n.1999.x", "n.2000.x")
    assert subjects(sub, 2) == ["n.0.x", "n.1999.x"]


def test_a_subscription_with_its_own_receive_owns_its_messages(make, publisher):
    sub = make(publisher.endpoint)
    first, second = sub.subscribe("a.*"), sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish("a.1", "b.1", "a.2", "b.2")
    assert second.receive(timeout=10).subject == "b.1"
    assert subjects(sub, 2) == ["a.1", "a.2"]
    assert second.receive(timeout=10).subject == "b.2"
    assert (first.pending, second.pending) == (0, 0)


def test_the_first_own_receive_moves_messages_that_wait(make, publisher):
    sub = make(publisher.endpoint)
    own, other = sub.subscribe("a.*"), sub.subscribe("*.x")
    sub.wait_ready()
    publisher.publish("a.1", "a.x", "b.x", "a.2")
    until(lambda: other.pending + own.pending >= 5 or attempt_nothing(sub))
    assert own.receive(timeout=10).subject == "a.1"
    assert own.receive(timeout=10).subject == "a.x"
    # "a.x" belongs to both.
    assert subjects(sub, 2) == ["a.x", "b.x"]
    assert own.receive(timeout=10).subject == "a.2"


def attempt_nothing(sub):
    with pytest.raises(ClosedError):
        sub.subscribe("nothing", print).receive(timeout=0)
    for one in sub.subscriptions:
        if one.patterns[0].text == "nothing":
            one.unsubscribe()
    sub.run(timeout=0.01)
    return False


def test_handlers_run_in_the_thread_that_waits(make, publisher):
    sub, seen = make(publisher.endpoint), []
    sub.subscribe("a.*", lambda message: seen.append((message.subject, threading.current_thread())))
    sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish("a.1", "a.2", "b.1")
    assert sub.receive(timeout=10).subject == "b.1"
    until(lambda: sub.run(timeout=0.01) == 0 and len(seen) == 2)
    assert seen == [("a.1", threading.current_thread()), ("a.2", threading.current_thread())]


def test_handlers_of_earlier_messages_run_before_receive_returns():
    seen = []
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as sub:
        sub.subscribe("a.*", seen.append)
        sub.subscribe("b")
        sub.wait_ready()
        for count in range(1, 21):
            publisher.publish_many([("a.1", b""), ("b", b"")])
            assert sub.receive(timeout=10).subject == "b"
            assert len(seen) == count


def test_run_returns_after_silence_and_counts(make, publisher):
    sub, seen = make(publisher.endpoint), []
    sub.subscribe("a.*", seen.append)
    sub.wait_ready()
    publisher.publish("a.1", "a.2", "a.3")
    count = 0
    while count < 3:
        count += sub.run(timeout=0.2)
    assert (count, len(seen)) == (3, 3)


def test_an_exception_of_a_handler_ends_nothing(make, publisher, caplog):
    sub, seen = make(publisher.endpoint), []

    def fail(message):
        seen.append(message.subject)
        raise ValueError("no such luck")

    sub.subscribe("a.*", fail)
    sub.wait_ready()
    publisher.publish("a.1", "a.2")
    until(lambda: sub.run(timeout=0.01) == 0 and len(seen) == 2)
    assert sub.stats.failed == 2
    assert "no such luck" in caplog.text


def test_an_inline_handler_runs_where_frames_are_read(make, publisher):
    sub, seen = make(publisher.endpoint), []
    sub.subscribe("a.*", seen.append, delivery=Delivery(inline=True))
    sub.subscribe("b")
    sub.wait_ready()
    publisher.publish("a.1", "a.2", "b")
    assert sub.receive(timeout=10).subject == "b"
    assert [one.subject for one in seen] == ["a.1", "a.2"]


def test_max_messages_ends_a_subscription(make, publisher):
    sub = make(publisher.endpoint)
    one = sub.subscribe("a.*", max_messages=2)
    sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish_numbers("a.1", range(5), batch=5)
    publisher.publish("b.1")
    assert subjects(sub, 3) == ["a.1", "a.1", "b.1"]
    assert not one.active
    assert [list(that.patterns) for that in sub.subscriptions] == [[oz.compile("b.*")]]
    publisher.wait_for(lambda sessions: [len(that.patterns) for that in sessions.by_id.values()] == [1])
    assert sub.stats.unwanted == 3


def test_unsubscribe_drops_what_waits_and_tells_the_publisher(make, publisher):
    sub = make(publisher.endpoint)
    one = sub.subscribe("a.*")
    sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish("a.1", "b.1", "a.2", "b.2")
    assert subjects(sub, 1) == ["a.1"]
    one.unsubscribe()
    one.unsubscribe()
    assert not one.active
    assert subjects(sub, 2) == ["b.1", "b.2"]
    sub.wait_ready()
    publisher.wait_for(lambda sessions: [len(that.patterns) for that in sessions.by_id.values()] == [1])
    with pytest.raises(ClosedError):
        one.receive(timeout=0)


def test_fields_of_a_message(make, publisher):
    sub = make(publisher.endpoint)
    one = sub.subscribe("a.*")
    sub.wait_ready()
    extras = {"headers": {"n": 1, "s": "x"}, "reply_to": "r.1", "id": [b"series", 7]}
    publisher.publish("a.ü", payload=b"p", extras=extras)
    message = sub.receive(timeout=10)
    assert isinstance(message.subject, str)
    assert (message.subject, message.payload) == ("a.ü", b"p")
    assert message.subject_bytes == "a.ü".encode()
    assert message.frames == ["a.ü".encode(), b"p"]
    assert message.headers == {"n": 1, "s": "x"}
    assert (message.reply_to, message.id) == ("r.1", (b"series", 7))
    assert message.origin == publisher.origin
    assert (message.sequence, message.position, message.gap) == (0, 0, 0)
    assert message.redelivered is False
    assert message.time_ns > 0
    assert [that.patterns for that in message.subscriptions] == [one.patterns]
    message.ack()
    with pytest.raises(NoRequest, match=r"r\.1"):
        message.reply(b"")
    copy = pickle.loads(pickle.dumps(message))
    assert (copy.subject, copy.headers, copy.id, copy.subscriptions) == (
        "a.ü",
        {"n": 1, "s": "x"},
        (b"series", 7),
        (),
    )
    assert copy != message
    assert message == message
    assert "a.ü" in repr(message)


def test_a_codec_decodes_and_malformed_payloads_are_gaps(make, publisher):
    gaps = []
    sub = make(publisher.endpoint, codec="json", on_gap=gaps.append)
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a", payload=b'{"x": 1}')
    publisher.publish("a", payload=b"{")
    publisher.publish("a", payload=b"2")
    first, second = sub.receive(timeout=10), sub.receive(timeout=10)
    assert (first.payload, second.payload) == ({"x": 1}, 2)
    assert first.frames == [b"a", b'{"x": 1}']
    assert [(one.count, one.reason) for one in gaps] == [(1, "malformed")]
    assert sub.stats.malformed == 1


def test_dedupe_drops_known_ids(make, publisher):
    sub = make(publisher.endpoint, options=Options(dedupe=True))
    sub.subscribe("a")
    sub.wait_ready()
    for name in (b"one", b"two", b"one", b"three"):
        publisher.publish("a", payload=name, extras={"id": name})
    assert [sub.receive(timeout=10).payload for _ in range(3)] == [b"one", b"two", b"three"]
    assert sub.stats.repeated == 1


def test_dedupe_counts_ids_for_each_stream(make, publisher):
    sub = make(publisher.endpoint, options=Options(dedupe=True))
    plain, grouped = sub.subscribe("a"), sub.subscribe("a", group="g")
    sub.wait_ready()
    publisher.publish("a", payload=b"x", extras={"id": b"one"})
    assert plain.receive(timeout=10).payload == grouped.receive(timeout=10).payload == b"x"
    assert sub.stats.repeated == 0


def test_last_values_go_to_the_subscription_that_asked(make, publish):
    publisher = publish(last_values=LastValues(subjects=10, size=1_000))
    publisher.publish("a.1", payload=b"old")
    sub = make(publisher.endpoint)
    plain, wanted = sub.subscribe("a.*"), sub.subscribe("a.*", last_value=True)
    message = wanted.receive(timeout=10)
    assert (message.subject, message.payload) == ("a.1", b"old")
    assert plain.pending == 0


def test_a_refused_subscription_is_reported(make, publish):
    def authorize(user, item, pattern, group):
        return (
            Refusal(item.sid, "denied by a rule", "rule 7", "b.secret") if item.text.startswith("b") else None
        )

    publisher = publish(authorize=authorize)
    sub = make(publisher.endpoint)
    sub.subscribe("a.*")
    refused = sub.subscribe("b.*")
    with pytest.raises(oz.PermissionDenied, match="denied by a rule") as caught:
        sub.wait_ready()
    assert (caught.value.rule, caught.value.subject) == ("rule 7", "b.secret")
    assert [one.refusal for one in sub.publishers] == ["denied by a rule"]
    refused.unsubscribe()
    sub.wait_ready()


def test_a_refusal_without_a_rule_is_a_protocol_error(make, publish):
    publisher = publish(patterns=1)
    sub = make(publisher.endpoint)
    sub.subscribe(["a", "b"])
    with pytest.raises(ProtocolError, match="limit"):
        sub.wait_ready()


def test_drain_delivers_what_was_published_before(make, publisher):
    sub, seen = make(publisher.endpoint), []
    sub.subscribe("a.*", seen.append)
    sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish_numbers("a.1", range(100), batch=10)
    publisher.publish_numbers("b.1", range(100), batch=10)
    assert sub.drain(timeout=20)
    publisher.publish("a.9", "b.9")
    assert len(seen) == 100
    assert [int(sub.receive(timeout=10).payload) for _ in range(100)] == list(range(100))
    with pytest.raises(ClosedError):
        sub.receive(timeout=10)
    with pytest.raises(ClosedError):
        sub.subscribe("c")
    assert sub.run() == 0


def test_drain_of_one_subscription_keeps_the_others(make, publisher):
    sub = make(publisher.endpoint)
    first, second = sub.subscribe("a.*"), sub.subscribe("b.*")
    sub.wait_ready()
    publisher.publish("a.1", "b.1")
    assert first.drain(timeout=20)
    assert not first.active
    publisher.publish("a.2", "b.2")
    assert subjects(sub, 3) == ["a.1", "b.1", "b.2"]
    assert second.active


def test_close_ends_everything(make, publisher):
    sub = make(publisher.endpoint)
    one = sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a")
    sub.close()
    sub.close()
    for call in (
        sub.receive,
        sub.wait_ready,
        sub.drain,
        sub.fileno,
        one.unsubscribe,
        lambda: sub.subscribe("b"),
    ):
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert sub.closed
    assert (sub.subscriptions, one.active) == ((), False)
    assert sub.run() == 0
    publisher.wait_for(lambda sessions: not sessions.by_id)


def test_two_publishers_and_a_disconnect(make, publish):
    first, second = publish(), publish()
    sub = make([first.endpoint, second.endpoint])
    sub.subscribe("a.*")
    sub.wait_ready()
    first.publish("a.1")
    assert subjects(sub, 1) == ["a.1"]
    second.publish("a.2")
    message = sub.receive(timeout=10)
    assert (message.subject, message.origin, message.sequence) == ("a.2", second.origin, 0)
    assert [one.mode for one in sub.publishers] == ["link", "link"]
    sub.disconnect(first.endpoint)
    first.wait_for(lambda sessions: not sessions.by_id)
    with pytest.raises(EndpointError, match="not connected"):
        sub.disconnect(first.endpoint)
    second.publish("a.3")
    assert subjects(sub, 1) == ["a.3"]
    assert [one.endpoint for one in sub.publishers] == [second.endpoint]
    sub.connect(first.endpoint)
    sub.wait_ready()
    first.publish("a.4")
    assert subjects(sub, 1) == ["a.4"]


def test_a_second_way_to_the_same_publisher_says_bye(make, publisher):
    sub = make(publisher.endpoint)
    sub.subscribe("a.*")
    sub.wait_ready()
    sub.connect(publisher.endpoint.replace("127.0.0.1", "localhost"))
    sub.wait_ready()
    until(lambda: sub.run(timeout=0.05) == 0 and [one.mode for one in sub.publishers] == ["link", "link"])
    publisher.wait_for(lambda sessions: len(sessions.by_id) == 1)
    publisher.publish("a.1", "a.2")
    assert subjects(sub, 2) == ["a.1", "a.2"]
    with pytest.raises(Timeout):
        sub.receive(timeout=0.1)


@pytest.mark.parametrize("transport", ["ipc", "ipc abstract", "inproc", "ipv6"])
def test_transports(make, publish, tmp_path, transport):
    if transport == "ipv6" and not has_ipv6():
        pytest.skip("this host has no ::1")
    endpoint = {
        "ipc": f"ipc://{tmp_path}/p",
        "ipc abstract": f"ipc://@oz-test-{tmp_path.name}-{id(make)}",
        "inproc": f"inproc://test-{id(make)}",
        "ipv6": None,
    }[transport]
    if transport == "ipv6":
        endpoint = publish().endpoint.replace("127.0.0.1", "[::1]")
        port = int(endpoint.rpartition(":")[2])
        endpoint = f"tcp://[::1]:{port - 1}"
    publisher = publish(endpoint)
    sub = make(endpoint)
    sub.subscribe("a.*")
    sub.wait_ready()
    publisher.publish("a.1")
    assert subjects(sub, 1) == ["a.1"]


def test_links_names_the_link_endpoint(make, publisher):
    sub = make("tcp://127.0.0.1:9", links={"tcp://127.0.0.1:9": publisher.link_endpoint})
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a")
    assert subjects(sub, 1) == ["a"]


def test_a_timeout_names_what_is_missing(make, publisher):
    with pytest.raises(Timeout, match=r"no subscription: call subscribe\(pattern\)"):
        make(publisher.endpoint).receive(timeout=0)
    unconnected = make()
    unconnected.subscribe("a")
    with pytest.raises(Timeout, match=r"no endpoint: call connect\(endpoint\)"):
        unconnected.receive(timeout=0.01)
    alone = make("ipc://absent")
    alone.subscribe("a")
    with pytest.raises(Timeout, match="no publisher answers at ipc://absent"):
        alone.receive(timeout=0.01)


def test_wrong_arguments_name_the_remedy(make, publisher):
    sub = make(publisher.endpoint)
    with pytest.raises(TypeError, match="did you mean 'filtering'"):
        make(publisher.endpoint, filterin="auto")
    with pytest.raises(TypeError, match="did you mean 'group'"):
        sub.subscribe("a", groop="g")
    with pytest.raises(AttributeError, match="did you mean 'receive'"):
        sub.recieve()
    with pytest.raises(AttributeError, match="did you mean 'pending'"):
        sub.subscribe("a").pendin  # noqa: B018
    with pytest.raises(TypeError, match="'queue'; use group="):
        sub.subscribe("a", queue="g")
    with pytest.raises(TypeError, match=r"'policy'; use delivery=oz\.Delivery\(policy=…\)"):
        sub.subscribe("a", group="g", policy="sticky")
    with pytest.raises(AttributeError, match=r"'recv_multipart'; use oz\.Subscriber\.receive"):
        sub.recv_multipart()
    raw = getattr(sub, "wrapped", sub)
    with pytest.raises(AttributeError, match=r"'rcvtimeo'; use receive\(timeout=…\)"):
        raw.rcvtimeo = 1000
    for endpoint in ("tcp://*:5555", "tcp://127.0.0.1:*"):
        with pytest.raises(EndpointError, match=re.escape(f"{endpoint!r} is an endpoint for bind")):
            sub.connect(endpoint)
    with pytest.raises(PatternError):
        sub.subscribe("a..b")
    for wrong in (
        {"group": ""},
        {"overflow": "drop"},
        {"ack": "maybe"},
        {"max_messages": 0},
        {"delivery": Delivery(policy="sticky")},
        {"delivery": Delivery(redeliver=True)},
    ):
        with pytest.raises(ConfigurationError):
            sub.subscribe("a", **wrong)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        make(security="x")
    with pytest.raises(ConfigurationError, match="filtering"):
        make(filtering="maybe")
    with pytest.raises(TypeError, match="on_gap"):
        make(on_gap=3)
    with pytest.raises(TypeError):
        sub.receive(timeout="1")
    for call in (sub.receive, sub.run, sub.wait_ready, sub.drain):
        with pytest.raises(ValueError, match="timeout is 0 or more seconds"):
            call(timeout=-1)
    for kind, name, near in (
        (Options, "resume_second", "resume_seconds"),
        (Delivery, "max_pendig", "max_pending"),
        (Limits, "peer", "peers"),
    ):
        with pytest.raises(
            TypeError, match=f"oz.{kind.__name__} has no argument '{name}'; did you mean '{near}'"
        ):
            kind(**{name: 1})


def test_needs_of_links_are_refused_with_prefix(make):
    sub = make(filtering="prefix")
    for needs in ({"group": "g"}, {"overflow": "conflate"}, {"last_value": True}, {"ack": "handled"}):
        with pytest.raises(ConfigurationError, match="needs a link"):
            sub.subscribe("a", **needs)
    with pytest.raises(ConfigurationError, match="binds"):
        make(bind="tcp://127.0.0.1:*", filtering="publisher")


def test_wait_ready_names_endpoint_link_endpoint_and_remedy(make):
    sub = make("tcp://127.0.0.1:9", filtering="publisher")
    sub.subscribe("a")
    with pytest.raises(Timeout) as caught:
        sub.wait_ready(timeout=0.1)
    text = str(caught.value)
    assert "tcp://127.0.0.1:9 " in text
    assert "tcp://127.0.0.1:10009" in text
    assert "start the publisher" in text
