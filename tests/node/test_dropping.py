"""What a node drops is counted by the subscription that it was for, on a bus in a test tube."""

import asyncio

import pytest

import oz.testing


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", None])
@pytest.mark.parametrize("has_handler", [True, False])
def test_what_a_subscription_drops_is_counted_by_it(overflow, has_handler):
    handled = []

    async def slow(message):
        handled.append(message.payload)
        await asyncio.sleep(1)

    async def main():
        async with bus.node("there") as there, bus.node("here") as here:
            sub = here.subscribe(
                "x", handler=slow if has_handler else None, overflow=overflow, max_pending=50
            )
            other = here.subscribe("x")
            await there.wait_for_peers(1, timeout=5)
            await there.wait_ready(timeout=5)
            for number in range(2_000):
                await there.publish("x", b"%d" % number)
            await asyncio.sleep(0.5)
            dropped = sub.dropped
            assert other.dropped == 0
            assert sub.waiting <= 50
            # Whether the first is being handled before the others come is a matter of the seed.
            assert dropped == here.stats.dropped == 2_000 - sub.waiting - len(handled)
            assert here.stats.lost == 0

    with oz.testing.Bus(11) as bus:
        bus.run(main())
