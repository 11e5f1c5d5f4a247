"""Sockets in a loop of their own, for tests of asyncio."""

import asyncio
import time
from contextlib import asynccontextmanager

import oz
import oz.asyncio
from support.waiting import DEADLINE


def in_a_loop(test):
    """Run an asynchronous test in a loop of its own, with a deadline."""

    def run(**values):
        asyncio.run(asyncio.wait_for(test(**values), 2 * DEADLINE))

    run.__name__, run.__doc__, run.__signature__ = (
        test.__name__,
        test.__doc__,
        __import__("inspect").signature(test),
    )
    run.pytestmark = getattr(test, "pytestmark", [])
    return run


@asynccontextmanager
async def pair(*patterns, pub=None, sub=None):
    async with (
        oz.asyncio.Publisher("tcp://127.0.0.1:*", **(pub or {})) as publisher,
        oz.asyncio.Subscriber(publisher.endpoint, **(sub or {})) as subscriber,
    ):
        made = [subscriber.subscribe(pattern) for pattern in patterns]
        wanted = {prefix for one in made for prefix in one.prefixes}
        await publisher.wait_for_subscribers(len(wanted), timeout=DEADLINE)
        yield publisher, subscriber


async def until(condition):
    ends = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.002)


class Ticker:
    """Another task of the loop, which counts how often it has its turn."""

    def __init__(self):
        self.count = 0
        self._task = asyncio.ensure_future(self._tick())

    async def _tick(self):
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def stop(self):
        self._task.cancel()
