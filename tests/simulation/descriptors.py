"""Runs of one publisher's connections, whose descriptors others have later, and what is counted of them.

ZeroMQ does not say whose end it was when it takes something back, and by the time something is read its
connection may be gone, and another have its number. Whatever comes of that, who is there keeps what it has,
and of who has gone nothing is left: docs/decisions/060-who-holds-a-key.md, docs/limits.md.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from oz.protocol.publisher import interest_queue
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.interest_queue import SWEEP_EVERY, InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.wire.keys import ID_SIZE, OWN, STREAM, Declaration, Declared, stream_key
from simulation.accounts import check_accounts
from simulation.ledger import check
from simulation.patterns import changed
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
SUBJECTS = b"a", b"bb", b"longer", b"longest..", b"a.b.c.d", b"c.x"
DESCRIPTORS = 4
OVERHEAD = 11
"""Bytes of a frame on the wire beside its own."""

FEW_ACCOUNTS, SELDOM = 4, 64
"""Accounts from which on those that are idle are forgotten, and bytes after which it is found out anew what
ZeroMQ reads besides."""

ACTIONS = {"come": 18, "go": 6, "end": 4, "read": 18, "sweep": 2, "look": 4, "lose": 1}


class Link:
    """A connection, as ZeroMQ has it."""

    def __init__(self, descriptor, inode):
        self.peer = Peer(descriptor, inode)
        self.names = [(b"%d.%d" % (inode, number)).ljust(ID_SIZE) for number in range(3)]
        self.held, self.granted, self.streams = [], set(), set()
        self.refused = self.bytes = 0

    def keys(self, random):
        """Return something that it may ask for."""
        name = random.choice(self.names)
        patterns = tuple(Declared(1, text) for text in random.sample(PATTERNS, random.choice((1, 2, 3))))
        return random.choice(
            (
                random.choice(PLAIN),
                random.choice(PLAIN),
                stream_key(name),
                Declaration(name, random.randrange(1, 4), patterns=patterns).encode(),
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
        kinds = random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        every = [Fault(at, kind, (str(random.randrange(DESCRIPTORS)),), 0.0) for at, kind in enumerate(kinds)]
        self.faults = every if faults is None else faults
        self.limits, self.stats, self.now = LIMITS, PublisherStats(), 100.0
        self.router = Router(bytes(16), self.stats, limits=LIMITS)
        self.queue = InterestQueue(self.router, LIMITS, self._is_there)
        self.links, self.alive, self._unread = {}, {}, []
        self._inodes, self.refused = 0, set()

    def _is_there(self, peer):
        return peer in self.alive

    def run(self):
        """Let everything happen, and check what must be so."""
        changes = (interest_queue, "_FIRST_SWEEP", FEW_ACCOUNTS), (interest_queue, "_COUNTED_ANEW", SELDOM)
        with changed(*changes):
            for fault in self.faults:
                link = self._link(int(fault.who[0]))
                getattr(self, f"_{fault.kind}")(link)
                if not self.is_late:
                    self._read_all()
                    self._check_each()
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
        return self

    def _link(self, descriptor):
        link = self.links.get(descriptor)
        if link is None:
            self._inodes += 1
            link = self.links[descriptor] = Link(descriptor, self._inodes)
            self.alive[link.peer] = link
        return link

    # what connections do ---------------------------------------------------------------------------------

    def _come(self, link):
        key = link.keys(self.random)
        if key in link.held:
            return
        # It listens before it declares, as all do.
        if not key.startswith(OWN) or key in {stream_key(one) for one in link.names}:
            self._say(link, key)
            return
        name = next(one for one in link.names if one in key)
        for one in (stream_key(name), key):
            if one not in link.held:
                self._say(link, one)

    def _say(self, link, key):
        if key not in link.held:
            link.held.append(key)
        if key.startswith(STREAM):
            link.streams.add(key)
        link.bytes += len(key) + 1 + OVERHEAD
        self._unread.append((link.peer, b"\1" + key))

    def _go(self, link):
        key = self.random.choice(link.held) if link.held else None
        if self.is_hostile and self.random.random() < 0.5:
            # What somebody else holds, and it does not.
            others = [one for other in self.links.values() for one in other.held if one not in link.held]
            key = self.random.choice(others) if others else key
        if key is None:
            return
        if key in link.held:
            link.held.remove(key)
        link.bytes += len(key) + 1 + OVERHEAD
        self._unread.append((link.peer, b"\0" + key))

    def _end(self, link):
        del self.links[link.peer.descriptor]
        del self.alive[link.peer]
        self._unread += [(None, b"\0" + key) for key in link.held]

    def _lose(self, link):
        """Have something come of which ZeroMQ does not know any more whose it is: it is to be asked again."""
        key = link.keys(self.random)
        self._read_all()
        if key in link.held:
            return
        link.held.append(key)
        self.queue.pass_over(b"\1" + key, link.peer)
        check(self.queue.to_cut == [link.peer], "what was lost is not asked for again")
        self.refused.add(key)

    def _look(self, link):
        """See whether ZeroMQ holds very much of a connection that nobody has read."""
        unread = sum(len(frame) + OVERHEAD for peer, frame in self._unread if peer == link.peer)
        beside = self.random.choice((0, 0, 20, 400))
        before = list(self.queue.to_cut)
        self.queue.look_behind(link.peer, lambda _: link.bytes + beside)
        is_cut = self.queue.to_cut != before
        most = LIMITS.waiting_keys + LIMITS.refused_bytes
        known = self.queue._accounts[link.peer].read
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
        peer, frame = self._unread.pop(0)
        link = self.alive.get(peer)
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
            # What has ended may be counted for a while, for the same reason.
            is_right = is_refused == bool(reason) or (is_refused and self.refused)
            check(is_right, "{!r} is refused: {}, for {}", frame[1:], is_refused, reason)
            if not is_refused:
                link.granted.add(frame[1:])
            else:
                self.refused.add(frame[1:])
                self._refuse(link, len(frame) - 1)
        elif link is not None:
            link.granted.discard(frame[1:])
        while self.queue.waits:
            self.queue.work(lambda: 0.0)
        check(
            not self.queue._turns.size and not self.queue._turns.keys(),
            "something waits that was looked at",
        )

    def _expect(self, link, key):
        """Say why something is to be refused, by docs/limits.md."""
        mine = [one for one in link.granted if one.startswith(OWN) == key.startswith(OWN)]
        size = sum(map(len, mine)) + len(key)
        if key.startswith(OWN):
            streams = sum(one[:3] == key[:3] for one in mine) if key.startswith(STREAM) else 0
            return (size > LIMITS.key_bytes and "bytes") or (streams >= LIMITS.streams and "streams")
        every = sum(
            len(one) for other in self.links.values() for one in other.granted if not one.startswith(OWN)
        )
        return (
            (every + len(key) > LIMITS.all_plain_bytes and "all")
            or (len(key) > LIMITS.plain_size and "size")
            or (len(mine) >= LIMITS.plain_subscriptions and "number")
            or (size > LIMITS.plain_bytes and "bytes")
        )

    def _refuse(self, link, size):
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
        check(len(self.queue._accounts) <= most, "{} accounts are known", len(self.queue._accounts))

    def _check_empty(self):
        """Of who has gone nothing is left."""
        queue, router, holders = self.queue, self.router, self.queue._holders
        left = [holders.held(), holders._refused_unknown, queue._turns.accounts(), router.streams]
        # What was refused is remembered where it was taken back, and another had the descriptor by then.
        left += [holders._refused] * (not self.is_late)
        check(not any(left), "of those who have gone there is {}", left)
        check(not queue.has_doubts, "of those who have gone something is doubted")
        check(not queue._plain_bytes and not queue._turns.size, "bytes of those who have gone are counted")
        check(not router.interest.pattern_count, "patterns of those who have gone are counted")
        for subject in SUBJECTS:
            check(not router.find(subject, subject).kind, "{!r} goes out to nobody", subject)
        for account in (*queue._accounts.values(), *queue._closed.values()):
            sums = account.keys, account.streams, account.plain, account.plain_bytes, account.key_bytes
            sums += account.patterns, account.pattern_weight, account.own_streams, account.beating
            check(not any(sums) or account.peer is None, "{} has gone, and is counted {}", account.peer, sums)
        self.mechanisms["descriptor used again"] += self._inodes > DESCRIPTORS
