"""Publishers and subscribers over `epgm://` on the loopback interface, where no privilege is needed."""

import time

import pytest
import zmq

import oz.publisher.aio
import oz.subscriber.aio
from multicast import needs
from multicast.loopback import (
    FAST,
    joined,
    payloads,
    publisher_at,
    raw_publisher,
    subscriber_at,
)
from oz.errors import Timeout
from oz.options import Multicast
from support.waiting import DEADLINE, until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


def test_messages_of_all_kinds_arrive_in_order(pair):
    publisher, subscriber = pair
    large = bytes(range(256)) * 4096
    publisher.publish("md.one", b"1")
    publisher.publish("other", b"not wanted")
    publisher.publish("md.two", b"2", headers={"trace": "7f3a"}, id=b"id")
    publisher.publish("md.three")
    publisher.publish("md.four", large)
    publisher.publish_many((f"md.{number}", b"%d" % number) for number in range(1000))
    got = [subscriber.receive(timeout=DEADLINE) for _ in range(4)]
    assert [message.subject for message in got] == ["md.one", "md.two", "md.three", "md.four"]
    assert (got[1].headers, got[1].id) == ({"trace": "7f3a"}, b"id")
    assert got[2].frames == [b"md.three", b""]
    assert got[3].payload == large
    assert [message.sequence for message in got] == [0, 2, 3, 4]
    assert [message.position for message in got] == [0, 2, 3, 4]
    assert len({message.origin for message in got}) == 1
    assert payloads(subscriber, 1000) == [b"%d" % number for number in range(1000)]
    stats = subscriber.stats
    assert (stats.received, stats.delivered, stats.filtered, stats.lost) == (1005, 1004, 1, 0)
    assert (publisher.stats.published, publisher.stats.sent) == (1005, 1005)


def test_a_message_that_takes_longer_than_stale_after_is_delivered(endpoint):
    # 2.4 seconds, in which nothing else can be heard. A machine may be busy for longer than the watchdog waits.
    slow = Multicast(rate_kbps=1_000, recovery=10.0, stale_after=1.0)
    assert any(delivers(endpoint, slow, bytes(250_000)) for _ in range(3))


def delivers(endpoint, multicast, payload):
    with subscriber_at(endpoint, multicast) as subscriber, publisher_at(endpoint, multicast) as publisher:
        subscriber.subscribe("md.>")
        joined(subscriber)
        publisher.publish("md.large", payload)
        publisher.publish("md.behind", b"")
        first = subscriber.receive(timeout=DEADLINE)
        publisher.close(timeout=0)
        return (first.payload, first.gap) == (payload, 0)


def test_a_subscriber_shows_the_publishers_of_an_endpoint(endpoint):
    with subscriber_at(endpoint) as subscriber:
        subscriber.subscribe("md.>")
        with pytest.raises(Timeout, match="no publisher is heard at epgm://"):
            subscriber.wait_ready(timeout=0)
        (info,) = subscriber.publishers
        assert (info.endpoint, info.mode, info.origin) == (endpoint, "connecting", None)
        with publisher_at(endpoint) as publisher:
            joined(subscriber)
            publisher.publish("md.x")
            message = subscriber.receive(timeout=DEADLINE)
            (info,) = subscriber.publishers
            assert (info.mode, info.origin) == ("multicast", message.origin)
            assert info.last_heard < DEADLINE
            publisher.close(timeout=0)


def test_multicast_and_tcp_in_one_subscriber(endpoint):
    with (
        oz.publisher.sync.Publisher("tcp://127.0.0.1:*") as local,
        subscriber_at(endpoint) as subscriber,
        publisher_at(endpoint) as publisher,
    ):
        subscriber.connect(local.endpoint)
        subscriber.subscribe("md.>")
        joined(subscriber)
        local.publish("md.tcp")
        publisher.publish("md.pgm")
        got = {subscriber.receive(timeout=DEADLINE).subject for _ in range(2)}
        assert got == {"md.tcp", "md.pgm"}
        publisher.close(timeout=0)


# plain ZeroMQ


PLAIN = Multicast(rate_kbps=FAST.rate_kbps, recovery=10.0, plain=True)


def test_plain_subscribers_are_served_on_request(endpoint):
    with (
        zmq.Context() as context,
        context.socket(zmq.SUB) as raw,
        subscriber_at(endpoint, PLAIN) as subscriber,
        publisher_at(endpoint, PLAIN) as publisher,
    ):
        raw.rate, raw.recovery_ivl, raw.linger = FAST.rate_kbps, 1000, 0
        raw.connect(publisher.endpoint)
        raw.subscribe(b"md.")
        subscriber.subscribe("md.*")
        got = []

        def arrives():
            publisher.publish("md.x", b"plain")
            if not got:
                try:
                    got.append(subscriber.receive(timeout=0.02))
                except Timeout:
                    return False
            return raw.poll(20)

        until(arrives)
        assert raw.recv_multipart() == [b"md.x", b"plain"]
        assert (got[0].subject, got[0].payload, got[0].origin) == ("md.x", b"plain", None)
        publisher.close(timeout=0)


def test_plain_publishers_are_received_on_request(endpoint):
    with (
        zmq.Context() as context,
        subscriber_at(endpoint, PLAIN, delimiter=b" ") as subscriber,
        raw_publisher(context, endpoint) as raw,
    ):
        subscriber.subscribe("md.*")
        got = []

        def arrives():
            raw.send(b"md.x 12:00")
            try:
                got.append(subscriber.receive(timeout=0.02))
            except Timeout:
                return False
            return True

        until(arrives)
        assert (got[0].subject, got[0].payload) == ("md.x", b"12:00")


# the end


def test_close_takes_the_time_that_repairs_need_or_the_time_given(endpoint, monkeypatch):
    started = time.monotonic()
    publisher_at(endpoint).close(timeout=1.0)
    assert 1.0 <= time.monotonic() - started < DEADLINE
    monkeypatch.setattr("oz.multicast.sender.FAREWELL", 2 * DEADLINE)
    started = time.monotonic()
    publisher_at(endpoint).close(timeout=0)
    assert time.monotonic() - started < DEADLINE


def test_close_returns_when_repairs_are_over(endpoint, monkeypatch):
    monkeypatch.setattr("oz.multicast.sender.FAREWELL", 0.1)
    with subscriber_at(endpoint) as subscriber, publisher_at(endpoint) as publisher:
        subscriber.subscribe("md.>")
        joined(subscriber)
        publisher.publish("md.x", b"last")
        started = time.monotonic()
        assert publisher.close(timeout=2 * DEADLINE) == 0
        assert 0.1 <= time.monotonic() - started < DEADLINE
        assert payloads(subscriber, 1) == [b"last"]
