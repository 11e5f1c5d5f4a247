"""The guard of a socket: one thread at a time may touch it, in the process that made it.

libzmq crashes when two threads use one socket, and a socket inherited through fork takes messages and
delivers none. Both become clear errors here. Source: the ZeroMQ guide, "Multithreading with ZeroMQ".
"""

from __future__ import annotations

import _thread
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from oz.errors import OwnershipError
from oz.system import after_fork


def in_use() -> OwnershipError:
    """Make the error for a second thread."""
    return OwnershipError(
        "another thread is using this subscriber; give each thread a subscriber of its own. To end one from "
        "outside, let it receive with a timeout and look at a flag, or end its context with term(), at which "
        "it raises zmq.ContextTerminated"
    )


def refuse(*_: object) -> NoReturn:
    """Refuse what the child of a fork may not use.

    Raises:
        OwnershipError: always.
    """
    raise OwnershipError("this socket was made before a fork, in the parent process; make one in the child")


if TYPE_CHECKING:

    class _Lock:
        """The type of `_thread.RLock`; typeshed calls that final, which it is not."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
else:
    _Lock = _thread.RLock


class Guard(_Lock):
    """The lock of a socket. It is re-entrant, so that a signal handler can close the socket.

    A publisher's lets other threads wait, since its calls are short and whole. It *is* a lock, and taking it
    is one call in C: a signal handler that raises comes before or after, so that it is never left held.

    A lock is not fair: who releases it and takes it at once has it again before others wake up. So whoever
    publishes says first that it is coming, and the thread that looks after a publisher makes room then.

    Attributes:
        is_wanted: somebody was about to take it for a message since the last time that room was made.
        is_busy: who has it sends the frames of a message, or takes subscriptions in: what a signal handler
            does with the socket in the middle of that would come between.
        postponed: what signal handlers have put off for that reason; see `do_postponed`.
        when_disowned: called when this is disowned.
    """

    __slots__ = ("is_busy", "is_wanted", "postponed", "when_disowned")

    is_foreign = False
    """Whether its socket was made before a fork, in the parent process."""

    def __init__(self) -> None:
        """Start free."""
        super().__init__()
        self.is_wanted = self.is_busy = False
        self.postponed: deque[Callable[[], object]] = deque()
        self.when_disowned: Callable[[], None] | None = None
        _guards.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it: a signal handler may run in the middle of what it guards."""
        # What threading.Condition asks too.
        return self._is_owned()

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal handler asks, in the middle of what must not be divided."""
        return self.is_busy and self.is_mine

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Let no signal handler of this thread, which has it, come between what is done meanwhile."""
        before, self.is_busy = self.is_busy, True
        try:
            yield
        finally:
            self.is_busy = before
            self.do_postponed()

    def do_postponed(self) -> None:
        """Do what signal handlers have put off, in their order; called by who was busy, and has it still."""
        if not self.postponed or self.is_busy:
            return
        # What handlers do meanwhile comes behind it.
        self.is_busy = True
        try:
            while self.postponed:
                self.postponed.popleft()()
        finally:
            self.is_busy = False

    def check_owner(self) -> None:
        """Refuse the child of a fork.

        Raises:
            OwnershipError: the socket was made before a fork, in the parent process.
        """
        if self.is_foreign:
            refuse()

    def disown(self) -> None:
        """Refuse everything from now on, and see to it that no short way leads past."""
        self.__class__ = _Foreign
        if self.when_disowned is not None:
            self.when_disowned()


class StrictGuard(Guard):
    """A subscriber's guard: it refuses other threads, since who has it may wait for a message for ever."""

    __slots__ = ()

    def __enter__(self) -> bool:
        """Take it.

        Raises:
            OwnershipError: another thread has it, or the process did not make it.
        """
        if not self.acquire(False):
            raise in_use()
        return True


class _Foreign(Guard):
    """The guard of a socket in the child of a fork."""

    __slots__ = ()

    is_foreign = True
    acquire = __enter__ = refuse  # type: ignore[assignment]


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _disown_all() -> None:
    for guard in list(_guards):
        guard.disown()
    _guards.clear()


after_fork(_disown_all)
