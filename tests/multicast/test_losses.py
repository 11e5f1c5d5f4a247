"""What is damaged, lost or silent over `epgm://` on the loopback interface."""

import pytest
import zmq

import oz
import oz.asyncio
from multicast import needs
from multicast.loopback import FAST, SLOW, joined, payloads, raw_publisher, receive_nothing
from support.inside import engine_of, ticker_of
from support.waiting import DEADLINE, until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


def test_what_is_no_frame_of_oz_is_counted_said_and_dropped(endpoint):
    advisories = []
    with (
        zmq.Context() as context,
        oz.Subscriber(endpoint, multicast=FAST, on_advisory=advisories.append) as subscriber,
        raw_publisher(context, endpoint) as raw,
    ):
        subscriber.subscribe("")

        def is_counted():
            for junk in (b"md.x", b"\0oz" + bytes(60), b"", bytes(5000)):
                raw.send(junk)
            with pytest.raises(oz.Timeout):
                subscriber.receive(timeout=0.02)
            return subscriber.stats.malformed >= 4

        until(is_counted)
        assert subscriber.stats.delivered == 0
        until(lambda: receive_nothing(subscriber) and advisories)
        assert advisories[0].kind == "corrupt"


def test_a_number_that_never_came_is_reported(endpoint):
    gaps = []
    with (
        oz.Subscriber(endpoint, multicast=FAST, on_gap=gaps.append) as subscriber,
        oz.Publisher(endpoint, multicast=FAST) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        publisher.publish("md.x", b"before")
        engine_of(publisher).dispatch.skip(3)
        publisher.publish("md.x", b"behind")
        before, behind = (subscriber.receive(timeout=DEADLINE) for _ in range(2))
        assert (before.gap, behind.gap) == (0, 3)
        assert [(gap.origin, gap.sequence, gap.count) for gap in gaps] == [(before.origin, 1, 3)]
        engine_of(publisher).dispatch.skip(2)
        until(lambda: receive_nothing(subscriber) and len(gaps) == 2)
        assert subscriber.stats.lost == 5
        publisher.close(0)


def test_a_publisher_whose_packets_arrive_without_messages_is_connected_to_anew(endpoint):
    advisories = []
    options = oz.Multicast(rate_kbps=100_000, recovery=10.0, stale_after=0.5)

    def hear(advisory):
        # That what others send is no frame of oz is told at any time.
        if advisory.kind != "corrupt":
            advisories.append(advisory)

    def says(kind):
        # Packets arrive, of which nothing is heard.
        other.send(b"of a plain publisher")
        return receive_nothing(subscriber) and advisories and advisories[-1].kind == kind

    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as other,
        oz.Subscriber(endpoint, multicast=options, on_advisory=hear) as subscriber,
        oz.Publisher(endpoint, multicast=options) as publisher,
    ):
        other.setsockopt(zmq.RATE, 100_000)
        other.setsockopt(zmq.LINGER, 0)
        other.connect(subscriber.endpoint)
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        advisories.clear()
        engine_of(publisher).dispatch.to, to = "", engine_of(publisher).dispatch.to
        until(lambda: says("stuck") and subscriber.stats.reconnects)
        assert [one.kind for one in advisories] == ["silent", "stuck"]
        assert advisories[-1].endpoint == subscriber.endpoint
        engine_of(publisher).dispatch.to = to
        # It has slept since it had nothing to say.
        ticker_of(publisher).wake()
        until(lambda: says("heard"))
        other.close()
        publisher.publish("md.x", b"after")
        assert payloads(subscriber, 1) == [b"after"]
        publisher.close(timeout=0.5)
        until(lambda: receive_nothing(subscriber) and advisories[-1].kind == "left")


def test_a_publisher_that_ends_without_a_goodbye_leaves_a_gap_that_nobody_counted(endpoint):
    gaps = []
    with oz.Subscriber(endpoint, multicast=FAST, on_gap=gaps.append) as subscriber:
        subscriber.subscribe("md.>")
        with oz.Publisher(endpoint, multicast=FAST) as publisher:
            joined(subscriber, 1)
            publisher.publish("md.x", b"last that is heard")
            message = subscriber.receive(timeout=DEADLINE)
            # It says no goodbye, as one that is killed.
            engine_of(publisher).dispatch.to = ""
            publisher.close(timeout=0)
        until(lambda: receive_nothing(subscriber) and gaps)
        assert [(gap.origin, gap.count, gap.sequence) for gap in gaps] == [(message.origin, None, None)]
        assert subscriber.stats.reconnects == 0


def test_without_a_callback_advisories_are_logged(endpoint, caplog):
    with (
        oz.Subscriber(endpoint, multicast=FAST) as subscriber,
        oz.Publisher(endpoint, multicast=oz.Multicast(rate_kbps=50_000)) as publisher,
    ):
        subscriber.subscribe("md.>")
        until(lambda: receive_nothing(subscriber) and "rate_kbps=50000" in caplog.text)
        publisher.close(0)


def test_what_finds_no_room_is_reported_by_those_who_listen(endpoint):
    with (
        oz.Subscriber(endpoint, multicast=SLOW) as subscriber,
        oz.Publisher(endpoint, multicast=SLOW, high_water_mark=5) as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        for number in range(300):
            publisher.publish("md.x", number.to_bytes(2, "big") + bytes(1000))
        until(lambda: drained(subscriber) and subscriber.stats.received + subscriber.stats.lost == 300)
        assert subscriber.stats.lost == publisher.stats.missed > 0
        publisher.close(0)


def drained(subscriber):
    subscriber.run(timeout=0.05)
    return True


def publish_one_by_one(publisher, count):
    for _ in range(count):
        publisher.publish("md.x", bytes(10_000))
        # Without it what follows quickly waits for others, and nobody asks yet whether there is room.
        publisher.flush()


def test_a_publisher_may_wait_for_room_or_raise(endpoint):
    with oz.Publisher(endpoint, multicast=SLOW, high_water_mark=1, on_full="error") as publisher:
        with pytest.raises(oz.WouldBlock):
            publish_one_by_one(publisher, 100)
        publisher.close(0)
    with (
        oz.Subscriber(endpoint, multicast=SLOW) as subscriber,
        oz.Publisher(endpoint, multicast=SLOW, high_water_mark=1, on_full="block") as publisher,
    ):
        subscriber.subscribe("md.>")
        joined(subscriber, 1)
        publish_one_by_one(publisher, 30)
        assert [len(payload) for payload in payloads(subscriber, 30)] == [10_000] * 30
        assert publisher.stats.missed == 0
        publisher.close(0)
