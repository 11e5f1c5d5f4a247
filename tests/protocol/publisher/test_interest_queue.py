"""The queue of interests: limits of a connection, what waits for its turn, and who is read too slowly."""

from __future__ import annotations

from math import inf

import oz
from oz.protocol.publisher.acceptance import MOST_IN_CHUNK
from oz.transport.backend import Peer
from oz.wire.declared import declare
from oz.wire.keys import Declaration, Declared, pattern_key, stream_key
from protocol.publisher.queued import HONEST, HOSTILE, NAME, Publisher, key
from support.cases import each


def test_limits_of_one_connection_do_not_hold_for_another():
    pub = Publisher(streams=2, plain_subscriptions=2, plain_size=4)
    other = b"x" * 16
    names = [bytes([letter]) * 16 for letter in b"abc"]
    answers = pub.come(HOSTILE, *(stream_key(name) for name in names))
    assert [bool(one.wanted) for one in answers] == [True, True, False]
    answers = pub.come(HOSTILE, b"a", b"b", b"c", b"long.")
    assert [bool(one.wanted) for one in answers] == [True, True, False, False]
    assert pub.stats.refused == 3
    assert pub.come(HONEST, stream_key(other), b"c") == [((stream_key(other),), ()), ((b"c",), ())]
    assert pub.stats.refused == 3


def test_patterns_beyond_the_limit_of_a_connection_are_refused_with_the_reason():
    pub = Publisher(patterns=3)
    pub.come(HOSTILE, stream_key(NAME), key(1, "a", "b"), key(2, "c", "d"))
    stream = pub.router.streams[stream_key(NAME)]
    assert list(stream.chunks) == [1]
    assert "your connection has 2 patterns at this publisher, which allows one 3" in stream.refused[2]
    # What was taken back is free again.
    pub.go(HOSTILE, key(1, "a", "b"))
    pub.router.expire(100.0)
    pub.come(HOSTILE, key(3, "e", "f", "g"))
    assert 3 in stream.chunks


def test_a_declaration_of_too_many_patterns_is_refused():
    pub = Publisher()
    patterns = tuple(Declared(1, b"%x" % number) for number in range(MOST_IN_CHUNK + 1))
    pub.come(HOSTILE, stream_key(NAME), Declaration(NAME, 1, patterns=patterns).encode())
    assert "one may have 2048" in pub.router.streams[stream_key(NAME)].refused[1]


def test_a_connection_with_much_to_look_at_does_not_hold_up_another():
    pub = Publisher(interest_time=0.001)
    for number in range(1, 200):
        pub.queue.take(b"\x01" + key(number, *(f"h{number}.{one}" for one in range(20))), HOSTILE, 0.0)
    other = b"x" * 16
    for one in (key(1, "a", name=other), stream_key(other)):
        pub.queue.take(b"\x01" + one, HONEST, 0.0)
    rounds = 0
    while not pub.wants(b"a"):
        pub.queue.work(pub.clock)
        rounds += 1
    assert rounds < 5
    assert pub.queue.waits
    pub.work()
    assert pub.wants(b"h199.19")


def test_keys_that_wait_are_bounded_by_their_bytes():
    pub = Publisher(waiting_keys=1_000)
    answers = [
        pub.queue.take(b"\x01" + key(number, "a." + "b" * 80), HOSTILE, 0.0).wanted for number in range(1, 30)
    ]
    assert answers[0]
    assert not answers[-1]
    assert pub.stats.refused
    assert pub.queue.take(b"\x01" + key(1, "a", name=b"x" * 16), HONEST, 0.0).wanted
    pub.work()
    assert pub.come(HOSTILE, key(99, "c")) == [((stream_key(NAME),), ())]


@each("limit", ["waiting_keys", "all_waiting_keys"])
def test_as_many_bytes_of_keys_wait_as_the_limit_says(limit):
    names = [bytes([number]) * 16 for number in range(5)]
    pub = Publisher(**{limit: 4 * len(stream_key(NAME))})
    answers = [pub.queue.take(b"\x01" + stream_key(one), HOSTILE, 0.0).wanted for one in names]
    assert [bool(one) for one in answers] == [True, True, True, True, False]


@each("has_begun", [False, True])
def test_what_a_connection_took_back_by_ending_is_behind_what_it_asked_for(has_begun):
    pub = Publisher()
    for one in (key(1, *"abcdef"), stream_key(NAME)):
        pub.queue.take(b"\x01" + one, HONEST, 0.0)
    if has_begun:
        pub.queue.work(iter(range(100)).__next__)
    pub.alive.discard(HONEST)
    for one in (key(1, *"abcdef"), stream_key(NAME)):
        pub.queue.take(b"\x00" + one, None, 0.0)
    pub.work()
    pub.router.expire(0.5)
    assert pub.router.streams[stream_key(NAME)].vanished_at is not None


def test_what_a_connection_took_back_by_ending_is_behind_its_goodbye():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.alive.discard(HONEST)
    pub.queue.take(b"\1" + key(2, leaving=True), HONEST._replace(inode=None), 0.0)
    for one in (key(1, "a"), key(2, leaving=True), stream_key(NAME)):
        pub.queue.take(b"\0" + one, None, 0.0)
    pub.work()
    assert not pub.router.streams


def test_what_a_connection_asked_for_that_has_closed_is_looked_at_in_parts():
    pub = Publisher()
    closed = Peer(9, None)
    for number in range(100):
        pub.queue.take(b"\1" + key(number, "b", name=b"h" * 16), closed, 0.0)
    pub.queue.take(b"\1" + key(1, "a"), HONEST, 0.0)
    pub.queue.take(b"\1" + stream_key(NAME), HONEST, 0.0)
    for _ in range(6):
        pub.queue.work(iter((0.0, 1.0)).__next__)
    assert pub.wants(b"a")
    assert len(pub.router.streams[stream_key(b"h" * 16)].chunks) < 10


def test_what_connections_asked_for_that_have_closed_is_bounded():
    pub = Publisher(patterns=10, waiting_keys=1_000)
    for number in range(100):
        pub.queue.take(b"\1" + key(number, "b", name=b"h" * 16), Peer(number, None), 0.0)
    pub.work()
    assert len(pub.router.streams[stream_key(b"h" * 16)].chunks) == 10
    assert pub.stats.refused > 0


@each("ending", ["explicit", "by closing"])
def test_the_end_of_who_was_refused_a_key_takes_it_from_nobody(ending):
    pub = Publisher(plain_subscriptions=1, streams=1)
    pub.come(HONEST, b"a", stream_key(NAME), key(1, "n"))
    pub.come(HOSTILE, b"other", stream_key(b"h" * 16))
    keys = [b"a", stream_key(NAME)]
    pub.come(HOSTILE, *keys, *keys)
    assert pub.stats.refused == 4
    if ending == "explicit":
        pub.go(HOSTILE, *keys)
    pub.alive.discard(HOSTILE)
    pub.go(None, b"other", stream_key(b"h" * 16), *keys * (ending != "explicit"))
    assert pub.wants(b"a.b")
    assert pub.router.streams[stream_key(NAME)].listeners == 1
    pub.alive.discard(HONEST)
    pub.go(None, b"a", stream_key(NAME), key(1, "n"))
    assert not pub.wants(b"a.b")
    assert pub.router.streams[stream_key(NAME)].vanished_at is not None


def test_a_shared_pattern_of_one_connection_outlives_that_of_another():
    pub = Publisher()
    shared = pattern_key(declare(oz.compile("a.*")))
    pub.come(HONEST, shared)
    pub.come(HOSTILE, shared)
    pub.go(HOSTILE, shared, shared, shared)
    assert pub.wants(b"a.b")


class Reading:
    """A connection whose frames a publisher reads, and the bytes that ZeroMQ has read of it."""

    def __init__(self):
        self.pub = Publisher(waiting_keys=1_000, refused_bytes=100, all_waiting_keys=inf)
        self.read_by_zmq = 0

    def come(self, count, beside=0):
        """Have frames come that are read at once, and other bytes of which nothing is read."""
        for number in range(count):
            self.pub.queue.take(b"\1%05d" % number, HOSTILE, 0.0)
        self.read_by_zmq += count * (6 + 11) + beside

    def is_cut(self):
        self.pub.queue.look_behind(HOSTILE, lambda peer: self.read_by_zmq)
        return self.pub.queue.to_cut == [HOSTILE]


def test_who_sends_more_quickly_than_it_is_read_is_cut_off():
    reading = Reading()
    reading.come(10_000, beside=1_100)
    assert not reading.is_cut()
    reading.read_by_zmq += 1
    assert reading.is_cut()


def test_what_zeromq_reads_besides_is_left_out_once_all_else_is_read():
    reading = Reading()
    for _ in range(10):
        reading.come(10_000, beside=1_000)
        assert not reading.is_cut()
        reading.pub.queue.is_all_read(HOSTILE, lambda peer: reading.read_by_zmq)
    reading.read_by_zmq += 1_101
    assert reading.is_cut()


def test_where_nobody_knows_what_zeromq_has_read_nobody_is_cut_off_for_it():
    pub = Publisher(waiting_keys=1)
    pub.take(b"\1a", HOSTILE)
    pub.queue.look_behind(HOSTILE, lambda peer: None)
    pub.queue.is_all_read(HOSTILE, lambda peer: None)
    assert pub.queue.to_cut == []
