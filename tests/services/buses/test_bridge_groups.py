"""Messages of groups behind a forwarder, on the virtual clock of a bus for tests."""

import asyncio

import pytest

import oz
import oz.testing
from simulation.services import start_forwarder
from support.waiting import DEADLINE

JOBS = 20


class Scene:
    """A publisher on one bus, a forwarder, and workers on both buses that handle nothing before `release`."""

    def __init__(self, bus):
        self.bus, self.handled, self._gates = bus, {}, {}
        self.near = self._node("near", "lan")
        legs = [{"bus": one, "directory": "/host"} for one in ("lan", "wan")]
        self.forwarder = start_forwarder(bus, "bridge", legs)

    def _node(self, name, bus):
        return self.bus.node(name, bus=bus, options=oz.NodeOptions(directory="/host"))

    def add_worker(self, name, bus="wan"):
        node = self._node(name, bus)
        handled, gate = self.handled.setdefault(name, {}), self._gates.setdefault(name, asyncio.Event())

        async def handle(message):
            await gate.wait()
            handled[message.payload] = message.redelivered

        delivery = oz.Delivery(redeliver=True)
        return node, node.subscribe("job", handler=handle, group="workers", ack="handled", delivery=delivery)

    def release(self, name):
        self._gates[name].set()

    async def publish(self):
        await self.near.wait_ready(subscriber="job", timeout=DEADLINE)
        for number in range(JOBS):
            await self.near.publish("job", number)
            if not number % 7:
                # Several batches.
                await asyncio.sleep(0.1)
        await self.until(lambda: self.placed == JOBS)

    @property
    def placed(self):
        """Number of jobs that the forwarder has not acknowledged."""
        return sum(len(jobs) for leg in self.forwarder.service.legs for jobs in leg.held.values())

    @property
    def members(self):
        """Members of the group behind the forwarder."""
        route = self.forwarder.service.legs[1].publisher.find_route("job", b"job")
        return route.groups[0][1]

    async def until(self, condition):
        ends = self.bus.now() + 60
        while not condition():
            assert self.bus.now() < ends
            await asyncio.sleep(0.05)


@pytest.fixture
def play():
    """Run a scene in a bus for tests."""

    def run(scene):
        with oz.testing.Bus(1) as bus:

            async def main():
                made = Scene(bus)
                await scene(made)
                made.forwarder.kill()

            bus.run(main())

    return run


def test_jobs_of_a_member_that_is_down_are_acknowledged_when_another_member_has_handled_them(play):
    async def scene(made):
        made.add_worker("one")
        await made.publish()
        made.add_worker("two")
        await made.until(lambda: len(made.members) == 2)
        made.bus.network.cut("one", "bridge")
        # The member is DOWN for 3 s.
        await asyncio.sleep(5)
        assert made.placed == JOBS
        made.release("two")
        await made.until(lambda: not made.placed)
        # In their order, and with a mark.
        assert [*made.handled["two"].items()] == [(number, True) for number in range(JOBS)]
        assert not made.handled["one"]

    play(scene)


def test_jobs_of_a_lone_member_that_is_down_wait_for_it(play):
    async def scene(made):
        made.add_worker("one")
        await made.publish()
        made.bus.network.cut("one", "bridge")
        await asyncio.sleep(4)
        made.bus.network.heal("one", "bridge")
        made.release("one")
        await made.until(lambda: not made.placed)
        assert made.handled == {"one": dict.fromkeys(range(JOBS), False)}

    play(scene)


@pytest.mark.parametrize("bus", ["lan", "wan"])
def test_jobs_of_a_member_that_unsubscribes_go_to_another_member(play, bus):
    async def scene(made):
        _, subscription = made.add_worker("one")
        await made.publish()
        made.add_worker("two", bus)
        await asyncio.sleep(2)
        await subscription.unsubscribe()
        made.release("two")
        await made.until(lambda: len(made.handled["two"]) >= JOBS - 1 and not made.placed)
        made.release("one")
        await made.until(lambda: len({**made.handled["one"], **made.handled["two"]}) == JOBS)
        assert all(made.handled["two"].values())

    play(scene)
