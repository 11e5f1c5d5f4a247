"""What a router refuses: too many patterns, too many declarations, keys that are malformed."""

import pytest

import oz
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.publisher import router as routing
from oz.protocol.publisher.interest import PLAIN, ROUTED
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.wire.declared import declare
from oz.wire.keys import (
    DECLARATION,
    OWN,
    STREAM,
    Declaration,
    Declared,
    pattern_key,
    stream_key,
)
from protocol.publisher.routed import LATER, NAME, ORIGIN, come, go, key, wanted_by


def test_what_is_refused_is_named_and_forgotten_when_taken_back(router):
    bad = Declaration(NAME, 1, patterns=(declare(oz.compile("a")), declare(oz.compile("b")))).encode()
    bad = bad.replace(b"\x00\x01b", b"\x00\x01.")
    come(router, bad, bad)
    (stream,) = router.streams.values()
    assert list(stream.refused) == [1]
    assert not stream.chunks
    assert not wanted_by(router, b"a")
    go(router, bad)
    assert not stream.refused


def test_patterns_beyond_the_limit_are_refused_whole():
    router = Router(ORIGIN, PublisherStats(), limits=Limits(all_patterns=3))
    come(router, key(1, "a", "b"), key(2, "c", "d"), key(3, "e"))
    (stream,) = router.streams.values()
    assert list(stream.chunks) == [1, 3]
    assert "2 patterns" in stream.refused[2]


def test_declarations_beyond_the_limit_are_malformed_until_one_is_taken_back(router, monkeypatch):
    monkeypatch.setattr(routing, "MAX_CHUNKS", 2)
    come(router, stream_key(NAME), key(1, "a"), key(2, "b"))
    assert come(router, key(3, "c")) == [((), ())]
    assert router.stats.malformed == 1
    (stream,) = router.streams.values()
    assert list(stream.chunks) == [1, 2]
    go(router, key(2, "b"))
    router.expire(LATER)
    assert not wanted_by(router, b"b")
    come(router, key(3, "c"))
    assert list(stream.chunks) == [1, 3]
    assert router.stats.malformed == 1


def test_shared_patterns_beyond_the_limit_are_refused_whole():
    router = Router(ORIGIN, PublisherStats(), limits=Limits(all_patterns=2))
    come(router, key(1, "a", "b", is_shared=True))
    assert list(router.streams[stream_key(NAME)].refused) == [1]
    assert router.stats.malformed == 0


@pytest.mark.parametrize(
    "bad", [OWN, OWN + b"X", STREAM, STREAM + bytes(15), DECLARATION, DECLARATION + bytes(20), OWN + b"P\x01"]
)
def test_a_malformed_key_is_counted_and_skipped(router, bad):
    assert come(router, bad) == go(router, bad) == [((), ())]
    assert router.stats.malformed >= 1
    assert not router.streams


def test_a_pattern_of_a_dialect_that_is_not_known_is_refused_with_its_number(router):
    come(router, Declaration(NAME, 1, patterns=(declare(oz.compile("a")), Declared(99, b"a"))).encode())
    (stream,) = router.streams.values()
    assert "dialect number 99" in stream.refused[1]
    come(router, pattern_key(Declared(99, b"a")))
    assert router.stats.malformed == 1


def test_who_wants_the_inboxes_of_a_node_is_known_from_the_last_until_an_interest_comes_or_goes():
    router = Router(ORIGIN, PublisherStats(), index=ReservedIndex(cache_size=0))
    owner = b"_INBOX." + b"ab" * 16
    inboxes = [owner + b".%d" % number for number in range(3)]
    assert [wanted_by(router, one) for one in inboxes] == [[], [], []]
    asked, other = key(1, f"{owner.decode()}.>"), key(1, f"{owner.decode()}.1", name=b"o" * 16)
    come(router, asked)
    assert [len(wanted_by(router, one)) for one in inboxes] == [1, 1, 1]
    assert wanted_by(router, b"_INBOX." + b"cd" * 16 + b".1") == []
    # A plain subscription, which no index knows of.
    come(router, inboxes[1])
    assert [router.find(one).kind for one in inboxes] == [ROUTED, PLAIN | ROUTED, ROUTED]
    go(router, inboxes[1])
    assert [router.find(one).kind for one in inboxes] == [ROUTED] * 3
    come(router, other)
    assert [len(wanted_by(router, one)) for one in inboxes] == [1, 2, 1]
