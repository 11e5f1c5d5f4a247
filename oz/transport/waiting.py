"""Wait of a thread until the state of a publisher's or subscriber's engine changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from oz.transport.steps import Steps, run

_Result = TypeVar("_Result")

Waiters = dict[Callable[[], object], None]
"""Functions that wake waiting threads and tasks. After a change, an engine calls the functions in the order in which
they were added."""


def notify_all(waiters: Waiters) -> None:
    """Wake all threads and tasks that wait."""
    for notify in tuple(waiters):
        notify()


def try_acquire(lock: threading.RLock, acquired: list[bool]) -> bool:
    """Acquire a lock without waiting, and return whether this succeeded.

    The caller releases the lock in a `finally` clause if `acquired` contains True.

    Args:
        lock: lock to acquire.
        acquired: list to which the result is appended.
    """
    # A single C call, so that no signal handler can raise after the acquisition and before the list has the result.
    acquired.extend(map(lock.acquire, (False,)))
    return acquired[-1]


class ThreadWait:
    """Context manager in which one thread can sleep until the engine changes or a time is reached."""

    def __init__(self, waiters: Waiters) -> None:
        """Prepare the wait.

        Args:
            waiters: waiters of the engine, to which this wait is added.
        """
        self._waiters = waiters
        # Do not use an Event: if a signal handler raises inside `Event.wait`, the lock of the event may stay locked.
        # `Event.set` in another thread would then wait for ever.
        self._news = threading.Lock()
        self._news.acquire()

    def _notify(self) -> None:
        # RuntimeError: an earlier change has released the lock.
        with suppress(RuntimeError):
            self._news.release()

    def __enter__(self) -> Self:
        """Start listening for changes. A later change ends the next sleep."""
        self._waiters[self._notify] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening for changes."""
        self._waiters.pop(self._notify, None)

    def sleep(self, until: float | None) -> None:
        """Sleep until a change, or until a time in seconds of `time.monotonic`. None sleeps until a change."""
        left = -1.0 if until is None else max(until - time.monotonic(), 0.0)
        self._news.acquire(timeout=min(left, threading.TIMEOUT_MAX))


def wait_in_thread(waiters: Waiters, steps: Steps[_Result]) -> _Result:
    """Run steps in the calling thread. Between two steps the thread sleeps until the engine changes.

    Args:
        waiters: waiters of the engine.
        steps: generator of the engine; see `oz.transport.steps`.

    Raises:
        Exception: any error that the steps raise.
    """
    with ThreadWait(waiters) as wait:
        return run(steps, wait.sleep)
