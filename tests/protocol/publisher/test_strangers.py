"""What somebody who knows the name of a stream may do with it, and what becomes of its subscriber."""

from __future__ import annotations

from math import inf

import pytest

import oz
from oz.protocol.declared import declare
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import AcceptedChunk
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.wire.keys import Declaration, Declared, DeliveryOptions, stream_key
from support.calls import count_calls
from support.cases import each

NAME = b"n" * 16
KEY = stream_key(NAME)
HONEST, STRANGER, AGAIN = Peer(7, 70), Peer(8, 80), Peer(9, 90)
GROUP = DeliveryOptions(group="g")


def key(number, *texts, delivery=None, leaving=False):
    patterns = tuple(declare(oz.compile(text)) for text in texts)
    delivery = delivery or DeliveryOptions()
    return Declaration(NAME, number, delivery, is_closing=leaving, patterns=patterns).encode()


INVALID = Declaration(NAME, 1, patterns=(Declared(99, b"a"),)).encode()


class Publisher:
    """A router and its queue, at which honest and other connections ask for things."""

    def __init__(self, **limits):
        self.alive = {HONEST, STRANGER, AGAIN}
        self.router = Router(bytes(16), PublisherStats(), limits=Limits(**limits))
        self.queue = InterestQueue(self.router, Limits(**limits), lambda peer: peer in self.alive)
        self.now = 100.0

    def come(self, peer, *keys):
        for one in keys:
            self.take(b"\1" + one, peer)

    def go(self, peer, *keys):
        for one in keys:
            self.take(b"\0" + one, peer)

    def end(self, peer, *keys):
        """End a connection that holds some keys."""
        self.alive.discard(peer)
        self.go(None, *keys)

    def take(self, frame, peer):
        self.queue.take(frame, peer, self.now)
        while self.queue.waits:
            self.queue.work(lambda: 0.0)

    def wait(self, seconds):
        self.now += seconds
        self.router.expire(self.now)

    @property
    def stream(self):
        return self.router.streams[KEY]

    def wants(self, subject):
        return bool(self.router.find(subject, subject).kind)


def test_a_number_that_a_stranger_has_used_is_no_less_the_subscribers():
    pub = Publisher()
    pub.come(STRANGER, KEY, key(1, "other"))
    pub.come(HONEST, key(1, "a"), KEY)
    assert pub.wants(b"a")
    assert pub.stream.live() == [1]
    pub.go(STRANGER, key(1, "other"))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert (pub.wants(b"a"), pub.wants(b"other")) == (True, False)
    pub.go(HONEST, key(1, "a"))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert not pub.wants(b"a")
    assert pub.stream.live() == []


def test_a_number_that_a_stranger_uses_later_stays_the_subscribers():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), KEY)
    pub.come(STRANGER, KEY, key(1, "other"), key(1, leaving=True))
    pub.go(STRANGER, key(1, "other"), key(1, leaving=True))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert pub.wants(b"a")
    pub.go(HONEST, key(1, "a"))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert not pub.wants(b"a")
    assert pub.router.interest.pattern_count == 0


@each("is_first", [False, True])
def test_what_a_stranger_is_refused_its_subscriber_is_not(is_first):
    pub = Publisher()
    asks = [(STRANGER, (KEY, INVALID)), (HONEST, (key(1, "a"), KEY))]
    for peer, keys in asks if is_first else reversed(asks):
        pub.come(peer, *keys)
    assert pub.wants(b"a")
    assert (pub.stream.live(), pub.stream.refused) == ([1], {})
    pub.go(STRANGER, INVALID)
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert pub.wants(b"a")


def test_keys_beyond_a_strangers_limits_are_not_said_to_be_the_subscribers():
    pub = Publisher(key_bytes=60)
    pub.come(HONEST, key(1, "a"), KEY)
    pub.come(STRANGER, KEY, key(1, "b" * 50))
    assert pub.router.stats.refused == 1
    assert pub.stream.refused == {}


@pytest.mark.parametrize("key_bytes", [inf, 40])
def test_what_a_declaration_costs_that_is_refused_does_not_grow_with_those_that_stand(key_bytes, monkeypatch):
    monkeypatch.setattr("oz.protocol.publisher.router.MAX_CHUNKS", 10)
    costs = []
    for count in (10, 1_000):
        pub = Publisher(key_bytes=key_bytes)
        pub.come(STRANGER, KEY)
        for number in range(count):
            pub.stream.hold(number, AcceptedChunk((), account=pub.stream.account), number)
        costs.append(count_calls(lambda pub=pub: pub.come(STRANGER, key(5_000, "a"))))
        stats = pub.router.stats
        assert stats.malformed + stats.refused == 1
    # The first of a process is logged.
    assert costs[1] < costs[0] + 100


def test_what_a_stranger_is_refused_its_subscriber_is_not_whose_number_somebody_had_before():
    pub = Publisher()
    pub.come(STRANGER, KEY, key(1, "other"))
    pub.come(HONEST, key(1, "a"), KEY)
    pub.go(STRANGER, key(1, "other"))
    pub.wait(2 * WITHDRAWAL_DELAY)
    pub.come(STRANGER, INVALID)
    assert (pub.stream.live(), pub.stream.refused) == ([1], {})


def test_what_a_stranger_is_refused_its_subscriber_is_not_that_was_cut_off_meanwhile():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), KEY)
    pub.end(HONEST, key(1, "a"), KEY)
    pub.come(STRANGER, INVALID)
    pub.come(AGAIN, key(1, "a"), KEY)
    assert (pub.stream.live(), pub.stream.refused) == ([1], {})


@each("delivery", [DeliveryOptions(), GROUP])
def test_a_goodbye_of_a_stranger_while_the_subscriber_is_cut_off_is_over_when_it_returns(delivery):
    pub = Publisher()
    keys = key(1, "a", delivery=delivery), KEY
    pub.come(HONEST, *keys)
    epoch = pub.stream.epoch
    pub.come(STRANGER, KEY)
    pub.end(HONEST, *keys)
    pub.come(STRANGER, key(2, leaving=True))
    assert pub.stream.is_closing
    pub.come(AGAIN, *keys)
    assert not pub.stream.is_closing
    assert pub.stream.delivery == delivery
    # It learns by another epoch that it may have missed some.
    assert pub.stream.epoch != epoch
    pub.end(STRANGER, KEY, key(2, leaving=True))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert pub.wants(b"a")
    assert (pub.stream.vanished_at, pub.stream.listeners) == (None, 1)


def test_what_a_subscriber_asks_for_that_was_cut_off_is_counted_though_a_stranger_listens():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), KEY)
    pub.come(STRANGER, KEY)
    pub.end(HONEST, key(1, "a"), KEY)
    pub.wait(GRACE - 1)
    assert pub.wants(b"a")
    pub.wait(2)
    assert not pub.wants(b"a")


def test_what_a_subscriber_takes_back_is_over_soon_though_a_stranger_listens():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), KEY)
    pub.come(STRANGER, KEY)
    pub.go(HONEST, key(1, "a"))
    pub.wait(2 * WITHDRAWAL_DELAY)
    assert not pub.wants(b"a")


def test_goodbyes_of_connections_that_have_ended_are_not_kept():
    pub = Publisher()
    pub.come(HONEST, KEY, key(1, "a"))
    for number in range(20):
        stranger = Peer(8, 1000 + number)
        pub.alive.add(stranger)
        goodbye = key(2 + number, leaving=True)
        pub.come(stranger, KEY, goodbye)
        pub.end(stranger, KEY, goodbye)
        pub.wait(GRACE + WITHDRAWAL_DELAY)
    assert len(pub.stream.goodbyes) <= 2
    assert pub.wants(b"a")
    pub.come(HONEST, key(99, leaving=True))
    assert pub.stream.is_closing
