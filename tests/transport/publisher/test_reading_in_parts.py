"""A publisher that has no time to read and to look at all that has come: it comes back for the rest."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from dataclasses import replace

import pytest
import zmq

import oz
from oz.protocol.publisher.accounts import Peer
from oz.transport import backend
from support.inside import engine_of
from support.waiting import DEADLINE, until

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


MANY = 1_000


def read_at_once(pub, plain):
    """Have a publisher look by hand until it has read many subscriptions; return how many at each look."""
    counts, engine = [0], engine_of(pub)
    plain.sndhwm = 0
    for number in range(MANY):
        plain.subscribe(b"a%d" % number)
    with engine.guard:
        plain.connect(pub.endpoint)
        while counts[-1] < MANY:
            engine.listen()
            counts.append(engine.router.plain.count(None))
    return [count - before for before, count in itertools.pairwise(counts)]


@pytest.mark.parametrize(
    ("endpoint", "is_inside"), [("tcp://127.0.0.1:*", False), ("inproc://in-parts", True)]
)
def test_a_publisher_reads_all_of_its_own_program_at_once_and_of_others_as_long_as_it_has_time(
    endpoint, is_inside
):
    with (
        zmq.Context() as context,
        oz.Publisher(endpoint, context=context, limits=IN_A_HURRY) as pub,
        context.socket(zmq.SUB) as plain,
    ):
        counts = read_at_once(pub, plain)
    assert max(counts) == MANY if is_inside else max(counts) <= 100


def test_who_sends_more_than_may_wait_before_it_is_read_is_cut_off(monkeypatch):
    monkeypatch.setattr(backend, "PYZMQ", replace(backend.PYZMQ, read_by_zmq=lambda peer: 100 << 20))
    with (
        zmq.Context() as context,
        oz.Publisher("tcp://127.0.0.1:*", limits=IN_A_HURRY) as pub,
        context.socket(zmq.SUB) as plain,
    ):
        plain.reconnect_ivl = -1
        for number in range(MANY):
            plain.subscribe(b"a%d" % number)
        plain.connect(pub.endpoint)
        until(lambda: pub.stats.cut)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_has_come_over_a_connection_and_is_not_read_does_not_count():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as there,
        listening.accept()[0] as here,
    ):
        peer = Peer(here.fileno(), os.fstat(here.fileno()).st_ino)
        assert backend.PYZMQ.read_by_zmq(peer) == 0
        there.sendall(bytes(1_000))
        assert len(here.recv(400, socket.MSG_WAITALL)) == 400
        assert backend.PYZMQ.read_by_zmq(peer) == 400
        assert backend.PYZMQ.read_by_zmq(peer._replace(inode=0)) is None
