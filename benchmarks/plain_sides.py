"""The programs that are measured beside those of oz: pyzmq alone, called as the programs of sides.py are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import zmq
import zmq.asyncio
from sides import END, LOOPBACK, PAYLOAD, Span, Work


def publisher(pipe: Connection, count: int, work: Work, subscribers: int = 1) -> None:
    """Publish with pyzmq alone to one subscriber or several."""
    subjects, turn = [subject.encode() for subject in work.subjects], len(work.subjects)
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.bind(LOOPBACK)
        pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        for _ in range(subscribers):
            socket.recv()
        for number in range(count):
            socket.send_multipart([subjects[number % turn], work.payload])
        socket.send_multipart([work.end.encode(), b""])


def subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
    """Receive with pyzmq alone, by the prefix that is nearest to the pattern."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.SUBSCRIBE, b"md.")
        socket.connect(endpoint)
        end, count = END.encode(), 1
        begin()
        socket.recv_multipart()
        started = time.perf_counter()
        while socket.recv_multipart()[0] != end:
            count += 1
        return count, time.perf_counter() - started


def filter(endpoint: str, begin: Callable[[], object], suffix: bytes, end: str) -> tuple[int, float, float]:
    """Receive all there is with pyzmq alone, and keep what ends with a suffix: the cheapest test there is."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.SUBSCRIBE, b"md.")
        socket.connect(endpoint)
        last, count = end.encode(), 0
        begin()
        socket.recv_multipart()
        span = Span()
        while (subject := socket.recv_multipart()[0]) != last:
            if subject.endswith(suffix):
                count += 1
        return span.stop(count)


def async_publisher(pipe: Connection, count: int, work: Work) -> None:
    """Publish with `zmq.asyncio` alone."""

    async def publish() -> None:
        subjects, turn = [subject.encode() for subject in work.subjects], len(work.subjects)
        with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as socket:
            socket.set_hwm(0)
            socket.setsockopt(zmq.XPUB_NODROP, 1)
            socket.bind(LOOPBACK)
            pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
            await socket.recv()
            for number in range(count):
                await socket.send_multipart([subjects[number % turn], work.payload])
            await socket.send_multipart([work.end.encode(), b""])

    asyncio.run(publish())


def async_subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
    """Receive with `zmq.asyncio` alone."""

    async def receive() -> tuple[int, float]:
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.set_hwm(0)
            socket.setsockopt(zmq.SUBSCRIBE, b"md.")
            socket.connect(endpoint)
            end, count = END.encode(), 1
            begin()
            await socket.recv_multipart()
            started = time.perf_counter()
            while (await socket.recv_multipart())[0] != end:
                count += 1
            return count, time.perf_counter() - started

    return asyncio.run(receive())


def echo(pipe: Connection, count: int) -> None:
    """Send every message back, with pyzmq alone."""
    with zmq.Context() as context, context.socket(zmq.PUB) as out, context.socket(zmq.SUB) as back:
        out.bind(LOOPBACK)
        back.setsockopt(zmq.SUBSCRIBE, b"ping.")
        back.bind(LOOPBACK)
        pipe.send((out.getsockopt_string(zmq.LAST_ENDPOINT), back.getsockopt_string(zmq.LAST_ENDPOINT)))
        while True:
            subject, payload = back.recv_multipart()
            if payload == b"end":
                return
            out.send_multipart([b"pong." + subject[5:], payload])


def ping(endpoints: tuple[str, str], begin: Callable[[], object], count: int) -> list[float]:
    """Time round trips with pyzmq alone; seconds."""
    begin()
    with zmq.Context() as context, context.socket(zmq.XPUB) as out, context.socket(zmq.SUB) as back:
        back.setsockopt(zmq.SUBSCRIBE, b"pong.")
        back.connect(endpoints[0])
        out.connect(endpoints[1])
        out.recv()
        return _round_trips(
            lambda payload: out.send_multipart([b"ping.a", payload]),
            lambda: back.recv_multipart()[1],
            lambda: back.poll(100),
            count,
        )


def _round_trips(send, receive, poll, count: int) -> list[float]:
    # Messages are lost until the other connection is ready, so that the first message is repeated.
    send(b"warm")
    while not poll():
        send(b"warm")
    receive()
    while poll():
        receive()
    times = []
    for _ in range(count):
        started = time.perf_counter()
        send(PAYLOAD)
        receive()
        times.append(time.perf_counter() - started)
    send(b"end")
    return times
