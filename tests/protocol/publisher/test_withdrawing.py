"""What was taken back is served for a moment longer, and is no interest any more."""

import pytest

import oz
from oz.protocol.publisher.lifetimes import WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import MOST_COMPARED, MOST_TRIED
from oz.protocol.stats import PublisherStats
from oz.subjects.pattern import Pattern
from oz.wire.declared import declare
from oz.wire.keys import Declaration, DeliveryOptions, stream_key

NAME = b"n" * 16


@pytest.fixture
def router():
    return Router(bytes(16), PublisherStats())


def chunk(number, *patterns):
    declared = tuple(declare(one) for one in patterns)
    return Declaration(NAME, number, DeliveryOptions(), False, False, declared).encode()


def come(router, *keys):
    for one in keys:
        router.learn(b"\x01" + one, 0.0)


def go(router, *keys):
    for one in keys:
        router.learn(b"\x00" + one, 0.0)


def nats(*texts):
    return [oz.compile(text) for text in texts]


def count(router, subject):
    return router.count(subject)


def test_a_pattern_that_was_taken_back_is_served_but_not_counted(router):
    come(router, chunk(1, *nats("a.*")), chunk(2, *nats("b")), stream_key(NAME))
    assert count(router, b"a.b") == count(router, b"b") == 1
    go(router, chunk(1, *nats("a.*")))
    assert router.find(b"a.b").streams
    assert count(router, b"a.b") == 0
    assert count(router, b"b") == 1
    router.expire(WITHDRAWAL_DELAY)
    assert not router.find(b"a.b").streams


def test_what_another_pattern_or_chunk_still_asks_for_is_counted(router):
    whole, rest = chunk(1, *nats("a.*", "b", "c.>")), chunk(2, *nats("b", "c.>"))
    come(router, whole, stream_key(NAME))
    come(router, rest)
    go(router, whole)
    assert count(router, b"a.b") == 0
    assert count(router, b"b") == count(router, b"c.d") == 1
    come(router, chunk(3, *nats("*.b")))
    assert count(router, b"a.b") == 1


def test_a_subject_that_is_no_text_is_counted_by_the_patterns_that_can_read_it(router):
    raw = oz.compile(b"x*", "redis")
    come(router, chunk(1, *nats("a", "x*")), chunk(2, raw), stream_key(NAME))
    go(router, chunk(1, *nats("a", "x*")))
    assert count(router, b"x\xff") == 1
    go(router, chunk(2, raw))
    assert count(router, b"x\xff") == 0


def test_what_comes_back_in_time_is_counted_again(router):
    come(router, chunk(1, *nats("a")), chunk(2, *nats("b")), stream_key(NAME))
    go(router, chunk(1, *nats("a")))
    assert count(router, b"a") == 0
    come(router, chunk(1, *nats("a")))
    assert count(router, b"a") == 1


@pytest.fixture
def tried(monkeypatch):
    """The patterns that are tried one by one."""
    found, matches = [], Pattern.matches

    def note(pattern, subject):
        found.append(pattern)
        return matches(pattern, subject)

    monkeypatch.setattr(Pattern, "matches", note)
    return found


def test_of_many_that_were_taken_back_few_are_tried(router, tried):
    """A forwarder declares thousands anew, and every request asks whether anybody wants its subject."""
    many = [chunk(number, *nats(*(f"{number}.*.{one}.>" for one in range(50)))) for number in range(1, 50)]
    come(router, *many, chunk(100, *nats("svc.*")), stream_key(NAME))
    go(router, *many)
    assert count(router, b"svc.a") == 1
    assert not tried
    assert count(router, b"7.a.7.b") == 0
    assert len(tried) == 50


@pytest.mark.parametrize(
    "patterns",
    [
        [oz.compile(rf"md\.(a|aa)*{number}", "regex") for number in range(3)],
        nats(*(f"*.{number}" for number in range(MOST_TRIED + 1))),
        nats(*(f"{number}" for number in range(MOST_COMPARED + 1))),
    ],
    ids=["slow regexes", "without prefixes", "thousands"],
)
def test_who_took_back_what_takes_long_to_try_counts_until_it_is_gone(router, tried, patterns):
    chunks = [chunk(number, *patterns[number:][:50]) for number in range(0, len(patterns), 50)]
    come(router, *chunks, chunk(10_000, *nats("md.a")), chunk(10_001, *nats("b")), stream_key(NAME))
    go(router, *chunks, chunk(10_000, *nats("md.a")))
    known = router.find(b"md.a")
    tried.clear()
    assert router.count(b"md.a", known) == 1
    assert not tried
    router.expire(WITHDRAWAL_DELAY)
    assert count(router, b"md.a") == 0
