"""The programs that are measured, each in a process of its own.

A publisher is called with a pipe: it tells its endpoint through it, and at the end that all is sent. A
subscriber is called with that endpoint and with what to call before it begins to read; it gives the number
of messages it got and the seconds from the first to the last of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import zmq
import zmq.asyncio

import oz

SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(25)]
PAYLOAD = b"x" * 100
END = "md.end.end"
LOOPBACK = "tcp://127.0.0.1:*"


def plain_publisher(pipe: Connection, count: int) -> None:
    """Publish with pyzmq alone: XPUB, so that it can wait for the subscriber and drop nothing."""
    subjects = [subject.encode() for subject in SUBJECTS]
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.bind(LOOPBACK)
        pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        socket.recv()
        for number in range(count):
            socket.send_multipart([subjects[number % 1000], PAYLOAD])
        socket.send_multipart([END.encode(), b""])
    pipe.send("sent")


def oz_publisher(pipe: Connection, count: int, delimiter: bytes | None = None) -> None:
    """Publish with `oz.Publisher`."""
    with oz.Publisher(LOOPBACK, on_full="block", high_water_mark=0, delimiter=delimiter) as pub:
        pipe.send(pub.endpoint)
        pub.wait_for_subscribers()
        for number in range(count):
            pub.publish(SUBJECTS[number % 1000], PAYLOAD)
        pub.publish(END)
    pipe.send("sent")


def plain_subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
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


def oz_one_frame_publisher(pipe: Connection, count: int) -> None:
    """Publish with `oz.Publisher`, subject and payload in one frame."""
    oz_publisher(pipe, count, b" ")


def oz_one_frame_subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
    """Receive what `oz_one_frame_publisher` sends."""
    return oz_subscriber(endpoint, begin, b" ")


def oz_subscriber(
    endpoint: str, begin: Callable[[], object], delimiter: bytes | None = None
) -> tuple[int, float]:
    """Receive with `oz.Subscriber`."""
    with oz.Subscriber(endpoint, high_water_mark=0, delimiter=delimiter) as sub:
        sub.subscribe("md.*.*")
        begin()
        sub.receive()
        started, count = time.perf_counter(), 1
        for message in sub:
            if message.subject == END:
                break
            count += 1
        return count, time.perf_counter() - started


def plain_async_subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
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


def oz_async_subscriber(endpoint: str, begin: Callable[[], object]) -> tuple[int, float]:
    """Receive with `oz.asyncio.Subscriber`."""

    async def receive() -> tuple[int, float]:
        async with oz.asyncio.Subscriber(endpoint, high_water_mark=0) as sub:
            sub.subscribe("md.*.*")
            begin()
            await sub.receive()
            started, count = time.perf_counter(), 1
            async for message in sub:
                if message.subject == END:
                    break
                count += 1
            return count, time.perf_counter() - started

    return asyncio.run(receive())


def plain_echo(pipe: Connection, count: int) -> None:
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


def oz_echo(pipe: Connection, count: int) -> None:
    """Send every message back, with oz."""
    with oz.Publisher(LOOPBACK) as out, oz.Subscriber(bind=LOOPBACK) as back:
        back.subscribe("ping.*")
        pipe.send((out.endpoint, back.endpoint))
        for message in back:
            if message.payload == b"end":
                return
            out.publish("pong." + message.subject[5:], message.payload)


def plain_ping(endpoints: tuple[str, str], count: int) -> list[float]:
    """Time round trips with pyzmq alone; seconds."""
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


def oz_ping(endpoints: tuple[str, str], count: int) -> list[float]:
    """Time round trips with oz; seconds."""
    with oz.Publisher(connect=endpoints[1]) as out, oz.Subscriber(endpoints[0]) as back:
        back.subscribe("pong.*")
        out.wait_for_subscribers()
        return _round_trips(
            lambda payload: out.publish("ping.a", payload),
            lambda: back.receive().payload,
            lambda: back.poll(100),
            count,
        )


def _round_trips(send, receive, poll, count: int) -> list[float]:
    # The way back may not stand yet: what is sent too early is lost, so the first one is repeated.
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
