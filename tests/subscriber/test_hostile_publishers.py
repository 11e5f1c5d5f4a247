"""Publishers that attack their subscribers: numbers at their limits, floods of gaps and probes."""

import contextlib
import os

import pytest
import zmq

import oz
from oz.errors import Timeout
from oz.options import Delivery
from oz.subscriber.link import MAX_ATTEMPT, Link
from oz.subscriber.queue import GAPS
from oz.subscriber.subscriptions import Subscriptions
from oz.transport.routers import listening_router
from oz.wire import links
from oz.wire.links import Welcome
from subscriber.publishing import free_endpoint
from support.waiting import Thread, until

HIGHEST = 2**64 - 1
BODY = links.encode_body([b"a", b"x", None])


class Attacker:
    """A publisher of links that sends what a test says."""

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

    def read_hello(self, sub):
        """Return the HELLO that follows the probe of the connection."""

        def is_greeted():
            sub.run(timeout=0.01)
            while self.router.poll(0):
                self.route, frame = self.router.recv_multipart()
                if frame and frame[0] == links.HELLO:
                    self.hello = links.decode_control(frame)
            return self.hello is not None and self.hello.attempt == 2

        until(is_greeted)
        return self.hello

    def welcome(self, first=0, epoch=b"e" * 16):
        self.send(
            links.encode_welcome(
                Welcome(b"o" * 16, epoch, self.hello.attempt, first, 0, 256, 8 << 20, 1 << 20)
            )
        )

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


def attacked(make, attacker, publisher, **options):
    """Return a subscriber with a link to an attacker and one to an honest publisher."""
    sub = make([attacker.endpoint, publisher.endpoint], filtering="publisher", **options)
    sub.subscribe("a")
    publisher.wait_for_patterns()
    return sub


def receives(sub, publisher):
    """Check that a message of an honest publisher arrives."""
    publisher.publish("a", payload=b"honest")
    while sub.receive(timeout=30).payload != b"honest":
        pass


@pytest.mark.parametrize("first", [HIGHEST, HIGHEST - 1, 2**63, 2**63 - 1, 2**62, 2**62 - 1])
def test_sequences_at_their_limit_end_nothing(make, attacker, publisher, first):
    sub = attacked(make, attacker, publisher)
    attacker.greet(sub, first)
    attacker.send(links.join(links.encode_head(0, 1, first, 1, 0, 0), BODY))
    attacker.send(links.join(links.encode_head(0, 1, min(first + 1, HIGHEST), 1, 0, 0), BODY))
    receives(sub, publisher)
    with pytest.raises(Timeout):
        # ACK and HELLO have the sequence.
        sub.receive(timeout=0.1)


@pytest.mark.parametrize("position", [HIGHEST, 2**62])
def test_positions_at_their_limit_are_malformed(make, attacker, publisher, position):
    sub = attacked(make, attacker, publisher)
    attacker.greet(sub)
    attacker.send(links.join(links.encode_head(0, 1, 0, 1, 0, position), BODY))
    receives(sub, publisher)
    until(lambda: sub.run(timeout=0.01) is not None and sub.stats.malformed == 1)


def test_messages_of_invented_streams_are_unwanted(make, attacker, publisher):
    sub = attacked(make, attacker, publisher)
    attacker.greet(sub)
    for number in range(100):
        attacker.send(links.join(links.encode_head(0, 60_000 + number, number, 1, 0, number), BODY))
    receives(sub, publisher)
    until(lambda: sub.run(timeout=0.01) is not None and sub.stats.unwanted == 100)
    assert len(sub._engine.dispatcher._routes) <= 1


@pytest.mark.parametrize("overflow", [None, "drop_oldest", "drop_newest", "conflate"])
def test_gaps_that_no_receiver_reads_have_a_bound(make, attacker, publisher, overflow):
    sub = attacked(make, attacker, publisher)
    queued = sub.subscribe("b", overflow=overflow, delivery=Delivery(max_pending=5))
    # From now on it has a queue of its own, which is not read.
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
    (queue,) = sub._engine.dispatcher._own
    assert 0 < len(queue.items) < 2 * GAPS


def test_a_publisher_that_floods_does_not_stop_the_clock_of_others(make, attacker, publisher):
    sub = attacked(make, attacker, publisher)
    attacker.greet(sub)
    publisher.stall()
    is_over = []

    def flood():
        while not is_over:
            try:
                attacker.router.send_multipart([attacker.route, b"\xff"], zmq.NOBLOCK)
            except zmq.Again:
                attacker.router.poll(1, zmq.POLLOUT)

    thread = Thread(flood)
    try:
        # The silent link is replaced after 3.5 seconds.
        until(lambda: sub.run(timeout=0.05) is not None and sub.publishers[1].mode != "link")
    finally:
        is_over.append(True)
        publisher.resume()
    thread.outcome()


def test_probes_without_end_begin_a_new_session():
    link = Link(b"m" * 16, Subscriptions(), lambda: os.urandom(16))
    link.connect(0.0)
    before, link.attempt = link.session, MAX_ATTEMPT
    assert link.on_frame(b"", 0.0) == []
    hello = links.decode_control(link.next_frame())
    assert (hello.attempt, hello.epoch) == (1, links.UNKNOWN_EPOCH)
    assert hello.session != before


def test_a_declaration_that_is_asked_for_again_is_not_encoded_again():
    subscriptions = Subscriptions()
    subscriptions.add(oz.compile("a.*"))
    first, _ = subscriptions.declaration(0)
    assert subscriptions.declaration(0)[0] is first
    subscriptions.add(oz.compile("b.*"))
    second, _ = subscriptions.declaration(0)
    assert len(links.decode_control(second[0]).items) == 2


@pytest.mark.parametrize("first", [2**63 - 1, 2**62 - 1])
def test_a_single_link_at_the_limit_raises_only_timeouts(make, attacker, first):
    sub = make(attacker.endpoint, filtering="publisher")
    sub.subscribe("a")
    attacker.greet(sub, first)
    for sequence in range(first, first + 3):
        attacker.send(links.join(links.encode_head(0, 1, sequence, 1, 0, 0), BODY))
        with contextlib.suppress(Timeout):
            sub.receive(timeout=0.1)
    with pytest.raises(Timeout):
        sub.receive(timeout=0.1)
