"""Runs of publishers and subscribers: the engines of links on virtual sockets, with faults and kills."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial

import oz
import oz.testing
from simulation.ledger import check, matches
from simulation.world import BETWEEN, Fault, Life, World
from support.inside import engine_of

RETURNS = 5.0
"""Virtual seconds within which connections are made again after the last fault."""
READY = 5.0
"""Virtual seconds after the last fault within which all subscriptions are served."""
READY_PLAIN = 45.0
"""READY of a subscriber whose publisher was restarted without links, because its old link ends after 32 s."""
LEARNS = 7.0
"""Virtual seconds within which a publisher learns of a subscription whose DECLARE a connection has lost."""
SETTLES = 10.0
"""Virtual seconds after the last fault within which all messages are delivered."""
DRAINS = 3.0
"""Virtual seconds within which slow subscribers and workers have handled their queues."""
MESSAGES, JOBS = 30, 5
"""Messages in each virtual second."""
FAULTS = 8
"""Maximum number of faults of a run."""
SMALL_BYTES, SMALL_MARK = 100, 20
FEW_BYTES, FEW_UNACKNOWLEDGED = 600, 200
"""Limits of a publisher with a small window: pending bytes, and bytes sent without an acknowledgement."""
ENDPOINTS = {"p1": "tcp://10.0.0.1:7000", "p2": "tcp://10.0.0.2:7000", "p3": "tcp://10.0.0.3:7000"}
SOMETIMES_PLAIN = "p3"
"""Publisher that has links in some of its lives only. Its only subscriber is `any`."""
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


class SubscriberLife(Life):
    """One life of a subscriber.

    Attributes:
        filtering: of the subscriber.
    """

    def __init__(self, name, filtering):
        super().__init__(name)
        self.filtering = filtering

    def note(self, message, origin):
        """Record a message of a publisher."""
        # A plain message does not name its publisher.
        is_plain = message.origin is None and self.filtering == "auto"
        check(is_plain or message.origin == origin, "{} is of another publisher", message.payload)
        super().note(message, origin)


class LinkWorld(World):
    """One run."""

    KINDS = (
        ("cut", 4),
        ("stall", 3),
        ("reset", 3),
        ("half_open", 2),
        ("throttle", 2),
        ("kill", 4),
        ("close", 2),
        ("jump", 2),
        ("burst", 2),
    )
    TITLE, BURST = "fault of links", 100

    def __init__(self, seed, mechanisms=None, faults=None, actors=None):
        super().__init__(seed, mechanisms)
        random = self.random
        publishers = random.choice((("p1",), ("p2", "p3"), ("p1", "p2"), tuple(ENDPOINTS)))
        subscribers = [item for item in SUBSCRIBERS if item != "any" or SOMETIMES_PLAIN in publishers]
        subscribers = sorted(random.sample(subscribers, random.randint(2, len(subscribers))))
        self.lasts = random.uniform(1.0, 6.0)
        found = sorted(self._fault(publishers, subscribers) for _ in range(random.randint(1, FAULTS)))
        self.faults = found if faults is None else faults
        self.actors = (*publishers, *subscribers) if actors is None else tuple(actors)
        self.publishers = [item for item in publishers if item in self.actors]
        self.subscribers = [item for item in subscribers if item in self.actors]
        self.members = {}
        # Of each publisher's life, by its origin: numbers and subjects, and whether it was killed.
        self.published, self.killed, self.plain = defaultdict(dict), set(), set()
        # Lives of publishers and subscribers that had a fault, or whose publisher may drop.
        self.touched = set()
        self.handled = defaultdict(list)

    def _fault(self, publishers, subscribers):
        random, kind = self.random, self._kind()
        subscriber = random.choice(subscribers)
        served = [item for item in publishers if (item == SOMETIMES_PLAIN) == (subscriber == "any")]
        who = (random.choice(served or publishers), subscriber)
        if kind not in BETWEEN:
            who = (who[0] if kind == "burst" else random.choice(who),)
        elif kind == "mute" and random.random() < 0.5:
            who = who[::-1]
        # A session ends after 30 seconds.
        long = 4.0 if kind in ("stall", "half_open") else 40.0
        lasts = random.choice((0.1, 0.5, 0.5, 2.0, 2.0, 5.0, 5.0, long))
        return Fault(random.uniform(0.3, self.lasts), kind, who, lasts)

    async def _main(self):
        for name in (*self.publishers, *self.subscribers):
            self._start(name)
        await self._be_ready()

        traffic = (MESSAGES, self._publish), (JOBS, partial(self._publish, "job"))
        await asyncio.gather(*self._schedule(*traffic))
        self.bus.heal()
        # A subscriber notices a new publisher when its connection is made again.
        await asyncio.sleep(RETURNS)
        await self._be_ready()
        # Plain subscriptions have no answer.
        await asyncio.sleep(1.0)
        last = [
            await self._publish(subject, name) for name in self.publishers for subject in (*SUBJECTS, "job")
        ]
        # The slow subscriber has some messages in its queue.
        await asyncio.sleep(DRAINS)
        await self._until(lambda: not self._late(last), SETTLES - DRAINS, 0.25)
        self._check(last)

    async def _be_ready(self):
        ends = self.network.now + READY
        for name in self.subscribers:
            timeout = READY_PLAIN if name == "any" else max(0.0, ends - self.network.now)
            await self.members[name].wait_ready(timeout=timeout)

    # members

    def _start(self, name):
        (self._start_publisher if name in ENDPOINTS else self._start_subscriber)(name)

    def _start_publisher(self, name):
        links = self.random.choice((None, False)) if name == SOMETIMES_PLAIN else None
        # A small window is full after some messages, and a publisher drops what does not fit.
        options = self.random.choice((
            oz.Options(resume_bytes=SMALL_BYTES, high_water_mark=SMALL_MARK),
            oz.Options(pending_bytes=FEW_BYTES, resume_bytes=FEW_UNACKNOWLEDGED),
            *3 * [oz.Options()],
        ))  # fmt: skip
        self.members[name] = self.bus.publisher(bind=ENDPOINTS[name], links=links, options=options)
        if options != oz.Options():
            self.touched.add(engine_of(self.members[name]).origin)

    def _start_subscriber(self, name):
        # Plain connections have no policies and no groups.
        is_simple = name not in WORKERS and name not in OVERFLOWS
        filtering = self.random.choice(("publisher", "auto")) if is_simple else "publisher"
        life = SubscriberLife(name, "auto" if name == "any" else filtering)
        self.lives.append(life)
        endpoints = [
            ENDPOINTS[item] for item in self.publishers if (item == SOMETIMES_PLAIN) == (name == "any")
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

    def _place(self, name):
        return self.members[name].place

    def _touch(self, fault):
        if fault.kind != "close":
            origins = {item: engine_of(self.members[item]).origin for item in fault.who if item in ENDPOINTS}
            self.touched.update(origins.get(item) or self._life_of(item) for item in fault.who)

    async def _stop(self, name, *, is_orderly):
        if name in ENDPOINTS:
            self.killed.add(engine_of(self.members[name]).origin)
        else:
            self._life_of(name).is_over = True
        if is_orderly:
            await self.members[name].close()
        else:
            self.bus.kill(self.members[name])

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
        """Return the subscribers that have not received all of the last messages, each with the missing numbers."""
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
        """Check that messages arrive once and in order, and that gaps count missing messages."""
        heard, gaps = life.heard[origin], life.gaps[origin]
        self._check_received(life, origin, published, may_swap=life.name == "newest")
        wanted = [
            number
            for number, subject in published.items()
            if any(matches(text, subject) for text in PATTERNS[life.name])
        ]
        check(set(heard) <= set(wanted), "{} received a message that it does not want", life.name)
        # A gap of the own queue names no publisher if it has messages of several.
        every, named = life.counts, sum(count for count in gaps if count is not None)
        unheard = len(wanted) - len(heard)
        check(named <= unheard, "{} did not receive {} messages, and gaps count {}", life.name, unheard, gaps)
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
        if origin in self.killed or life.name in OVERFLOWS:
            check(counted >= len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        else:
            check(counted == len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        # The first message of a publisher may report losses of the publisher that it replaced.
        before = sum(life.before.values())
        check(None in every or before <= sum(every), "{} counts {} before messages", life.name, before)

    def _check_jobs(self):
        """Check that each job of a living publisher is handled, and again only if it is marked as redelivered."""
        dropped = Counter()
        for name in self.publishers:
            dropped[engine_of(self.members[name]).origin] = self._count_drops(self.members[name].stats)
        for origin, published in self.published.items():
            for number, subject in published.items():
                if subject != "job":
                    continue
                handled = self.handled[number]
                dropped[origin] -= not handled
                check(dropped[origin] >= 0 or origin in self.killed, "job {} is lost", number)
                self._check_handled(number, [is_again for _, is_again in handled])


class OneWayWorld(LinkWorld):
    """Runs with connections that lose all bytes of one direction.

    Subscribers also subscribe on such connections. Publishers must get the subscriptions although no fault ends.
    """

    KINDS = (*LinkWorld.KINDS, ("mute", 6))

    async def _be_ready(self):
        await super()._be_ready()
        linked = [self.members[name] for name in self.subscribers if name != "any"]
        for member in linked:
            for name in self.publishers:
                self.network.mute(member.place.host, self._place(name).host)
            member.subscribe("late")
        ends = self.network.now + LEARNS
        for member in linked:
            await member.wait_ready(timeout=max(0.0, ends - self.network.now))
