"""Runs of what waits at ZeroMQ: how many bytes, by estimate, and who holds up what several share.

The run knows what waits; oz is told of some messages when ZeroMQ is done with them, and of connections how
much they took. docs/limits.md says what may wait, and who is cut off for it.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from oz.protocol.publisher.accounts import Peer, SlowPeers
from oz.protocol.publisher.backlog import Backlog
from simulation.held import check_held
from simulation.ledger import check
from simulation.schedule import Fault

STEPS = 120
FINE = 50
"""Parts of what may wait by which it may be wrong."""

KINDS = {"send": 12, "drain": 3, "drain_all": 1, "stall": 1}

PATIENT, LATEST = 1.0, 1.6
"""Seconds for which too much may wait for several, and until when who takes nothing is found."""

LOOKS = 12
"""Times in a second, and a few more, that ZeroMQ is asked how much connections have taken."""


class BacklogWorld:
    """One way into ZeroMQ, and connections that share another."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 14)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        kinds = random.choices(list(KINDS), list(KINDS.values()), k=STEPS)
        self.faults = faults
        if faults is None:
            self.faults = [Fault(at, kind, ("p1",), 0.0) for at, kind in enumerate(kinds)]
        self.limit = random.choice((6_400, 64_000, 1_000_000))
        self.largest = random.choice((self.limit // 200, self.limit // 40, 3 * self.limit))
        self.backlog = Backlog(self.limit)
        self._waiting, self._taken, self._number = deque(), 0, 0
        self._watched = self._bytes = self._left = 0

    def run(self):
        """Have messages come and go, and check what must be so."""
        for fault in self.faults:
            getattr(self, f"_{fault.kind}")()
            self._check_full()
        # Each message that is watched stands for many, unless each is large.
        most = 1.1 * self._bytes / (self.limit / 64) + 3
        check(self._watched <= most, "{} messages were watched for {} bytes", self._watched, self._bytes)
        self._drain_all()
        self._check_full()
        self._check_rhythm()
        check_held(self.random)
        for _ in range(3):
            Sharers(self.random, self.mechanisms).run()
        return self

    # one way ---------------------------------------------------------------------------------------------

    def _size(self):
        return self.random.randint(1, self.largest)

    def _send(self):
        size = self._size()
        if self.backlog.is_full:
            return
        waits, is_due = self.backlog.watched, self.backlog.is_due(size)
        if self.random.random() < 0.3 and self.backlog.try_add(size):
            check(waits is self.backlog.watched, "the short way watches something")
            check(not is_due, "what is due goes the short way")
            self._count(size)
            return
        number = self._count(size)
        is_due = self.backlog.is_due(size)
        self._watched += is_due
        self.backlog.add(size, (lambda: number <= self._taken) if is_due else None)

    def _count(self, size):
        self._number += 1
        self._bytes += size
        self._left += size
        self._waiting.append((self._number, size))
        return self._number

    def _stall(self):
        """Send until no more may wait."""
        for _ in range(1_000):
            if self.backlog.is_full:
                check(not self.backlog.try_add(1) or self._left < self.limit, "what is full takes more")
                return
            self._send()

    def _drain(self):
        for _ in range(min(len(self._waiting), self.random.randrange(1, 30))):
            self._take()

    def _drain_all(self):
        while self._waiting:
            self._take()

    def _take(self):
        self._taken, size = self._waiting.popleft()
        self._left -= size

    def _check_full(self):
        """It is full when as much waits as may, and not when less does, but for a little."""
        waiting, error = self._left, self.limit / FINE + self.largest
        is_full = self.backlog.is_full
        self.mechanisms["backlog full"] += is_full
        check(is_full or waiting < self.limit + error, "{} wait of {}", waiting, self.limit)
        check(not is_full or waiting > self.limit - error, "it is full with {} of {}", waiting, self.limit)
        most = 2 * 64 + 2
        check(len(self.backlog.watched) <= most, "{} messages are watched", len(self.backlog.watched))

    def _check_rhythm(self):
        """What waits is seen though only each of so many messages waits, of whatever size."""
        check(not Backlog(self.limit).try_add(self.limit // 64), "what is due goes the short way")
        every, size = self.random.choice((2, 3, 4, 5, 8)), self.random.choice((1, 3, 7)) * self.limit // 6_400
        backlog, waiting, sent = Backlog(self.limit), 0, 0
        while not backlog.is_full and waiting <= 2 * self.limit:
            waits = sent % every == 0
            sent, waiting = sent + 1, waiting + size * waits
            backlog.add(size, (lambda waits=waits: not waits) if backlog.is_due(size) else None)
        check(self.limit / 2 < waiting < 2 * self.limit, "{} wait of {}, where some do", waiting, self.limit)


class Sharers:
    """Connections that share what is sent, and take as much of it as they like.

    Attributes:
        parts: of what is handed over, how much each takes.
    """

    def __init__(self, random, mechanisms):
        self.random, self.mechanisms = random, mechanisms
        parts = random.choices((0.0, 0.0, 0.1, 0.4, 0.6, 1.0), k=random.randrange(1, 5))
        self.parts = {Peer(number, number): part for number, part in enumerate(parts, 1)}
        self.slow, self.now = SlowPeers(), 100.0
        self.took = {one: random.choice((0.0, 1e6)) for one in self.parts}
        self.looks = 0
        self.step = random.choice((0.003, 0.02, 0.09))
        # One has nothing waiting for a moment: ZeroMQ could write to it.
        self.pauses = random.random() < 0.3
        self.ready = set()

    def _taken(self, peers):
        self.looks += 1
        return {one: self.took[one] for one in peers if one not in self.ready}

    def _hand_over(self):
        size = self.random.randrange(600, 1_000)
        self.now += self.step
        found = self.slow.find(self.now, size, lambda: list(self.parts), self._taken)
        for one, part in self.parts.items():
            self.took[one] += part * size
        return found

    def run(self):
        """Have too much wait, now and then and then for good."""
        for _ in range(2):
            until = self.now + self.random.choice((0.2, 0.9))
            while self.now + self.step < until:
                check(not self._hand_over(), "somebody is found who was slow for less than a second")
            self.slow.calm()
        began, looks = self.now, self.looks
        paused = next(iter(self.parts)) if self.pauses else None
        found = []
        while not found and self.now < began + LATEST:
            self.ready = {paused} if began + 0.4 < self.now < began + 0.7 else set()
            found = self._hand_over()
        slow = {one for one, part in self.parts.items() if part < 0.5 and one != paused}
        check(set(found) == slow, "of {} those are found: {}", self.parts, found)
        check(not found or self.now - began >= PATIENT, "{} were found early", found)
        self.mechanisms["slow sharer found"] += len(found)
        self.ready = set()
        until = self.now + 0.5
        while found and self.now < until:
            check(not self._hand_over(), "somebody is found again at once")
        most = LOOKS * LATEST + 1
        check(self.looks - looks <= most, "connections were looked at {} times", self.looks - looks)
