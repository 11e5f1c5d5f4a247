"""A publisher that is attacked: `publishing.py sync|asyncio`. It says where it is, and how after each word.

`publish COUNT SUBJECT [SIZE]` publishes messages of numbers, filled up to so many bytes, one each millisecond
or later. `stats` tells how it is.
"""

import asyncio
import json
import os
import sys
import time

import oz
from support.waiting import DEADLINE

LIMITS = oz.Limits(unsent=8 << 20)


_STATM = os.open("/proc/self/statm", os.O_RDONLY)
"""Opened before somebody else takes all descriptors."""


def resident():
    return int(os.pread(_STATM, 100, 0).split()[1]) * 4096


def told(pub):
    stats = pub.stats
    return json.dumps(
        {"refused": stats.refused, "missed": stats.missed, "cut": stats.cut, "resident": resident()}
    )


def published(count, subject, size="0"):
    """What a line asks for: subjects and payloads."""
    for number in range(int(count)):
        yield subject, (b"%d" % number).rjust(int(size))


def attacked():
    with oz.Publisher("tcp://127.0.0.1:*", limits=LIMITS) as pub:
        print(pub.endpoint, flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "publish":
                for message in published(*rest):
                    pub.publish(*message)
                    time.sleep(0.001)
            print(told(pub), flush=True)


async def attacked_in_a_loop():
    async with oz.asyncio.Publisher("tcp://127.0.0.1:*", limits=LIMITS) as pub:
        print(pub.endpoint, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, *rest = line.split()
            if word == "publish":
                for message in published(*rest):
                    await pub.publish(*message)
                    await asyncio.sleep(0.001)
            print(told(pub), flush=True)


if __name__ == "__main__":
    assert DEADLINE
    attacked() if sys.argv[1] == "sync" else asyncio.run(attacked_in_a_loop())
