"""A peer that connects more often than there are file descriptors, and says nothing."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import oz
from oz.services.nameserver import ask
from support.scripts import started
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have no 127.0.0.2 to come from"
)

IDLING = Path(__file__).with_name("idling.py")
LIMIT, TIMES = 128, 200

BEGINNING = f"""
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
import oz
"""

PUBLISHER = """
with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
    print(pub.endpoint, flush=True)
    number = 0
    while True:
        pub.publish("a.b", str(number).encode())
        number += 1
        time.sleep(0.005)
"""

ASYNCIO = """
import asyncio

async def main():
    async with oz.asyncio.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        print(pub.endpoint, flush=True)
        number = 0
        while True:
            await pub.publish("a.b", str(number).encode())
            number += 1
            await asyncio.sleep(0.005)

import oz.asyncio
asyncio.run(main())
"""

NAMESERVER = """
from oz.services.nameserver import NameServer
with NameServer("tcp://127.0.0.1:*") as server:
    print(server.endpoint, flush=True)
    server.run()
"""


@contextmanager
def flooded(victim, kind):
    """Give the endpoint of a victim, and begin the attack when asked; it ends some of the connections."""
    with started("-c", BEGINNING + victim) as process:
        endpoint = process.stdout.readline().strip()
        assert endpoint, process.stderr.read()

        @contextmanager
        def attacked():
            with started(IDLING, endpoint, TIMES, kind, "127.0.0.2") as attacker:
                assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()

                def left():
                    print(file=attacker.stdin, flush=True)
                    return int(attacker.stdout.readline())

                until(lambda: left() < LIMIT)
                yield left

        yield endpoint, attacked


@pytest.mark.parametrize(
    "victim", [PUBLISHER, pytest.param(ASYNCIO, marks=pytest.mark.heavy)], ids=["sync", "asyncio"]
)
def test_subscribers_of_a_publisher_notice_nothing_of_connections_beyond_its_descriptors(victim):
    gaps = []
    with (
        flooded(victim, "SUB") as (endpoint, attacked),
        oz.Subscriber(endpoint, filtering="publisher", on_gap=gaps.append) as sub,
    ):
        sub.subscribe("a.b")
        numbers = [int(sub.receive(timeout=DEADLINE).payload)]
        with attacked():
            numbers += [int(sub.receive(timeout=DEADLINE).payload) for _ in range(400)]
            assert numbers == [*range(numbers[0], numbers[0] + 401)]
            assert not gaps
            with oz.Subscriber(endpoint) as newcomer:
                newcomer.subscribe("a.b")
                first = int(newcomer.receive(timeout=DEADLINE).payload)
                later = [int(newcomer.receive(timeout=DEADLINE).payload) for _ in range(100)]
                assert later == [*range(first + 1, first + 101)]


def test_a_name_server_answers_newcomers_beside_connections_beyond_its_descriptors():
    with flooded(NAMESERVER, "DEALER") as (endpoint, attacked), attacked() as left:
        for _ in range(20):
            assert ask(endpoint, timeout=DEADLINE) == []
        assert 0 < left() < LIMIT
