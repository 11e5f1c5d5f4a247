"""Runs of publishers and subscribers: the engines of links on virtual sockets, with faults and kills."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple

import oz
import oz.testing
from simulation.failing import unfailing
from simulation.ledger import check, matches
from support.inside import engine_of

RETURNS = 5.0
"""Virtual seconds within which connections are made again after the last fault."""
READY = 5.0
"""Virtual seconds within which all subscriptions are served then."""
READY_PLAIN = 45.0
"""The same for a subscriber of a publisher that has no links any more: a link without publisher ends after 32 s."""
SETTLES = 10.0
"""Virtual seconds within which all messages are delivered then."""
DRAINS = 3.0
"""Virtual seconds within which slow subscribers and workers have handled their queues."""
MESSAGES, JOBS = 30, 5
"""Of each virtual second."""
FAULTS = 8
"""Faults of a run at most."""
BURST, RATE = 100, 50.0
"""Messages of a burst, and messages a second of a slow network."""
SMALL_BYTES, SMALL_MARK = 500, 20
FEW_BYTES = 600
"""Pending bytes of a publisher that has few."""
KINDS = {
    "cut": 4, "stall": 3, "reset": 3, "half_open": 2, "throttle": 2, "kill_publisher": 2, "kill_subscriber": 2,
    "close_publisher": 1, "close_subscriber": 1, "jump_publisher": 1, "jump_subscriber": 1, "burst_publisher": 2,
}  # fmt: skip
ENDPOINTS = {"p1": "tcp://10.0.0.1:7000", "p2": "tcp://10.0.0.2:7000", "p3": "tcp://10.0.0.3:7000"}
SOMETIMES_PLAIN = "p3"
"""Publisher that has links in some of its lives only. Its only subscriber is "any"."""
SUBSCRIBERS = ("all", "some", "slow", "newest", "ann", "bob", "any")
PATTERNS = {
    "any": ["a.>"],
    "all": ["a.>", "b.*"],
    "some": ["a.*.x", "b.1"],
    "slow": ["a.>"],
    "newest": ["b.*"],
}
WORKERS = ("ann", "bob")
SUBJECTS = ("a.1.x", "a.1.y", "a.2.x", "b.1", "b.2")
OVERFLOWS = {"slow": "drop_oldest", "newest": "conflate"}
PAUSES = {"slow": 0.3, "newest": 0.2, "ann": 0.02, "bob": 0.02}
"""Seconds that a program takes for one message."""


class LinkFault(NamedTuple):
    """A fault between two members, or the end of one."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class Life:
    """One life of a subscriber: its messages and gaps by publisher.

    Attributes:
        filtering: of the subscriber.
        heard: numbers of messages by origin of their publisher, in order of arrival.
        gaps: counts of `Gap` by origin; None is an unknown count.
        before: sum of `Message.gap` by origin.
    """

    def __init__(self, name, filtering):
        self.name, self.filtering, self.is_over = name, filtering, False
        self.heard, self.gaps, self.before = defaultdict(list), defaultdict(list), defaultdict(int)

    def note(self, message, origin):
        """Record a message of a publisher."""
        # A plain message does not name its publisher.
        is_plain = message.origin is None and self.filtering == "auto"
        check(is_plain or message.origin == origin, "{} is of another publisher", message.payload)
        self.heard[origin].append(int(message.payload))
        self.before[origin] += message.gap

    def note_gap(self, gap):
        """Record a gap."""
        self.gaps[gap.origin].append(gap.count)


class LinkWorld:
    """One run.

    Attributes:
        faults: of the run.
        actors: names of the publishers and subscribers.
        mechanisms: how often each mechanism fired.
    """

    def __init__(self, seed, mechanisms=None, faults=None, actors=None):
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.random = random = Random(seed)
        self.bus = oz.testing.Bus(seed, longest=100_000)
        self.network = self.bus.network
        self.network.grid = random.choice((0.0, 0.001, 0.001))
        publishers = random.choice((("p1",), ("p2", "p3"), ("p1", "p2"), tuple(ENDPOINTS)))
        subscribers = [
            subscriber for subscriber in SUBSCRIBERS if subscriber != "any" or SOMETIMES_PLAIN in publishers
        ]
        subscribers = sorted(random.sample(subscribers, random.randint(2, len(subscribers))))
        self.lasts = random.uniform(1.0, 6.0)
        found = sorted(self._fault(publishers, subscribers) for _ in range(random.randint(1, FAULTS)))
        self.faults = found if faults is None else faults
        self.actors = (*publishers, *subscribers) if actors is None else tuple(actors)
        self.publishers = [publisher for publisher in publishers if publisher in self.actors]
        self.subscribers = [subscriber for subscriber in subscribers if subscriber in self.actors]
        self.members, self.lives, self.tasks, self.down = {}, [], [], set()
        # Of each publisher's life, by its origin: numbers and subjects, and whether it was killed.
        self.published, self.killed, self.plain = defaultdict(dict), set(), set()
        # Lives of publishers and subscribers that had a fault, or whose publisher may drop.
        self.touched = set()
        self.numbers, self.handled, self.missing = 0, defaultdict(list), defaultdict(int)

    def _fault(self, publishers, subscribers):
        random = self.random
        kind = random.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        subscriber = random.choice(subscribers)
        served = [item for item in publishers if (item == SOMETIMES_PLAIN) == (subscriber == "any")]
        publisher = random.choice(served or publishers)
        ends = {"publisher": (publisher,), "subscriber": (subscriber,)}
        who = ends.get(kind.partition("_")[2], (publisher, subscriber))
        # A session ends after 30 seconds.
        long = 4.0 if kind in ("stall", "half_open") else 40.0
        lasts = random.choice((0.1, 0.5, 0.5, 2.0, 2.0, 5.0, 5.0, long))
        return LinkFault(random.uniform(0.3, self.lasts), kind, who, lasts)

    def run(self):
        """Let everything happen, and check the result."""
        with self.bus:
            self.bus.run(unfailing(self._main()))
        return self

    async def _main(self):
        for name in self.publishers:
            self._start_publisher(name)
        for name in self.subscribers:
            self._start_subscriber(name)
        await self._be_ready()

        def some(each_second, work):
            count = round(each_second * self.lasts)
            return [self._later(self.random.uniform(0, self.lasts), work) for _ in range(count)]

        work = some(MESSAGES, self._publish) + some(JOBS, partial(self._publish, "job"))
        await asyncio.gather(
            *work, *[self._later(fault.at, partial(self._harm, fault)) for fault in self.faults]
        )
        self.bus.heal()
        # A subscriber notices a new publisher when its connection is made again.
        await asyncio.sleep(RETURNS)
        await self._be_ready()
        # Plain subscriptions have no answer.
        await asyncio.sleep(1.0)
        last = [
            await self._publish(subject, name) for name in self.publishers for subject in (*SUBJECTS, "job")
        ]
        ends = self.network.now + SETTLES
        # The slow subscriber has some messages in its queue.
        await asyncio.sleep(DRAINS)
        while self._late(last) and self.network.now < ends:
            await asyncio.sleep(0.25)
        self._check(last)

    @staticmethod
    async def _later(seconds, work):
        await asyncio.sleep(seconds)
        await work()

    async def _be_ready(self):
        ends = self.network.now + READY
        for name in self.subscribers:
            timeout = READY_PLAIN if name == "any" else max(0.0, ends - self.network.now)
            await self.members[name].wait_ready(timeout=timeout)

    # members

    def _start_publisher(self, name):
        links = self.random.choice((None, False)) if name == SOMETIMES_PLAIN else None
        # A small window is full after some messages, and a publisher drops what does not fit.
        options = self.random.choice((
            oz.Options(resume_bytes=SMALL_BYTES, high_water_mark=SMALL_MARK),
            oz.Options(pending_bytes=FEW_BYTES),
            *3 * [oz.Options()],
        ))  # fmt: skip
        self.members[name] = self.bus.publisher(bind=ENDPOINTS[name], links=links, options=options)
        if options != oz.Options():
            self.touched.add(engine_of(self.members[name]).origin)

    def _start_subscriber(self, name):
        # Plain connections have no policies and no groups.
        is_simple = name not in WORKERS and name not in OVERFLOWS
        filtering = self.random.choice(("publisher", "auto")) if is_simple else "publisher"
        life = Life(name, "auto" if name == "any" else filtering)
        self.lives.append(life)
        endpoints = [
            ENDPOINTS[publisher]
            for publisher in self.publishers
            if (publisher == SOMETIMES_PLAIN) == (name == "any")
        ]
        subscriber = self.bus.subscriber(connect=endpoints, filtering=life.filtering, on_gap=life.note_gap)
        self.members[name] = subscriber
        if name in WORKERS:
            delivery = oz.Delivery(redeliver=True)
            found = subscriber.subscribe("job", group="workers", ack="handled", delivery=delivery)
        else:
            overflow = OVERFLOWS.get(name)
            delivery = oz.Delivery() if overflow is None else oz.Delivery(max_pending=4)
            found = subscriber.subscribe(PATTERNS[name], overflow=overflow, delivery=delivery)
        self.tasks.append(asyncio.create_task(self._receive(life, found)))

    async def _receive(self, life, subscription):
        with suppress(oz.ClosedError):
            while True:
                message = await subscription.receive()
                if life.name in WORKERS:
                    self.handled[int(message.payload)].append((life, message.redelivered))
                    self.mechanisms["redelivered"] += message.redelivered
                else:
                    self.mechanisms["plain message"] += message.origin is None
                    life.note(message, self._origin_of(int(message.payload)))
                if pause := PAUSES.get(life.name):
                    await asyncio.sleep(pause)

    def _origin_of(self, number):
        return next((origin for origin, found in self.published.items() if number in found), None)

    async def _publish(self, subject=None, name=None):
        if name is None:
            name = self.random.choice(self.publishers)
        if name == SOMETIMES_PLAIN and subject == "job":
            # Plain connections have no groups.
            return 0
        subject = self.random.choice(SUBJECTS) if subject is None else subject
        if name in self.down:
            return 0
        publisher, self.numbers = self.members[name], self.numbers + 1
        number = self.numbers
        if name == SOMETIMES_PLAIN:
            self.plain.add(number)
        if subject != "job" or publisher.has_subscribers(subject):
            self.published[engine_of(publisher).origin][number] = subject
        await publisher.publish(subject, b"%d" % number)
        return number

    async def _harm(self, fault):
        _, kind, who, lasts = fault
        if self.down.intersection(who) or not set(who) <= set(self.actors):
            return
        self.mechanisms[f"fault of links: {kind}"] += 1
        if not kind.startswith("close"):
            self.touched.update(map(self._life_of, who))
        hosts = [self.members[item].place.host for item in who]
        if kind.startswith(("kill", "close")):
            await self._end(who[0], lasts, is_orderly=kind.startswith("close"))
            return
        if kind.startswith("jump"):
            self.members[who[0]].place.ahead += lasts
            return
        if kind.startswith("burst"):
            for _ in range(BURST):
                await self._publish(name=who[0])
            return
        getattr(self.network, kind)(*hosts, *([RATE] if kind == "throttle" else []))
        await asyncio.sleep(lasts)
        self.network.heal(*hosts)

    def _life_of(self, name):
        """Return the origin of a publisher, or the current life of a subscriber."""
        if name in ENDPOINTS:
            return engine_of(self.members[name]).origin
        return next(life for life in reversed(self.lives) if life.name == name)

    async def _end(self, name, lasts, *, is_orderly):
        self.down.add(name)
        if name in ENDPOINTS:
            self.killed.add(engine_of(self.members[name]).origin)
        else:
            next(life for life in reversed(self.lives) if life.name == name).is_over = True
        if is_orderly:
            await self.members[name].close()
        else:
            self.bus.kill(self.members[name])
        await asyncio.sleep(lasts)
        (self._start_publisher if name in ENDPOINTS else self._start_subscriber)(name)
        self.down.discard(name)

    # checks

    def _check(self, last):
        late = self._late(last)
        check(not late, "at the end messages are missing: {}", late)
        for life in self.lives:
            if life.name not in WORKERS:
                for origin, published in self.published.items():
                    self._check_life(life, origin, published)
        self._check_jobs()

    def _late(self, last):
        """Return the subscribers that have not received the last messages, each with those that are missing."""
        subjects = {number: subject for item in self.published.values() for number, subject in item.items()}
        found = []
        for life in self.lives:
            if life.is_over or life.name in WORKERS or life.name in OVERFLOWS:
                continue
            heard = {number for numbers in life.heard.values() for number in numbers}
            missing = [
                number
                for number in last
                if (number in self.plain) == (life.name == "any")
                and any(matches(text, subjects.get(number, "")) for text in PATTERNS[life.name])
                and number not in heard
            ]
            if missing:
                found.append((life.name, missing))
        return found

    def _check_life(self, life, origin, published):
        """Messages arrive once and in order, and missing ones are counted by gaps."""
        heard, gaps = life.heard[origin], life.gaps[origin]
        if life.name != "newest":
            check(heard == sorted(set(heard)), "{} received {} out of order", life.name, heard)
        check(len(heard) == len(set(heard)), "{} received {} twice", life.name, heard)
        check(set(heard) <= published.keys(), "{} received messages of another publisher", life.name)
        wanted = [
            number
            for number, subject in published.items()
            if any(matches(text, subject) for text in PATTERNS[life.name])
        ]
        check(set(heard) <= set(wanted), "{} received a message that it does not want", life.name)
        self.mechanisms["gap with a count"] += sum(gap is not None for gap in gaps)
        self.mechanisms["gap without a count"] += sum(gap is None for gap in gaps)
        every = [count for counts in life.gaps.values() for count in counts]
        # A gap of the own queue names no publisher if it has messages of several.
        counts = every if life.name in OVERFLOWS else gaps
        is_calm = not self.touched.intersection((life, origin)) and life.name not in OVERFLOWS
        if is_calm and life.filtering != "auto" and not life.is_over:
            self.mechanisms["stream without a fault"] += 1
            missing = [number for number in wanted if heard and number >= min(heard) and number not in heard]
            is_closed = origin in self.killed and gaps == [None]
            check(not missing, "{} misses {} without a fault", life.name, missing)
            check(is_closed or not gaps, "{} reports gaps {} without a fault", life.name, gaps)
        if not heard or life.is_over or None in counts or life.filtering == "auto":
            return
        missing = [number for number in wanted if number >= min(heard) and number not in heard]
        counted = sum(counts)
        self.missing[life] += len(missing)
        if origin in self.killed or life.name in OVERFLOWS:
            check(counted >= len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        else:
            check(counted == len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        # The first message of a publisher may tell of losses of the one that it replaced.
        before = sum(life.before.values())
        check(None in every or before <= sum(every), "{} counts {} before messages", life.name, before)

    def _check_jobs(self):
        """Each job of a living publisher is handled, and again only if it is marked as redelivered."""
        dropped = Counter()
        for name in self.publishers:
            engine = engine_of(self.members[name])
            counts = self.members[name].stats.dropped
            dropped[engine.origin] = sum(counts.values()) + self.members[name].stats.given_up
            for reason, count in counts.items():
                self.mechanisms[f"dropped: {reason}"] += count
        for origin, published in self.published.items():
            for number, subject in published.items():
                if subject != "job":
                    continue
                handled = self.handled[number]
                dropped[origin] -= not handled
                check(dropped[origin] >= 0 or origin in self.killed, "job {} is lost", number)
                again = [is_again for _, is_again in handled[1:]]
                check(all(again), "job {} was handled again without a mark", number)
