"""Subscribers whose patterns are slow to match, slow to compile or large, beside an honest one."""

import asyncio
from pathlib import Path

import pytest

import oz
import oz.asyncio
from support.inside import engine_of
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE

COSTING = Path(__file__).with_name("costing.py")
LOOPBACK = "tcp://127.0.0.1:*"
COUNT = size(100, 600)
SLOW = "a" * 60
"""What the dear patterns backtrack over."""
MOST_MEMORY = 64 << 20
PAGE = 4_096
HONEST = [r"md\.[a-z]+\.[0-9]+", "md.*.>"]
ATTACKER = b"attackers-name-1"


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def subjects():
    return [f"md.{SLOW}.{number}" for number in range(COUNT)]


def subscribe(sub):
    sub.subscribe(HONEST[0], dialect="regex")
    sub.subscribe(HONEST[1])


def attackers(pub):
    return [one for one in engine_of(pub).router.streams.values() if one.name == ATTACKER]


def has_answered(pub, chunks):
    """Whether all that the attacker asked for has been looked at."""
    (stream,) = attackers(pub) or (None,)
    return stream is not None and len(stream.chunks) + len(stream.refused) >= chunks


@pytest.mark.sized
def test_dear_patterns_are_suspended_and_told_and_the_honest_miss_nothing():
    with (
        oz.Publisher(LOOPBACK) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as honest,
        started(COSTING, pub.endpoint, "dear") as attacker,
    ):
        subscribe(honest)
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        honest.wait_ready(timeout=DEADLINE)
        before, received = memory(), []
        for subject in subjects():
            pub.publish(subject, b"")
            received.append(honest.receive(timeout=DEADLINE).subject)
        assert received == subjects()
        assert honest.stats.lost == 0
        assert 0 < pub.stats.suspended <= 400
        attacker.stdin.write("told?\n")
        attacker.stdin.flush()
        told = attacker.stdout.readline()
        assert "takes this publisher too long and is suspended" in told, attacker.stderr.read()
        assert memory() - before < MOST_MEMORY


@pytest.mark.heavy
def test_the_asyncio_publisher_suspends_dear_patterns_too():
    async def main():
        async with (
            oz.asyncio.Publisher(LOOPBACK) as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as honest,
        ):
            subscribe(honest)
            with started(COSTING, pub.endpoint, "dear") as attacker:
                line = await asyncio.to_thread(attacker.stdout.readline)
                assert line == "ready\n", attacker.stderr.read()
                await honest.wait_ready(timeout=DEADLINE)
                received = []
                for subject in subjects():
                    await pub.publish(subject, b"")
                    received.append((await honest.receive(timeout=DEADLINE)).subject)
            assert received == subjects()
            assert honest.stats.lost == 0
            assert 0 < pub.stats.suspended <= 400

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "chunks"), [("heavy", 10), ("fat", 30)])
def test_heavy_patterns_are_refused_within_bounded_memory(kind, chunks):
    with oz.Publisher(LOOPBACK) as pub, oz.Subscriber(pub.endpoint, filtering="publisher") as honest:
        subscribe(honest)
        honest.wait_ready(timeout=DEADLINE)
        before, received, wanted = memory(), [], []
        with started(COSTING, pub.endpoint, kind) as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
            waits = iter(subjects() * 100)
            while not has_answered(pub, chunks):
                wanted.append(next(waits))
                pub.publish(wanted[-1], b"")
                received.append(honest.receive(timeout=DEADLINE).subject)
            (stream,) = attackers(pub)
            assert len(stream.refused) == chunks if kind == "heavy" else 0 < len(stream.refused) < chunks
            said = "allowed" if kind == "heavy" else "pattern_weight"
            assert all(said in reason for reason in stream.refused.values())
            assert memory() - before < MOST_MEMORY
        assert received == wanted
