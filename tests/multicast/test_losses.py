"""Damaged frames, losses and silence over `epgm://` on the loopback interface."""

import time

import pytest
import zmq

from multicast import needs
from multicast.loopback import (
    SLOW,
    joined,
    payloads,
    publisher_at,
    raw_publisher,
    receive_nothing,
    subscriber_at,
)
from oz.errors import WouldBlock
from oz.options import Multicast
from support.inside import engine_of
from support.waiting import DEADLINE, until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


def skip(publisher, count):
    """Number messages that are not sent."""
    engine_of(publisher)._sender.skip(count, time.monotonic())


def mute(publisher, *, is_muted=True):
    """Stop the records of a publisher, as if the process stood still."""
    engine_of(publisher)._sender.is_announced = not is_muted
    engine_of(publisher).wake()


def test_frames_of_other_programs_are_counted_logged_and_dropped(endpoint, caplog):
    with (
        zmq.Context() as context,
        subscriber_at(endpoint) as subscriber,
        raw_publisher(context, endpoint) as raw,
    ):
        subscriber.subscribe(b"")

        def is_counted():
            for junk in (b"md.x", b"\0oz" + bytes(60), b"", bytes(5000)):
                raw.send(junk)
            raw.send_multipart([b"md.x", b"two frames"])
            assert receive_nothing(subscriber)
            return subscriber.stats.malformed >= 5

        until(is_counted)
        assert subscriber.stats.delivered == 0
        until(lambda: receive_nothing(subscriber) and "damaged frames were dropped" in caplog.text)


def test_a_message_that_never_came_is_reported(endpoint):
    gaps = []
    with subscriber_at(endpoint, on_gap=gaps.append) as subscriber, publisher_at(endpoint) as publisher:
        subscriber.subscribe("md.>")
        joined(subscriber)
        publisher.publish("md.x", b"before")
        publisher.flush()
        skip(publisher, 3)
        publisher.publish("md.x", b"behind")
        before, behind = (subscriber.receive(timeout=DEADLINE) for _ in range(2))
        assert (before.gap, behind.gap) == (0, 3)
        assert [(gap.origin, gap.count, gap.reason) for gap in gaps] == [(before.origin, 3, "lost")]
        # Without a later message, a record shows the loss.
        skip(publisher, 2)
        until(lambda: receive_nothing(subscriber) and len(gaps) == 2)
        assert subscriber.stats.lost == 5
        skip(publisher, None)
        until(lambda: receive_nothing(subscriber) and len(gaps) == 3)
        assert (gaps[2].count, gaps[2].reason) == (None, "restarted")
        publisher.close(timeout=0)


def test_a_stuck_publisher_is_connected_to_again(endpoint, caplog):
    multicast = Multicast(rate_kbps=100_000, recovery=10.0, stale_after=0.5)

    def reports(text):
        # Packets arrive, and no message of the publisher.
        other.send(b"of a plain publisher")
        return receive_nothing(subscriber) and text in caplog.text

    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as other,
        subscriber_at(endpoint, multicast) as subscriber,
        publisher_at(endpoint, multicast) as publisher,
    ):
        other.setsockopt(zmq.RATE, 100_000)
        other.setsockopt(zmq.LINGER, 0)
        other.connect(endpoint.replace("//lo;", "//127.0.0.1;"))
        subscriber.subscribe("md.>")
        joined(subscriber)
        mute(publisher)
        until(lambda: reports("waiting for it"))
        until(lambda: reports("connecting again"))
        mute(publisher, is_muted=False)
        until(lambda: reports("is heard again"))
        other.close()
        publisher.publish("md.x", b"after")
        assert payloads(subscriber, 1) == [b"after"]
        publisher.close(timeout=0.5)
        until(lambda: receive_nothing(subscriber) and "has closed" in caplog.text)


def test_a_publisher_that_ends_without_bye_leaves_a_gap_of_unknown_size(endpoint):
    gaps = []
    with subscriber_at(endpoint, on_gap=gaps.append) as subscriber:
        subscriber.subscribe("md.>")
        with publisher_at(endpoint) as publisher:
            joined(subscriber)
            publisher.publish("md.x", b"last that is heard")
            message = subscriber.receive(timeout=DEADLINE)
            mute(publisher)
            publisher.close(timeout=0)
        until(lambda: receive_nothing(subscriber) and gaps)
        assert [(gap.origin, gap.count, gap.reason) for gap in gaps] == [(message.origin, None, "silent")]


def test_a_dropped_message_is_reported_by_subscribers(endpoint):
    with (
        subscriber_at(endpoint, SLOW) as subscriber,
        publisher_at(endpoint, SLOW, high_water_mark=5) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber)
        for number in range(300):
            publisher.publish("md.x", number.to_bytes(2, "big") + bytes(1000))
        until(lambda: drained(subscriber) and subscriber.stats.received + subscriber.stats.lost == 300)
        assert subscriber.stats.lost == publisher.stats.dropped["full"] > 0
        publisher.close(timeout=0)


def drained(subscriber):
    subscriber.run(timeout=0.05)
    return True


def publish_one_by_one(publisher, count):
    for _ in range(count):
        publisher.publish("md.x", bytes(10_000))
        # Else a message may wait for a batch, and the publisher does not know yet whether there is room.
        publisher.flush()


def test_a_publisher_may_raise_or_wait_for_room(endpoint):
    with publisher_at(endpoint, SLOW, high_water_mark=1, on_full="raise") as publisher:
        with pytest.raises(WouldBlock):
            publish_one_by_one(publisher, 100)
        assert publisher.stats.refused == 1
        publisher.close(timeout=0)
    with (
        subscriber_at(endpoint, SLOW) as subscriber,
        publisher_at(endpoint, SLOW, high_water_mark=1, on_full="block") as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber)
        publish_one_by_one(publisher, 30)
        assert [len(payload) for payload in payloads(subscriber, 30)] == [10_000] * 30
        assert publisher.stats.dropped["full"] == 0
        publisher.close(timeout=0)
