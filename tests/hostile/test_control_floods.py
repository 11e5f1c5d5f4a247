"""A publisher that sends control records as fast as it can, beside an honest one."""

import asyncio
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

import oz
import oz.asyncio
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array
from oz.wire.keys import STREAM
from support.scripts import started
from support.sizes import in_suite
from support.waiting import DEADLINE, until

FLOODING = Path(__file__).with_name("flooding_with_control.py")
KINDS = ["heartbeats", "numbers", "names", "answers"]
MANY = 200
ORIGIN = b"o" * 16
BETWEEN = 50
"""Heartbeats of others between two messages."""


@contextmanager
def flood(what):
    """Start the attacker; give its endpoint, and what waits until it floods."""
    with started(FLOODING, what) as attacker:
        endpoint = attacker.stdout.readline().strip()
        assert endpoint, attacker.stderr.read()

        def begun():
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()

        yield endpoint, begun


@pytest.mark.parametrize("what", in_suite(KINDS[:2], KINDS[2:]))
def test_honest_messages_come_in_order_and_waits_end_beside_a_flood_of_control_records(what):
    with (
        flood(what) as (hostile, begun),
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber([pub.endpoint, hostile], filtering="publisher", on_gap=lambda gap: None) as sub,
    ):
        sub.subscribe("a.b")
        begun()
        # The attacker answers nothing, so that nobody can wait until all have.
        while pub.stats.sent == 0:
            pub.publish("a.b", b"-1")
        numbers = []
        for number in range(MANY):
            pub.publish("a.b", b"%d" % number)
            while not numbers or numbers[-1] < number:
                numbers.append(int(sub.receive(timeout=DEADLINE).payload))
        assert [one for one in numbers if one >= 0] == [*range(MANY)]
        for _ in range(3):
            with pytest.raises(oz.Timeout):
                sub.receive(timeout=0.02)


@pytest.mark.parametrize("what", in_suite(KINDS[2:], KINDS[:2]))
def test_other_tasks_go_on_beside_a_flood_of_control_records(what):
    async def ticks(counted):
        while True:
            counted.append(1)
            await asyncio.sleep(0)

    async def hear(endpoints, pub, begun):
        async with oz.asyncio.Subscriber(endpoints, filtering="publisher", on_gap=lambda gap: None) as sub:
            sub.subscribe("a.b")
            await asyncio.to_thread(begun)
            counted = []
            ticking = asyncio.create_task(ticks(counted))
            while pub.stats.sent == 0:
                pub.publish("a.b", b"-1")
                await asyncio.sleep(0)
            for number in range(MANY):
                pub.publish("a.b", b"%d" % number)
                before = len(counted)
                while int((await asyncio.wait_for(sub.receive(), DEADLINE)).payload) < number:
                    pass
                while len(counted) == before:
                    await asyncio.sleep(0)
            with pytest.raises(oz.Timeout):
                await sub.receive(timeout=0.02)
            ticking.cancel()

    with flood(what) as (hostile, begun), oz.Publisher("tcp://127.0.0.1:*") as pub:
        asyncio.run(hear([pub.endpoint, hostile], pub, begun))


def messages(key, sequence):
    start = head_start(key, MESSAGES, ORIGIN, 1) + head_end(sequence, 1)
    return start + pack_array([b"a.b", b"%d" % sequence])


@pytest.fixture
def flooded(monkeypatch):
    """A subscriber that has both to read, and no time for what is not for its caller."""
    with (
        zmq.Context() as context,
        context.socket(zmq.XPUB) as xpub,
        oz.Subscriber(context=context, filtering="publisher") as sub,
    ):
        xpub.bind("inproc://flood")
        sub.connect("inproc://flood")
        sub.subscribe("a.b")
        keys = []
        until(lambda: keys.append(xpub.recv()[1:]) or keys[-1].startswith(STREAM))
        xpub.send(messages(keys[-1], 0))
        for number in range(BETWEEN):
            xpub.send(head_start(keys[-1], CONTROL, number.to_bytes(16), 1) + head_end(0, 0))
        xpub.send(messages(keys[-1], 1))
        monkeypatch.setattr("oz.sync.subscriber.PATIENCE", -1.0)
        yield sub


def test_a_call_that_must_not_wait_ends_in_a_flood_and_the_next_goes_on(flooded):
    assert flooded.recv_multipart()[1] == b"0"
    got, ended = [], 0
    while not got:
        try:
            got = flooded.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            ended += 1
    assert got[1] == b"1"
    assert ended >= BETWEEN // 2


def test_what_was_taken_is_given_though_a_flood_goes_on(flooded):
    assert [one.payload for batch in flooded.receive_batches() for one in batch.messages()] == [b"0"]
    assert flooded.receive(DEADLINE).payload == b"1"
