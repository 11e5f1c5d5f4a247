"""A test of a service without sockets and waits: the clock jumps over the ten seconds of the client's pause."""

import asyncio

import oz
import oz.testing


async def ask(node: oz.asyncio.Node, item: str) -> int:
    """Return the price of an item. Try again until the service is there."""
    while True:
        try:
            return (await node.request("price", item, timeout=2)).payload
        except oz.NoResponders:
            await asyncio.sleep(10)


def test_client_waits_for_the_service(oz_bus: oz.testing.Bus) -> None:
    async def scenario() -> None:
        shop = oz_bus.node("shop")
        asking = asyncio.create_task(ask(shop, "tea"))
        await asyncio.sleep(5)
        oz_bus.node("prices").subscribe("price", handler=lambda message: 42)
        assert await asking == 42
        assert oz_bus.now() >= 10

    oz_bus.run(scenario())


if __name__ == "__main__":
    with oz.testing.Bus() as bus:
        test_client_waits_for_the_service(bus)
        print("passed, and nothing waited")
