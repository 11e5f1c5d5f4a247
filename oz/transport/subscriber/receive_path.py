"""The receive path: what every message that arrives passes through, in one plain object.

An attribute of a ZeroMQ socket costs 0.07 µs, because the class looks unknown ones up as socket options;
a slot of this object costs a tenth of that.
"""

from __future__ import annotations

from math import inf
from typing import Any, NoReturn, Protocol

import zmq

from oz.compiled import HOT
from oz.protocol.messages import Message
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.transport.backend import Backend
from oz.transport.frames import FrameReader
from oz.transport.guard import Guard
from oz.transport.subscriber.declarations import Declarer

_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)

_LATER = 0.15
"""Seconds after the earliest look for one on account of what was read."""

_LOOK_NS = 250_000_000
"""Nanoseconds between two looks at what is due where there is always something to read."""


class Take(Protocol):
    """Takes messages from a subscriber's socket until one is wanted."""

    def __call__(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Return the message; None when the time is over."""


class ReceivePath:
    """Takes messages from one subscriber's socket, without waiting, until one is wanted."""

    __slots__ = (
        "_accept", "_backend", "_declarer", "_guard", "_look_at", "_monotonic", "_read", "_streams",
        "_time_ns", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        guard: Guard,
        backend: Backend,
        reader: FrameReader,
        decoder: BatchDecoder,
        declarer: Declarer,
    ) -> None:
        """Put together what a subscriber has."""
        self._backend = backend
        self._monotonic, self._time_ns = backend.monotonic, backend.time_ns
        self._guard = guard
        self._read = reader
        self._accept = decoder.accept
        self._streams = decoder.streams
        self._waiting = decoder.waiting
        self._declarer = declarer
        self._look_at = 0

    def take(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Return the next message; None when the time is over.

        Args:
            socket: the subscriber's.
            flags: `zmq.NOBLOCK`, as the reader is given it.
            until: monotonic seconds.

        Raises:
            zmq.Again: nothing is there.
        """
        waiting, streams = self._waiting, self._streams
        while not waiting:
            if streams.is_collecting:
                self._declarer.flush()
            try:
                lone = self._read_one(socket, flags)
            except zmq.Again:
                self._find_nothing(socket, flags, until)
            if lone is not None:
                return lone
            if not waiting and until is not None and self._monotonic() >= until:
                return None
        return waiting.popleft()

    def shortest(self) -> Take:
        """Return `take`, compiled where that is possible."""
        if HOT is None or type(self) is not ReceivePath:
            return self.take
        return HOT.TakeLone(
            twin=self.take,
            guard=self._guard,
            read=self._read,
            clock=self._time_ns,
            accept=self._accept,
            skip=self._skip_frames,
            error=zmq.ZMQError,
            path=self,
            declarer=self._declarer,
            streams=self._streams,
            waiting=self._waiting,
            again=zmq.Again,
            look=self._look_on_the_way,
            hasten=self._hasten,
            find_nothing=self._find_nothing,
            go_on=self._go_on,
        )

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

    def _find_nothing(self, socket: Any, flags: int, until: float | None = None) -> NoReturn:
        """Look after what is due, as nothing was read."""
        self._declarer.look(self._monotonic())
        raise zmq.Again

    def _go_on(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Go on with `take` for the compiled part, which has read something and was given no message."""
        if not self._waiting and until is not None and self._monotonic() >= until:
            return None
        return self.take(socket, flags, until)

    def _look_on_the_way(self, now: int) -> None:
        """Look after what is due also when there is always something to read."""
        self._look_at = now + _LOOK_NS
        if self._declarer.due_at <= self._monotonic():
            self._declarer.look(self._monotonic())

    def _hasten(self) -> None:
        """Bring the next look forward, as something has come."""
        self._declarer.hasten(_LATER)

    def _read_one(self, socket: Any, flags: int) -> Message | None:
        """Read one frame; give its message if it was the only one, otherwise put them in line."""
        with self._guard:
            try:
                frames = self._read(socket, flags)
            except zmq.ZMQError:
                raise
            except BaseException:
                self._skip_frames(socket)
                raise
        now = self._time_ns()
        if now >= self._look_at:
            self._look_on_the_way(now)
        message = self._accept(frames, now)
        if self._declarer.is_settled and self._streams.due_at == -inf:
            self._hasten()
        return message

    def _skip_frames(self, socket: Any) -> None:
        """Take the rest of a message that a signal interrupted; it would pass for a message of its own."""
        while not socket.closed and int(self._backend.get(socket, zmq.RCVMORE)):
            self._backend.recv(socket, _NOBLOCK)
