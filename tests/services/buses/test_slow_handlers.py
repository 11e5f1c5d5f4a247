"""Requests to slow handlers behind two forwarders, on the virtual clock of a bus for tests."""

import asyncio

import oz
import oz.testing
from simulation.services import start_forwarder

HANDLING_TIME = 30.0  # Virtual seconds: less than a forwarder waits for a reply.


async def _ask_across_two_forwarders(bus):
    options = oz.NodeOptions(directory="/host")
    near, far = (bus.node(f"on-{name}", bus=name, options=options) for name in ("lan", "wan"))
    legs = [{"bus": name, "directory": "/host"} for name in ("lan", "wan")]
    pair = [start_forwarder(bus, name, legs) for name in ("one", "two")]

    async def answer(message):
        await asyncio.sleep(HANDLING_TIME)
        return message.payload

    far.subscribe("svc", handler=answer)
    await near.wait_ready("one", "two", subscriber="svc")
    await far.wait_ready("one", "two")
    while not any(leg.is_standby for item in pair for leg in item.service.legs):
        await asyncio.sleep(0.1)
    try:
        return (await near.request("svc", b"x", timeout=2 * HANDLING_TIME)).payload
    finally:
        for item in pair:
            item.kill()


def test_a_reply_may_come_late_through_the_forwarder_that_stands_by():
    for seed in range(4):
        with oz.testing.Bus(seed, longest=1_000) as bus:
            assert bus.run(_ask_across_two_forwarders(bus)) == b"x"
