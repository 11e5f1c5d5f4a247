"""The time of patterns, by a clock that each pattern moves as it is tried."""

from __future__ import annotations

import logging
from math import inf
from typing import Any

import pytest

import oz
from oz.errors import PatternTimeout
from oz.protocol.declared import declare
from oz.protocol.publisher import pattern_time
from oz.protocol.publisher.pattern_time import (
    ALL_BURST,
    BURST,
    MOST,
    MOST_PASSED_OVER,
    REFILL,
    PatternTime,
    Stopwatch,
    account_of,
)
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.subjects.index import buckets
from oz.subjects.pattern import Pattern
from oz.wire.keys import Declaration, DeliveryOptions, stream_key
from support.sizes import size

MS = 0.001
LIMITS = Limits()


class World:
    """A router, a clock, and what each pattern costs."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.passed = self.worked = 100.0
        self.costs: dict[str | bytes, float] = {}
        self.tried: list[str | bytes] = []
        watch = Stopwatch(lambda: self.passed, lambda: self.worked)
        self.router = Router(b"o" * 16, PublisherStats(), pattern_time=PatternTime(watch, limits))
        self.stats = self.router.stats

    def decides(self, pattern: Pattern, subject: Any, seconds: float) -> bool:
        self.tried.append(pattern.text)
        cost = min(self.costs.get(pattern.text, 1e-6), seconds)
        self.passed += cost
        self.worked += cost
        if cost == seconds:
            raise PatternTimeout(pattern.text, subject, seconds)
        return pattern.matches(subject)

    def subscribe(self, who: bytes, *texts: str, chunk: int = 1) -> bytes:
        """Declare regexes; a subscriber is named by 14 bytes."""
        name = who.ljust(16, b"-")
        patterns = tuple(declare(oz.compile(text, "regex")) for text in texts)
        self.router.learn(b"\1" + Declaration(name, chunk, patterns=patterns).encode(), 0.0)
        self.router.learn(b"\1" + stream_key(name), 0.0)
        return stream_key(name)

    def publish(self, subject: bytes = b"md.a") -> set[bytes]:
        """Look a subject up; return the names of who gets it."""
        self.tried.clear()
        return {one.name.rstrip(b"-") for one in self.router.find(subject, subject).streams}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(buckets, "decides", made.decides)
    return made


def test_the_dear_pattern_is_suspended_and_the_cheap_one_beside_it_is_not(world: World) -> None:
    key = world.subscribe(b"slow", r"md\..*", "md.(a|aa)+")
    world.subscribe(b"honest", r"md\.[a-z]")
    world.costs["md.(a|aa)+"] = 1.0

    for _ in range(BURST):
        assert world.publish() == {b"slow", b"honest"}

    assert world.stats.suspended == 1
    assert "md.(a|aa)+" not in world.tried
    assert set(world.tried) == {r"md\..*", r"md\.[a-z]"}
    stream = world.router.streams[key]
    assert "'md.(a|aa)+' takes this publisher too long" in stream.refused[1]
    assert stream in world.router.to_answer
    assert 1 in stream.chunks


def test_all_who_share_a_suspended_pattern_are_told_and_nobody_who_took_it_back(world: World) -> None:
    pattern = declare(oz.compile("md.(a|aa)+", "regex"))
    names = [one.ljust(16, b"-") for one in (b"one", b"other", b"gone")]
    shared = DeliveryOptions(is_shared=True)
    for name in names:
        for chunk in (1, 2):
            patterns = (pattern,) if chunk == 2 else ()
            key = Declaration(name, chunk, delivery=shared, patterns=patterns).encode()
            world.router.learn(b"\1" + key, 0.0)
        world.router.learn(b"\1" + stream_key(name), 0.0)
    world.router.learn(b"\0" + key, 0.0)
    world.router.expire(10.0)
    world.router.to_answer.clear()
    world.costs["md.(a|aa)+"] = 1.0

    for _ in range(BURST):
        world.publish()

    assert world.stats.suspended == 1
    streams = [world.router.streams[stream_key(name)] for name in names]
    assert [list(one.refused) for one in streams] == [[2], [2], []]
    assert list(world.router.to_answer) == streams[:2]

    late = b"late".ljust(16, b"-")
    world.router.learn(b"\1" + Declaration(late, 1, delivery=shared, patterns=(pattern,)).encode(), 0.0)
    told = world.router.streams[stream_key(late)]
    assert "is suspended" in told.refused[1]
    assert told in world.router.to_answer
    assert world.publish() == set()


def test_a_connection_takes_no_more_than_its_burst_and_then_a_look_ups_worth_of_each(world: World) -> None:
    texts = [f"md.(a|aa)+{number}" for number in range(200)]
    world.subscribe(b"slow", *texts[:100])
    world.subscribe(b"slow", *texts[100:], chunk=2)
    world.costs = dict.fromkeys(texts, 1.0)
    world.subscribe(b"honest", r"md\.[a-z]")

    spent = []
    for _ in range(300):
        before = world.worked
        assert world.publish() == {b"honest"}
        spent.append(world.worked - before)

    assert spent[0] <= (BURST + MOST) * LIMITS.pattern_time
    # What passed meanwhile came back too.
    assert max(spent[1:]) <= (2 + BURST * REFILL) * LIMITS.pattern_time
    assert world.stats.suspended == 200
    assert set(world.router.streams[stream_key(b"slow".ljust(16, b"-"))].refused) == {1, 2}


def test_a_connection_with_hundreds_of_dear_patterns_is_done_with_after_some_ten_messages(
    world: World,
) -> None:
    texts = [f"md.(a|aa)+{number}" for number in range(400)]
    for chunk in range(0, 400, 50):
        world.subscribe(b"slow", *texts[chunk : chunk + 50], chunk=chunk + 1)
    world.costs = dict.fromkeys(texts, 1.0)
    world.subscribe(b"honest", r"md\.[a-z]", r"md\..*")

    tried = []
    while world.stats.suspended < 400:
        assert world.publish() == {b"honest"}
        tried.append(len(world.tried))

    assert len(tried) <= 1 + MOST_PASSED_OVER.bit_length()
    assert world.publish() == {b"honest"}


def test_one_dear_pattern_suspends_no_other_that_it_had_passed_over(world: World) -> None:
    texts = [rf"md\.[a-z]{{1,{number}}}" for number in range(1, 100)]
    world.subscribe(b"slow", "md.(a|aa)+", *texts)
    world.costs["md.(a|aa)+"] = 1.0

    for _ in range(BURST):
        world.publish()

    assert world.stats.suspended == 1


def test_a_pattern_that_is_slow_now_and_then_is_kept(world: World) -> None:
    world.subscribe(b"honest", "md.(a|aa)+b", r"md\..*")
    for number in range(10):
        world.costs["md.(a|aa)+b"] = MOST * MS
        assert world.publish(b"md.odd%d" % number) == {b"honest"}
        world.costs.clear()
        for _ in range(MOST):
            world.publish()

    assert world.stats.suspended == 0
    assert world.stats.timed_out == 10


def test_time_that_passes_is_credit_too(world: World) -> None:
    world.subscribe(b"honest", "md.(a|aa)+b")
    world.costs["md.(a|aa)+b"] = 10 * MS
    for _ in range(100):
        world.publish()
        world.passed += 0.25

    assert world.stats.suspended == 0


def test_whoever_asks_once_more_gets_another_chance(world: World) -> None:
    world.subscribe(b"slow", "md.a|md.(a|aa)+b")
    world.costs["md.a|md.(a|aa)+b"] = 1.0
    while not world.stats.suspended:
        assert world.publish() == set()
    assert world.publish() == set()
    world.costs.clear()

    world.subscribe(b"slow", "md.a|md.(a|aa)+b", chunk=2)

    assert world.publish() == {b"slow"}
    assert world.stats.suspended == 1


def test_what_was_suspended_can_be_taken_back(world: World) -> None:
    key = world.subscribe(b"slow", "md.(a|aa)+")
    world.costs["md.(a|aa)+"] = 1.0
    while not world.stats.suspended:
        world.publish()
    stream = world.router.streams[key]

    world.router.lifetimes.forget(stream, 0.0)

    assert world.router.interest.pattern_count == 0
    assert world.publish() == set()


def test_another_connection_keeps_the_pattern_that_one_overdrew_with_others(world: World) -> None:
    world.subscribe(b"slow", r"md\..*", "md.(a|aa)+1", "md.(a|aa)+2", "md.(a|aa)+3")
    world.subscribe(b"honest", r"md\..*")
    world.costs = {f"md.(a|aa)+{number}": 1.0 for number in (1, 2, 3)}

    for _ in range(10):
        assert b"honest" in world.publish()

    assert world.stats.suspended == 3


def test_a_thread_that_had_no_processor_makes_nobody_dear(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.subscribe(b"honest", r"md\.[a-z]", r"md\.[a-y]")

    def decides(pattern: Pattern, subject: Any, seconds: float) -> bool:
        world.passed += 0.5
        return pattern.matches(subject)

    monkeypatch.setattr(buckets, "decides", decides)
    for _ in range(100):
        assert world.publish() == {b"honest"}

    assert world.stats.suspended == 0


def test_many_connections_share_the_time_of_all(world: World) -> None:
    texts = [f"md.(a|aa)+{number}" for number in range(60)]
    for number, text in enumerate(texts):
        world.subscribe(b"slow%d" % number, text)
    world.subscribe(b"honest", r"md\..*")
    world.costs = dict.fromkeys(texts, 0.9 * MS)

    spent = []
    for _ in range(20):
        before = world.worked
        assert b"honest" in world.publish()
        spent.append(world.worked - before)

    assert sum(spent) <= (ALL_BURST + 2 * len(spent)) * LIMITS.all_pattern_time
    assert spent[-1] <= 2 * LIMITS.all_pattern_time
    assert 0 < world.stats.suspended <= 60


@pytest.mark.sized
def test_many_honest_connections_are_left_alone(world: World) -> None:
    count = size(700, 2_000)
    for number in range(count):
        world.subscribe(b"h%d" % number, rf"md\.(a|b{number})")
    world.costs = {rf"md\.(a|b{number})": 1e-5 for number in range(count)}

    # Together they cost more than the time of all, by more than the credit that it begins with.
    for _ in range(40):
        assert len(world.publish()) == count

    assert world.stats.suspended == 0


@pytest.mark.sized
def test_so_many_patterns_that_no_time_would_do_are_suspended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = size(200, MOST_PASSED_OVER)
    monkeypatch.setattr(pattern_time, "MOST_PASSED_OVER", most)
    count = most + size(1_000, 2_000)
    texts = [rf"md\..*{number}" for number in range(count)]
    for chunk in range(0, count, 100):
        world.subscribe(b"many", *texts[chunk : chunk + 100], chunk=chunk + 1)
    world.subscribe(b"honest", r"md\..*")
    world.costs = dict.fromkeys(texts, 0.1 * MS)

    for _ in range(10):
        assert world.publish() == {b"honest"}

    assert count - most - BURST * 10 <= world.stats.suspended <= count


def test_what_was_passed_over_is_not_remembered(world: World) -> None:
    world.subscribe(b"slow", *(f"md.(a|aa)+{number}" for number in range(9)))
    world.costs = {f"md.(a|aa)+{number}": 1.0 for number in range(9)}
    world.publish()
    world.router.interest.has_changed = False

    world.publish()

    assert world.stats.timed_out > 9
    assert world.router.interest.has_changed


def test_what_several_share_took_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Limits(pattern_time=1.0))
    monkeypatch.setattr(buckets, "decides", world.decides)
    for name in (b"one", b"two", b"three"):
        world.subscribe(name, "md.a|shared")
    world.subscribe(b"dear", "md.a|dear", "md.a|too")
    world.costs |= {"md.a|shared": 4 * MS, "md.a|dear": 3 * MS, "md.a|too": 3 * MS}
    while not world.stats.suspended:
        world.publish()

    assert world.stats.suspended == 3 + 1, "what is left takes no more than all may"


def test_it_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    texts = [f"md.(a|aa)+{number}" for number in range(200)]
    world.subscribe(b"slow", *texts)
    world.costs = dict.fromkeys(texts, 1.0)
    for _ in range(300):
        world.publish()

    said = [one.getMessage() for one in caplog.records]
    assert sum("is suspended" in one for one in said) == 1
    assert len(said) <= 11


def test_without_limits_nothing_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Limits(pattern_time=inf, all_pattern_time=inf))
    monkeypatch.setattr(buckets, "decides", world.decides)
    world.subscribe(b"slow", "md.(a|aa)+")
    world.costs["md.(a|aa)+"] = 10.0
    for _ in range(10):
        world.publish()

    assert world.stats.suspended == 0


def test_a_limit_for_one_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Limits(all_pattern_time=inf))
    monkeypatch.setattr(buckets, "decides", world.decides)
    world.subscribe(b"slow", "md.(a|aa)+")
    world.costs["md.(a|aa)+"] = 10.0
    for _ in range(10):
        world.publish()

    assert world.stats.suspended == 1


def test_the_streams_of_one_subscriber_are_one_account(world: World) -> None:
    first, second = (world.subscribe(b"name-of-14-byte"[:14] + end, "a.*") for end in (b"01", b"02"))
    streams = world.router.streams
    assert account_of(streams[first]) == account_of(streams[second])


def test_a_group_counts_on_nobody_whose_pattern_is_suspended(world: World) -> None:
    key = world.subscribe(b"slow", "md.(a|aa)+|md.a")
    stream = world.router.streams[key]
    assert stream.wants(b"md.a")
    world.costs["md.(a|aa)+|md.a"] = 1.0
    while not world.stats.suspended:
        world.publish()

    assert not stream.wants(b"md.a")
