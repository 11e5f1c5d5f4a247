"""Links over faults: cuts, half-open connections, restarts, drops, redelivery, hostile publishers."""

import random

import pytest

from oz.errors import Timeout
from oz.options import Delivery, Limits, Options
from oz.wire import links
from oz.wire.links import Bye, Ping, Welcome
from subscriber.publishing import LinkPublisher, free_endpoint
from support.fault_proxy import FaultProxy
from support.waiting import Thread, until


@pytest.fixture
def proxy(publisher):
    with FaultProxy(publisher.link_endpoint) as one:
        yield one


def through(make, publisher, proxy, *patterns, **options):
    """Return a subscriber whose link goes through a proxy."""
    sub = make(
        publisher.endpoint, links={publisher.endpoint: proxy.endpoint}, filtering="publisher", **options
    )
    for pattern in patterns:
        sub.subscribe(pattern)
    sub.wait_ready()
    return sub


def numbers(sub, count):
    return [int(sub.receive(timeout=30).payload) for _ in range(count)]


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_cut_loses_nothing(make, publisher, proxy, how):
    gaps = []
    sub = through(make, publisher, proxy, "a", on_gap=gaps.append)
    total = 4_000

    def work():
        for first in range(0, total, 50):
            publisher.publish_numbers("a", range(first, first + 50), batch=10)
            if first % 1_000 == 500:
                proxy.cut(how)

    thread = Thread(work)
    assert numbers(sub, total) == list(range(total))
    thread.outcome()
    assert gaps == []
    assert sub.stats.received == total


def test_random_faults_lose_nothing(make, publisher, proxy):
    sub = through(make, publisher, proxy, "a")
    total = 2_000

    def work():
        for first in range(0, total, 20):
            publisher.publish_numbers("a", range(first, first + 20), batch=10)

    shaking = Thread(lambda: proxy.shake(10, 0.1))
    thread = Thread(work)
    assert numbers(sub, total) == list(range(total))
    thread.outcome()
    shaking.outcome()


def test_a_half_open_connection_is_replaced(make, publisher, proxy):
    sub = through(make, publisher, proxy, "a")
    # The end of the subscriber stays open and receives nothing: only silence reveals it.
    proxy.half_open("far")
    publisher.publish_numbers("a", range(10))
    assert numbers(sub, 10) == list(range(10))


def test_a_stalled_connection_resumes(make, publisher, proxy):
    sub = through(make, publisher, proxy, "a")
    proxy.stall()
    publisher.publish_numbers("a", range(100), batch=10)
    with pytest.raises(Timeout):
        sub.receive(timeout=0.3)
    proxy.resume()
    assert numbers(sub, 100) == list(range(100))


@pytest.mark.parametrize("is_graceful", [True, False])
def test_a_restart_of_the_publisher_is_an_unknown_gap(make, publish, is_graceful):
    gaps, endpoint = [], free_endpoint()
    first = publish(endpoint)
    sub = make(endpoint, on_gap=gaps.append, filtering="publisher")
    sub.subscribe("a")
    sub.wait_ready()
    first.publish("a")
    assert sub.receive(timeout=10).sequence == 0
    # The publisher ends only after the ACK, so that the numbers of both sides agree.
    until(lambda: sub.run(timeout=0.02) is not None and first.is_acknowledged())
    (first.close if is_graceful else first.kill)()
    second = publish(endpoint)
    until(lambda: sub.run(timeout=0.02) is not None and sub.publishers[0].origin == second.origin)
    sub.wait_ready()
    second.publish("a")
    message = sub.receive(timeout=10)
    assert (message.origin, message.sequence, message.gap) == (second.origin, 0, 0)
    if is_graceful:
        # BYE names the next sequence: nothing is missing.
        assert gaps == []
    else:
        assert [(one.count, one.reason) for one in gaps] == [(None, "restarted")]


def test_drops_are_reported_in_their_place(make, publish):
    gaps = []
    publisher = publish(window=2, high_water_mark=5)
    sub = make(publisher.endpoint, on_gap=gaps.append)
    one = sub.subscribe("a", overflow="drop_oldest", delivery=Delivery(max_pending=3))
    sub.wait_ready()
    # Nothing is acknowledged meanwhile: 2 messages are sent, 3 wait, the others are dropped.
    publisher.publish_numbers("a", range(20))
    messages = [sub.receive(timeout=10) for _ in range(5)]
    assert [int(message.payload) for message in messages] == [0, 1, 17, 18, 19]
    assert [message.gap for message in messages] == [0, 0, 15, 0, 0]
    assert [message.sequence for message in messages] == [0, 1, 2, 3, 4]
    assert [(gap.count, gap.reason, gap.origin) for gap in gaps] == [(15, "dropped", publisher.origin)]
    assert one.dropped == 15
    assert (sub.stats.dropped, sub.stats.lost) == (0, 15)


def test_a_gap_is_reported_when_the_program_reaches_it(make, publish):
    gaps = []
    publisher = publish(window=2, high_water_mark=5)
    sub = make(publisher.endpoint, on_gap=gaps.append)
    sub.subscribe("a", overflow="drop_newest", delivery=Delivery(max_pending=3))
    sub.wait_ready()
    publisher.publish_numbers("a", range(20))
    seen = []
    for _ in range(5):
        seen.append((int(sub.receive(timeout=10).payload), len(gaps)))
    publisher.publish_numbers("a", [20])
    until(lambda: sub.run(timeout=0.02) is not None and publisher.is_acknowledged())
    seen.append((int(sub.receive(timeout=10).payload), len(gaps)))
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (20, 1)]


def test_a_message_larger_than_the_subscriber_accepts_is_dropped(make, publisher):
    gaps = []
    sub = make(
        publisher.endpoint,
        on_gap=gaps.append,
        filtering="publisher",
        options=Options(limits=Limits(message_bytes=2 << 20)),
    )
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a", payload=b"1")
    publisher.publish("a", payload=b"x" * (3 << 20))
    publisher.publish("a", payload=b"2")
    assert numbers(sub, 2) == [1, 2]
    assert [(one.count, one.reason) for one in gaps] == [(1, "dropped")]


def test_messages_of_a_lost_member_are_redelivered(make, publisher):
    first, second = make(publisher.endpoint), make(publisher.endpoint)
    options = {"group": "g", "ack": "handled", "delivery": Delivery(redeliver=True)}
    for one in (first, second):
        one.subscribe("job.*", **options)
        one.wait_ready()
    publisher.publish_numbers("job.x", range(6))
    # The second call handles the first message; the second message stays in hand.
    handled, in_hand = numbers(first, 2)
    until(lambda: first.run(timeout=0.03) is not None and highest_mark(publisher) == 1)
    first.close()
    got = {}
    while len(got) < 5:
        message = second.receive(timeout=10)
        got[int(message.payload)] = message.redelivered
    assert set(got) == set(range(6)) - {handled}
    assert got[in_hand] is True
    # Each member had three of them.
    assert sorted(got.values()) == [False, False, False, True, True]
    with pytest.raises(Timeout):
        second.receive(timeout=0)
    until(lambda: second.run(timeout=0.03) is not None and publisher.is_acknowledged())


def highest_mark(publisher):
    return publisher.do(
        lambda: max(
            stream.mark
            for session in publisher.sessions.by_id.values()
            for stream in session.streams.values()
        )
    )


def test_withdrawn_messages_are_unwanted(make, publisher, proxy):
    second = make(publisher.endpoint)
    first = through(make, publisher, proxy)
    options = {"group": "g", "ack": "handled", "delivery": Delivery(redeliver=True)}
    first.subscribe("job.*", **options)
    first.wait_ready()
    proxy.stall()
    publisher.publish_numbers("job.x", range(4))
    second.subscribe("job.*", **options)
    second.wait_ready()
    proxy.cut("rst")
    # Nothing of the first is heard: its messages move after 3 seconds.
    assert sorted(numbers(second, 4)) == [0, 1, 2, 3]
    second.run(timeout=0.05)
    proxy.resume()
    until(lambda: first.run(timeout=0.05) is not None and first.stats.unwanted == 4)
    with pytest.raises(Timeout):
        first.receive(timeout=0.1)


def test_a_subscriber_that_was_away_resumes(make, publisher):
    sub = make(publisher.endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish_numbers("a", range(3_000), batch=50)
    # Longer than PINGs and silence: the time outside oz does not count.
    publisher.do(lambda: publisher.sessions.tick(1e9))
    assert numbers(sub, 3_000) == list(range(3_000))
    assert sub.stats.lost == 0


def test_a_small_limit_still_accepts_every_batch(make, publisher):
    sub = make(publisher.endpoint, filtering="publisher", options=Options(limits=Limits(message_bytes=1_000)))
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish_numbers("a", range(2_000), batch=500)
    assert numbers(sub, 2_000) == list(range(2_000))


# hostile publishers


def route_of(publisher):
    return publisher.do(lambda: next(iter(publisher.sessions.by_id.values())).route)


def test_garbage_of_a_publisher_is_counted_and_ends_nothing(make, publisher):
    sub = make(publisher.endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    choose = random.Random(7)
    route = route_of(publisher)
    kinds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x93, 0xDC, 0xDD, 0xFF]
    for _ in range(300):
        # Half of the frames have the kind of a real frame.
        size = choose.choice((0, 1, 7, 31, 32, 33, 100))
        publisher.raw.append((route, bytes([choose.choice(kinds)]) + choose.randbytes(size)))
    publisher.do(publisher._pump)
    publisher.publish("a")
    assert received_eventually(sub, publisher).subject == "a"
    assert sub.stats.malformed > 0


def received_eventually(sub, publisher):
    # A forged head or PING may make the subscriber replace the connection.
    while True:
        try:
            return sub.receive(timeout=0.2)
        except Timeout:
            publisher.publish(*["a"] * 10)


def test_a_message_of_several_frames_is_malformed(make, publisher):
    sub = make(publisher.endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    route = route_of(publisher)
    publisher.do(lambda: publisher.router.send_multipart([route, b"\x0a", b"x", b"y"]))
    publisher.publish("a")
    assert sub.receive(timeout=10).subject == "a"
    assert sub.stats.malformed == 1


def forged(publisher):
    """Return frames of a publisher that lies."""
    never = b"epoch of nobody!"
    body = links.encode_body([b"a", b"forged", None])
    return {
        "sequence too high": links.join(links.encode_head(0, 1, 1_000, 1, 0, 0), body),
        "unknown stream": links.join(links.encode_head(0, 60_000, 0, 1, 0, 0), body),
        "PING ahead": links.encode_ping(Ping(10**9, 1, {})),
        "WELCOME of another attempt": links.encode_welcome(
            Welcome(never, never, 10**6, 5, 0, 8, 8_192, 1 << 20)
        ),
        "body without head": body,
        "count does not fit": links.join(links.encode_head(0, 1, 0, 9, 0, 0), body),
    }


@pytest.mark.parametrize("name", list(forged(None)))
def test_a_lying_publisher_ends_nothing(make, publisher, name):
    sub = make(publisher.endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    route = route_of(publisher)
    publisher.raw.append((route, forged(publisher)[name]))
    publisher.do(publisher._pump)
    message = received_eventually(sub, publisher)
    assert (message.subject, message.payload) == ("a", b"x")


def test_a_forged_bye_makes_a_new_session(make, publisher):
    gaps = []
    sub = make(publisher.endpoint, on_gap=gaps.append, filtering="publisher")
    sub.subscribe("a")
    sub.wait_ready()
    before = sub.publishers[0].origin
    bye = links.encode_bye(Bye(links.CLOSED, links.PUBLISHER, 5, {}))
    publisher.raw.append((route_of(publisher), bye))
    publisher.do(publisher._pump)
    while not gaps:
        with pytest.raises(Timeout):
            sub.receive(timeout=0.02)
    assert [(one.count, one.reason) for one in gaps] == [(5, "closed")]
    sub.wait_ready()
    publisher.publish("a")
    assert sub.receive(timeout=10).origin == before


def test_an_error_of_on_gap_ends_nothing(make, publish, caplog):
    publisher = publish(window=2, high_water_mark=5)

    def fail(gap):
        raise ValueError("not interested")

    sub = make(publisher.endpoint, on_gap=fail)
    sub.subscribe("a", overflow="drop_oldest", delivery=Delivery(max_pending=3))
    sub.wait_ready()
    publisher.publish_numbers("a", range(20))
    assert numbers(sub, 5) == [0, 1, 17, 18, 19]
    assert "not interested" in caplog.text


def test_a_publisher_over_inproc_that_comes_back(make):
    endpoint = f"inproc://back-{id(make)}"
    sub = make(endpoint, filtering="publisher")
    sub.subscribe("a")
    for _ in range(2):
        with LinkPublisher(endpoint) as publisher:
            sub.wait_ready(timeout=30)
            publisher.publish("a")
            assert sub.receive(timeout=10).origin == publisher.origin
        until(lambda: sub.run(timeout=0.02) is not None and sub.publishers[0].mode == "connecting")
