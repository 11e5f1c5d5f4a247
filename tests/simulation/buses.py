"""Runs of whole buses: nodes, name servers and forwarders, with faults, kills and restarts.

A seed decides the number of nodes, and whether forwarders join two buses. It also decides how nodes find each other:
by the directory of a host, by an endpoint of a node, or by a name server. Nodes publish news, jobs of a group and
requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial

import oz
import oz.testing
from simulation.ledger import check
from simulation.services import start_forwarder, start_name_server
from simulation.world import BETWEEN, Fault, Life, World

NAMES = ("slow", "desk", "lab", "risk")
"""Nodes of a bus."""
LAN, WAN = "lan", "wan"
SLOW = "slow"
"""Node with a slow program, so that its queue drops news."""
SERVER, FORWARDERS = "server", ("bridge-1", "bridge-2")
CONVERGES = 10.0
"""Virtual seconds after the last fault within which all nodes are ready."""
REPORTS = 35.0
"""Virtual seconds within which a link whose publisher has ended without BYE reports a loss: 30 + 2, and a turn."""
SETTLES = 10.0
"""Virtual seconds within which the last messages arrive."""
DRAINS = 1.5
"""Virtual seconds within which the slow node has handled its queue."""
NEWS, JOBS, REQUESTS = 8, 3, 4
"""Messages in each virtual second."""
JOB_TIME = 0.25
"""Virtual seconds that a member handles a job. They are long, so that many faults hit a member with a job."""
SMALL_BYTES, SMALL_MARK = 500, 20
"""Limits of nodes whose streams are full after some messages: bytes, and high-water mark."""
JUMP_NEWS, JUMP_PAUSE = 30, 0.001
"""News of a node whose clock has jumped, and virtual seconds between two news. Meanwhile it loses its peers."""
CLOSING = (0.5, 1.0, 8.0)
"""Virtual seconds that a node may take to close."""
SECONDS = (0.1, 0.5, 2.0, 4.0, 7.0)
CALM = 1.5
"""Total seconds of faults between two nodes with which a link still resumes. A node is silent after 2 s."""
PATTERN = "news.*"
SUBJECTS = ("news.x", "news.y", "news.z")
LATE = 0.25
"""Virtual seconds that a request may last longer than its timeout."""
LAST_REQUESTS, LAST_TIME = 4, 0.02
"""Requests just before a node ends, and virtual seconds from the requests to the end. The node still has requests."""


class NodeLife(Life):
    """One life of a node.

    Attributes:
        bus: of the node.
        node: object of the program.
        origin: id of the node.
        began: number of the last news before it began.
        is_small: whether its streams are full after some messages.
    """

    def __init__(self, name, node, began, *, is_small):
        super().__init__(name)
        self.node, self.origin, self.bus, self.began = node, node._node.id, node.bus, began
        self.is_small = is_small
        node._node.subscriber.gap_listeners.append(self.note_gap)


class BusWorld(World):
    """One run.

    Attributes:
        has_two_endpoints: whether two endpoints reach each node, in its directory and over TCP.
        bridged: share of the runs with two buses and forwarders between them.
    """

    KINDS = (
        ("cut", 4),
        ("stall", 3),
        ("half_open", 2),
        ("reset", 2),
        ("throttle", 2),
        ("burst", 2),
        ("kill", 3),
        ("close", 2),
        ("jump", 2),
    )
    TITLE, BURST = "fault of a bus", 60
    has_two_endpoints = False
    bridged = 0.25

    def __init__(self, seed, mechanisms=None, faults=None, actors=None):
        super().__init__(seed, mechanisms)
        random = self.random
        self.is_bridged = random.random() < self.bridged
        names = NAMES[: random.choice((2, 3, 3, 4))]
        self.is_apart = random.random() < 0.5
        has_server = self.is_apart and (self.is_bridged or random.random() < 0.5)
        forwarders = FORWARDERS[: random.choice((1, 2, 2))] if self.is_bridged else ()
        every = names + (SERVER,) * has_server + forwarders
        self.actors = every if actors is None else tuple(actors)
        self.buses = {name: WAN if self.is_bridged and at % 2 else LAN for at, name in enumerate(NAMES)}
        self.lasts = random.uniform(1.5, 5.0)
        found = sorted(self._fault(every) for _ in range(random.randint(1, 6)))
        self.faults = found if faults is None else faults
        self.names = [item for item in names if item in self.actors]
        self.nodes, self.services = {}, {}
        # By the origin of a publisher: numbers of its news, each with its subject.
        self.news = defaultdict(dict)
        self.jobs, self.handled = {}, defaultdict(list)
        self.served, self.plain_requests = defaultdict(list), defaultdict(list)
        self.trouble = Counter()

    def _fault(self, actors):
        random, kind = self.random, self._kind()
        if kind in BETWEEN:
            who = tuple(random.sample(actors, 2))
        else:
            who = (random.choice([item for item in actors if kind != "burst" or item in NAMES]),)
        return Fault(random.uniform(0.3, self.lasts), kind, who, random.choice(SECONDS))

    async def _main(self):
        for name in self.actors:
            self._start(name)
        await self._converge()
        traffic = (NEWS, self._publish), (JOBS, self._publish_job), (REQUESTS, self._ask)
        await asyncio.gather(*self._schedule(*traffic), *self._last_requests())
        self.bus.heal()
        await self._converge()
        last = await self._finish()
        self._check(last)
        for service in self.services.values():
            service.kill()

    # processes

    def _settings(self, name, bus):
        """Return the settings by which a process finds peers: a directory, or endpoints of other hosts."""
        if not self.is_apart and not self.has_two_endpoints:
            return {"directory": "/host"}
        actors = (*NAMES, *FORWARDERS)
        endpoints = [f"tcp://10.0.{bus == WAN:d}.{number}:7000" for number in range(len(actors))]
        known = "tcp://10.0.9.1:5756" if SERVER in self.actors else endpoints[bus == WAN]
        place = actors.index(name)
        directory = f"/{name}" if self.is_apart else "/host"
        return {"bind": endpoints[place], "connect": [known], "directory": directory}

    def _start(self, name):
        if name == SERVER:
            self.services[name] = start_name_server(self.bus, name, "tcp://10.0.9.1:5756")
        elif name in FORWARDERS:
            legs = [{"bus": item, **self._settings(name, item)} for item in (LAN, WAN)]
            self.services[name] = start_forwarder(self.bus, name, legs)
        else:
            self._start_node(name)

    def _start_node(self, name):
        settings = self._settings(name, self.buses[name])
        options = {"directory": settings.pop("directory")}
        is_small = self.random.random() < 0.2
        if is_small:
            options |= {"resume_bytes": SMALL_BYTES, "high_water_mark": SMALL_MARK}
        options = oz.NodeOptions(**options)
        node = self.nodes[name] = self.bus.node(name, bus=self.buses[name], options=options, **settings)
        life = NodeLife(name, node, self.numbers, is_small=is_small)
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
                life.note(message, message.origin)
                if life.name == SLOW:
                    await asyncio.sleep(0.1)

    async def _do_job(self, life, message):
        self.handled[message.payload].append((life, message.redelivered))
        self.mechanisms["job redelivered"] += message.redelivered
        self.mechanisms["job from another bus"] += self._crosses(
            life, self.jobs.get(message.payload, life.origin)
        )
        await asyncio.sleep(JOB_TIME)

    async def _serve(self, life, message):
        self.served[message.payload].append(life)
        await asyncio.sleep(self.random.random() * 0.05)
        return f"{message.payload} by {life.name}"

    @property
    def is_doubled(self):
        """Whether there are two forwarders, and one of them had a fault."""
        both = [actor for actor in self.actors if actor in FORWARDERS]
        return len(both) > 1 and any(
            fault.kind != "throttle" and set(fault.who) & set(FORWARDERS) for fault in self.faults
        )

    def _crosses(self, life, origin):
        """Return whether a forwarder passes messages of an origin to a node."""
        return next(item for item in self.lives if item.origin == origin).bus != life.bus

    # traffic

    async def _publish(self, name=None, subject=None):
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

    def _last_requests(self):
        """Return the requests that are sent just before nodes end."""
        ends = [fault for fault in self.faults if fault.kind in ("kill", "close")]
        return [
            self._later(fault.at - LAST_TIME, partial(self._request_other, fault.who[0]))
            for fault in ends
            if fault.who[0] in self.names and len(self.names) > 1
            for _ in range(LAST_REQUESTS)
        ]

    async def _request_other(self, name):
        """Send a request to a node, and to another node if that node is lost."""
        node = self.nodes[self.random.choice([item for item in self.names if item != name])]
        await self._request(node, self.random.choice(("svc.any", f"svc.{name}")), timeout=3.0, retries=1)

    async def _ask(self):
        name = self.random.choice(self.names)
        subject = self.random.choice([f"svc.{item}" for item in self.names] + ["svc.any"] * 3 + ["svc.all"])
        if subject == "svc.all":
            await self._request_many(self.nodes[name], subject)
        else:
            await self._request(self.nodes[name], subject)

    async def _request(self, node, subject, *, timeout=None, retries=None, must_succeed=False):
        self.numbers += 1
        token = f"request {self.numbers}"
        timeout = self.random.choice((0.3, 1.0, 3.0)) if timeout is None else timeout
        retries = self.random.choice((0, 0, 1)) if retries is None else retries
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
        is_allowed = isinstance(
            failure, (oz.Timeout, oz.NoResponders, oz.PeerLost, oz.WouldBlock, oz.ClosedError)
        ) or (self.is_bridged and isinstance(failure, oz.ReplyError))
        check(failure is None or is_allowed, "a request ended by {!r}", failure)
        check(not must_succeed or failure is None, "{} on {} failed: {!r}", token, subject, failure)
        served = self.served[token]
        is_allowed = len(served) <= 1 + retries
        check(is_allowed, "{} was handled {} times", token, len(served))
        if len(served) > 1:
            self.mechanisms["request retried"] += 1
        if reply is not None:
            text, _, by = reply.payload.rpartition(" by ")
            check(text == token, "{!r} is no reply to {}", reply.payload, token)
            check(by in {life.name for life in served}, "{} replied and handled nothing", by)
            check(subject in (f"svc.{by}", "svc.any"), "{} replied on {}", by, subject)

    async def _request_many(self, node, subject, *, wanted=None):
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
        check(wanted is None or sorted(names) == sorted(wanted), "{} replied, and not {}", names, wanted)

    # faults

    def _place(self, name):
        return (self.nodes.get(name) or self.services[name]).place

    def _touch(self, fault):
        _, kind, who, lasts = fault
        if kind in BETWEEN:
            self.trouble[frozenset(who)] += 0.1 if kind == "reset" else lasts
        elif kind == "jump":
            for name in self.actors:
                self.trouble[frozenset((who[0], name))] += lasts
        elif kind != "burst":
            self.trouble[who[0]] += 1

    async def _jumped(self, name):
        for _ in range(JUMP_NEWS if name in self.nodes else 0):
            await self._publish(name)
            await asyncio.sleep(JUMP_PAUSE)

    async def _stop(self, name, *, is_orderly):
        if name in self.services:
            self.mechanisms["end of a forwarder" if name in FORWARDERS else "end of a name server"] += 1
            service = self.services[name]
            if is_orderly:
                await service.close()
            else:
                service.kill()
            return
        self._life_of(name).is_over = True
        if is_orderly:
            await self.nodes[name].close(timeout=self.random.choice(CLOSING))
        else:
            self.bus.kill(self.nodes[name])

    # the end

    async def _converge(self):
        """Wait until all nodes know each other and their subscriptions."""
        ends = self.network.now + CONVERGES
        forwarders = [actor for actor in self.actors if actor in FORWARDERS]
        for name, node in self.nodes.items():
            others = [item for item in self.names if item != name and self.buses[item] == self.buses[name]]
            far = [item for item in self.names if forwarders and self.buses[item] != self.buses[name]]
            try:
                # With two forwarders, one of them is enough for `wait_ready(subscriber=)`. But a request is handled by
                # the copy that arrives first, and its reply waits until that forwarder is up in both directions.
                await node.wait_ready(*others, *forwarders, timeout=max(0.0, ends - self.network.now))
                for item in far:
                    left = max(0.0, ends - self.network.now)
                    await node.wait_ready(subscriber=f"svc.{item}", timeout=left)
            except oz.Timeout as error:
                check(False, "{} is not ready after {} s: {}", name, CONVERGES, error)
            # A killed node is a peer beside its successor until it is lost.
            while sorted(found := [peer.name for peer in node.peers]) != sorted(others + forwarders):
                check(self.network.now < ends, "{} has the peers {}", name, found)
                await asyncio.sleep(0.1)

    async def _finish(self):
        """Send messages that must arrive; return the news."""
        everywhere = [item for item in self.names if self._reaches(item)]
        for node in self.nodes.values():
            for other in self.names:
                if self.is_reachable(node.name, other):
                    await self._request(node, f"svc.{other}", must_succeed=True)
        for name in everywhere:
            await self._request_many(self.nodes[name], "svc.all", wanted=self.names)
        last = [await self._publish(name, subject) for name in self.names for subject in SUBJECTS]
        await self._until(lambda: not self._late(last), SETTLES, 0.25)
        # The slow node still has news in its queue.
        await asyncio.sleep(DRAINS)
        await self._until(lambda: not self._has_unreported(), REPORTS, 1.0)
        return last

    def is_reachable(self, name, other):
        """Return whether messages of a node reach another node."""
        return self.buses[name] == self.buses[other] or any(actor in FORWARDERS for actor in self.actors)

    def _reaches(self, name):
        return all(self.is_reachable(name, other) for other in self.names)

    def _late(self, last):
        """Return the lives that have not received all of the last news, each with the missing numbers."""
        found = []
        for life in self.lives:
            if not life.is_over and life.name != SLOW:
                heard = {number for numbers in life.heard.values() for number in numbers}
                reached = {
                    number
                    for item in self.lives
                    for number in self.news[item.origin]
                    if self.is_reachable(item.name, life.name)
                }
                missing = [number for number in last if number in reached and number not in heard]
                if missing:
                    found.append((life.name, missing))
        return found

    def _has_unreported(self):
        """Return whether the loss of the last messages of a process that has ended may not be reported yet."""
        has_restarted = any(self.trouble[forwarder] for forwarder in FORWARDERS)
        over = {life.origin for life in self.lives if life.is_over}
        return any(
            self._missing(life, origin) and not self._is_counted(life, origin)
            for life in self.lives
            for origin in self.news
            if not life.is_over and (origin in over or (has_restarted and self._crosses(life, origin)))
        )

    def _is_counted(self, life, origin):
        """Return whether gaps count the missing news of a publisher."""
        # While no forwarder is up, nothing crosses, and the loss is that of the forwarder.
        every = life.counts if self._crosses(life, origin) else life.gaps[origin]
        return None in every or sum(every) >= len(self._missing(life, origin))

    def _missing(self, life, origin):
        """Return the missing news of a publisher after the first news that has arrived."""
        heard = life.heard[origin]
        # A forwarder may pass news on that it received for an earlier life of the subscriber.
        own = [item for item in heard if item > life.began]
        end = heard[-1] if own and life.is_over else self.numbers
        got = set(heard)
        return [item for item in self.news[origin] if own and own[0] <= item <= end and item not in got]

    # checks

    def _check(self, last):
        late = self._late(last)
        check(not late, "at the end news are missing: {}", late)
        for life in self.lives:
            for origin, published in self.news.items():
                self._check_life(life, origin, published)
        self._check_jobs()

    def _check_life(self, life, origin, published):
        """Check that news arrive once and in order, and that gaps count missing news."""
        heard, gaps = life.heard[origin], life.gaps[origin]
        # After a fault, messages of one forwarder may arrive after newer messages of the other forwarder.
        self._check_received(
            life, origin, published, may_swap=self._crosses(life, origin) and self.is_doubled
        )
        if not heard:
            return
        missing = self._missing(life, origin)
        self.mechanisms["news missing"] += len(missing)
        publisher = next(item for item in self.lives if item.origin == origin)
        is_calm = not (
            self.trouble[frozenset((life.name, publisher.name))] or life.is_over or publisher.is_over
        )
        if is_calm and life.bus == publisher.bus and life.name != SLOW and not publisher.is_small:
            self.mechanisms["news without a fault"] += 1
            check(not missing, "{} misses {} of {} without a fault", life.name, missing, publisher.name)
            check(not gaps or self.is_bridged, "{} reports gaps {} without a fault", life.name, gaps)
        every = life.counts
        total = sum(item for item in every if item is not None)
        if self._crosses(life, origin):
            self.mechanisms["news from another bus"] += len(heard)
            is_counted = life.is_over or self._is_counted(life, origin)
            check(is_counted, "{} misses {} of another bus, gaps are {}", life.name, missing, every)
            return
        if life.name == SLOW:
            # A gap of its own queue names no publisher if messages of several were dropped.
            is_counted = None in every or total >= len(missing)
            check(is_counted, "{} misses {}, gaps are {}", life.name, missing, gaps)
            return
        if None in gaps:
            seconds = self.trouble[frozenset((life.name, publisher.name))]
            is_excused = publisher.is_over or seconds > CALM
            check(is_excused, "{} reports an unknown loss of {} without cause", life.name, publisher.name)
            return
        counted = sum(gaps)
        subjects = (f"svc.{life.name}", "svc.all")
        tokens = [item for subject in subjects for item in self.plain_requests[origin, subject]]
        lost = sum(life not in self.served[token] for token in tokens)
        check(counted >= len(missing), "{} misses {}, and gaps count {}", life.name, missing, gaps)
        # A node that has ended may have received gaps of losses behind its last news.
        is_exact = life.is_over or self.is_bridged or counted <= len(missing) + lost
        check(is_exact, "{} misses {}, and gaps count {}", life.name, missing, gaps)
        check(life.before[origin] <= counted, "{} counts {} before messages", life.name, life.before[origin])

    def _check_jobs(self):
        """Check that each job of a living publisher is handled, and again only if it is marked as redelivered."""
        over = {life.origin for life in self.lives if life.is_over}
        dropped = {life.origin: self._count_drops(life.node.stats) for life in self.lives}
        # A forwarder that ends may have passed a job on, while its publisher gives it to another member. So may a
        # forwarder whose last member on the other bus ends.
        may_repeat = self.is_bridged and any(self.trouble[name] for name in self.actors)
        for number, origin in self.jobs.items():
            handled = self.handled[number]
            dropped[origin] -= not handled
            check(dropped[origin] >= 0 or origin in over, "job {} is lost", number)
            self._check_handled(number, [is_again for _, is_again in handled], may_repeat=may_repeat)


class TwinWorld(BusWorld):
    """Runs in which two endpoints reach each node."""

    has_two_endpoints = True


class BridgeWorld(BusWorld):
    """Runs with two buses and forwarders between them."""

    bridged = 1.0
