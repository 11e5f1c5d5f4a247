"""What was asked for in vain is taken back all the same, and takes nothing from those who have it."""

from __future__ import annotations

from oz.wire.keys import DECLARATION, OWN, STREAM, stream_key
from protocol.publisher.queued import HONEST, HOSTILE, NAME, Publisher, key

OTHER = b"o" * 16


def test_a_verbose_proxy_asks_again_at_its_limit():
    pub = Publisher(plain_subscriptions=1, plain_bytes=4, all_plain_bytes=4, streams=1, key_bytes=40)
    pub.come(HONEST, b"news", b"news", stream_key(NAME), stream_key(NAME))
    assert not pub.stats.refused
    # One of two behind it has left.
    pub.go(HONEST, b"news", stream_key(NAME))
    assert pub.wants(b"news")
    assert pub.router.streams[stream_key(NAME)].listeners == 1
    pub.go(HONEST, b"news")
    assert not pub.wants(b"news")


def test_what_a_connection_asks_for_once_more_and_is_refused_is_taken_back_from_nobody():
    pub = Publisher(waiting_keys=150)
    declared = key(1, "news.*")
    pub.come(HONEST, stream_key(NAME), declared)
    for number in range(2, 5):
        pub.queue.take(b"\x01" + key(number, "x" * 20), HONEST, 0.0)
    pub.queue.take(b"\x01" + declared, HONEST, 0.0)
    assert pub.stats.refused
    pub.work()
    pub.go(HONEST, declared)
    pub.router.expire(100.0)
    assert pub.wants(b"news.x")
    pub.go(HONEST, declared)
    pub.router.expire(200.0)
    assert not pub.wants(b"news.x")


def test_a_stream_that_one_connection_could_not_begin_stays_with_another():
    pub = Publisher(streams=1)
    # What it takes back is its own for a while, and it may begin no other.
    pub.come(HOSTILE, stream_key(OTHER), key(1, "a", name=OTHER))
    pub.go(HOSTILE, stream_key(OTHER))
    pub.come(HOSTILE, stream_key(NAME))
    assert stream_key(NAME) not in pub.router.streams
    pub.come(HONEST, stream_key(NAME), key(1, "news.*"))
    pub.go(HOSTILE, stream_key(NAME))
    assert pub.router.streams[stream_key(NAME)].listeners == 1
    assert pub.wants(b"news.x")
    pub.go(HONEST, stream_key(NAME))
    assert pub.router.streams[stream_key(NAME)].listeners == 0


def test_a_declaration_that_one_connection_was_refused_stays_with_another():
    pub = Publisher(patterns=2)
    declared = key(1, "news.*")
    pub.come(HOSTILE, stream_key(OTHER), key(1, "a", "b", name=OTHER), stream_key(NAME), declared)
    assert not pub.wants(b"news.x")
    pub.come(HONEST, stream_key(NAME), declared)
    pub.go(HOSTILE, declared)
    pub.router.expire(100.0)
    assert pub.wants(b"news.x")
    pub.go(HONEST, declared)
    pub.router.expire(200.0)
    assert not pub.wants(b"news.x")


def test_nothing_is_remembered_of_malformed_keys_that_were_taken_back():
    pub = Publisher()
    for number in range(3):
        for malformed in (OWN + b"?%d" % number, DECLARATION + b"%d" % number, STREAM + b"%d" % number):
            pub.router.learn(b"\x01" + malformed, 0.0)
            pub.router.learn(b"\x00" + malformed, 0.0)
    assert pub.stats.malformed >= 9
    assert not pub.router._passed_over
