"""`oz.Poller` with subscribers, over links and over plain connections."""

import time

import pytest
import zmq

import oz
from support.waiting import DEADLINE, Thread, until


class Pair:
    """Publisher and subscriber with one kind of filtering."""

    def __init__(self, filtering):
        self.pub = oz.Publisher("tcp://127.0.0.1:*")
        self.sub = oz.Subscriber(self.pub.endpoint, filtering=filtering)

    def subscribe(self, pattern, handler=None):
        made = self.sub.subscribe(pattern, handler)
        self.sub.wait_ready(timeout=DEADLINE)
        self.pub.wait_for_subscribers("a.b.c", timeout=DEADLINE)
        return made

    def close(self):
        self.sub.close()
        self.pub.close(timeout=0)


@pytest.fixture(params=["publisher", "prefix"])
def pair(request):
    made = Pair(request.param)
    yield made
    made.close()


@pytest.fixture
def poller(pair):
    made = oz.Poller()
    made.register(pair.sub, zmq.POLLIN)
    return made


def test_a_refused_message_does_not_make_a_subscriber_readable(pair, poller):
    pair.subscribe("a.*.c")
    pair.pub.publish_many([("a.b.d", b""), ("a.b.c", b"1")])
    assert poller.poll(DEADLINE * 1000) == [(pair.sub, zmq.POLLIN)]
    assert pair.sub.receive(timeout=0).payload == b"1"
    pair.pub.publish("a.b.d")
    began = time.monotonic()
    assert poller.poll(300) == []
    assert 0.29 < time.monotonic() - began < DEADLINE


def test_a_message_stays_reported_until_it_is_received(pair, poller):
    pair.subscribe("a.>")
    pair.pub.publish_many([("a.b.c", b"1"), ("a.b.c", b"2")])
    for payload in (b"1", b"2"):
        for _ in range(2):
            assert poller.poll(DEADLINE * 1000) == [(pair.sub, zmq.POLLIN)]
        assert pair.sub.receive(timeout=0).payload == payload
    assert poller.poll(0) == []


def test_each_message_is_reported(pair, poller):
    pair.subscribe("a.>")
    # Below the high-water mark, at which ZeroMQ drops messages for plain subscribers.
    total = 5_000
    pair.pub.publish_many(("a.b.c", b"%d" % number) for number in range(total))
    got = []
    while len(got) < total:
        assert poller.poll(DEADLINE * 1000) == [(pair.sub, zmq.POLLIN)]
        got.append(int(pair.sub.receive(timeout=0).payload))
    assert got == list(range(total))


def test_handlers_run_while_it_polls(pair, poller):
    seen = []
    pair.subscribe("a.>", seen.append)
    pair.pub.publish("a.b.c", b"1")
    until(lambda: not poller.poll(5) and seen)
    assert [message.payload for message in seen] == [b"1"]


@pytest.mark.parametrize("timeout", [None, -1])
def test_without_a_timeout_it_waits(pair, poller, timeout):
    pair.subscribe("a.>")
    polled = Thread(lambda: poller.poll(timeout))
    polled.wait_until_stuck()
    pair.pub.publish("a.b.c")
    assert polled.outcome() == [(pair.sub, zmq.POLLIN)]


def test_a_thread_receives_while_another_one_polls(pair, poller):
    pair.subscribe("a.b.c")
    own = pair.sub.subscribe("a.own")
    received = Thread(lambda: own.receive(timeout=DEADLINE).payload)
    received.wait_until_stuck()
    polled = Thread(lambda: poller.poll(DEADLINE * 1000))
    pair.sub.wait_ready(timeout=DEADLINE)
    pair.pub.wait_for_subscribers("a.own", timeout=DEADLINE)
    pair.pub.publish("a.own", b"1")
    assert received.outcome() == b"1"
    pair.pub.publish("a.b.c", b"2")
    assert polled.outcome() == [(pair.sub, zmq.POLLIN)]
    assert pair.sub.receive(timeout=0).payload == b"2"


def test_closing_a_subscriber_ends_a_poll(pair, poller):
    polled = Thread(lambda: poller.poll(None))
    polled.wait_until_stuck()
    pair.sub.close()
    with pytest.raises(oz.ClosedError):
        polled.outcome()


def test_a_drained_subscriber_is_readable(pair, poller):
    pair.subscribe("a.>")
    began = time.monotonic()
    assert pair.sub.drain(timeout=DEADLINE)
    assert time.monotonic() - began < DEADLINE / 2
    assert poller.poll(0) == [(pair.sub, zmq.POLLIN)]
    with pytest.raises(oz.ClosedError):
        pair.sub.receive(timeout=0)


def test_messages_are_acknowledged_while_a_poll_waits():
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a")
        sub.subscribe("b", handler=lambda message: None)
        sub.wait_ready(timeout=DEADLINE)
        poller = oz.Poller()
        poller.register(sub, zmq.POLLIN)
        polled = Thread(lambda: poller.poll(None))
        for _ in range(10):
            pub.publish("b")
        pub.flush()
        until(
            lambda: (
                sub.stats.delivered == 10 and [subscriber.pending for subscriber in pub.subscribers] == [0]
            )
        )
        assert polled.is_alive()
        pub.publish("a")
        assert polled.outcome() == [(sub, zmq.POLLIN)]
