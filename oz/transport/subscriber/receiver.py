"""The receive path: what every message that arrives passes through, in one plain object.

An attribute of a ZeroMQ socket costs 0.07 µs, because the class looks unknown ones up as socket options;
a slot of this object costs a tenth of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import zmq

from oz.protocol.messages import Message
from oz.protocol.subscriber.columns import Arrived, PlainBatch
from oz.protocol.subscriber.receiver import Receiver
from oz.transport.backend import Backend
from oz.transport.frames import FrameReader
from oz.transport.guard import Guard

T = TypeVar("T")

_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)

MANY = 1_000
"""Messages that `receive_many` takes at most, unless said otherwise."""

PATIENCE = 0.01
"""Seconds that a call which must not wait may look through what is not for its caller. What is left is for
the next call."""

LONGEST = 1e6
"""Seconds of one wait at most: more than timers take is for ever all the same."""


def first_of(line: deque[Message]) -> Message:
    """Take the first of a line; no signal handler comes between that and what the caller does with it."""
    # A call, as that of `popleft`, would be followed by a look for signals.
    message = line[0]
    del line[0]
    return message


class Take(Protocol):
    """Takes messages from a subscriber's socket until one is wanted."""

    def __call__(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Return the message; None when the time is over."""


class ReceivePath:
    """Takes messages from one subscriber's socket until one is wanted.

    Attributes:
        limit: the socket's RCVTIMEO, milliseconds; -1 is for ever. Kept here because asking costs 0.7 µs.
    """

    __slots__ = ("_accept", "_backend", "_guard", "_monotonic", "_read", "_receiver", "_time_ns", "limit")

    def __init__(self, guard: Guard, backend: Backend, reader: FrameReader, receiver: Receiver) -> None:
        """Put together what a subscriber has."""
        self._backend = backend
        self._monotonic, self._time_ns = backend.monotonic, backend.time_ns
        self._guard = guard
        self._read = reader
        self._receiver = receiver
        self._accept: Callable[[list[bytes], int], Message | None] = receiver.accept
        self.limit = -1

    def _read_guarded(self, read: Callable[[Any, int], T], socket: Any, flags: int) -> T:
        """Read the frames of a message, of which a signal handler that raises leaves nothing behind."""
        with self._guard:
            try:
                return read(socket, flags)
            except zmq.ZMQError:
                raise
            except BaseException:
                self._skip_frames(socket)
                raise

    def _skip_frames(self, socket: Any) -> None:
        """Take the rest of a message that a signal interrupted; it would pass for a message of its own."""
        while not socket.closed and int(self._backend.get(socket, zmq.RCVMORE)):
            self._backend.recv(socket, _NOBLOCK)

    def take_announced(self, socket: Any) -> Message | None:
        """Take the message that ZeroMQ has in hand, before a connection is ended.

        Once it has announced a message it has read the first frame of it, and aborts the process when the
        connection of the others ends: "!_more" in fq.cpp of libzmq 4.3.5.

        Returns:
            The message, where it was wanted and does not wait in line.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        with self._guard:
            if not int(self._backend.get(socket, _EVENTS)) & _POLLIN:
                return None
            frames = self._read(socket, _NOBLOCK)
        return self._accept(frames, self._time_ns())

    def _fill(self, socket: Any, taken: list[Arrived], left: int, until: float) -> None:
        read, table, time_ns = self._read, self._receiver.table, self._time_ns
        routes = table.routes.get
        batch: PlainBatch | None = None
        while left > 0:
            frames = read(socket, _NOBLOCK)
            route = routes(frames[0]) or table.route(frames[0])
            if route.is_clear and len(frames) == 2:
                if batch is None:
                    batch = PlainBatch()
                    taken.append(batch)
                    subjects, payloads = batch.subjects.append, batch.payloads.append
                    times = batch.times.append
                subjects(route.subject)
                payloads(frames[1])
                times(time_ns())
            elif (message := self._accept(frames, time_ns())) is not None:
                taken.append(message)
                batch = None
            elif self._monotonic() < until:
                continue
            else:
                return
            left -= 1
