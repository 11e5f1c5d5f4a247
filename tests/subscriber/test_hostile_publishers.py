"""Publishers that attack their subscribers: numbers at their limits, floods of gaps and probes."""

import contextlib

import pytest
import zmq

from oz.errors import Timeout
from oz.options import Delivery
from oz.subscriber.queue import GAPS
from oz.transport.routers import listening_router
from oz.wire import links
from oz.wire.links import Welcome
from support.ports import free_endpoint
from support.sizes import in_suite
from support.waiting import DEADLINE, until

HIGHEST = 2**64 - 1
BODY = links.encode_body([b"a", b"x", None])


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    """Shell: one in the suite, because the engine reads the frames, and both shells use the same engine."""
    return request.param


class Attacker:
    """Publisher of links that sends only the frames of a test."""

    def __init__(self):
        self.endpoint = free_endpoint()
        self.router = listening_router(zmq.Context.instance(), message_bytes=64 << 20, window=256)
        self.port = int(self.endpoint.rpartition(":")[2]) + 10_000
        self.router.bind(f"tcp://127.0.0.1:{self.port}")
        self.route = self.hello = None

    def greet(self, sub, first=0):
        """Answer the HELLO that follows the probe of the connection."""
        self.read_hello(sub)
        self.welcome(first)
        until(
            lambda: sub.run(timeout=0.01) is not None and (first >= 2**62 or sub.publishers[0].mode == "link")
        )

    def read(self, sub):
        """Read the frames that have arrived, while the subscriber works."""
        sub.run(timeout=0.01)
        while self.router.poll(0):
            self.route, frame = self.router.recv_multipart()
            if frame and frame[0] == links.HELLO:
                self.hello = links.decode_control(frame)

    def read_hello(self, sub):
        """Return the HELLO that follows the probe of the connection."""

        def is_greeted():
            self.read(sub)
            return self.hello is not None and self.hello.attempt == 2

        until(is_greeted)
        return self.hello

    def welcome(self, first=0, epoch=b"e" * 16, card=b""):
        welcome = Welcome(b"o" * 16, epoch, self.hello.attempt, first, 0, 256, 8 << 20, 1 << 20)
        # The encoder refuses a card that is too large.
        self.send(links.encode_welcome(welcome) + card)

    def send(self, *frames):
        for frame in frames:
            self.router.send_multipart([self.route, frame])

    def close(self):
        self.router.close(0)


@pytest.fixture
def attacker():
    one = Attacker()
    yield one
    one.close()


def attacked(make, attacker, feed, **options):
    """Return a subscriber with a link to an attacker and one to an honest publisher."""
    sub = make([attacker.endpoint, feed.endpoint], filtering="publisher", **options)
    sub.subscribe("a")
    feed.wait_for_patterns()
    return sub


def receives(sub, feed):
    """Check that a message of an honest publisher arrives."""
    feed.publish("a", payload=b"honest")
    while sub.receive(timeout=DEADLINE).payload != b"honest":
        pass


def arrived(sub):
    """Return an iterator over the messages that arrive until a timeout."""
    with contextlib.suppress(Timeout):
        while True:
            yield sub.receive(timeout=0.1)


@pytest.mark.parametrize("first", [HIGHEST, HIGHEST - 1, 2**63, 2**63 - 1, 2**62, 2**62 - 1])
def test_sequences_at_their_limit_end_nothing(make, attacker, feed, first):
    sub = attacked(make, attacker, feed)
    attacker.greet(sub, first)
    attacker.send(links.join(links.encode_head(0, 1, first, 1, 0, 0), BODY))
    attacker.send(links.join(links.encode_head(0, 1, min(first + 1, HIGHEST), 1, 0, 0), BODY))
    receives(sub, feed)
    # ACK and HELLO have the sequence. A message with the largest valid sequence may arrive.
    assert all(message.subject == "a" for message in arrived(sub))


@pytest.mark.parametrize("position", [HIGHEST, 2**62])
def test_positions_at_their_limit_are_malformed(make, attacker, feed, position):
    sub = attacked(make, attacker, feed)
    attacker.greet(sub)
    attacker.send(links.join(links.encode_head(0, 1, 0, 1, 0, position), BODY))
    receives(sub, feed)
    until(lambda: sub.run(timeout=0.01) is not None and sub.stats.malformed == 1)


def test_messages_of_invented_streams_are_unwanted(make, attacker, feed):
    sub = attacked(make, attacker, feed)
    attacker.greet(sub)
    for number in range(100):
        attacker.send(links.join(links.encode_head(0, 60_000 + number, number, 1, 0, number), BODY))
    receives(sub, feed)
    until(lambda: sub.run(timeout=0.01) is not None and sub.stats.unwanted == 100)


@pytest.mark.parametrize("overflow", [None, "drop_oldest", "drop_newest", "conflate"])
def test_gaps_that_no_receiver_reads_have_a_bound(make, attacker, feed, overflow):
    sub = attacked(make, attacker, feed)
    queued = sub.subscribe("b", overflow=overflow, delivery=Delivery(max_pending=5))
    # Now the subscription has a queue of its own, and the program does not read it.
    with pytest.raises(Timeout):
        queued.receive(timeout=0)
    attacker.greet(sub)
    malformed = links.encode_body([b"a", "no bytes", None])
    sent = 0
    for _ in range(20):
        for _ in range(200):
            attacker.send(links.join(links.encode_head(0, 2, sent, 1, 0, 0), malformed))
            sent += 1
        sub.run(timeout=0.02)
    # A gap is no message, so only the queue itself shows how many it holds.
    (queue,) = sub._engine.dispatcher._own
    assert 0 < len(queue.items) < 2 * GAPS


def test_a_flood_of_welcomes_with_cards_ends_nothing(make, attacker, feed):
    sub = attacked(make, attacker, feed)
    attacker.read_hello(sub)
    for number in range(1_000):
        attacker.welcome(epoch=number.to_bytes(16), card=bytes([number % 256]) * links.MAX_CARD)
    receives(sub, feed)
    assert [publisher.mode for publisher in sub.publishers] == ["link", "link"]
