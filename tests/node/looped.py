"""What tests of nodes in a loop have in common: they run in one, meet, and wait."""

import asyncio
import threading
import time

import oz
import oz.asyncio
from support import waiting
from support.waiting import DEADLINE

Node = oz.asyncio.Node


async def until(condition, timeout=DEADLINE):
    ends = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)
    return value


async def met(*nodes):
    for node in nodes:
        await node.wait_for_peers({one.name for one in nodes} - {node.name}, timeout=DEADLINE)
    for node in nodes:
        await node.wait_ready(DEADLINE)


def run(main):
    """Run it; nothing is left of it."""
    threads = threading.active_count()
    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))
    # ZeroMQ may take longer to end its context than a close that has little time waits for.
    waiting.until(lambda: threading.active_count() <= threads)
