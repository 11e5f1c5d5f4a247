"""The waiting of blocking sockets: for news of other threads, for a bell, for what can be read."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any

from oz.errors import OwnershipError
from oz.protocol.messages import Message
from oz.sync.answer_line import EagerWaiter
from oz.transport.guard import holds_up_others

Handler = Callable[[Message], None]


HELD_UP_AFTER = 0.5
"""Seconds for which a signal handler waits before it is told that who it waits for may wait for it."""


class InterruptionCheck:
    """Ends the waiting of a signal handler that has come between two steps of oz, and holds others up.

    What it waits for may wait for a guard that its thread has until it returns. That is so once in many
    thousand signals, and most of those are answered: so only who has waited for long is asked.
    """

    __slots__ = ("_asks_at",)

    def __init__(self) -> None:
        """Begin, for one waiting."""
        self._asks_at: float | None = None

    def bound(self, seconds: float | None) -> float | None:
        """Return for how many seconds to wait next, where it is so many that are left; None is for ever.

        Raises:
            OwnershipError: it has waited for long, and holds others up.
        """
        if self._asks_at is None:
            # Signal handlers run in the main thread only.
            is_main = threading.current_thread() is threading.main_thread()
            self._asks_at = monotonic() + HELD_UP_AFTER if is_main else inf
        if self._asks_at == inf:
            return seconds
        left = self._asks_at - monotonic()
        if left > 0:
            return left if seconds is None else min(left, seconds)
        if holds_up_others():
            raise OwnershipError(
                "a signal handler has interrupted oz in the middle of what other threads wait for, and may "
                "wait for them: have a thread do this"
            )
        self._asks_at = inf
        return seconds


class ThreadNews:
    """Wakes the threads that wait for something guarded to become different.

    Who waits has the guard for each look, and not in between: where a signal handler raises, nothing is to be
    taken back.
    """

    __slots__ = ("__weakref__", "_guard", "_rings", "_waiters")

    def __init__(self, guard: AbstractContextManager[Any]) -> None:
        """Start with nobody waiting.

        Args:
            guard: is had for each look and for each change, and by whoever tells not at all.
        """
        self._guard = guard
        self._waiters: set[EagerWaiter] = set()
        self._rings: set[Callable[[], object]] = set()

    def tell(self) -> None:
        """Wake all who wait, to look again."""
        # Whoever waits has said so before it looked: what changed before this is seen by those who come now.
        for waiter in tuple(self._waiters):
            waiter.tell()
        for ring in tuple(self._rings):
            ring()

    @contextmanager
    def rings(self, ring: Callable[[], object]) -> Iterator[None]:
        """Call something whenever this is told, in a `with` block.

        Args:
            ring: is called by whoever tells, such as that of a `Bell`.
        """
        try:
            self._rings.add(ring)
            yield
        finally:
            self._rings.discard(ring)

    def wait_for(self, is_so: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so, for so many seconds; give whether it is.

        Raises:
            OwnershipError: a signal handler waits, which holds others up; see `InterruptionCheck`.
        """
        ends = inf if timeout is None else monotonic() + timeout
        told, check = EagerWaiter(), InterruptionCheck()
        try:
            while True:
                self._waiters.add(told)
                with self._guard:
                    if is_so():
                        return True
                left = ends - monotonic()
                if left <= 0:
                    return False
                told.wait(check.bound(None if left == inf else min(left, threading.TIMEOUT_MAX)))
        finally:
            self._waiters.discard(told)


class Bell:
    """Wakes a thread that waits for descriptors; any thread or signal handler may ring it."""

    __slots__ = ("_bell", "_ringer")

    def __init__(self) -> None:
        """Make it; `close` releases its two descriptors."""
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when it was rung."""
        return self._bell.fileno()

    def ring(self) -> None:
        """Ring it; does nothing when it is closed."""
        # Full: then it was rung, and nobody has come yet.
        with suppress(OSError):
            self._ringer.send(b"!")

    def hear(self) -> bool:
        """Tell whether it was rung since the last call."""
        was_rung = False
        with suppress(OSError):
            while self._bell.recv(4096):
                was_rung = True
        return was_rung

    @contextmanager
    def rung_by_signals(self) -> Iterator[None]:
        """Let signals ring it as well, in the main thread.

        A handler runs between two steps of Python only: a signal that comes right before a wait begins would
        be seen when that ends, which may be never. What the system writes to a descriptor ends it at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def close(self) -> None:
        """Close it. A second call does nothing."""
        self._bell.close()
        self._ringer.close()
