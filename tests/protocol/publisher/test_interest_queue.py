"""The queue of interests: who may take back what, and what waits for its turn."""

from __future__ import annotations

import itertools
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.protocol.declared import declare
from oz.protocol.publisher.acceptance import MOST_IN_CHUNK
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.interest_queue import SWEEP_EVERY, InterestQueue
from oz.protocol.publisher.key_holders import SETTLED
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.wire.keys import Declaration, Declared, pattern_key, stream_key
from support.cases import each
from support.sizes import size

ORIGIN = bytes(16)
NAME = b"n" * 16
HONEST, HOSTILE = Peer(7, 70), Peer(8, 80)


def key(number, *texts, name=NAME, leaving=False):
    patterns = tuple(declare(oz.compile(text)) for text in texts)
    return Declaration(name, number, is_closing=leaving, patterns=patterns).encode()


class Publisher:
    """A router and its queue, with connections that are there until they are taken out of `alive`."""

    def __init__(self, **limits):
        self.alive = {HONEST, HOSTILE}
        self.stats = PublisherStats()
        self.limits = Limits(**limits)
        self.router = Router(ORIGIN, self.stats, limits=self.limits)
        self.queue = InterestQueue(self.router, self.limits, lambda peer: peer in self.alive)
        self.now = 0.0

    def clock(self):
        self.now += 0.0001
        return self.now

    def come(self, peer, *keys):
        return [self.take(b"\x01" + one, peer) for one in keys]

    def go(self, peer, *keys):
        return [self.take(b"\x00" + one, peer) for one in keys]

    def take(self, frame, peer):
        answer = self.queue.take(frame, peer, self.now)
        self.work()
        return answer

    def work(self):
        while self.queue.waits:
            self.queue.work(lambda: 0.0)

    def wants(self, subject):
        recipients = self.router.find(subject, subject)
        return bool(recipients.kind)


def test_nobody_takes_back_a_declaration_of_another():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    assert pub.go(HOSTILE, key(1, "a"), stream_key(NAME)) == [((), ()), ((), ())]
    pub.router.expire(100.0)
    assert pub.wants(b"a")
    pub.go(HONEST, key(1, "a"))
    pub.router.expire(200.0)
    assert not pub.wants(b"a")


def test_nobody_takes_back_a_plain_subscription_of_another():
    pub = Publisher()
    pub.come(HONEST, b"a")
    pub.go(HOSTILE, b"a")
    assert pub.wants(b"a.b")
    pub.go(HONEST, b"a")
    assert not pub.wants(b"a.b")


def test_a_goodbye_is_not_believed_of_a_connection_that_does_not_listen():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, key(2, leaving=True))
    assert pub.wants(b"a")
    assert not pub.router.streams[stream_key(NAME)].is_closing


def test_a_goodbye_ends_what_only_its_own_connection_declared():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, stream_key(NAME), key(2, "b"), key(3, leaving=True))
    assert pub.wants(b"a")
    assert not pub.wants(b"b")
    # The stream is answered, with the goodbye among what stands.
    stream = pub.router.streams[stream_key(NAME)]
    assert list(stream.chunks) == [1, 3]
    assert stream in pub.router.to_answer


def test_a_goodbye_counts_as_little_when_its_connection_has_stopped_listening_since():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    for frame in (b"\1" + stream_key(NAME), b"\1" + key(2, leaving=True), b"\0" + stream_key(NAME)):
        pub.queue.take(frame, HOSTILE, 0.0)
    pub.work()
    assert not pub.router.streams[stream_key(NAME)].is_closing
    assert pub.wants(b"a")


def test_a_goodbye_of_the_only_connection_ends_the_stream():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME), key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing
    assert not pub.wants(b"a")


def test_a_goodbye_is_believed_of_a_connection_that_has_closed_behind_it():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HONEST._replace(inode=None), key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing


def test_goodbyes_over_all_connections_of_a_stream_end_it():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, key(1, "a"), stream_key(NAME), key(2, leaving=True), key(3, leaving=True))
    stream = pub.router.streams[stream_key(NAME)]
    assert (stream.is_closing, pub.wants(b"a")) == (False, True)
    pub.come(HONEST, key(2, leaving=True))
    assert (stream.is_closing, pub.wants(b"a")) == (True, False)


def test_a_goodbye_of_a_connection_that_has_closed_ends_nothing_of_another():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), stream_key(NAME))
    pub.come(Peer(10, None), stream_key(NAME))
    # Of which of them that was, nobody knows.
    pub.go(None, stream_key(NAME))
    pub.come(Peer(9, None), key(2, leaving=True))
    assert not pub.router.streams[stream_key(NAME)].is_closing
    assert pub.wants(b"a")


def test_a_goodbye_is_not_believed_of_a_connection_that_has_closed_and_did_not_listen():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), key(2, leaving=True))
    assert list(pub.router.streams[stream_key(NAME)].chunks) == [1]


def test_a_goodbye_over_tcp_ends_nothing_of_who_is_inside_the_process():
    pub = Publisher()
    pub.come(None, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), stream_key(NAME), key(2, leaving=True))
    pub.come(HOSTILE, stream_key(NAME), key(2, leaving=True))
    assert not pub.router.streams[stream_key(NAME)].is_closing
    pub.come(None, key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing


def test_what_a_connection_that_has_closed_asked_for_it_may_take_back():
    pub = Publisher()
    closed = Peer(9, None)
    declared = key(1, "n", name=b"c" * 16)
    for one in (b"a", stream_key(b"c" * 16), declared):
        pub.come(closed, one)
        pub.go(closed, one, one)
    assert not pub.wants(b"a")
    pub.router.expire(100.0)
    assert not pub.router.streams
    # It was asked for by others too, who keep it.
    pub.come(HONEST, b"b")
    pub.come(closed, b"b")
    pub.go(closed, b"b", b"b")
    pub.go(Peer(10, None), b"b")
    assert pub.wants(b"b")
    pub.go(HONEST, b"b")
    assert not pub.wants(b"b")


def test_the_end_of_a_connection_that_had_closed_is_not_mixed_up_with_what_comes_later():
    pub = Publisher()
    closed = Peer(9, None)
    pub.come(HONEST, b"a")
    pub.come(closed, b"a")
    pub.go(None, b"a")
    pub.come(closed, b"a")
    pub.go(closed, b"a")
    assert pub.wants(b"a")
    pub.go(HONEST, b"a")
    assert not pub.wants(b"a")


def test_what_a_connection_that_has_closed_was_refused_it_may_take_back():
    pub = Publisher(plain_size=4)
    closed = Peer(9, None)
    pub.come(None, b"long.")
    pub.come(closed, b"long.")
    assert pub.stats.refused == 1
    pub.go(closed, b"long.", b"long.")
    assert pub.wants(b"long.a")
    # Nobody was refused it that is still there: so this is the end of who was not.
    pub.go(None, b"long.")
    assert not pub.wants(b"long.a")


def test_one_that_gets_the_descriptor_of_a_closed_connection_takes_nothing_back_of_others():
    pub = Publisher()
    pub.come(HONEST, b"a")
    for descriptor in (9, 10):
        pub.come(Peer(descriptor, None), b"a")
    pub.go(None, b"a")
    pub.go(Peer(9, None), b"a", b"a")
    pub.go(None, b"a")
    pub.go(Peer(9, None), b"a")
    assert pub.wants(b"a")


def test_what_a_connection_that_has_closed_takes_back_counts_only_if_it_held_it():
    pub = Publisher()
    pub.come(HONEST, b"a")
    pub.go(Peer(HOSTILE.descriptor, None), b"a")
    assert pub.wants(b"a")
    pub.go(Peer(HONEST.descriptor, None), b"a")
    assert not pub.wants(b"a")


def test_what_a_verbose_proxy_passes_on_again_is_answered_again():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.router.to_answer.clear()
    assert pub.come(HONEST, stream_key(NAME)) == [((stream_key(NAME),), ())]
    assert len(pub.router.to_answer) == 1


def test_a_stream_is_told_what_the_end_of_one_of_its_connections_took_back():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, stream_key(NAME))
    pub.router.to_answer.clear()
    pub.alive.discard(HONEST)
    pub.go(None, key(1, "a"), stream_key(NAME))
    (stream,) = pub.router.to_answer
    assert not stream.live()


def test_an_end_that_is_read_late_takes_no_more_than_one_hold():
    them = Connections()
    for step in (
        ("come", 1, b"b"),
        ("come", 2, b"b"),
        ("end", 2, b"b"),
        ("come", 0, b"b"),
        ("come", 2, b"b"),
        ("read", 0, b"b"),
        ("read", 0, b"b"),
        ("end", 1, b"b"),
        ("end", 2, b"b"),
    ):
        them.act(*step)
    them.read_all()
    assert them.pub.wants(b"b")


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


class Connections:
    """Connections over three descriptors, which others have later; what they say is read later still."""

    def __init__(self):
        self.pub = Publisher()
        self.pub.alive.clear()
        self._inodes = itertools.count(1)
        self._owners = {}
        self.held = {}
        self._unread = []

    def act(self, action, descriptor, prefix):
        """Say something on a descriptor, end its connection, or read what was said first."""
        if action == "read":
            self.read()
            return
        peer = self._owners.get(descriptor)
        if peer is None:
            peer = self._owners[descriptor] = Peer(descriptor, next(self._inodes))
            self.held[peer] = set()
            self.pub.alive.add(peer)
        if action == "end":
            self.end(descriptor)
        elif action == "come":
            self.held[peer].add(prefix)
            self._unread.append((peer, b"\1" + prefix))
        else:
            # It may well not hold that.
            self.held[peer].discard(prefix)
            self._unread.append((peer, b"\0" + prefix))

    def has(self, descriptor, prefix):
        return prefix in self.held.get(self._owners.get(descriptor), ())

    def end(self, descriptor):
        peer = self._owners.pop(descriptor)
        self.pub.alive.discard(peer)
        self._unread += [(None, b"\0" + one) for one in self.held.pop(peer)]

    def read(self):
        if self._unread:
            peer, frame = self._unread.pop(0)
            if peer is not None:
                # All that can be known when it is read is what has the descriptor by then.
                now = self._owners.get(peer.descriptor)
                peer = Peer(peer.descriptor, None if now is None else now.inode)
            self.pub.take(frame, peer)

    def read_all(self):
        while self._unread:
            self.read()


@settings(max_examples=size(60, 2_000), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["come", "come", "go", "end", "read", "read", "read"]),
            st.integers(0, 2),
            st.sampled_from([b"a", b"b"]),
        ),
        max_size=60,
    )
)
def test_nobody_loses_what_it_holds_however_late_it_is_read(steps):
    them = Connections()
    for action, descriptor, prefix in steps:
        # What takes back only what it holds, as libzmq does. See decision 060 for those that do not.
        if action != "go" or them.has(descriptor, prefix):
            them.act(action, descriptor, prefix)
    them.read_all()
    for prefix in (b"a", b"b"):
        assert them.pub.wants(prefix) >= any(prefix in held for held in them.held.values())


@settings(max_examples=size(60, 2_000), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "go", "end"]), st.integers(0, 2), st.sampled_from([b"a", b"b"])),
        max_size=60,
    )
)
def test_nobody_loses_what_it_holds_whatever_others_take_back(steps):
    them = Connections()
    for step in steps:
        them.act(*step)
        them.read_all()
    for prefix in (b"a", b"b"):
        assert them.pub.wants(prefix) >= any(prefix in held for held in them.held.values())


@settings(max_examples=size(60, 2_000), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "go", "end"]), st.integers(0, 2), st.sampled_from([b"a", b"b"])),
        max_size=60,
    )
)
def test_nothing_is_left_of_connections_that_are_read_at_once(steps):
    them = Connections()
    for action, descriptor, prefix in steps:
        # A subscriber asks once for what it wants.
        if action != "come" or not them.has(descriptor, prefix):
            them.act(action, descriptor, prefix)
        them.read_all()
    for prefix in (b"a", b"b"):
        assert them.pub.wants(prefix) == any(prefix in held for held in them.held.values())
    for peer in list(them.held):
        them.end(peer.descriptor)
    them.read_all()
    assert not them.pub.wants(b"a")
    assert not them.pub.wants(b"b")


def sweep(pub, looks=2 * (SETTLED + 1)):
    """Have a publisher look for what was left behind."""
    for _ in range(looks):
        pub.now += SWEEP_EVERY
        pub.queue.sweep(pub.now)
        pub.work()


@each("peer", [HOSTILE, HOSTILE._replace(inode=None)])
@each("is_shared", [False, True])
def test_a_key_that_was_asked_for_twice_ends_with_its_connection(peer, is_shared):
    pub, all_keys = Publisher(), [b"a", key(1, "n"), stream_key(NAME)]
    if is_shared:
        pub.come(HONEST, *all_keys)
    pub.come(peer, *all_keys, *all_keys)
    pub.alive.discard(HOSTILE)
    pub.go(None, *all_keys)
    sweep(pub, SETTLED)
    assert pub.wants(b"a.b")
    sweep(pub)
    assert pub.wants(b"a.b") == is_shared
    assert len(pub.queue.holders) == len(all_keys) * is_shared
    assert pub.router.streams[stream_key(NAME)].listeners == is_shared
    pub.alive.discard(HONEST)
    pub.go(None, *all_keys * is_shared)
    assert not pub.wants(b"a.b")
    sweep(pub)
    assert not pub.queue.has_doubts
    assert not len(pub.queue.holders)


def test_what_was_refused_to_those_who_had_closed_is_not_remembered_for_ever():
    pub = Publisher(plain_size=1)
    for _ in range(2):
        pub.come(Peer(9, None), b"too long")
    pub.go(None, b"too long")
    assert pub.queue.has_doubts
    sweep(pub)
    assert not pub.queue.has_doubts
    pub.come(HONEST, b"n")
    pub.alive.discard(HONEST)
    pub.go(None, b"n")
    assert not pub.wants(b"n")


def test_what_was_granted_and_refused_to_one_connection_is_not_remembered_when_it_ends():
    pub = Publisher(plain_subscriptions=1)
    pub.come(HOSTILE, b"a", b"b", b"a")
    pub.alive.discard(HOSTILE)
    pub.go(None, b"a", b"b")

    assert not pub.queue.holders.refused


def test_who_is_there_keeps_what_it_has_when_the_end_of_another_was_taken_for_that_of_one_refused():
    pub = Publisher(plain_subscriptions=1)
    other = Peer(9, 90)
    pub.alive.add(other)
    pub.come(HONEST, b"a")
    pub.come(other, b"a")
    pub.come(HOSTILE, b"b", b"a")
    for peer in (other, HOSTILE):
        pub.alive.discard(peer)
        pub.go(None, b"a")
        sweep(pub)

    assert pub.wants(b"a")


def test_who_is_there_keeps_what_it_has_when_another_ends_before_it_is_read_that_it_took_that_back():
    pub = Publisher()
    pub.come(HONEST, b"a")
    pub.come(HOSTILE, b"a")
    # Which connection has ended is not known yet.
    pub.go(None, b"a")
    pub.go(HOSTILE, b"a")
    assert pub.wants(b"a")
    pub.go(HONEST, b"a")
    assert not pub.wants(b"a")


def test_who_is_there_keeps_what_it_asked_for_twice():
    pub = Publisher()
    pub.come(HONEST, b"a", b"a")
    sweep(pub)
    sweep(pub)
    assert pub.wants(b"a")
    assert pub.queue.has_doubts


@settings(max_examples=size(60, 2_000), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["come", "come", "come", "go", "end", "read", "read", "sweep"]),
            st.integers(0, 2),
            st.sampled_from([b"a", b"b"]),
        ),
        max_size=60,
    )
)
def test_nothing_is_left_in_the_end_and_nobody_loses_what_it_holds(steps):
    them = Connections()
    for action, descriptor, prefix in steps:
        if action == "sweep":
            them.read_all()
            sweep(them.pub)
        elif action != "go" or them.has(descriptor, prefix):
            them.act(action, descriptor, prefix)
    them.read_all()
    sweep(them.pub)
    for prefix in (b"a", b"b"):
        assert them.pub.wants(prefix) >= any(prefix in held for held in them.held.values())
    for peer in list(them.held):
        them.end(peer.descriptor)
    them.read_all()
    sweep(them.pub)
    assert not them.pub.wants(b"a")
    assert not them.pub.wants(b"b")
    assert not them.pub.queue.has_doubts
    assert not len(them.pub.queue.holders)


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
