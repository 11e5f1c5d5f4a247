"""Own queues of subscriptions, handlers, limits, and the errors of wrong arguments."""

import re
import threading

import pytest
import zmq

import oz
from oz.errors import (
    ConfigurationError,
    PatternError,
    ProtocolError,
    Timeout,
)
from oz.options import Delivery, Limits, Options
from oz.transport.errors import EndpointError
from support.waiting import DEADLINE, until


def subjects(sub, count):
    return [sub.receive(timeout=DEADLINE).subject for _ in range(count)]


def test_a_subscription_with_its_own_receive_owns_its_messages(make, feed):
    sub = make(feed.endpoint)
    first, second = sub.subscribe("a.*"), sub.subscribe("b.*")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a.1", "b.1", "a.2", "b.2")
    assert second.receive(timeout=DEADLINE).subject == "b.1"
    assert subjects(sub, 2) == ["a.1", "a.2"]
    assert second.receive(timeout=DEADLINE).subject == "b.2"
    assert (first.pending, second.pending) == (0, 0)


def test_handlers_run_in_the_thread_that_waits(make, feed):
    sub, seen = make(feed.endpoint), []
    sub.subscribe("a.*", lambda message: seen.append((message.subject, threading.current_thread())))
    sub.subscribe("b.*")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a.1", "a.2", "b.1")
    assert sub.receive(timeout=DEADLINE).subject == "b.1"
    until(lambda: sub.run(timeout=0.01) == 0 and len(seen) == 2)
    assert seen == [("a.1", threading.current_thread()), ("a.2", threading.current_thread())]


def test_handlers_of_earlier_messages_run_before_receive_returns():
    seen = []
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as sub:
        sub.subscribe("a.*", seen.append)
        sub.subscribe("b")
        sub.wait_ready(timeout=DEADLINE)
        for count in range(1, 21):
            publisher.publish_many([("a.1", b""), ("b", b"")])
            assert sub.receive(timeout=DEADLINE).subject == "b"
            assert len(seen) == count


def test_run_returns_after_silence_and_counts(make, feed):
    sub, seen = make(feed.endpoint), []
    sub.subscribe("a.*", seen.append)
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a.1", "a.2", "a.3")
    count = 0
    while count < 3:
        count += sub.run(timeout=0.2)
    assert (count, len(seen)) == (3, 3)


def test_an_inline_handler_runs_where_frames_are_read(make, feed):
    sub, seen = make(feed.endpoint), []
    sub.subscribe("a.*", seen.append, delivery=Delivery(inline=True))
    sub.subscribe("b")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a.1", "a.2", "b")
    assert sub.receive(timeout=DEADLINE).subject == "b"
    assert [message.subject for message in seen] == ["a.1", "a.2"]


def test_dedupe_counts_ids_for_each_stream(make, feed):
    sub = make(feed.endpoint, options=Options(dedupe=True))
    plain, grouped = sub.subscribe("a"), sub.subscribe("a", group="g")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a", payload=b"x", id=b"one")
    assert plain.receive(timeout=DEADLINE).payload == grouped.receive(timeout=DEADLINE).payload == b"x"
    assert sub.stats.repeated == 0


def test_a_refusal_without_a_rule_is_a_protocol_error(make, open_feed):
    feed = open_feed(options=Options(limits=Limits(patterns=1)))
    sub = make(feed.endpoint)
    sub.subscribe(["a", "b"])
    with pytest.raises(ProtocolError, match="limit"):
        sub.wait_ready()


def test_each_publisher_that_refuses_a_subscription_is_reported(make, open_feed):
    sub = make()
    sub.subscribe(["a", "b"])
    for _ in range(2):
        feed = open_feed(options=Options(limits=Limits(patterns=1)))
        sub.connect(feed.endpoint)
        with pytest.raises(ProtocolError, match=feed.endpoint):
            sub.wait_ready(timeout=DEADLINE)
        sub.wait_ready(timeout=DEADLINE)


def test_a_second_connection_to_the_same_publisher_sends_bye(make, feed):
    sub = make(feed.endpoint)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    sub.connect(feed.endpoint.replace("127.0.0.1", "localhost"))
    sub.wait_ready(timeout=DEADLINE)
    until(
        lambda: (
            sub.run(timeout=0.05) == 0
            and [publisher.mode for publisher in sub.publishers] == ["link", "link"]
        )
    )
    until(lambda: len(feed.publisher.subscribers) == 1)
    feed.publish("a.1", "a.2")
    assert subjects(sub, 2) == ["a.1", "a.2"]
    with pytest.raises(Timeout):
        sub.receive(timeout=0.1)


def test_a_timeout_names_its_reason(make, feed):
    with pytest.raises(Timeout, match=r"no subscription: call subscribe\(pattern\)"):
        make(feed.endpoint).receive(timeout=0)
    unconnected = make()
    unconnected.subscribe("a")
    with pytest.raises(Timeout, match=r"no endpoint: call connect\(endpoint\)"):
        unconnected.receive(timeout=0.01)
    alone = make("ipc://absent")
    alone.subscribe("a")
    with pytest.raises(Timeout, match="no publisher answers at ipc://absent"):
        alone.receive(timeout=0.01)


def test_a_timeout_at_a_connected_publisher_names_the_pattern_and_messages_that_did_not_match(make, feed):
    linked = make(feed.endpoint)
    linked.subscribe("time.*.east")
    linked.wait_ready(timeout=DEADLINE)
    silence = f"connected to {feed.endpoint}, and no message that matches 'time.*.east' arrived"
    with pytest.raises(Timeout, match=f"{re.escape(silence)}$"):
        linked.receive(timeout=0.01)
    plain = make(feed.endpoint, filtering="prefix")
    plain.subscribe("time.*.east")
    feed.publisher.wait_for_subscribers("time.us.east", count=2, timeout=DEADLINE)
    with pytest.raises(Timeout, match=r"wait_for_subscribers\(\) before publish\(\)$"):
        plain.receive(timeout=0.01)
    feed.publish("time.us.west")

    def reason():
        with pytest.raises(Timeout) as raised:
            plain.receive(timeout=0.01)
        return str(raised.value)

    until(
        lambda: "; 1 message, such as 'time.us.west', passed the prefix, but no pattern matched" in reason()
    )
    feed.publish("time.us." + 200 * "w")
    until(lambda: "; 2 messages, such as 'time.us.w" in reason())
    assert "… (208 long), passed the prefix" in reason()


def test_wrong_arguments_name_the_remedy(make, feed):
    sub = make(feed.endpoint)
    with pytest.raises(TypeError, match="did you mean 'filtering'"):
        make(feed.endpoint, filterin="auto")
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
    raw = sub.raw
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


def test_an_error_of_on_gap_ends_nothing(make, feed, caplog):
    def fail(gap):
        raise ValueError("not interested")

    sub = make(feed.endpoint, codec="json", on_gap=fail)
    sub.subscribe("a")
    sub.wait_ready(timeout=DEADLINE)
    feed.publish("a", payload=b"{")
    feed.publish("a", payload=b"2")
    assert sub.receive(timeout=DEADLINE).payload == 2
    assert "not interested" in caplog.text


def test_a_publisher_over_inproc_that_comes_back(make, open_feed):
    with zmq.Context() as context:
        sub = make("inproc://back", filtering="publisher", context=context)
        sub.subscribe("a")
        for _ in range(2):
            feed = open_feed("inproc://back", context=context)
            sub.wait_ready(timeout=DEADLINE)
            feed.publish("a")
            assert sub.receive(timeout=DEADLINE).subject == "a"
            feed.close()
            until(lambda: sub.run(timeout=0.02) is not None and sub.publishers[0].mode == "connecting")
        sub.close()


def test_a_gap_is_reported_between_the_messages_of_a_handler(make, feed):
    seen = []
    sub = make(feed.endpoint, codec="json", on_gap=lambda gap: seen.append(gap.reason))
    sub.subscribe("a", lambda message: seen.append(message.payload))
    sub.wait_ready(timeout=DEADLINE)
    for payload in (b"1", b"{", b"2"):
        feed.publish("a", payload=payload)
    until(lambda: sub.run(timeout=0.02) is not None and len(seen) == 3)
    assert seen == [1, "malformed", 2]
