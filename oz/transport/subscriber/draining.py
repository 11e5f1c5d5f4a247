"""The steps of a subscriber that waits for publishers: until it is ready, and to stop without loss.

The steps are generators, which wait and call handlers by yielding: so they are written once, and each twin
runs them in its own way. The model is psycopg 3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TypeVar

import zmq

from oz.numbers import check_number, check_wait
from oz.protocol.messages import Message
from oz.transport.attachments import Attachments
from oz.transport.subscriber.engine import SubscriberEngine

_LEAST = 0.05
"""Seconds for which a subscriber that stops takes what is here, though it is given no time for publishers."""

_UNHEARD = 0.25
"""Seconds for which a subscriber that stops waits for publishers that it has connected to and never heard.

What they have sent is on its way, and so is the first that is heard of them; or nobody is there.
"""

_LATER = 0.001
"""Seconds after a time by which it is over for sure."""

T = TypeVar("T")

Steps = Generator[float | Message, None, T]
"""What is done step by step. It yields the seconds to wait at most for something to read, or a message whose
handlers are to be called, and which is for `receive` then if a subscription wants it there."""

GOODBYE_SECONDS = 0.5
"""How long closing waits at most for the goodbye to be sent."""


def drain(engine: SubscriberEngine, connections: int, timeout: float) -> Steps[None]:
    """Stop asking, and deliver what is there; see `oz.Subscriber.drain`.

    Args:
        engine: the subscriber's.
        connections: over which publishers are expected.
        timeout: seconds for which publishers that filter are waited for.
    """
    check_number("timeout", timeout)
    began = engine.monotonic()
    deadline = began + timeout
    engine.declarer.begin_drain()
    yield from _unpack_what_is_here(engine)
    yield from _unpack_until_heard(engine, connections, began + min(timeout, _UNHEARD))
    yield from _unpack_until(engine, engine.declarer.has_left, deadline)
    yield from _take_what_is_here(engine, deadline)
    engine.end_drain()


def wait_ready(engine: SubscriberEngine, attachments: Attachments, timeout: float | None) -> Steps[None]:
    """Wait until every publisher has answered; see `oz.Subscriber.wait_ready`.

    Args:
        engine: the subscriber's.
        attachments: where publishers are expected.
        timeout: seconds; None waits for ever.

    Raises:
        Timeout: some publisher has not answered in that time.
        PermissionDenied: a publisher denies a pattern.
        ProtocolError: a publisher refuses a pattern.
        ValueError: without `filtering="publisher"`.
    """
    check_wait("timeout", timeout)
    if engine.declarer.streams is None:
        raise ValueError('only publishers that filter answer: Subscriber(…, filtering="publisher")')
    streams = engine.declarer.streams
    deadline = inf if timeout is None else engine.monotonic() + timeout
    yield from _unpack_what_is_here(engine)

    def next_silence() -> float | None:
        # A publisher that has been silent for long is not waited for.
        return streams.publishers.next_silence(engine.declarer.backend.time_ns())

    def is_ready() -> bool:
        return engine.declarer.is_ready(attachments.connections)

    if not (yield from _unpack_until(engine, is_ready, deadline, next_silence)):
        raise engine.declarer.not_ready(timeout, attachments)
    # Otherwise the first message would have to wait for it.
    engine.declarer.settle()


def next_deadline(engine: SubscriberEngine, connections: int) -> float | None:
    """Return when there is something to do though nothing comes, or a publisher is waited for no longer.

    Args:
        engine: the subscriber's.
        connections: over which publishers are expected.

    Returns:
        Monotonic seconds; None for never.
    """
    declarer = engine.declarer
    due, streams, now_ns = declarer.next_deadline(), declarer.streams, declarer.backend.time_ns()
    if streams is None or streams.is_ready(connections, now_ns):
        return due
    silence = streams.publishers.next_silence(now_ns)
    if silence is None:
        return due
    silent_at = engine.monotonic() + silence
    return silent_at if due is None else min(due, silent_at)


def _unpack_what_is_here(engine: SubscriberEngine) -> Steps[None]:
    """Take batches and answers in that have come: they tell which publishers there are."""
    if engine.declarer.streams is not None:
        yield 0.0
        engine.unpack()


def _unpack_until_heard(engine: SubscriberEngine, connections: int, until: float) -> Steps[None]:
    """Take batches and answers in until a publisher was heard over each connection, or that time."""
    if (streams := engine.declarer.streams) is not None:
        yield from _unpack_until(engine, lambda: len(streams.publishers.met()) >= connections, until)


def _unpack_until(
    engine: SubscriberEngine,
    is_done: Callable[[], bool],
    deadline: float,
    done_in: Callable[[], float | None] = lambda: None,
) -> Steps[bool]:
    """Take batches and answers in until it is done; tell whether it is.

    Args:
        engine: the subscriber's.
        is_done: asked whenever something may have come.
        deadline: monotonic seconds; infinite for ever.
        done_in: tells in how many seconds it may be done by itself.
    """
    while not is_done():
        left = deadline - engine.monotonic()
        if left <= 0:
            return False
        seconds = done_in()
        yield left if seconds is None else min(left, seconds + _LATER)
        engine.unpack()
    return True


def _take_what_is_here(engine: SubscriberEngine, deadline: float) -> Steps[None]:
    """Take what has come, and have handlers called; the rest is still to be received."""
    # A plain publisher may be faster than this, so that there is always one more.
    ends = max(deadline, engine.monotonic() + _LEAST)
    while engine.monotonic() < ends:
        try:
            message = engine.take_one(ends)
        except zmq.Again:
            return
        if message is not None:
            yield message
