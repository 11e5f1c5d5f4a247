"""Restarts of publishers, cut and slow connections."""

import asyncio
from contextlib import suppress

import pytest

import oz
import oz.testing
from contract.adapter import errors
from contract.conftest import endpoint_of
from contract.promises import cases, promise
from oz.wire.links import SLOW_AFTER
from support.ports import lasting_port
from support.sizes import size
from support.waiting import DEADLINE, until

COUNT = 300
PREFIX_LOSS = {"prefix": "A plain publisher does not count the messages that a subscriber loses."}


@pytest.fixture
def lasting(transport, directory):
    """Endpoint that a second publisher can bind after the first has closed."""
    return endpoint_of(transport, directory, "lasting", lasting_port())


class Tally:
    """Numbers that are published, that a subscriber received, and the losses that it reported."""

    def __init__(self, subscriber):
        self.subscriber = subscriber
        self.published = 0
        self.numbers = []
        self.lost = 0

    def publish(self, publisher, count=1, spaces=b""):
        end = self.published + count
        publisher.publish_many(("tick.a", b"%d" % number + spaces) for number in range(self.published, end))
        self.published = end

    def publish_until_received(self, publisher, *, wait=0.02, timeout=DEADLINE):
        """Publish numbers, one by one, until the subscriber receives one of them."""
        start = self.published

        def receives():
            self.publish(publisher)
            self.poll(wait)
            return self.numbers and self.numbers[-1] >= start

        until(receives, timeout)

    def poll(self, wait=0.02):
        """Receive the messages that arrive within some seconds."""
        with suppress(errors.Timeout):
            for message in self.subscriber.receive_many(timeout=wait):
                self.numbers.append(int(message.payload))
                self.lost += message.gap

    def assert_exact(self):
        """Check that received plus lost messages are the published ones, up to the last received message."""
        assert self.numbers == sorted(set(self.numbers))
        assert len(self.numbers) + self.lost == self.numbers[-1] + 1


@promise(
    "A publisher that is restarted at its endpoint gets all subscriptions again, also thousands of them.",
    not_for={"inproc": "libzmq does not connect inproc sockets again."},
)
def test_libzmq_4064_restarted_publisher_has_all_subscriptions(api, lasting, filtering):
    count = size(200, 5000)
    first = api.publisher(lasting)
    subscriber = api.subscriber(lasting, filtering=filtering)
    subscriber.subscribe([f"tick.{number}.>" for number in range(count)])
    subscriber.subscribe("ready")
    until(lambda: receives_nothing(subscriber) and first.has_subscribers("ready"))
    first.close()
    second = api.publisher(lasting)
    waiting = set(range(count))

    def are_served():
        receives_nothing(subscriber)
        waiting.difference_update(item for item in [*waiting] if second.has_subscribers(f"tick.{item}.a"))
        return not waiting

    until(are_served)
    assert second.publish_many((f"tick.{number}.a", b"%d" % number) for number in range(count)) == count
    tally = Tally(subscriber)
    until(lambda: tally.poll() or len(tally.numbers) >= count)
    assert tally.numbers == [*range(count)]


def receives_nothing(subscriber):
    """Run the connections of a subscriber; return whether it received no message."""
    with suppress(errors.Timeout):
        return not subscriber.receive_many(timeout=0.01)
    return True


@promise(
    "A publisher that closes and starts again at its endpoint causes no gap.",
    not_for={"inproc": "libzmq does not connect inproc sockets again.", **PREFIX_LOSS},
)
def test_restart_after_close_causes_no_gap(api, lasting, filtering):
    gaps = []
    publisher = api.publisher(lasting)
    subscriber = api.subscriber(lasting, filtering=filtering, on_gap=gaps.append)
    got = subscriber.subscribe("tick.>")
    for number in range(3):
        until(
            lambda publisher=publisher: receives_nothing(subscriber) and publisher.has_subscribers("tick.a")
        )
        publisher.publish("tick.a", b"%d" % number)
        assert got.receive().payload == b"%d" % number
        publisher.close()
        publisher = api.publisher(lasting)
    until(lambda: receives_nothing(subscriber) and publisher.has_subscribers("tick.a"))
    assert gaps == []


@promise("A subscriber that connects before its publisher binds gets the messages of the publisher.")
def test_libzmq_4463_subscriber_may_connect_first(api, lasting, filtering):
    subscriber = api.subscriber(lasting, filtering=filtering)
    got = subscriber.subscribe("tick.*.east")
    publisher = api.publisher(lasting)
    until(lambda: receives_nothing(subscriber) and publisher.has_subscribers("tick.a.east"))
    for number in range(COUNT):
        publisher.publish("tick.a.east", b"%d" % number)
    assert got.receive_all(COUNT) == [b"%d" % number for number in range(COUNT)]


@promise(
    "A connection that has ended at the subscriber only is replaced, and loses no message.",
    not_for=PREFIX_LOSS,
)
def test_half_open_connection_loses_nothing(proxied):
    proxied.subscribe("tick.>")
    tally = Tally(proxied.subscriber)
    tally.publish_until_received(proxied.publisher)
    proxied.proxy.half_open()
    tally.publish(proxied.publisher, COUNT)
    tally.publish_until_received(proxied.publisher)
    tally.assert_exact()
    assert tally.lost == 0


@promise(
    "A connection that has ended at the publisher only is replaced, and loses no message.",
    not_for=PREFIX_LOSS,
    small=1,
)
def test_connection_that_ended_at_the_publisher_is_replaced(proxied):
    proxied.subscribe("tick.>")
    tally = Tally(proxied.subscriber)
    tally.publish_until_received(proxied.publisher)
    proxied.proxy.half_open(end="far")
    tally.publish(proxied.publisher, COUNT)
    tally.publish_until_received(proxied.publisher, wait=0.2)
    tally.assert_exact()
    assert tally.lost == 0


@promise("A connection that stalls and continues loses no message that fits into the queues.")
@cases("directions", [("up", "down"), ("up",), ("down",)])
def test_stalled_connection_loses_nothing(proxied, directions):
    proxied.subscribe("tick.>")
    tally = Tally(proxied.subscriber)
    tally.publish_until_received(proxied.publisher)
    proxied.proxy.stall(*directions)
    tally.publish(proxied.publisher, COUNT)
    proxied.proxy.resume()
    until(lambda: tally.poll() or tally.numbers[-1] == tally.published - 1)
    assert tally.numbers == [*range(tally.published)]
    assert tally.lost == 0


@promise(
    "A connection that loses all bytes of one direction is replaced, and loses no message.",
    not_for=PREFIX_LOSS,
)
@cases("direction", ["up", "down"])
def test_connection_that_is_dead_in_one_direction_is_replaced(proxied, direction):
    proxied.subscribe("tick.>")
    tally = Tally(proxied.subscriber)
    tally.publish_until_received(proxied.publisher)
    proxied.proxy.discard(direction)
    proxied.subscriber.subscribe("late")
    # Then a publisher sends so few PINGs that the link is silent anyway.
    until(lambda: tally.poll() or proxied.publisher.has_subscribers("late"), SLOW_AFTER)
    tally.publish_until_received(proxied.publisher)
    tally.assert_exact()
    assert tally.lost == 0


@promise(
    "A connection that loses all acknowledgements is replaced, and loses no message.",
    not_for=PREFIX_LOSS,
    small=1,
)
def test_connection_without_acknowledgements_is_replaced(proxied):
    proxied.subscribe("tick.>")
    tally = Tally(proxied.subscriber)
    tally.publish_until_received(proxied.publisher)
    proxied.proxy.discard("up")
    # Twice the bytes that a publisher sends without an acknowledgement.
    tally.publish(proxied.publisher, 2_000, b" " * 8_192)
    until(lambda: tally.poll() or tally.numbers[-1] == tally.published - 1, SLOW_AFTER)
    tally.assert_exact()
    assert tally.lost == 0


@promise("A slow connection delivers each message once, in order.")
def test_slow_connection_loses_nothing(proxied):
    got = proxied.subscribe("tick.>")
    proxied.proxy.throttle(200_000)  # bytes a second
    payloads = [b"%d" % number * 100 for number in range(100)]
    proxied.publisher.publish_many(("tick.a", payload) for payload in payloads)
    assert got.receive_all(100) == payloads


@promise("A cut connection to one publisher does not affect another publisher.", not_for=PREFIX_LOSS)
def test_cut_connection_spares_other_publishers(proxied, api):
    healthy = api.publisher("tcp://127.0.0.1:*")
    proxied.subscriber.connect(healthy.endpoint)
    proxied.subscribe("tick.>")
    others = []
    healthy.publish_many(("tick.healthy", b"%d" % number) for number in range(COUNT))
    proxied.proxy.cut()
    healthy.publish_many(("tick.healthy", b"%d" % number) for number in range(COUNT, 2 * COUNT))

    def receive_until_reconnected():
        proxied.publisher.publish("tick.cut")
        with suppress(errors.Timeout):
            for message in proxied.subscriber.receive_many(timeout=0.02):
                others.append(message.payload if message.subject == "tick.healthy" else None)
        return None in others and len(others) - others.count(None) >= 2 * COUNT

    until(receive_until_reconnected)
    assert [other for other in others if other is not None] == [b"%d" % number for number in range(2 * COUNT)]


@promise("After `disconnect` no message of that publisher arrives; other publishers still deliver.")
def test_disconnect_ends_one_publisher_only(sockets):
    left, kept = sockets.publisher(), sockets.publisher()
    subscriber = sockets.subscriber(left, kept)
    made = subscriber.subscribe("tick.>")
    for publisher in (left, kept):
        until(
            lambda publisher=publisher: receives_nothing(subscriber) and publisher.has_subscribers("tick.a")
        )
    left_endpoint = left.endpoint
    subscriber.disconnect(left_endpoint)
    until(lambda: receives_nothing(subscriber) and not left.has_subscribers("tick.a"))
    left.publish("tick.a", b"left")
    kept.publish("tick.a", b"kept")
    assert made.receive().payload == b"kept"
    with pytest.raises(errors.Timeout):
        made.receive(timeout=0.05)


PUBLISHER = """
publisher = api.publisher(sys.argv[1])
publisher.wait_for_subscribers(subject="tick.a")
publisher.publish_many(("tick.a", b"%d" % number) for number in range(100))
publisher.flush()
say("sent")
sys.stdin.readline()
"""


@promise(
    "A subscriber receives from a new process at the address of a killed publisher within seconds.",
    not_for={"inproc": "inproc joins sockets of one process."},
    small=2,
)
def test_libzmq_4476_new_process_at_the_same_address(api, lasting, filtering, program):
    got, second = take_over_from_a_killed_publisher(api, lasting, program, filtering=filtering)
    second.publish("tick.a", b"second")
    assert got.receive().payload == b"second"


@promise(
    "A subscriber reports a gap at once when a new process has taken a publisher's address.",
    not_for={"inproc": "inproc joins sockets of one process.", **PREFIX_LOSS},
    small=1,
)
def test_new_process_at_the_same_address_is_reported_as_a_gap(api, lasting, filtering, program):
    gaps = []
    got, second = take_over_from_a_killed_publisher(
        api, lasting, program, filtering=filtering, on_gap=gaps.append
    )
    second.publish("tick.a", b"second")
    assert got.receive().payload == b"second"
    until(lambda: receives_nothing(got.subscriber) and gaps, timeout=10)
    assert [gap.count for gap in gaps] == [None]


def take_over_from_a_killed_publisher(api, endpoint, program, **options):
    """Return a subscription, and a publisher that took the endpoint of a killed process and serves it."""
    subscriber = api.subscriber(endpoint, **options)
    got = subscriber.subscribe("tick.>")
    got.subscriber = subscriber
    with program(PUBLISHER, endpoint) as process:
        assert got.receive_all(100) == [b"%d" % number for number in range(100)]
        process.kill()
        process.wait()
    second = api.publisher(endpoint)
    until(lambda: receives_nothing(subscriber) and second.has_subscribers("tick.a"), timeout=10)
    return got, second


@promise("After a reconnect a subscriber loses no message, however long its program makes no calls.")
def test_idle_program_is_not_forgotten_after_a_reconnect():
    bus = oz.testing.Bus()

    async def main():
        gaps = []
        publisher, subscriber = bus.publisher(), bus.subscriber(filtering="publisher", on_gap=gaps.append)
        subscriber.subscribe("a.*")
        await subscriber.wait_ready()
        bus.cut(publisher, subscriber)
        await publisher.publish("a.x", b"during the cut")
        await asyncio.sleep(5)  # of the virtual clock, as all seconds of the bus
        bus.heal()
        await asyncio.sleep(3 * oz.Options().resume_seconds)
        await publisher.publish("a.x", b"later")
        return [(await subscriber.receive(timeout=10)).payload for _ in range(2)], gaps

    with bus:
        assert bus.run(main()) == ([b"during the cut", b"later"], [])
