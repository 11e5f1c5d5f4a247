"""What was taken back is served for a moment longer, and is no interest any more."""

import pytest

import oz
from oz.protocol.declared import declare
from oz.protocol.publisher.lifetimes import WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
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
    return router.count(subject, subject)


def test_a_pattern_that_was_taken_back_is_served_but_not_counted(router):
    come(router, chunk(1, *nats("a.*")), chunk(2, *nats("b")), stream_key(NAME))
    assert count(router, b"a.b") == count(router, b"b") == 1
    go(router, chunk(1, *nats("a.*")))
    assert router.find(b"a.b", b"a.b").streams
    assert count(router, b"a.b") == 0
    assert count(router, b"b") == 1
    router.expire(WITHDRAWAL_DELAY)
    assert not router.find(b"a.b", b"a.b").streams


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
