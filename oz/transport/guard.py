"""Who may touch a socket: one thread at a time, and only the process that made it.

libzmq crashes when two threads use one socket, and a socket inherited through fork takes messages and
delivers none. Both become clear errors here. Source: the ZeroMQ guide, "Multithreading with ZeroMQ".
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import NoReturn

from oz.errors import OwnershipError


def in_use() -> OwnershipError:
    """Make the error for a second thread."""
    return OwnershipError(
        "another thread is using this subscriber; give each thread a subscriber of its own, "
        "and end one from outside by ending its context with term()"
    )


def refuse(*_: object) -> NoReturn:
    """Refuse what the child of a fork may not use.

    Raises:
        OwnershipError: always.
    """
    raise OwnershipError("this socket was made before a fork, in the parent process; make one in the child")


class Guard:
    """What is held while a socket is touched. It is re-entrant, so that a signal handler can close one.

    A publisher's lets other threads wait, since its calls are short and whole. A subscriber's refuses
    them, since it may wait for a message for ever.

    Attributes:
        acquire: the lock's own `acquire(blocking)`, or what refuses in the child of a fork.
        release: the lock's own `release()`.
    """

    __slots__ = ("__weakref__", "_waits", "acquire", "release")

    acquire: Callable[[bool], bool]
    release: Callable[[], None]

    def __init__(self, *, waits: bool) -> None:
        """Start free."""
        lock = threading.RLock()
        self.acquire = lock.acquire
        self.release = lock.release
        self._waits = waits
        _guards.add(self)

    def __enter__(self) -> None:
        """Take it.

        Raises:
            OwnershipError: another thread has it, or the process did not make it.
        """
        if not self.acquire(self._waits):
            raise in_use()

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self.release()

    def disown(self) -> None:
        """Refuse everything from now on."""
        self.acquire = refuse

    @property
    def is_foreign(self) -> bool:
        """Whether its socket was made before a fork, in the parent process."""
        return self.acquire is refuse


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _disown_all() -> None:
    for guard in list(_guards):
        guard.disown()
    _guards.clear()


os.register_at_fork(after_in_child=_disown_all)
