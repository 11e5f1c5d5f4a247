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
from oz.security.limits import Limits
from oz.wire.keys import (
    DECLARATION,
    ID_SIZE,
    OWN,
    STREAM,
    Declaration,
    Declared,
    is_goodbye,
    parse_declaration,
    parse_stream,
    stream_key,
    stream_of,
)
from simulation.accounts import check_accounts
from simulation.changing import changed
from simulation.leaks import count_reached
from simulation.ledger import check, matches
from simulation.places import check_places
from simulation.schedule import Fault

STEPS, LOOKS = 90, 8
"""Things that happen in a run, and looks for what was left behind after which nothing is."""

LIMITS = Limits(
    streams=2, patterns=5, plain_subscriptions=3, plain_size=8, plain_bytes=12, all_plain_bytes=20,
    refused_bytes=60, key_bytes=400, waiting_keys=300,
)  # fmt: skip
"""So little that somebody asks for more."""

PLAIN = b"a", b"b", b"bb", b"c", b"c.c.c", b"longer", b"eight...", b"longest..", b"a.b.c.d"
PATTERNS = b"a.*", b"b.>", b"c", b"*.d"
SUBJECTS = b"a", b"bb", b"longer", b"longest..", b"a.b.c.d", b"c.x", b"a.d", b"b.c", b"c"
DESCRIPTORS, MOST_LEFT = 4, 4
"""Descriptors, and entries of dictionaries, sets and lists that are left of those who have gone."""

BOTH, TWICE = b"both", (2, 3)
"""The name of a stream that the same subscriber has over two connections, which have these descriptors."""

OVERHEAD = 11
"""Bytes of a frame on the wire beside its own."""

FEW_ACCOUNTS, SELDOM = 4, 64
"""Accounts from which on those that are idle are forgotten, and bytes after which it is found out anew what
ZeroMQ reads besides."""

ACTIONS = {"come": 18, "go": 6, "end": 4, "read": 18, "sweep": 2, "look": 4, "lose": 1, "leave": 4}


class Link:
    """A connection, as ZeroMQ has it.

    Attributes:
        held: what it has asked for, and not taken back, as often as it has: a verbose proxy asks each time.
        refusals: the keys that it was refused.
        returned: the keys of streams on which it did not listen for a moment, whose patterns end later then.
        left: the names of the streams to which it has said goodbye.
        ended: what it has declared on a stream to which another said goodbye while it did not listen there.
        early: the goodbyes that it said to streams on which it did not listen.
        in_zmq: of that what ZeroMQ takes back when it ends: once, and nothing of what was taken back once.
        is_inside: it is inside the process, and ZeroMQ tells nothing of it.
    """

    def __init__(self, descriptor, inode, *, is_inside=False):
        self.peer, self.is_inside = Peer(descriptor, inode), is_inside
        self.names = [(b"%d.%d" % (inode, number)).ljust(ID_SIZE) for number in range(2)]
        # One subscriber may be connected twice.
        self.names.append((BOTH if descriptor in TWICE else b"%d" % inode).ljust(ID_SIZE))
        self.held, self.granted, self.streams, self.in_zmq = [], set(), set(), set()
        self.refusals, self.left, self.returned, self.ended = set(), set(), set(), set()
        self.early = set()
        self.refused = self.bytes = 0

    def keys(self, random, plain, number):
        """Return something that it may ask for; a declaration has a number."""
        name = random.choice(self.names)
        patterns = tuple(Declared(1, text) for text in random.sample(PATTERNS, random.choice((1, 2, 3))))
        return random.choice(
            (
                random.choice(plain),
                random.choice(plain),
                stream_key(name),
                Declaration(name, number, patterns=patterns).encode(),
            )
        )


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
        self._inodes, self._number, self.refused, self.warned = 0, 10, set(), []

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
                    self._check_each()
                    if fault.at % 5 == 0 and not self.is_hostile:
                        self._check_streams()
                self._cut()
            self._read_all()
            self._sweep()
            self._check_kept()
            if not (self.is_late or self.is_hostile):
                check_accounts(self)
            for link in list(self.links.values()):
                self._end(link)
            self._read_all()
            self._sweep()
            # Streams are kept for a while.
            self.now += 40.0
            self._sweep()
            self._check_empty()
        told, refused = len(self.warned), self.stats.refused
        check(told == (refused > 0), "{} were refused, and {} were logged", refused, told)
        check_places(self.random)
        return self

    def _link(self, descriptor):
        link = self.links.get(descriptor)
        if link is None:
            self._inodes += 1
            is_inside = self.has_inside and not descriptor
            link = self.links[descriptor] = Link(descriptor, self._inodes, is_inside=is_inside)
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
            self._check_left(link, name)

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
        if known == link.bytes - unread:
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
            self._check_counts()
            self._check_streams(is_swept=True)

    # what must be so -------------------------------------------------------------------------------------

    def _check_each(self):
        """Messages go to all who have asked, and to nobody else: each of its own, and plain ones of all."""
        granted = {one for link in self.links.values() for one in link.granted if not one.startswith(OWN)}
        for subject in SUBJECTS:
            expected = any(subject.startswith(one) for one in granted)
            found = self.router.plain.matches(subject)
            if any(subject.startswith(one) for one in self.refused):
                # Who ends may be the one that was refused it: rather an interest that lasts too long.
                expected |= found
            check(found == expected, "{!r} is asked for: {}, and goes out: {}", subject, expected, found)

    def _check_kept(self):
        """Who is there has what it has asked for, whatever others did; who asks once more is answered."""
        for link in self.links.values():
            for key in link.held:
                if self.is_late and (len(key) > LIMITS.plain_size or key.startswith(OWN)):
                    continue
                if key in link.granted and not key.startswith(OWN):
                    check(self.router.plain.matches(key), "{!r} is held, and nobody gets it", key)
                # Those that are asked for no more are counted for a while.
                has_room = len(link.streams) <= LIMITS.streams
                if has_room and key in link.granted and key.startswith(STREAM):
                    stream = self.router.streams.get(key)
                    check(stream is not None and stream.listeners, "a stream is held, and nobody listens")
        most = 5 * DESCRIPTORS
        check(len(self.queue.accounts) <= most, "{} accounts are known", len(self.queue.accounts))

    def _check_left(self, link, name):
        """Who has said goodbye to a stream that nobody else has is given nothing more on it."""
        key = stream_key(name)
        self.mechanisms["left at a publisher"] += 1
        if key not in link.granted or any(key in one.held for one in self.links.values() if one is not link):
            return
        self.mechanisms["left alone"] += 1
        for subject in SUBJECTS:
            found = [one.key for one in self.router.find(subject, subject).streams]
            check(
                key not in found or key in self.refused, "{!r} goes out to {}, which has left", subject, name
            )

    def _check_streams(self, *, is_swept=False):
        """Who asks for something is given it on its stream until it has left, and nobody else is."""
        asked, given = {}, {}
        for link in self.links.values():
            # Those that are asked for no more are counted for a while, and the next may have no room.
            has_room = len(link.streams) <= LIMITS.streams
            for key in link.granted.intersection(link.held):
                if key.startswith(OWN + b"D") and not is_goodbye(key) and key not in link.ended:
                    said = parse_declaration(key)
                    stream = self.router.streams.get(stream_key(said.stream))
                    is_there = said.stream not in link.left and stream_key(said.stream) in link.granted
                    if is_there and stream is not None and said.chunk not in stream.refused:
                        texts = [one.text.decode() for one in said.patterns]
                        asked.setdefault(stream, []).extend(texts)
                        given.setdefault(stream, []).extend(texts if has_room else ())
        there = [link.granted - link.returned for link in self.links.values() if not link.is_inside]
        for subject in SUBJECTS:
            found = self.router.find(subject, subject).streams
            for stream, texts in given.items():
                if any(matches(text, subject.decode()) for text in texts):
                    check(
                        stream in found, "{!r} is asked for on {}, and does not go out", subject, stream.name
                    )
            if is_swept:
                for stream in found:
                    texts = asked.get(stream, ())
                    is_asked = any(matches(text, subject.decode()) for text in texts)
                    # Who was cut off is counted on for a while, and may be inside the process.
                    is_cut = stream.name.startswith(BOTH) or not any(stream.key in one for one in there)
                    check(
                        is_asked or is_cut or stream.refused or stream.key in self.refused,
                        "{!r} goes out on {}, and nobody asks for it", subject, stream.name,
                    )  # fmt: skip

    def _check_counts(self):
        """Subscriptions are as many as those who are there have asked for and not been refused."""
        for subject in SUBJECTS:
            if any(subject.startswith(one) for one in self.refused):
                continue
            expected = sum(
                subject.startswith(key)
                for link in self.links.values()
                for key in link.held
                if key in link.granted and not key.startswith(OWN)
            )
            found = self.router.plain.count(subject)
            check(found == expected, "{} are counted for {!r}, and there are {}", found, subject, expected)

    def _check_empty(self):
        """Of who has gone nothing is left."""
        queue, router, holders = self.queue, self.router, self.queue.holders
        left = [holders.held(), holders.refusals.unknown, queue.turns.accounts(), router.streams]
        # What was refused is remembered where it was taken back, and another had the descriptor by then.
        left += [holders.refusals.counts] * (not self.is_late)
        check(not any(left), "of those who have gone there is {}", left)
        check(not queue.has_doubts, "of those who have gone something is doubted")
        check(not queue.plain_bytes and not queue.turns.size, "bytes of those who have gone are counted")
        check(not router.interest.pattern_count, "patterns of those who have gone are counted")
        for subject in SUBJECTS:
            check(not router.find(subject, subject).kind, "{!r} goes out to nobody", subject)
        for account in (*queue.accounts.values(), *queue.closed.values()):
            sums = account.keys, account.streams, account.plain, account.plain_bytes, account.key_bytes
            sums += account.patterns, account.pattern_weight, account.own_streams, account.beating
            check(not any(sums) or account.peer is None, "{} has gone, and is counted {}", account.peer, sums)
        # Accounts are kept for a while, and the newest of each descriptor.
        most = len(queue.accounts) + DESCRIPTORS + sum(len(one.refused) for one in queue.accounts.values())
        held = count_reached(queue, router, beside=(self, self.alive))
        check(held <= most + MOST_LEFT, "{} entries are left of those who have gone", held - most)
        self.mechanisms["descriptor used again"] += self._inodes > DESCRIPTORS
