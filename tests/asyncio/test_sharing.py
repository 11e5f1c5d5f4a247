"""Tasks that share one subscriber, wait in every way there is and are cancelled at random."""

import asyncio
import random
import time
from contextlib import suppress

import pytest
import zmq

import oz
import oz.asyncio
from support.waiting import DEADLINE

COUNT = 500
FILTERINGS = {
    "prefix": {},
    "publisher": {"filtering": "publisher"},
    "shared": {"filtering": "publisher", "shared": True},
}


class Takers:
    """The ways to wait without a timeout; each puts what it was given into `got`."""

    def __init__(self, sub):
        self.got = []
        self._sub = sub
        self.ways = [self.one, self.many, self.batches, self.multipart, self.polled]

    async def one(self):
        self.got.append((await self._sub.receive()).payload)

    async def many(self):
        self.got += [message.payload for message in await self._sub.receive_many(7)]

    async def batches(self):
        for one in await self._sub.receive_batches(5):
            self.got += [one.payload] if isinstance(one, oz.Message) else one.payloads

    async def multipart(self):
        self.got.append((await self._sub.recv_multipart())[1])

    async def polled(self):
        assert await self._sub.poll() == zmq.POLLIN
        # Another task may be faster.
        with suppress(zmq.Again):
            self.got.append((await self._sub.recv_multipart(zmq.NOBLOCK))[1])


async def share(options, rng):
    async with (
        oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
        oz.asyncio.Subscriber(pub.endpoint, **options) as sub,
    ):
        sub.subscribe("a")
        if options:
            await sub.wait_ready(DEADLINE)
        else:
            await pub.wait_for_subscribers(timeout=DEADLINE)
        takers, running = Takers(sub), {}

        async def work(number):
            while True:
                running[number] = asyncio.create_task(rng.choice(takers.ways)())
                await asyncio.wait([running[number]])

        workers = [asyncio.create_task(work(number)) for number in range(4)]
        for number in range(COUNT):
            await pub.publish("a", b"%d" % number)
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() * 0.005)
                rng.choice(list(running.values())).cancel()
        # Nobody is cancelled any more: whoever waits is told of all that is there.
        ends = time.monotonic() + DEADLINE
        while len(takers.got) < COUNT and time.monotonic() < ends:
            await asyncio.sleep(0.005)
        for worker in (*workers, *running.values()):
            worker.cancel()
        await asyncio.wait([*workers, *running.values()])
        assert sorted(map(int, takers.got)) == list(range(COUNT))


@pytest.mark.parametrize("filtering", FILTERINGS)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_tasks_that_are_cancelled_lose_nothing_and_keep_nobody_waiting(filtering, loop):
    run = asyncio.run if loop == "asyncio" else pytest.importorskip("uvloop").run
    run(share(FILTERINGS[filtering], random.Random(filtering)))
