"""A publisher that has no time to read and to look at all that has come: it comes back for the rest."""

from __future__ import annotations

import asyncio

import zmq

import oz
from support.waiting import DEADLINE

IN_A_HURRY = oz.Limits(interest_time=1e-9)
PATTERNS = [f"a{number}.*" for number in range(400)]


def test_subscribers_of_a_thread_are_ready_in_the_end():
    with (
        oz.Publisher("tcp://127.0.0.1:*", limits=IN_A_HURRY) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
        oz.Subscriber(pub.endpoint) as plain,
    ):
        plain.subscribe(PATTERNS)
        for pattern in PATTERNS:
            sub.subscribe(pattern)
        sub.wait_ready(DEADLINE)
        pub.wait_for_subscribers(subject="a399.b", n=2, timeout=DEADLINE)


def test_subscribers_of_a_loop_are_ready_in_the_end():
    async def scenario():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*", limits=IN_A_HURRY) as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub,
        ):
            for pattern in PATTERNS:
                sub.subscribe(pattern)
            await sub.wait_ready(DEADLINE)
            await pub.publish("a399.b", b"payload")
            assert (await sub.receive(timeout=DEADLINE)).payload == b"payload"

    asyncio.run(scenario())


def test_a_subscriber_behind_thousands_of_plain_subscriptions_is_ready_in_the_end():
    async def scenario():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*", limits=IN_A_HURRY) as pub:
            with zmq.Context() as context, context.socket(zmq.SUB) as plain:
                plain.sndhwm = 0
                for number in range(10_000):
                    plain.subscribe(b"a%d" % number)
                plain.connect(pub.endpoint)
                async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
                    sub.subscribe("b")
                    await sub.wait_ready(DEADLINE)

    asyncio.run(scenario())
