"""Whatever connections say and however late it is read: nobody loses what it holds, and nothing is left."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from oz.protocol.publisher.interest_queue import SWEEP_EVERY
from oz.protocol.publisher.key_holders import SETTLED
from oz.transport.backend import Peer
from oz.wire.keys import stream_key
from protocol.publisher.queued import HONEST, HOSTILE, NAME, Publisher, key
from support.cases import each
from support.sizes import size


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


whatever_is_said = given(
    st.lists(
        st.tuples(st.sampled_from(["come", "go", "end"]), st.integers(0, 2), st.sampled_from([b"a", b"b"])),
        max_size=60,
    )
)
"""Steps of three connections that come, go and end, with two prefixes."""


@settings(max_examples=size(60, 2_000), deadline=None)
@whatever_is_said
def test_nobody_loses_what_it_holds_whatever_others_take_back(steps):
    them = Connections()
    for step in steps:
        them.act(*step)
        them.read_all()
    for prefix in (b"a", b"b"):
        assert them.pub.wants(prefix) >= any(prefix in held for held in them.held.values())


@settings(max_examples=size(60, 2_000), deadline=None)
@whatever_is_said
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

    assert not pub.queue.holders.refusals.counts


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


def end_of_one_that_was_refused(pub):
    """Have one be refused a key while others ask for it, and end."""
    pub.come(HOSTILE, b"b", b"c", b"a")
    pub.alive.discard(HOSTILE)
    pub.go(None, b"b", b"c", b"a")


@each("pause", [0, 1, SETTLED])
def test_who_was_refused_a_key_and_has_ended_is_forgotten_though_another_leaves_it_behind(pause):
    pub = Publisher(plain_subscriptions=2)
    pub.come(HONEST, b"a", b"a")
    end_of_one_that_was_refused(pub)
    sweep(pub, pause)
    pub.alive.discard(HONEST)
    pub.go(None, b"a")
    sweep(pub)
    assert not pub.queue.holders.refusals.counts
    assert not pub.wants(b"a")
    assert not pub.queue.has_doubts


def test_end_is_not_spared_for_that_of_one_that_was_refused_the_key_and_has_ended():
    pub, others = Publisher(plain_subscriptions=2), (Peer(9, 90), Peer(10, 100))
    pub.alive.update(others)
    end_of_one_that_was_refused(pub)
    for other in (*others, HONEST, HONEST):
        pub.come(other, b"a")
    pub.alive.discard(HONEST)
    pub.go(None, b"a")
    sweep(pub)
    for other in others:
        pub.alive.discard(other)
        pub.go(None, b"a")
    assert not pub.wants(b"a")


def test_end_is_spared_for_that_of_one_that_was_refused_the_key_and_ends_only_later():
    pub, other = Publisher(plain_subscriptions=2), Peer(9, 90)
    pub.alive.add(other)
    pub.come(HONEST, b"a")
    pub.come(other, b"a")
    pub.come(HOSTILE, b"b", b"c", b"a")
    pub.alive.discard(HONEST)
    pub.go(None, b"a")
    sweep(pub, 1)
    # It ends while it is not known yet whose end that was.
    pub.alive.discard(HOSTILE)
    sweep(pub, SETTLED - 1)
    pub.go(None, b"b", b"c", b"a")
    sweep(pub)
    assert pub.wants(b"a")
    assert not pub.queue.holders.refusals.counts


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
