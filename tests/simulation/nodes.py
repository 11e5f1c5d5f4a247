"""Runs of nodes: news, jobs of a group and requests, on the model of ZeroMQ, with faults, kills and restarts."""

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

NAMES = ("slow", "desk", "lab", "risk")
"""Nodes; most runs have three of them."""
SLOW = "slow"
"""Node whose program takes long for each news, so that its queue drops some."""
LASTS = 6.0
"""Virtual seconds of traffic and faults."""
CONVERGES = 10.0
"""Virtual seconds after the last fault within which all nodes are ready."""
REPORTS = 35.0
"""Virtual seconds within which a link whose publisher has ended without BYE reports a loss: 30 + 2, and a turn."""
SETTLES = 3.0
"""Virtual seconds within which the last messages arrive then."""
REQUESTS, NEWS, JOBS, FAULTS = 25, 60, 20, 6
SMALL_BYTES, SMALL_MARK = 500, 20
"""Options of nodes whose streams are full after some messages."""
BURST, RATE = 80, 20.0
"""News of a burst, and messages a second of a slow network."""
KINDS = {
    "cut": 4, "stall": 3, "half_open": 2, "reset": 2, "throttle": 2, "burst": 2, "kill": 2, "close": 1, "jump": 2,
}  # fmt: skip
BETWEEN = ("cut", "stall", "half_open", "reset", "throttle")
"""Faults between two nodes."""
SECONDS = (0.1, 0.5, 2.0, 4.0, 7.0)
CALM = 1.5
"""Seconds of faults between two nodes, all together, after which a link still resumes. A node is silent after 2 s."""
PATTERN = "news.*"
SUBJECTS = ("news.x", "news.y", "news.z")
LATE = 0.25
"""Virtual seconds that a request may last longer than its timeout."""


class NodeFault(NamedTuple):
    """A fault of one node or between two nodes."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class Life:
    """One life of a node.

    Attributes:
        name: of the node.
        node: as the program has it.
        origin: id of the node.
        heard: numbers of its news by the origin of the publisher.
        gaps: counts of `Gap` by origin; None is an unknown count.
        before: sum of `Message.gap` by origin.
        is_over: whether the node was killed or closed.
    """

    def __init__(self, name, node):
        self.name, self.node, self.origin = name, node, node._node.id
        self.heard, self.gaps, self.before = defaultdict(list), defaultdict(list), Counter()
        self.is_over = False
        node._node.subscriber.gap_listeners.append(lambda gap: self.gaps[gap.origin].append(gap.count))


class NodeWorld:
    """One run.

    Attributes:
        faults: of the run.
        mechanisms: how often each mechanism fired.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.random = Random(seed)
        self.names = NAMES if self.random.random() < 0.3 else NAMES[:3]
        self.bus = oz.testing.Bus(seed, longest=100_000)
        self.network = self.bus.network
        every = sorted(self._fault() for _ in range(FAULTS))
        self.faults = every if faults is None else faults
        self.is_apart = self.random.random() < 0.3
        self.lives, self.nodes, self.down, self.tasks = [], {}, set(), []
        # By the origin of a publisher: numbers of its news, each with its subject.
        self.news = defaultdict(dict)
        self.jobs, self.handled = {}, defaultdict(list)
        self.served, self.plain_requests = defaultdict(list), defaultdict(list)
        self.trouble = Counter()
        self.numbers = 0

    def _fault(self):
        random = self.random
        kind = random.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        who = tuple(random.sample(self.names, 2))
        if kind not in BETWEEN:
            who = who[:1]
        return NodeFault(random.uniform(0.5, LASTS), kind, who, random.choice(SECONDS))

    def run(self):
        """Run everything, and check the result."""
        with self.bus:
            self.bus.run(unfailing(self._main()))
        return self

    async def _main(self):
        for name in self.names:
            self._start(name)
        await self._converge()
        await asyncio.gather(*self._work())
        self.bus.heal()
        await self._converge()
        last = await self._finish()
        self._check(last)

    def _work(self):
        uniform = self.random.uniform
        jobs = [self._later(uniform(0, LASTS), self._publish_news) for _ in range(NEWS)]
        jobs += [self._later(uniform(0, LASTS), self._publish_job) for _ in range(JOBS)]
        jobs += [self._later(uniform(0, LASTS), self._ask) for _ in range(REQUESTS)]
        return jobs + [self._later(fault.at, partial(self._harm, fault)) for fault in self.faults]

    @staticmethod
    async def _later(seconds, work):
        await asyncio.sleep(seconds)
        await work()

    # nodes

    def _options(self, name):
        """Return the arguments of a node: on hosts that are apart, nodes find each other by endpoints."""
        options = {}
        if self.random.random() < 0.2:
            options = {"resume_bytes": SMALL_BYTES, "high_water_mark": SMALL_MARK}
        if not self.is_apart:
            return {"options": oz.NodeOptions(**options)}
        place = self.names.index(name)
        endpoints = [f"tcp://10.0.0.{number}:7000" for number in range(len(self.names))]
        options["directory"] = f"/host-{place}"
        return {"bind": endpoints[place], "connect": endpoints[:1], "options": oz.NodeOptions(**options)}

    def _start(self, name):
        node = self.nodes[name] = self.bus.node(name, **self._options(name))
        life = Life(name, node)
        self.lives.append(life)
        if name == SLOW:
            news = node.subscribe(PATTERN, overflow="drop_oldest", delivery=oz.Delivery(max_pending=8))
        else:
            news = node.subscribe(PATTERN)
        self.tasks.append(asyncio.create_task(self._receive(life, news)))
        delivery = oz.Delivery(redeliver=True)
        work = partial(self._do_job, life)
        node.subscribe("job", handler=work, group="workers", ack="handled", delivery=delivery)
        for subject, group in ((f"svc.{name}", None), ("svc.any", "any"), ("svc.all", None)):
            node.subscribe(subject, handler=partial(self._serve, life), group=group)

    async def _receive(self, life, news):
        with suppress(oz.ClosedError):
            while True:
                message = await news.receive()
                life.heard[message.origin].append(int(message.payload))
                life.before[message.origin] += message.gap
                if life.name == SLOW:
                    await asyncio.sleep(0.1)

    async def _do_job(self, life, message):
        self.handled[message.payload].append((life, message.redelivered))
        self.mechanisms["job redelivered"] += message.redelivered
        await asyncio.sleep(0.02)

    async def _serve(self, life, message):
        self.served[message.payload].append(life)
        await asyncio.sleep(self.random.random() * 0.05)
        return f"{message.payload} by {life.name}"

    # traffic

    async def _publish_news(self, name=None, subject=None):
        node = self.nodes[self.random.choice(self.names) if name is None else name]
        subject = self.random.choice(SUBJECTS) if subject is None else subject
        self.numbers += 1
        number = self.numbers
        with suppress(oz.ClosedError):
            await node.publish(subject, number)
            self.news[node._node.id][number] = subject
        return number

    async def _publish_job(self):
        node = self.nodes[self.random.choice(self.names)]
        self.numbers += 1
        number = self.numbers
        with suppress(oz.ClosedError):
            if node.has_subscribers("job"):
                self.jobs[number] = node._node.id
            await node.publish("job", number)

    async def _ask(self):
        name = self.random.choice(self.names)
        subject = self.random.choice([f"svc.{one}" for one in self.names] + ["svc.any"] * 3 + ["svc.all"])
        if subject == "svc.all":
            await self._request_many(self.nodes[name], subject)
        else:
            await self._request(self.nodes[name], subject)

    async def _request(self, node, subject, *, must_succeed=False):
        self.numbers += 1
        token, timeout = f"request {self.numbers}", self.random.choice((0.3, 1.0, 3.0))
        retries = self.random.choice((0, 0, 1))
        began, reply, failure = self.network.now, None, None
        if subject != "svc.any":
            self.plain_requests[node._node.id, subject].append(token)
        try:
            reply = await node.request(subject, token, timeout=timeout, retries=retries)
        except oz.OzError as error:
            failure = error
        name = "reply" if failure is None else type(failure).__name__
        self.mechanisms[f"request: {name}"] += 1
        took = self.network.now - began
        check(took <= timeout + LATE, "a request with {} s took {} s", timeout, took)
        allowed = (oz.Timeout, oz.NoResponders, oz.PeerLost, oz.WouldBlock, oz.ClosedError)
        check(failure is None or isinstance(failure, allowed), "a request ended by {!r}", failure)
        check(not must_succeed or failure is None, "{} on {} failed: {!r}", token, subject, failure)
        served = self.served[token]
        check(len(served) <= 1 + retries, "{} was handled {} times", token, len(served))
        if len(served) > 1:
            self.mechanisms["request retried"] += 1
        if reply is not None:
            text, _, by = reply.payload.rpartition(" by ")
            check(text == token, "{!r} is no reply to {}", reply.payload, token)
            check(by in {life.name for life in served}, "{} replied and handled nothing", by)
            check(subject in (f"svc.{by}", "svc.any"), "{} replied on {}", by, subject)

    async def _request_many(self, node, subject):
        self.numbers += 1
        token, began, names = f"request {self.numbers}", self.network.now, []
        self.plain_requests[node._node.id, subject].append(token)
        try:
            async for reply in node.request_many(subject, token, timeout=0.5):
                text, _, by = reply.payload.rpartition(" by ")
                check(text == token, "{!r} is no reply to {}", reply.payload, token)
                names.append(by)
        except oz.OzError as error:
            self.mechanisms[f"request_many: {type(error).__name__}"] += 1
        self.mechanisms["replies of request_many"] += len(names)
        check(len(names) == len(set(names)), "{} replied twice to {}", names, token)
        took = self.network.now - began
        check(took <= 0.5 + LATE, "a request to many with 0.5 s took {} s", took)

    # faults

    async def _harm(self, fault):
        _, kind, who, lasts = fault
        if self.down.intersection(who):
            return
        self.mechanisms[f"fault of nodes: {kind}"] += 1
        hosts = [self.nodes[one].place.host for one in who]
        if kind in BETWEEN:
            self.trouble[frozenset(who)] += 0.1 if kind in ("reset", "throttle") else lasts
            getattr(self.network, kind)(*hosts, *([RATE] if kind == "throttle" else []))
            await asyncio.sleep(lasts)
            self.network.heal(*hosts)
        elif kind == "burst":
            for _ in range(BURST):
                await self._publish_news(who[0])
        elif kind == "jump":
            self.nodes[who[0]].place.ahead += lasts
            for name in self.names:
                self.trouble[frozenset((who[0], name))] += lasts
        else:
            await self._end(who[0], lasts, is_orderly=kind == "close")

    async def _end(self, name, lasts, *, is_orderly):
        self.down.add(name)
        next(one for one in reversed(self.lives) if one.name == name).is_over = True
        if is_orderly:
            await self.nodes[name].close(timeout=1.0)
        else:
            self.bus.kill(self.nodes[name])
        await asyncio.sleep(lasts)
        self._start(name)
        self.down.discard(name)

    # the end

    async def _converge(self):
        """Wait until all nodes know each other and their subscriptions."""
        ends = self.network.now + CONVERGES
        for name, node in self.nodes.items():
            others = [one for one in self.names if one != name]
            try:
                await node.wait_ready(*others, timeout=max(0.0, ends - self.network.now))
            except oz.Timeout as error:
                check(False, "{} is not ready after {} s: {}", name, CONVERGES, error)
            # A killed node is a peer beside its successor until it is lost.
            while sorted(found := [peer.name for peer in node.peers]) != sorted(others):
                check(self.network.now < ends, "{} has the peers {}", name, found)
                await asyncio.sleep(0.1)

    async def _finish(self):
        """Send messages that must arrive; return the news."""
        for node in self.nodes.values():
            for other in self.names:
                await self._request(node, f"svc.{other}", must_succeed=True)
        last = [await self._publish_news(name, subject) for name in self.names for subject in SUBJECTS]
        await asyncio.sleep(SETTLES)
        if self._has_unreported():
            await asyncio.sleep(REPORTS)
        return last

    def _has_unreported(self):
        """Return whether the loss of the last messages of a node that has ended may not be reported yet."""
        over = [life.origin for life in self.lives if life.is_over]
        return any(
            not life.is_over and None not in life.gaps[origin] and self._missing(life, origin)
            for life in self.lives
            for origin in over
        )

    def _missing(self, life, origin):
        """Return the news of a publisher after the first that has arrived which have not."""
        heard = life.heard[origin]
        end = heard[-1] if heard and life.is_over else self.numbers
        got = set(heard)
        return [one for one in self.news[origin] if heard and heard[0] <= one <= end and one not in got]

    def _check(self, last):
        for life in self.lives:
            for origin, published in self.news.items():
                self._check_life(life, origin, published)
            if not life.is_over and life.name != SLOW:
                heard = {number for numbers in life.heard.values() for number in numbers}
                missing = [number for number in last if number not in heard]
                check(not missing, "{} did not receive {} at the end", life.name, missing)
        self._check_jobs()

    def _check_life(self, life, origin, published):
        """News arrive once and in order, and missing ones are counted by gaps."""
        heard, gaps = life.heard[origin], life.gaps[origin]
        check(heard == sorted(heard), "{} received {} out of order", life.name, heard)
        check(len(heard) == len(set(heard)), "{} received {} twice", life.name, heard)
        check(set(heard) <= published.keys(), "{} received news of another publisher", life.name)
        check(all(matches(PATTERN, one) for one in published.values()), "{}", "subjects")
        self.mechanisms["gap with a count"] += sum(one is not None for one in gaps)
        self.mechanisms["gap without a count"] += sum(one is None for one in gaps)
        if not heard:
            return
        missing = self._missing(life, origin)
        self.mechanisms["news missing"] += len(missing)
        if life.name == SLOW:
            # A gap of its own queue names no publisher if messages of several were dropped.
            known = [one for counts in life.gaps.values() for one in counts]
            total = sum(one for one in known if one is not None)
            check(
                None in known or total >= len(missing), "{} misses {}, gaps are {}", life.name, missing, gaps
            )
            return
        if None in gaps:
            publisher = next(one for one in self.lives if one.origin == origin)
            seconds = self.trouble[frozenset((life.name, publisher.name))]
            is_excused = publisher.is_over or seconds > CALM
            check(is_excused, "{} reports an unknown loss of {} without cause", life.name, publisher.name)
            return
        counted = sum(gaps)
        subjects = (f"svc.{life.name}", "svc.all")
        tokens = [one for subject in subjects for one in self.plain_requests[origin, subject]]
        lost = sum(life not in self.served[one] for one in tokens)
        check(counted >= len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        # A node that has ended may have been told of losses behind the last news that it received.
        is_exact = life.is_over or counted <= len(missing) + lost
        check(is_exact, "{} misses {}, and gaps count {}", life.name, missing, gaps)
        check(life.before[origin] <= counted, "{} counts {} before messages", life.name, life.before[origin])

    def _check_jobs(self):
        """Each job is handled if its publisher lives, and again only if it is marked as redelivered."""
        over = {life.origin for life in self.lives if life.is_over}
        dropped = {}
        for life in self.lives:
            counts = life.node.stats.dropped
            dropped[life.origin] = sum(counts.values()) + life.node.stats.given_up
            for reason, count in counts.items():
                self.mechanisms[f"dropped: {reason}"] += count
        for number, origin in self.jobs.items():
            handled = self.handled[number]
            dropped[origin] -= not handled
            check(dropped[origin] >= 0 or origin in over, "job {} is lost", number)
            again = [is_again for _, is_again in handled[1:]]
            check(all(again), "job {} was handled again without a mark", number)
