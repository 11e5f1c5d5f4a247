"""The measured programs of oz, each in a process of its own; plain_sides.py has the programs of pyzmq alone.

A publisher is called with a pipe and the number of messages. It tells its endpoint through the pipe; it is
told there when all subscribers are ready, and again when they have everything, so that nothing is closed
before. A subscriber is called with that endpoint and with what to call when it is ready. It gives the
number of messages it got, the seconds from the first to the last of them, and the processor seconds of its
process meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import zmq
import zmq.asyncio

import oz

SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(25)]
PAYLOAD = b"x" * 100
END = "md.end.end"
LOOPBACK = "tcp://127.0.0.1:*"

TIMEOUT = 30
"""Seconds to become ready in."""


class Work(NamedTuple):
    """Published subjects, and patterns of the subscribers."""

    subjects: list[str]
    """They are sent in turn."""
    patterns: list[str]
    """One for each subscriber, or all for one."""
    end: str
    """Is sent last, and matches too."""
    payload: bytes = PAYLOAD


ALL = Work(SUBJECTS, ["md.*.*"], END)
"""Everything matches."""

ONE_IN_100 = Work(
    [f"md.{market}.s{symbol}" for market in range(10) for symbol in range(100)], ["*.*.s7"], "md.end.s7"
)
"""The wildcard leads, so the only prefix is the empty one."""


def _ten_thousand() -> tuple[Work, int]:
    numbers = range(5_000)
    patterns = [f"md.k{number}.*" for number in numbers]
    patterns += [f"*.k{number}.>" for number in numbers if number % 2 == 0]
    patterns += [f"md.*.v{number}" for number in numbers if number % 4 < 2]
    sent = numbers[::5]
    matches = sum(1 + (number % 2 == 0) + (number % 4 < 2) for number in sent)
    return Work([f"md.k{number}.v{number}" for number in sent], patterns, "end.end"), matches


MANY, MANY_MATCHES = _ten_thousand()
"""10,000 patterns with a wildcard each, 1 to 3 of which match a message; and how many do in one turn."""


class Span:
    """Measures from the first message on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self, count: int) -> tuple[int, float, float]:
        """Give what a subscriber gives."""
        return count, time.perf_counter() - self._wall, time.process_time() - self._cpu


class Tally:
    """Counts the messages of all handlers."""

    def __init__(self) -> None:
        self.got = 0
        self.span: Span | None = None

    def count(self, message: object) -> None:
        """Handle a message."""
        if self.span is None:
            self.span = Span()
        self.got += 1

    def stop(self) -> tuple[int, float, float]:
        """Give what a subscriber gives."""
        return (self.span or Span()).stop(self.got)


# oz ------------------------------------------------------------------------------------------------------

Securing = Callable[[], oz.Security | None]
"""Makes the security of a socket, in the process that has it."""


def unsecured() -> None:
    """Have no keys."""


BOUNDED = oz.Options(high_water_mark=100_000)
"""Enough for the window of a link. With `on_full="block"` a publisher waits beyond it, and drops nothing."""


def publisher(
    pipe: Connection, count: int, work: Work, subscribers: int = 1, securing: Securing = unsecured
) -> None:
    """Publish with `oz.Publisher`."""
    subjects, turn = work.subjects, len(work.subjects)
    with oz.Publisher(LOOPBACK, on_full="block", options=BOUNDED, security=securing()) as pub:
        pipe.send(pub.endpoint)
        pub.wait_for_subscribers(count=subscribers, timeout=TIMEOUT)
        pipe.recv()
        for number in range(count):
            pub.publish(subjects[number % turn], work.payload)
        pub.publish(work.end)
        pipe.recv()


def subscriber(
    endpoint: str,
    begin: Callable[[], object],
    patterns: list[str],
    end: str,
    filtering: str = "publisher",
    securing: Securing = unsecured,
) -> tuple[int, float, float]:
    """Receive with `oz.Subscriber`."""
    with oz.Subscriber(endpoint, filtering=filtering, options=BOUNDED, security=securing()) as sub:
        for pattern in patterns:
            sub.subscribe(pattern)
        if filtering == "publisher":
            sub.wait_ready(timeout=TIMEOUT)
        begin()
        sub.receive()
        span, count = Span(), 1
        for message in sub:
            if message.subject == end:
                break
            count += 1
        return span.stop(count)


def batches(endpoint: str, begin: Callable[[], object], work: Work) -> tuple[int, float, float]:
    """Receive with `oz.Subscriber`, many messages in a call."""
    with oz.Subscriber(endpoint, filtering="publisher", options=BOUNDED) as sub:
        for pattern in work.patterns:
            sub.subscribe(pattern)
        sub.wait_ready(timeout=TIMEOUT)
        begin()
        count, span = 0, None
        while True:
            found = sub.receive_many()
            span = span or Span()
            count += len(found)
            if found[-1].subject == work.end:
                return span.stop(count - 1)


def handlers(
    endpoint: str, begin: Callable[[], object], work: Work, securing: Securing = unsecured
) -> tuple[int, float, float]:
    """Receive with `oz.Subscriber`, by a handler for each pattern."""
    with oz.Subscriber(endpoint, filtering="publisher", options=BOUNDED, security=securing()) as sub:
        tally = Tally()
        for pattern in work.patterns:
            sub.subscribe(pattern, handler=tally.count)
        sub.subscribe(work.end)
        sub.wait_ready(timeout=TIMEOUT)
        begin()
        sub.receive()  # the handlers run until the end is there
        return tally.stop()


def async_publisher(pipe: Connection, count: int, work: Work) -> None:
    """Publish with `oz.asyncio.Publisher`."""

    async def publish() -> None:
        subjects, turn = work.subjects, len(work.subjects)
        async with oz.asyncio.Publisher(LOOPBACK, on_full="block", options=BOUNDED) as pub:
            pipe.send(pub.endpoint)
            await pub.wait_for_subscribers(timeout=TIMEOUT)
            await asyncio.to_thread(pipe.recv)
            for number in range(count):
                await pub.publish(subjects[number % turn], work.payload)
            await pub.publish(work.end)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(publish())


def async_subscriber(endpoint: str, begin: Callable[[], object], work: Work) -> tuple[int, float, float]:
    """Receive with `oz.asyncio.Subscriber`."""

    async def receive() -> tuple[int, float, float]:
        async with oz.asyncio.Subscriber(endpoint, filtering="publisher", options=BOUNDED) as sub:
            for pattern in work.patterns:
                sub.subscribe(pattern)
            await sub.wait_ready(timeout=TIMEOUT)
            begin()
            await sub.receive()
            span, count = Span(), 1
            async for message in sub:
                if message.subject == work.end:
                    break
                count += 1
            return span.stop(count)

    return asyncio.run(receive())


def echo(pipe: Connection, count: int) -> None:
    """Send every message back, with oz. Publisher and subscriber share a context, as those of plain pyzmq do."""
    with oz.Publisher(LOOPBACK) as free:
        # Links need a publisher that binds: `ping` binds its publisher here.
        other = free.endpoint
    with (
        zmq.Context() as context,
        oz.Publisher(LOOPBACK, context=context) as out,
        oz.Subscriber(other, filtering="publisher", context=context) as back,
    ):
        back.subscribe("ping.*")
        pipe.send((out.endpoint, other))
        for message in back:
            if message.payload == b"end":
                return
            out.publish("pong." + message.subject[5:], message.payload)


def ping(endpoints: tuple[str, str], begin: Callable[[], object], count: int) -> list[float]:
    """Time round trips with oz; seconds."""
    with (
        zmq.Context() as context,
        oz.Publisher(endpoints[1], context=context) as out,
        oz.Subscriber(endpoints[0], filtering="publisher", context=context) as back,
    ):
        back.subscribe("pong.*")
        back.wait_ready(timeout=TIMEOUT)
        out.wait_for_subscribers(timeout=TIMEOUT)
        begin()
        times = []
        for _ in range(count):
            started = time.perf_counter()
            out.publish("ping.a", PAYLOAD)
            back.receive()
            times.append(time.perf_counter() - started)
        out.publish("ping.a", b"end")
        return times
