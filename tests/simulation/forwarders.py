"""Forwarders of a run: the decisions, legs and engines of `oz.services.Forwarder`, in tasks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from oz.asyncio.node_engine import finish
from oz.services.leg import LEG_SETTINGS, Leg, hand_over, join_legs
from simulation.ledger import check
from simulation.pausing import Gate, Pausable, PausableNode

COLLECTS = 0.005
LONG = 4.5
"""Virtual seconds of standing still, also of one that looked a second before, in which others go on."""


class SimForwarder:
    """One life of a forwarder: `oz.services.Forwarder` in tasks, as a process that can stand still."""

    def __init__(self, world, name, buses):
        self.world, self.name = world, name
        self.gate = Gate()
        self.is_ending = False
        self._network = network = world.network
        self.nodes = [
            PausableNode(network, host, self.gate, **world.joins(host, bus), **LEG_SETTINGS)
            for bus in buses
            for host in [f"{name}.{bus}"]
        ]
        self.legs = []
        self.open_buses = set()
        self._frozen_at, self._taken, self._must_stand_by = 0.0, 0, False
        self._has_news, self._woken = False, asyncio.Event()

    async def start(self):
        for node in self.nodes:
            await node.start()
        self.legs = [Leg(number, node, self._wake) for number, node in enumerate(self.nodes)]
        self.forwarding = join_legs(self.legs)
        self._task = asyncio.create_task(self._run())
        return self

    def freeze(self):
        """Stand still."""
        self.gate.shut()
        self._frozen_at, self._taken = self._network.now, self.forwarding.stats.received
        self.open_buses = set()
        self.world.ways.look()

    def thaw(self):
        """Go on. After a long time it passes on nothing that another forwarder it knows of may have, too."""
        taken = self.forwarding.stats.received - self._taken
        check(not taken, "{} took {} messages while it stood still", self.name, taken)
        self.gate.open()
        if self.forwarding.has_stand_by and self._network.now - self._frozen_at > LONG:
            self._must_stand_by = True
        else:
            # Another may have taken over already, where it was cut off from this one as well.
            self._note_ways()

    def _wake(self):
        self._has_news = True
        self._woken.set()

    async def _run(self):
        await Pausable(self._take_turns(), self.gate)

    async def _take_turns(self):
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self.forwarding.next_deadline() - self._network.now)):
                    await self._woken.wait()
            self._woken.clear()
            if has_news := self._has_news:
                await asyncio.sleep(COLLECTS)
                self._has_news = False
            self.forwarding.turn(self._network.now, has_news=has_news)
            if self._must_stand_by:
                self._must_stand_by = False
                self.world.went_on += any(leg.is_open for leg in self.legs)
            self._note_ways()

    def _note_ways(self):
        self.open_buses = {leg.bus for leg in self.legs if leg.is_open}
        self.world.ways.look()

    # its end ---------------------------------------------------------------------------------------------

    async def close(self):
        """End in order."""
        self.is_ending = True
        ends = self._network.now + 5.0
        self._task.cancel()
        await finish(hand_over(self.forwarding, self.legs, asyncio.sleep, ends))
        for leg in self.legs:
            leg.is_open = False
        for node in self.nodes:
            await node.close(drain=False, timeout=max(0.0, ends - self._network.now))
        self._end()

    def kill(self):
        """End without a word."""
        self.is_ending = True
        self.gate.open()
        if self.legs:
            self._task.cancel()
        for node in self.nodes:
            self._network.kill(node.place.host)
            node.die()
        self._end()

    def _end(self):
        for leg in self.legs:
            leg.is_open = False
        if self.legs:
            self.world.count_forwarder(self.forwarding.stats)
        self._note_ways()
