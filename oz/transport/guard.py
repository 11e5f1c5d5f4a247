"""Who may touch a socket: one thread at a time, and only the process that made it.

libzmq crashes when two threads use one socket, and a socket inherited through fork takes messages and
delivers none. Both become clear errors here. Source: the ZeroMQ guide, "Multithreading with ZeroMQ".
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any, Protocol

from oz.errors import OwnershipError


class Guard(Protocol):
    """What is held while a socket is touched. A publisher's is an `RLock`: its calls are short and whole."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RefusingGuard:
    """Refuses other threads: for subscribers, which may wait for a message for ever."""

    __slots__ = ("_acquire", "_release")

    def __init__(self) -> None:
        """Start free. The lock is re-entrant, so that a signal handler can close the socket."""
        lock = threading.RLock()
        self._acquire = lock.acquire
        self._release = lock.release

    def __enter__(self) -> None:
        """Take it.

        Raises:
            OwnershipError: another thread has it.
        """
        if not self._acquire(False):
            raise OwnershipError(
                "another thread is using this subscriber; give each thread a subscriber of its own"
            )

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self._release()


class _ForeignGuard:
    """Stands in the child of a fork where the parent's guard stood."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Refuse.

        Raises:
            OwnershipError: always.
        """
        raise OwnershipError(
            "this socket was made before a fork, in the parent process; make one in the child"
        )

    def __exit__(self, *_: object) -> None:
        """Never reached."""


_sockets: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(socket: Any) -> None:
    """See to it that the socket's `_guard` refuses everything in the child of a fork."""
    _sockets.add(socket)


def _disown() -> None:
    for socket in list(_sockets):
        socket._guard = _ForeignGuard()
    _sockets.clear()


os.register_at_fork(after_in_child=_disown)
