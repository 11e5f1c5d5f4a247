"""A publisher in a loop is looked after when something comes or is due, and misses nothing by it."""

import asyncio

import zmq
import zmq.asyncio

import oz.asyncio
from waiting import DEADLINE

LOOPBACK = "tcp://127.0.0.1:*"


async def rests(pub):
    async with asyncio.timeout(DEADLINE):
        while pub._engine._timer is not None:
            await asyncio.sleep(0.01)


def test_a_subscriber_is_answered_by_a_publisher_that_rests():
    async def main():
        with zmq.asyncio.Context() as context:
            async with oz.asyncio.Publisher(LOOPBACK, context=context) as pub:
                await rests(pub)
                async with oz.asyncio.Subscriber(pub.endpoint, context=context, filtering="publisher") as sub:
                    sub.subscribe("a")
                    await sub.wait_ready(timeout=DEADLINE)
                    # Its streams are told where they stand.
                    assert pub._engine._timer is not None
                await pub.close(0)

    asyncio.run(main())


def test_who_uses_the_socket_has_the_loop_look_again():
    async def main():
        with zmq.asyncio.Context() as context:
            async with (
                oz.asyncio.Publisher(LOOPBACK, context=context) as pub,
                oz.asyncio.Subscriber(pub.endpoint, context=context) as sub,
            ):
                sub.subscribe("a")
                await pub.wait_for_subscribers(timeout=DEADLINE)
                await rests(pub)
                await pub.publish("a", b"")
                assert pub._engine._timer is not None
                await rests(pub)
                await pub.close(0)

    asyncio.run(main())
