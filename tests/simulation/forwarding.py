"""Runs of forwarders: two or three buses, joined more than once, so that the tree of buses matters.

The forwarders are the decisions, legs and engines of `oz.services.Forwarder`, in tasks instead of threads.
While they disagree about the tree, as in the moment in which a link between two of them is cut, two of them
may pass messages: then some come twice, or late. That is permitted for what was on its way then, and for
nothing else; a message of a group comes to one member even then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from contextlib import suppress
from math import inf
from random import Random
from typing import NamedTuple

import oz
import oz.testing
from oz.testing.nodes import Node
from oz.transport.node.notices import Watcher
from simulation.failing import unfailing
from simulation.forwarders import SimForwarder
from simulation.heard import Account, Heard, Published
from simulation.ledger import check
from simulation.nodes import NAMESERVER, SimNameServer
from simulation.pausing import Machine
from simulation.ways import Ways
from support.inside import engine_of

BEGINS, LASTS = 1.0, 8.0
"""Virtual seconds at which traffic and faults begin and end."""

SETTLES = 10.0
"""Virtual seconds within which all must be well after the last fault."""

REQUESTS, NEWS, JOBS, FAULTS = 20, 80, 30, (6, 10)
KINDS = {
    "cut": 4, "stall": 3, "half_open": 2, "part": 3, "kill_forwarder": 3, "close_forwarder": 2, "freeze": 3,
    "kill_node": 1,
}  # fmt: skip
MEETING = 10
"""Messages while two forwarders meet that were apart."""

LATE = 0.5
"""Virtual seconds that a request may take longer than it was given, where many things go wrong at once."""

QUIET = 1.5
"""Virtual seconds without a report of a loss after which all are told."""

NOTICED = 6.0
"""Virtual seconds after which all have noticed that one was killed."""

TOPOLOGIES = (
    {"f1": ("a", "b"), "f2": ("a", "b")},
    {"f1": ("a", "b", "c"), "f2": ("c", "b", "a")},
    {"f1": ("a", "b"), "f2": ("b", "c"), "f3": ("c", "a")},
)


class ForwarderFault(NamedTuple):
    """One thing that goes wrong."""

    at: float
    kind: str
    who: tuple[str, ...]
    lasts: float


class ForwarderWorld:
    """One run: nodes on several buses that tell and ask each other, while things go wrong.

    Attributes:
        mechanisms: how often each mechanism fired.
        faults: what goes wrong; all that the seed says, or those that are given.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.seed, self.random = seed, Random(seed)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.bus = oz.testing.Bus(seed)
        self.network = self.bus.network
        random = self.random
        self.random_bytes = random.randbytes
        self.nameserver = SimNameServer(self, "nameserver")
        self._addresses = {}
        self.topology = random.choices(TOPOLOGIES, (2, 1, 1))[0]
        self.buses = sorted({bus for buses in self.topology.values() for bus in buses})
        homes = self.buses if len(self.buses) == 3 else [*self.buses, random.choice(self.buses)]
        self.places = {f"n{number}": bus for number, bus in enumerate(homes, 1)}
        self.members = random.sample(sorted(self.places), 2)
        while len({self.places[one] for one in self.members}) < 2:
            self.members = random.sample(sorted(self.places), 2)
        self.nodes, self.forwarders, self.lives = {}, dict.fromkeys(self.topology), Counter()
        self.served, self.handled = Counter(), Counter()
        self.numbers = 0
        self.died_at, self.went_on = 0.0, 0
        self.ways = Ways(self.topology, self.buses, self.forwarders, self.network, self.mechanisms)
        self.heard = Heard(self.ways.were_ambiguous, self.mechanisms)
        every = [self._fault(kind) for kind in ("part", "freeze", "freeze")]
        every += [self._fault() for _ in range(random.randint(*FAULTS) - len(every))]
        self.faults = sorted(every) if faults is None else faults

    def _fault(self, kind=None):
        random = self.random
        kind = kind or random.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        lasts = random.choice((0.1, 0.5, 2.0, 5.0))
        if kind in ("cut", "stall", "half_open"):
            bus = random.choice(self.buses)
            who = tuple(random.sample(self._hosts_on(bus), 2))
        elif kind == "part":
            who = tuple(random.sample(sorted(self.topology), 2))
        elif kind == "kill_node":
            who = (random.choice(sorted(self.places)),)
        else:
            who = (random.choice(sorted(self.topology)),)
        if kind == "freeze":
            lasts = random.choice((2.0, 3.7, 5.0, 5.0))
        return ForwarderFault(random.uniform(BEGINS, LASTS), kind, who, lasts)

    def _hosts_on(self, bus):
        nodes = [name for name, its in self.places.items() if its == bus]
        return nodes + [f"{name}.{bus}" for name, buses in self.topology.items() if bus in buses]

    def count_forwarder(self, stats):
        self.mechanisms["passed on by a forwarder"] += stats.passed

    # running ---------------------------------------------------------------------------------------------

    def run(self):
        """Let everything happen, and check what must be so."""
        with self.bus:
            self.bus.run(unfailing(self._main()))
        return self

    async def _main(self):
        try:
            await self._play()
        finally:
            for _, one in self.ways.running():
                one.kill()
            for node, _ in self.nodes.values():
                self._end_node(node)
            self.nameserver.kill()

    async def _play(self):
        random = self.random
        self.nameserver.start()
        for name in self.topology:
            await self._start_forwarder(name)
        for name in self.places:
            await self._start_node(name)
        jobs = [self._later(random.uniform(BEGINS, LASTS), self._ask()) for _ in range(REQUESTS)]
        jobs += [self._later(random.uniform(BEGINS, LASTS), self._tell(self._any())) for _ in range(NEWS)]
        jobs += [self._later(random.uniform(BEGINS, LASTS), self._order(self._any())) for _ in range(JOBS)]
        jobs += [self._later(fault.at, self._harm(fault)) for fault in self.faults]
        await asyncio.gather(*jobs)
        self.network.heal()
        ends = self.network.now + SETTLES
        await self._settle(ends)
        await self._check_end(ends)
        self._check_accounts()

    def _any(self):
        return self.random.choice(sorted(self.places))

    @staticmethod
    async def _later(seconds, job):
        await asyncio.sleep(seconds)
        await job

    def joins(self, host, bus):
        """Give the options by which a host joins a bus."""
        address = self._addresses.setdefault(host, f"10.0.3.{len(self._addresses) + 1}")
        return {
            "bus": bus, "nameserver": NAMESERVER, "bind": f"tcp://{address}:7000", "advertise": address
        }  # fmt: skip

    async def _start_forwarder(self, name):
        made = SimForwarder(self, name, self.topology[name])
        self.forwarders[name] = made
        await made.start()

    async def _start_node(self, name):
        account = Account(name, self.places[name], self.network.now)
        node = Node(Machine(self.network, name), name, **self.joins(name, account.bus))
        await node.start()
        self.heard.accounts.append(account)
        self.nodes[name] = node, account
        now = self.network
        engine_of(node).watch(Watcher(bool, lambda gap: account.gaps.append((now.now, gap.count))))

        async def answer(message):
            self.served[message.payload] += 1
            await asyncio.sleep(self.random.random() * 0.05)
            await message.reply(f"{message.payload} by {name}")

        def handle(message):
            self.handled[int(message.payload)] += 1

        node.subscribe(f"svc.{name}", handler=answer)
        node.subscribe("svc.any", handler=answer, group="servers")
        node.subscribe("news.*", handler=lambda one: account.heard.append((now.now, int(one.payload))))
        if name in self.members:
            node.subscribe("job.*", handler=handle, group="workers")

    # what happens ----------------------------------------------------------------------------------------

    async def _tell(self, name):
        """Tell all of something new."""
        return await self._publish(name, f"news.{self.random.choice('xyz')}")

    async def _order(self, name):
        """Give a group something to do."""
        return await self._publish(name, f"job.{self.random.choice('xyz')}")

    async def _publish(self, name, subject):
        node, account = self.nodes[name]
        self.numbers += 1
        number = self.numbers
        with suppress(oz.ClosedError):
            await node.publish(subject, str(number))
            self.heard.published[number] = Published(
                account, subject, self.network.now, self.ways.reach(account.bus)
            )
        return number

    async def _ask(self):
        await self._request(self._any(), f"svc.{self.random.choice((*self.places, 'any'))}")

    async def _request(self, name, subject, *, must_succeed=False):
        """Ask once: the answer is that to this request, or there is an error in its time."""
        self.numbers += 1
        token, timeout = f"question {self.numbers}", self.random.choice((0.3, 1.0, 3.0))
        began = self.network.now
        answer = None
        try:
            answer = await self.nodes[name][0].request(subject, token, timeout=timeout)
        except oz.OzError as error:
            self.mechanisms[f"request across: {type(error).__name__}"] += 1
            check(not must_succeed, "a request of {} to {} failed: {!r}", name, subject, error)
        now = self.network.now
        check(now - began <= timeout + LATE, "a request with {} s took {} s", timeout, now - began)
        times = self.served[token]
        check(times <= 1 or self.ways.were_ambiguous(began, now), "{} was handled {} times", token, times)
        if answer is not None:
            self.mechanisms["request across answered"] += 1
            check(answer.payload.startswith(f"{token} by "), "{!r} is no answer to {}", answer.payload, token)
            by = answer.payload.rpartition(" ")[2]
            check(subject in (f"svc.{by}", "svc.any"), "{} answered {}", by, subject)

    async def _harm(self, fault):
        _, kind, who, lasts = fault
        self.mechanisms[f"fault of forwarders: {kind}"] += 1
        if kind in ("cut", "stall", "half_open"):
            await self._disturb(getattr(self.network, kind), [who], lasts)
        elif kind == "part":
            one, other = (set(self.topology[name]) for name in who)
            pairs = [tuple(f"{name}.{bus}" for name in who) for bus in sorted(one & other)]
            await self._disturb(self.network.cut, pairs, lasts)
            for _ in range(MEETING):
                # Until they have told each other who passes messages, both do.
                await self._tell(self._any())
                await asyncio.sleep(0.002)
        elif kind == "kill_node":
            await self._kill_node(who[0], lasts)
        else:
            running = self.forwarders[who[0]]
            if running is not None and not running.is_ending and not running.gate.is_shut and running.legs:
                await self._harm_forwarder(running, kind, lasts)

    async def _disturb(self, fault, pairs, lasts):
        for pair in pairs:
            fault(*pair)
        await asyncio.sleep(lasts)
        for pair in pairs:
            self.network.heal(*pair)

    def _end_node(self, node):
        self.died_at = self.network.now
        self.network.kill(node.place.host)
        node.die()

    async def _kill_node(self, name, lasts):
        node, account = self.nodes[name]
        if account.ended_at < inf:
            return
        account.ended_at = self.network.now
        self._end_node(node)
        await asyncio.sleep(lasts)
        await self._start_node(name)

    async def _harm_forwarder(self, running, kind, lasts):
        if kind == "freeze":
            pairs = [
                (host, f"{running.name}.{bus}")
                for bus in self.topology[running.name]
                for host in self._hosts_on(bus)
                if host != f"{running.name}.{bus}"
            ]
            running.freeze()
            await self._disturb(self.network.stall, pairs, lasts)
            running.thaw()
            return
        if kind == "kill_forwarder":
            self.died_at = self.network.now
            running.kill()
        else:
            await running.close()
        await asyncio.sleep(lasts)
        await self._start_forwarder(running.name)

    # what must be so -------------------------------------------------------------------------------------

    async def _settle(self, ends):
        """One way leads between any two buses, all know all, and what anybody tells comes to all."""
        # Whoever stood still, or was cut off, has yet to tell that it is there.
        await asyncio.sleep(2.0)
        while (wrong := self._not_well()) is not None:
            check(self.network.now < ends, "not well after {} s: {}", SETTLES, wrong)
            await asyncio.sleep(0.1)
        sent = dict.fromkeys(self.places, 0)
        told = defaultdict(set)
        while True:
            for name in self.places:
                sent[name] = await self._tell(name)
                told[name].add(sent[name])
            await asyncio.sleep(0.2)
            missing = [
                (name, other)
                for name, (_, account) in self.nodes.items()
                for other in self.places
                if not told[other].intersection(number for _, number in account.heard)
            ]
            if not missing:
                break
            check(self.network.now < ends, "after {} s {} hears nothing of {}", SETTLES, *missing[0])

    def _not_well(self):
        for name, one in self.ways.running():
            if not one.forwarding.is_settled:
                return f"{name} has not settled"
        if not self.ways.are_tree():
            return f"the ways are {self.ways.shape}"
        for name, (node, account) in self.nodes.items():
            others = sorted(one for one in self._hosts_on(account.bus) if one != name)
            known = sorted(peer.name for peer in node.peers)
            if known != others:
                return f"{name} knows {known}"
        return None

    def _newest_gap(self):
        return max((account.gaps[-1][0] for _, account in self.nodes.values() if account.gaps), default=0.0)

    async def _check_end(self, ends):
        """When all is well messages cross once, and nothing is lost or goes round."""
        # Each stream tells at its first message, or by a heartbeat, that some may have been missed.
        for _ in range(4):
            for name in self.places:
                await self._order(name)
        await asyncio.sleep(2.5)
        while max(self._newest_gap() + QUIET, self.died_at + NOTICED) > self.network.now:
            check(self.network.now < ends, "losses are told {} s after the last fault", SETTLES)
            await asyncio.sleep(0.1)
        looped = sum(one.forwarding.stats.looped for _, one in self.ways.running())
        gaps = {account: len(account.gaps) for _, account in self.nodes.values()}
        began = self.network.now
        news = [await self._tell(name) for _ in range(3) for name in self.places]
        jobs = [await self._order(name) for _ in range(2) for name in self.places]
        for name, other in itertools.permutations(self.places, 2):
            await self._request(name, f"svc.{other}", must_succeed=True)
        await asyncio.sleep(1.0)
        for _, account in self.nodes.values():
            heard = Counter(number for at, number in account.heard if at >= began)
            check(heard == Counter(news), "{} heard {} at the end", account.name, heard)
            check(len(account.gaps) == gaps[account], "{} was told of {}", account.name, account.gaps[-3:])
        for number in jobs:
            check(self.handled[number] == 1, "job {} was handled {} times", number, self.handled[number])
        now = sum(one.forwarding.stats.looped for _, one in self.ways.running())
        check(now == looped, "{} messages went round at the end", now - looped)

    def _check_accounts(self):
        check(not self.went_on, "{} went on after they stood still, beside others", self.went_on)
        twice = [number for number, count in self.handled.items() if count > 1]
        check(not twice, "jobs {} were handled twice", twice[:3])
        self.heard.check()
