"""Common parts of all worlds: faults and their schedule, the run, and checks of the messages of one subscriber."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from random import Random
from typing import NamedTuple

import oz.testing
from simulation.failing import unfailing
from simulation.ledger import check

BETWEEN = ("cut", "stall", "half_open", "reset", "throttle", "mute")
"""Faults between two processes. Each other kind concerns one process."""
RATE = 20.0
"""Messages a second of a slow network."""


class Fault(NamedTuple):
    """A fault of one process or between two processes."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class Life:
    """One life of a subscriber: its messages and gaps by publisher.

    Attributes:
        name: of the process.
        heard: numbers of messages by origin of their publisher, in order of arrival.
        gaps: counts of `Gap` by origin; None is an unknown count.
        before: sum of `Message.gap` by origin.
        is_over: whether the process was killed or closed.
    """

    def __init__(self, name):
        self.name, self.is_over = name, False
        self.heard, self.gaps, self.before = defaultdict(list), defaultdict(list), Counter()

    def note(self, message, origin):
        """Record a message of a publisher."""
        self.heard[origin].append(int(message.payload))
        self.before[origin] += message.gap

    def note_gap(self, gap):
        """Record a gap."""
        self.gaps[gap.origin].append(gap.count)

    @property
    def counts(self):
        """Counts of the gaps of all publishers."""
        return [count for counts in self.gaps.values() for count in counts]


class World:
    """One run.

    Attributes:
        faults: of the run.
        actors: names of the processes.
        mechanisms: how often each mechanism fired.
        lives: of the subscribers.
        down: names of the processes that have ended and are not started again yet.
    """

    KINDS = ()
    """Kinds of faults, each with its weight."""
    TITLE = ""
    """Begin of the names of faults among the mechanisms."""
    BURST = 0
    """Messages of a burst."""

    def __init__(self, seed, mechanisms):
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.random = random = Random(seed)
        self.bus = oz.testing.Bus(seed, longest=100_000)
        self.network = self.bus.network
        self.network.grid = random.choice((0.0, 0.001, 0.001))
        self.lives, self.tasks, self.down, self.numbers = [], [], set(), 0

    def run(self):
        """Run the world, and check the result."""
        with self.bus:
            self.bus.run(unfailing(self._main()))
        return self

    def _kind(self):
        kinds, weights = zip(*self.KINDS, strict=True)
        return self.random.choices(kinds, weights)[0]

    def _schedule(self, *traffic):
        """Return the awaitables of a run: messages at random times, and faults.

        Args:
            traffic: pairs of a rate for each virtual second, and a function.
        """
        found = []
        for rate, work in traffic:
            times = [self.random.uniform(0, self.lasts) for _ in range(round(rate * self.lasts))]
            found += [self._later(at, work) for at in times]
        return found + [self._later(fault.at, partial(self._harm, fault)) for fault in self.faults]

    @staticmethod
    async def _later(seconds, work):
        await asyncio.sleep(seconds)
        await work()

    async def _harm(self, fault):
        _, kind, who, lasts = fault
        if self.down.intersection(who) or not set(who) <= set(self.actors):
            return
        self.mechanisms[f"{self.TITLE}: {kind}"] += 1
        self._touch(fault)
        if kind in BETWEEN:
            hosts = [self._place(item).host for item in who]
            getattr(self.network, kind)(*hosts, *([RATE] if kind == "throttle" else []))
            await asyncio.sleep(lasts)
            self.network.heal(*hosts)
        elif kind == "burst":
            for _ in range(self.BURST):
                await self._publish(name=who[0])
        elif kind == "jump":
            self._place(who[0]).ahead += lasts
            await self._jumped(who[0])
        else:
            self.down.add(who[0])
            await self._stop(who[0], is_orderly=kind == "close")
            await asyncio.sleep(lasts)
            self._start(who[0])
            self.down.discard(who[0])

    def _touch(self, fault):
        """Record which processes a fault concerns."""

    async def _jumped(self, name):
        """Continue after the clock of a process has jumped."""

    def _life_of(self, name):
        """Return the current life of a subscriber."""
        return next(life for life in reversed(self.lives) if life.name == name)

    async def _until(self, condition, seconds, each):
        ends = self.network.now + seconds
        while not condition() and self.network.now < ends:
            await asyncio.sleep(each)

    def _check_received(self, life, origin, published, *, may_swap=False):
        """Check that each message of a publisher arrives once, and in order unless another order is allowed."""
        heard, gaps = life.heard[origin], life.gaps[origin]
        check(may_swap or heard == sorted(heard), "{} received {} out of order", life.name, heard)
        check(len(heard) == len(set(heard)), "{} received {} twice", life.name, heard)
        check(set(heard) <= published.keys(), "{} received messages of another publisher", life.name)
        self.mechanisms["gap with a count"] += sum(count is not None for count in gaps)
        self.mechanisms["gap without a count"] += sum(count is None for count in gaps)

    def _check_handled(self, number, handled, *, may_repeat=False):
        """Check that a job is handled again only if it is marked as redelivered.

        Args:
            number: of the job.
            handled: whether each message with it was marked, in order.
            may_repeat: whether another order of one mark is allowed.
        """
        again = handled[1:]
        is_marked = all(again) or (may_repeat and again.count(False) == 1 and handled[0])
        check(is_marked, "job {} was handled again without a mark", number)

    def _count_drops(self, stats):
        """Return the messages that a publisher has dropped or given up."""
        for reason, count in stats.dropped.items():
            self.mechanisms[f"dropped: {reason}"] += count
        return sum(stats.dropped.values()) + stats.given_up
