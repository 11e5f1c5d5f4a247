"""Runs of nodes: the engines of `oz.asyncio.Node` on the model of ZeroMQ, with a name server and requests."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from random import Random
from typing import NamedTuple

import zmq

import oz
import oz.testing
from oz.protocol.node.registry import Registry
from simulation.failing import unfailing
from simulation.ledger import check
from simulation.processes import NOBLOCK, Process

NAMES = ("desk", "risk", "lab")
ANYBODY = "any"
NAMESERVER = "tcp://10.0.2.1:5756"
LASTS = 8.0
"""Virtual seconds of traffic and faults."""

SETTLES = 10.0
REQUESTS, MESSAGES, FAULTS = 40, 60, 6
KINDS = {"cut": 4, "stall": 3, "half_open": 2, "kill": 2, "close": 2, "kill_server": 2}
LATE = 0.5
"""Virtual seconds that a request may take longer than it was given, where many things go wrong at once."""


class NodeFault(NamedTuple):
    """One thing that goes wrong."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class SimNameServer(Process):
    """A name server: its registry on a ROUTER."""

    def begin(self):
        self.router = self.socket(zmq.ROUTER, SNDHWM=1000, ROUTER_MANDATORY=1)
        self.router.bind(NAMESERVER)
        self.registry = Registry(self.world.random_bytes(16), self.name)

    def turn(self):
        now, router = self.clock(), self.router
        while router.has_in():
            peer, *frames = router.recv_multipart(NOBLOCK)
            for frame in frames[-1:]:
                self._send(self.registry.receive(peer, frame, now))
        self._send(self.registry.tick(now))
        return self.registry.next_deadline()

    def _send(self, sends):
        missed, waiting = set(), deque(sends)
        while waiting:
            peer, frame = waiting.popleft()
            if peer not in missed:
                try:
                    self.router.send_multipart([peer, frame], NOBLOCK)
                except zmq.ZMQError as error:
                    missed.add(peer)
                    if error.errno == zmq.EHOSTUNREACH:
                        waiting.extend(self.registry.unreachable(peer, self.clock()))
                    else:
                        self.registry.missed(peer)

    def begin_end(self):
        self.close()


class NodeWorld:
    """One run: three nodes that ask each other and tell each other news, while things go wrong.

    Attributes:
        asked: the subjects that they ask on: behind the dot stands who answers.
        told: the subjects of news.
        kinds: of what goes wrong, and how often each comes.
        other: who is cut off from nodes as they are from each other.
    """

    asked = tuple(f"svc.{one}" for one in (*NAMES, ANYBODY))
    told = "news.x", "news.y", "news.z"
    kinds = KINDS
    other = "nameserver"

    def __init__(self, seed, faults=None, mechanisms=None):
        self.seed, self.random = seed, Random(seed)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.bus = oz.testing.Bus(seed)
        self.network = self.bus.network
        self.random_bytes = self.random.randbytes
        self.nameserver = SimNameServer(self, "nameserver")
        self.nodes, self.heard, self.served, self.tasks = {}, {}, Counter(), []
        self.numbers = 0
        self.published, self.down = {}, set()
        every = [self._fault() for _ in range(FAULTS)]
        self.faults = sorted(every) if faults is None else faults

    def _fault(self):
        random = self.random
        kind = random.choices(tuple(self.kinds), tuple(self.kinds.values()))[0]
        who = tuple(random.sample((*NAMES, self.other), 2))
        if kind in ("kill", "close"):
            who = (random.choice(NAMES),)
        return NodeFault(random.uniform(1.0, LASTS), kind, who, random.choice((0.1, 0.5, 2.0, 4.0)))

    def run(self):
        """Let everything happen, and check what must be so."""
        with self.bus:
            self.bus.run(unfailing(self._main()))
        return self

    async def _main(self):
        await self._begin()
        await asyncio.gather(*self._jobs())
        self.bus.heal()
        await self._settle()
        self._check_news()

    def _jobs(self):
        """Return all that is to happen."""
        uniform = self.random.uniform
        jobs = [self._later(uniform(0.5, LASTS), self._ask) for _ in range(REQUESTS)]
        jobs += [self._later(uniform(0.5, LASTS), self._tell) for _ in range(MESSAGES)]
        return jobs + [self._later(fault.at, partial(self._harm, fault)) for fault in self.faults]

    async def _begin(self):
        """Have everybody there."""
        self.nameserver.start()
        for name in NAMES:
            await self._start(name)
        await asyncio.gather(*(node.wait_for_peers(2, timeout=SETTLES) for node in self.nodes.values()))

    def _make_node(self, name):
        return self.bus.node(name, nameserver=NAMESERVER)

    @staticmethod
    async def _later(seconds, work):
        await asyncio.sleep(seconds)
        await work()

    async def _start(self, name):
        node = self.nodes[name] = self._make_node(name)
        self.heard[node] = []
        await node.start()

        async def answer(message):
            self.served[message.payload] += 1
            await asyncio.sleep(self.random.random() * 0.05)
            await message.reply(f"{message.payload} by {name}")

        for subject in self.asked:
            if subject.endswith(f".{ANYBODY}"):
                node.subscribe(subject, handler=answer, group="workers")
            elif subject.endswith(f".{name}"):
                node.subscribe(subject, handler=answer)
        node.subscribe("news.*", handler=partial(self._hear, node))
        return node

    def _hear(self, node, message):
        self.heard[node].append((message.subject, int(message.payload.rpartition(" ")[2])))

    async def _start_again(self, name):
        """Start it, as often as it takes: a node does not join while no name server answers."""
        while True:
            try:
                return await self._start(name)
            except oz.NameserverUnavailable:
                self.mechanisms["node without a name server"] += 1

    # what happens ----------------------------------------------------------------------------------------

    async def _ask(self):
        name, subject = self.random.choice(NAMES), self.random.choice(self.asked)
        await self._request(self.nodes[name], subject)

    async def _request(self, node, subject, *, must_succeed=False):
        """Ask once: the answer is that to this request, or there is an error in its time."""
        self.numbers += 1
        token, timeout = f"question {self.numbers}", self.random.choice((0.3, 1.0, 3.0))
        began = self.network.now
        answer = None
        try:
            answer = await node.request(subject, token, timeout=timeout)
        except oz.OzError as error:
            self.mechanisms[f"request: {type(error).__name__}"] += 1
            check(
                not must_succeed, "a request of {} to {} failed: {!r}", node.announcement.name, subject, error
            )
        took = self.network.now - began
        check(took <= timeout + LATE, "a request with {} s to answer took {} s", timeout, took)
        check(self.served[token] <= 1, "{} was handled {} times", token, self.served[token])
        if answer is not None:
            self.mechanisms["request answered"] += 1
            check(answer.payload.startswith(f"{token} by "), "{!r} is no answer to {}", answer.payload, token)
            by = answer.payload.rpartition(" ")[2]
            check(subject.endswith((f".{by}", f".{ANYBODY}")), "{} answered {}", by, subject)

    async def _tell(self):
        name, subject = self.random.choice(NAMES), self.random.choice(self.told)
        self.numbers += 1
        node, number = self.nodes[name], self.numbers
        self.published[number] = node
        try:
            await node.publish(subject, f"{subject} {number}")
        except oz.ClosedError:
            del self.published[number]

    async def _harm(self, fault):
        _, kind, who, lasts = fault
        self.mechanisms[f"fault of nodes: {kind}"] += 1
        if kind in ("cut", "stall", "half_open"):
            getattr(self.network, kind)(*who)
            await asyncio.sleep(lasts)
            self.network.heal(*who)
        elif kind == "kill_server":
            self.nameserver.kill()
            await asyncio.sleep(lasts)
            if not self.nameserver.is_alive:
                self.nameserver.start()
        elif who[0] not in self.down:
            node = self.nodes[who[0]]
            self.down.add(who[0])
            if kind == "kill":
                self.bus.kill(node)
            else:
                await node.close(timeout=1.0)
            await asyncio.sleep(lasts)
            await self._start_again(who[0])
            self.down.discard(who[0])

    # what must be so -------------------------------------------------------------------------------------

    def _names_of(self, peers):
        """Return who some peers are."""
        return [one.name for one in peers]

    async def _be_ready(self, node):
        # First: `wait_ready` passes over a peer that stood still, until more is heard of it.
        await node.wait_for_peers({*NAMES} - {node.announcement.name}, timeout=SETTLES)
        await node.wait_ready(SETTLES)

    async def _settle(self):
        """All find each other, and each answers all others."""
        for name, node in self.nodes.items():
            others = sorted({*NAMES} - {name})
            ends = self.network.now + SETTLES
            while sorted(self._names_of(node.peers)) != others:
                check(
                    self.network.now < ends, "{} knows {} after {} s", name, [one.name for one in node.peers],
                    SETTLES,
                )  # fmt: skip
                await asyncio.sleep(0.1)
        await asyncio.gather(*map(self._be_ready, self.nodes.values()))
        for node in self.nodes.values():
            for other in NAMES:
                await self._request(node, f"svc.{other}", must_succeed=True)
        for _ in range(5):
            await self._tell()
        await asyncio.sleep(2.0)

    def _check_news(self):
        """News come once and in order; the last ones, when all was well, to everybody."""
        for messages in self.heard.values():
            last = {}
            for subject, number in messages:
                sender = self.published.get(number)
                check(last.get((sender, subject), 0) < number, "{} of {} came late or twice", number, subject)
                last[sender, subject] = number
        for name, node in self.nodes.items():
            newest = {number for _, number in self.heard[node]}
            for number in list(self.published)[-5:]:
                check(number in newest, "{} did not hear of {} at the end", name, number)
