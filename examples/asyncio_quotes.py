"""A publisher task and two subscriber tasks in one event loop, with msgpack payloads."""

import asyncio

import oz.asyncio

QUOTES = [
    ("md.xetra.sap", 128.4),
    ("md.nyse.ibm", 171.2),
    ("md.xetra.bmw", 96.1),
    ("fx.eur.usd", 1.09),
    ("md.nyse.ge", 158.9),
]


async def watch(name: str, endpoint: str, pattern: str, count: int) -> None:
    async with oz.asyncio.Subscriber(connect=endpoint, codec="msgpack") as subscriber:
        subscriber.subscribe(pattern)
        async for message in subscriber:
            print(f"{name:<6} {message.subject:<13} {message.payload['price']}")
            count -= 1
            if not count:
                break


async def main() -> None:
    async with oz.asyncio.Publisher(bind="tcp://127.0.0.1:*", codec="msgpack") as publisher:
        endpoint = publisher.endpoint
        watchers = asyncio.gather(
            watch("xetra", endpoint, "md.xetra.*", 2),
            watch("all", endpoint, ">", 5),
        )
        # Both subscribers receive this subject.
        await publisher.wait_for_subscribers("md.xetra.sap", count=2)
        for subject, price in QUOTES:
            await publisher.publish(subject, {"price": price})
            await asyncio.sleep(0.01)
        await asyncio.wait_for(watchers, timeout=10)
    print("done")


asyncio.run(main())
