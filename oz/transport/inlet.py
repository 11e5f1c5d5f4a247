"""The way in: what every message that arrives passes through, in one plain object.

An attribute of a ZeroMQ socket costs 0.07 µs, because the class looks unknown ones up as socket options;
a slot of this object costs a tenth of that.
"""

from __future__ import annotations

from time import monotonic, time_ns
from typing import Any

import zmq

from oz.message import Message
from oz.protocol.intake import Intake
from oz.transport.frames import FrameReader
from oz.transport.guard import Guard, in_use

_get = zmq.backend.Socket.get
_recv = zmq.backend.Socket.recv
_NOBLOCK = int(zmq.NOBLOCK)


class Inlet:
    """Takes messages from one subscriber's socket until one is wanted.

    Attributes:
        limit: the socket's RCVTIMEO, milliseconds; -1 is for ever. Kept here because asking costs 0.7 µs.
    """

    __slots__ = ("_accept", "_guard", "_read", "limit")

    def __init__(self, guard: Guard, reader: FrameReader, intake: Intake) -> None:
        """Put together what a subscriber has."""
        self._guard = guard
        self._read = reader
        self._accept = intake.accept
        self.limit = -1

    def take(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Take messages until one is wanted.

        Args:
            socket: the socket that the reader was made for.
            flags: 0 to wait, or `zmq.NOBLOCK`.
            until: `time.monotonic()` at which to give up, and give None, when all that comes is unwanted.

        Raises:
            zmq.Again: there is none, with `zmq.NOBLOCK` or when RCVTIMEO is over.
            OwnershipError: another thread is using the socket, or it was made before a fork.
        """
        guard = self._guard
        while True:
            if not guard.acquire(False):
                raise in_use()
            try:
                frames = self._read(socket, flags)
            except zmq.ZMQError:
                raise
            except BaseException:
                _skip_frames(socket)
                raise
            finally:
                guard.release()
            message = self._accept(frames, time_ns())
            if message is not None:
                return message
            if until is not None and monotonic() >= until:
                return None


def _skip_frames(socket: Any) -> None:
    """Take the rest of a message that a signal interrupted; it would pass for a message of its own."""
    while not socket.closed and int(_get(socket, zmq.RCVMORE)):
        _recv(socket, _NOBLOCK)
