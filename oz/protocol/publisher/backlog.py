"""The bytes that a publisher has handed to ZeroMQ and that wait there, which libzmq does not tell.

libzmq counts what waits for a connection in messages. But it says when it is done with the memory of one that
it was given without copying. So one message in so many bytes is given to it like that: those of which it
says nothing stand for what waits.
"""

from __future__ import annotations

from collections.abc import Callable

WATCHED_FROM = 512
"""Bytes from which messages are counted: of smaller ones a high-water mark bounds the bytes well enough."""

_PARTS = 64
"""Messages at least that stand for all the bytes that may wait."""

_GOLDEN = 0.618033988749895
"""No rhythm of messages of several kinds hits the same kind each time: steps grow by this, modulo 1."""

IsSent = Callable[[], bool]
"""Tells whether ZeroMQ is done with a message."""


class Backlog:
    """The bytes that wait on one way, such as a connection, by estimate.

    Attributes:
        watched: messages that are watched until they are sent, and their bytes.
    """

    __slots__ = ("_limit", "_next", "_passed", "_turn", "_waiting", "watched")

    def __init__(self, limit: float) -> None:
        """Start with nothing.

        Args:
            limit: bytes that may wait; `math.inf` for as many as there are, of which none is watched.
        """
        self._limit = limit
        self._next = limit / _PARTS
        self._turn = 0.5
        self._passed = self._waiting = 0.0
        self.watched: list[tuple[IsSent, float]] = []

    def is_due(self, size: int) -> bool:
        """Tell whether a message of so many bytes is to be watched."""
        return self._passed + size >= self._next

    def try_add(self, size: int) -> bool:
        """Count a message that needs no watching, the short way; tell whether that is so."""
        passed = self._passed + size
        if passed >= self._next or self._waiting >= self._limit:
            return False
        self._passed = passed
        return True

    def add(self, size: int, is_sent: IsSent | None = None) -> None:
        """Count a message.

        Args:
            size: bytes.
            is_sent: watches it; None where that is not due.
        """
        self._passed += size
        if is_sent is not None:
            # It stands for those before it.
            self.watched.append((is_sent, self._passed))
            self._waiting += self._passed
            self._passed = 0.0
            self._turn = (self._turn + _GOLDEN) % 1
            self._next = self._limit / _PARTS * (0.5 + self._turn)

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may; one message is always taken, however large."""
        if self._waiting < self._limit:
            return False
        self.watched = [one for one in self.watched if not one[0]()]
        self._waiting = sum(size for _, size in self.watched)
        return self._waiting >= self._limit
