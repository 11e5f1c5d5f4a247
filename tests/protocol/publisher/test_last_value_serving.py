"""Serving last values: a part at a time, in order, none twice, connections in turn."""

from __future__ import annotations

import pytest

import oz
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.last_value_cache import MOST_ITEMS, LastValueCache, LastValueServing
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import AcceptedChunk, OutStream
from oz.protocol.stats import PublisherStats
from oz.wire.declared import declare
from oz.wire.keys import Declaration, DeliveryOptions
from support.cases import each

STEP = 0.0001


class World:
    """Values, streams that ask for them, and a clock that each look moves on."""

    def __init__(self, count):
        self.cache = LastValueCache()
        for number in range(count):
            self.cache.put(b"a.%d" % number, number, 10 * number)
        self.now = 0.0
        self.sent = {}
        self.held = set()
        self.order = []
        self.serving = LastValueServing(self.cache, self.clock, self.send, self.held.__contains__)

    def clock(self):
        self.now += STEP
        return self.now

    def send(self, stream, number, items, positions):
        assert len(positions) == len(items) // 2
        assert len(items) <= MOST_ITEMS + 1
        self.sent.setdefault((stream, number), []).extend(items)
        self.order.append(stream)

    def stream(self, number):
        account = Account(Peer(number, number))
        return OutStream(b"%016d" % number, b"key%d" % number, DeliveryOptions(), bytes(16), number, account)

    def ask(self, stream, number, pattern=">"):
        stream.chunks[number] = AcceptedChunk((oz.compile(pattern),))
        self.serving.ask(stream, number, [self.cache.count])

    def work(self):
        rounds = 0
        while self.serving and self.serving.work():
            rounds += 1
        return rounds

    def got(self, stream, number=1):
        items = self.sent.get((stream, number), [])
        return dict(zip(items[::2], items[1::2], strict=True)), items[1::2]


@pytest.fixture
def world():
    return World(1_000)


def test_last_values_are_given_a_part_at_a_time_and_in_order(world):
    stream = world.stream(1)
    world.ask(stream, 1)
    assert world.work() > 50
    assert world.got(stream)[1] == list(range(1_000))


def test_what_is_published_meanwhile_is_not_given_as_a_last_value(world):
    stream = world.stream(1)
    world.ask(stream, 1)
    world.serving.work()
    for number in (0, 500, 2_000):
        world.cache.put(b"a.%d" % number, "new", 0)
    world.work()
    assert [one for one in world.got(stream)[1] if one in (0, 500, "new")] == [0]


def test_what_was_published_before_another_asked_is_given_to_it(world):
    first, second = world.stream(1), world.stream(2)
    world.ask(first, 1)
    world.serving.work()
    world.cache.put(b"a.500", "new", 0)
    world.ask(second, 1)
    world.work()
    assert b"a.500" not in world.got(first)[0]
    assert world.got(second)[0][b"a.500"] == "new"


def test_who_asks_many_times_is_served_in_turn_with_others(world):
    greedy, honest = world.stream(1), world.stream(2)
    for number in range(20):
        world.ask(greedy, number)
    world.ask(honest, 1)
    world.work()
    assert len(world.got(honest)[1]) == 1_000
    assert len(world.order) - 1 - world.order[::-1].index(honest) < len(world.order) / 5


def test_what_waits_on_a_stream_goes_first_and_then_the_rest_once(world):
    slow, quick = world.stream(1), world.stream(2)
    world.ask(slow, 1)
    world.serving.work()
    world.held.add(slow)
    before = len(world.got(slow)[1])
    world.ask(quick, 1)
    world.work()
    assert len(world.got(quick)[1]) == 1_000
    assert len(world.got(slow)[1]) == before
    assert not world.serving.work()
    world.held.clear()
    world.work()
    assert world.got(slow)[1] == list(range(1_000))
    assert not world.serving


def test_who_has_gone_or_takes_it_back_is_served_no_more(world):
    gone, back = world.stream(1), world.stream(2)
    for one in (gone, back):
        world.ask(one, 1)
    world.serving.work()
    gone.is_gone = True
    back.chunks.clear()
    assert world.work() <= 2
    assert not world.serving


@each("others", [True, False])
def test_a_shared_pattern_gives_each_message_by_itself_or_as_a_last_value(others):
    """Its key is ZeroMQ's from when the declaration is read, which may wait to be looked at."""
    cache, shared = LastValueCache(), DeliveryOptions(is_shared=True)
    router = Router(b"o" * 16, PublisherStats())
    router.acceptance.kept = lambda: cache.count
    declared = (declare(oz.compile("a.*")),)
    if others:
        router.learn(b"\1" + Declaration(b"first " * 2 + b"1234", 1, shared, patterns=declared).encode(), 0.0)
    cache.put(b"a.1", "before", 0)
    key = Declaration(b"second" * 2 + b"1234", 1, shared, True, patterns=declared).encode()
    waiting = router.learn_stepwise(b"\1" + key, 0.0, Account(Peer(1, 1)))
    cache.put(b"a.1", "meanwhile", 0)
    cache.put(b"a.2", "meanwhile", 0)
    assert not list(waiting)[1:]
    cache.put(b"a.2", "after", 0)
    ((stream, place, before),) = router.acceptance.to_serve
    found = [one[1:3] for one in cache.search(stream.chunks[place].patterns, 0, before) if one]
    assert found == ([] if others else [(b"a.1", "meanwhile")])
