"""Runs of one publisher's connections, whose descriptors others have later, and what is counted of them.

ZeroMQ does not say whose end it was when it takes something back, and by the time something is read its
connection may be gone, and another have its number. Whatever comes of that, who is there keeps what it has,
and of who has gone nothing is left: docs/decisions/060-who-holds-a-key.md, docs/limits.md.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random

from oz.protocol.publisher import interest_queue
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.interest_queue import SWEEP_EVERY, InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.keys import (
    DECLARATION,
    OWN,
    STREAM,
    Declaration,
    is_goodbye,
    parse_declaration,
    parse_stream,
    stream_key,
    stream_of,
)
from simulation.accounts import check_accounts
from simulation.bounds import check_bounds
from simulation.changing import changed
from simulation.connected import DESCRIPTORS, LIMITS, OVERHEAD, PLAIN, Link
from simulation.ledger import check
from simulation.left_behind import (
    check_counts,
    check_each,
    check_empty,
    check_kept,
    check_left,
    check_streams,
)
from simulation.places import check_places
from simulation.schedule import Fault

STEPS, LOOKS = 90, 8
"""Things that happen in a run, and looks for what was left behind after which nothing is."""

FEW_ACCOUNTS, SELDOM = 4, 64
"""Accounts from which on those that are idle are forgotten, and bytes after which it is found out anew what
ZeroMQ reads besides."""

ACTIONS = {"come": 18, "go": 6, "end": 4, "read": 18, "sweep": 2, "look": 4, "lose": 1, "leave": 4}


class DescriptorWorld:
    """A publisher's queue, and connections over a few descriptors."""

    name = "p1"

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 13)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.is_late = random.random() < 0.5
        self.is_hostile = not self.is_late and random.random() < 0.5
        # Where ends are read late nobody can tell those inside the process from others that were refused.
        self.has_inside = not self.is_late and random.random() < 0.4
        self.is_verbose = not self.has_inside and random.random() < 0.4
        # Few, so that several hold one.
        self.plain = random.sample(PLAIN, random.choice((2, 4, len(PLAIN))))
        kinds = random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        every = [Fault(at, kind, (str(random.randrange(DESCRIPTORS)),), 0.0) for at, kind in enumerate(kinds)]
        self.faults = every if faults is None else faults
        self.limits, self.stats, self.now = LIMITS, PublisherStats(), 100.0
        self.router = Router(bytes(16), self.stats, limits=LIMITS)
        self.queue = InterestQueue(self.router, LIMITS, self.is_there)
        self.links, self.alive, self._unread = {}, {}, []
        self.inodes, self._number, self.refused, self.warned = 0, 10, set(), []

    def is_there(self, peer):
        return peer in self.alive

    def warning(self, text, *values):
        """Be told what a publisher logs."""
        self.warned.append(text % values)

    def run(self):
        """Let everything happen, and check what must be so."""
        changes = (
            (interest_queue, "_FIRST_SWEEP", FEW_ACCOUNTS),
            (interest_queue, "_COUNTED_ANEW", SELDOM),
            (interest_queue, "_log", self),
        )
        with changed(*changes):
            for fault in self.faults:
                link = self._link(int(fault.who[0]))
                getattr(self, f"_{fault.kind}")(link)
                if not self.is_late:
                    self._read_all()
                    check_each(self)
                    if fault.at % 5 == 0 and not self.is_hostile:
                        check_streams(self)
                self._cut()
            self._read_all()
            self._sweep()
            check_kept(self)
            if not (self.is_late or self.is_hostile):
                check_accounts(self)
            for link in list(self.links.values()):
                self._end(link)
            self._read_all()
            self._sweep()
            # Streams are kept for a while.
            self.now += 40.0
            self._sweep()
            check_empty(self)
        told, refused = len(self.warned), self.stats.refused
        check(told == (refused > 0), "{} were refused, and {} were logged", refused, told)
        check_places(self.random)
        check_bounds(self.random)
        return self

    def _link(self, descriptor):
        link = self.links.get(descriptor)
        if link is None:
            self.inodes += 1
            is_inside = self.has_inside and not descriptor
            link = self.links[descriptor] = Link(descriptor, self.inodes, is_inside=is_inside)
            self.alive[link.peer] = link
        return link

    def _take_number(self):
        """Number a declaration; who uses another's name uses its numbers, too."""
        self._number += 1
        return self.random.randrange(1, 4) if self.is_hostile else self._number

    # what connections do ---------------------------------------------------------------------------------

    def _come(self, link):
        key = link.keys(self.random, self.plain, self._take_number())
        if key in link.held:
            has_left = any(one in key for one in link.left)
            if self.is_verbose and not has_left and key in link.granted:
                self._say(link, key)
            return
        # It listens before it declares, as all do.
        if not key.startswith(OWN) or key in {stream_key(one) for one in link.names}:
            self._say(link, key)
            return
        name = next(one for one in link.names if one in key)
        if name in link.left:
            return
        for one in (stream_key(name), key):
            if one not in link.held:
                self._say(link, one)

    def _say(self, link, key):
        link.held.append(key)
        link.in_zmq.add(key)
        if key.startswith(STREAM):
            link.returned |= link.streams & {key}
            link.streams.add(key)
        link.bytes += len(key) + 1 + OVERHEAD
        self._unread.append((link, b"\1" + key))

    def _leave(self, link):
        """Say goodbye to a stream that it listens on."""
        if self.is_hostile and not link.is_inside and self.random.random() < 0.5:
            # Of somebody else, on whose stream it does not listen.
            names = [key for other in self.links.values() for key in other.streams if key not in link.streams]
            if names:
                name = parse_stream(self.random.choice(names))
                goodbye = Declaration(name, 9, is_closing=True).encode()
                link.early.add(goodbye)
                link.in_zmq.add(goodbye)
                link.bytes += len(goodbye) + 1 + OVERHEAD
                self._unread.append((link, b"\1" + goodbye))
            return
        names = [one for one in link.names if stream_key(one) in link.held and one not in link.left]
        if not names:
            return
        name = self.random.choice(names)
        goodbye = Declaration(name, 9, is_closing=True).encode()
        if self._expect(link, goodbye):
            return
        link.left.add(name)
        for other in self.links.values():
            if stream_key(name) not in other.held:
                # It does not listen just now: the stream ends for it, too, with what it has declared.
                other.ended.update(key for key in other.held if key.startswith(OWN + b"D") and name in key)
        self._say(link, goodbye)
        if not self.is_late:
            self._read_all()
            check_left(self, link, name)

    def _go(self, link):
        key = self.random.choice(link.held) if link.held else None
        if self.is_hostile and not link.is_inside and self.random.random() < 0.5:
            # What somebody else holds, and it does not.
            others = [one for other in self.links.values() for one in other.held if one not in link.held]
            key = self.random.choice(others) if others else key
        if key is None:
            return
        if key in link.held:
            link.held.remove(key)
        link.in_zmq.discard(key)
        link.early.discard(key)
        link.bytes += len(key) + 1 + OVERHEAD
        self._unread.append((link, b"\0" + key))

    def _end(self, link):
        del self.links[link.peer.descriptor]
        del self.alive[link.peer]
        # What was asked for more often than ZeroMQ takes it back is counted until somebody looks.
        self.refused.update(one for one in link.held if link.held.count(one) > (one in link.in_zmq))
        taken = dict.fromkeys([*link.held, *sorted(link.early)]) if not link.is_inside else link.held
        self._unread += [(None, b"\0" + key) for key in taken if link.is_inside or key in link.in_zmq]

    def _lose(self, link):
        """Have something come of which ZeroMQ does not know any more whose it is: it is to be asked again."""
        key = link.keys(self.random, self.plain, self._take_number())
        self._read_all()
        if key in link.held or link.is_inside:
            return
        link.held.append(key)
        link.in_zmq.add(key)
        link.refusals.add(key)
        self.queue.pass_over(b"\1" + key, link.peer)
        self.queue.pass_over(b"what is no subscription", link.peer)
        self.queue.pass_over(b"\0" + key, None)
        check(self.queue.to_cut == [link.peer], "what was lost is not asked for again")
        self.refused.add(key)

    def _look(self, link):
        """See whether ZeroMQ holds very much of a connection that nobody has read."""
        if link.is_inside:
            return
        unread = sum(len(frame) + OVERHEAD for other, frame in self._unread if other is link)
        beside = self.random.choice((0, 0, 20, 400))
        before = list(self.queue.to_cut)
        self.queue.look_behind(link.peer, lambda _: link.bytes + beside)
        is_cut = self.queue.to_cut != before
        most = LIMITS.waiting_keys + LIMITS.refused_bytes
        known = self.queue.accounts[link.peer].read
        is_all = known == link.bytes - unread
        check(
            is_all or self.is_late,
            "{} bytes are read, and {} counted",
            link.bytes - unread,
            known,
        )
        if is_all:
            check(
                is_cut == (unread + beside > most), "{} bytes wait, and that is {}", unread + beside, is_cut
            )
            self.mechanisms["connection cut for haste"] += is_cut
        if is_cut:
            self.queue.to_cut.remove(link.peer)

    def _cut(self):
        """End the connections that have asked for too much in vain."""
        for peer in self.queue.to_cut:
            check(self.queue.to_cut.count(peer) == 1, "{} is cut twice", peer)
            self.mechanisms["connection cut for what it was refused"] += 1
            if peer in self.alive:
                self._end(self.alive[peer])
        self.queue.to_cut.clear()

    # what is read ----------------------------------------------------------------------------------------

    def _read(self, _=None):
        if not self._unread:
            return
        said_by, frame = self._unread.pop(0)
        peer = None if said_by is None or said_by.is_inside else said_by.peer
        link = None if said_by is None else self.alive.get(said_by.peer)
        if peer is not None and link is None:
            # All that is known when it is read is who has the descriptor by then.
            now = self.links.get(peer.descriptor)
            peer = Peer(peer.descriptor, None if now is None else now.peer.inode)
        reason = None
        if not self.is_late and link is not None and frame[:1] == b"\1" and frame[1:] not in link.granted:
            reason = self._expect(link, frame[1:])
        refused = self.stats.refused
        self.queue.take(frame, peer, self.now)
        if not self.is_late and link is not None and frame[:1] == b"\1":
            is_refused = self.stats.refused > refused
            # What has ended may be counted for a while, for the same reason; what it holds takes no more.
            may_be = self.refused and frame[1:] not in link.granted
            is_right = is_refused == bool(reason) or (is_refused and may_be)
            check(is_right, "{!r} is refused: {}, for {}", frame[1:], is_refused, reason)
            if not is_refused and (frame[1:] in link.held or not is_goodbye(frame[1:])):
                link.granted.add(frame[1:])
                self._grant_early(link, frame[1:])
            elif not is_refused:
                self.mechanisms["goodbye of somebody else passed over"] += 1
            else:
                self.refused.add(frame[1:])
                link.refusals.add(frame[1:])
                self._refuse(link, len(frame) - 1)
        elif link is not None and frame[1:] not in link.held:
            link.granted.discard(frame[1:])
        self._work(frame, is_counted=peer is not None and link is not None and frame[1:] in link.granted)
        check(
            not self.queue.turns.size and not self.queue.turns.keys(),
            "something waits that was looked at",
        )

    def _grant_early(self, link, key):
        """A goodbye that was said before counts from when its connection listens."""
        for goodbye in link.early & link.in_zmq:
            if key == stream_key(stream_of(goodbye)) and not self._expect(link, goodbye):
                link.granted.add(goodbye)
                self.mechanisms["goodbye believed late"] += 1

    def _work(self, frame, *, is_counted):
        """Look at what was said, with a clock by which each step takes too long: one pattern is one step."""
        is_counted &= self.queue.waits and frame.startswith(b"\1" + DECLARATION)
        said = parse_declaration(frame[1:]) if is_counted else None
        # What stands already may be more than is let in by now.
        before = self.router.streams.get(stream_key(said.stream)) if is_counted else None
        is_counted &= before is None or not (
            before.chunks.has_number(said.chunk) or before.ending.has_number(said.chunk)
        )
        steps, clock = 0, count()
        while self.queue.waits:
            self.queue.work(lambda: float(next(clock)))
            steps += 1
        if not is_counted:
            return
        stream = self.router.streams.get(stream_key(said.stream))
        if stream is not None and said.chunk not in stream.refused:
            check(steps > len(said.patterns), "{} are looked at in {} steps", len(said.patterns), steps)

    def _expect(self, link, key):
        """Say why something is to be refused, by docs/limits.md."""
        if link.is_inside and key.startswith(OWN):
            return None
        mine = [one for one in link.granted if one.startswith(OWN) == key.startswith(OWN)]
        size = sum(map(len, mine)) + len(key)
        if key.startswith(OWN):
            streams = sum(one[:3] == key[:3] for one in mine) if key.startswith(STREAM) else 0
            return (size > LIMITS.key_bytes and "bytes") or (streams >= LIMITS.streams and "streams")
        named = [other for other in self.links.values() if not other.is_inside]
        every = sum(len(one) for other in named for one in other.granted if not one.startswith(OWN))
        if link.is_inside:
            return every + len(key) > LIMITS.all_plain_bytes and "all"
        return (
            (every + len(key) > LIMITS.all_plain_bytes and "all")
            or (len(key) > LIMITS.plain_size and "size")
            or (len(mine) >= LIMITS.plain_subscriptions and "number")
            or (size > LIMITS.plain_bytes and "bytes")
        )

    def _refuse(self, link, size):
        if link.is_inside:
            return
        before, link.refused = link.refused, link.refused + size
        must = before <= LIMITS.refused_bytes < link.refused
        check((link.peer in self.queue.to_cut) == must, "{} bytes were refused, and it is cut", link.refused)

    def _read_all(self):
        while self._unread:
            self._read()

    def _sweep(self, _=None):
        """Look for what was left behind; all that has come was read."""
        self._read_all()
        for _ in range(LOOKS):
            self.now += SWEEP_EVERY
            self.queue.sweep(self.now)
            while self.queue.waits:
                self.queue.work(lambda: 0.0)
            self.router.expire(self.now)
        if not (self.is_late or self.is_hostile):
            # What was left behind was found; who was refused something is still to end.
            self.refused = set().union(*(link.refusals for link in self.links.values()))
            check_counts(self)
            check_streams(self, is_swept=True)
