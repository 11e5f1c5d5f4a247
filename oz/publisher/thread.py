"""Run and close the engine of a publisher or a node in a thread."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.program_end import CLOSE_TIMEOUT, Closable, close_all
from oz.system import POLLIN, Poll, make_poll
from oz.transport.steps import Steps, run
from oz.transport.waiting import Waiters, wait_in_thread
from oz.transport.wakeups import WakeUp

_log = peer_logger("oz.publisher")

_PAUSE = 0.0003
"""Seconds between two calls of `attend` while work remains. Publishing threads can take the lock in this time."""
_FAILURE_PAUSE = 0.1
"""Seconds that the thread sleeps after `attend` has raised an exception."""
_clock = time.monotonic


class Attended(Protocol):
    """Methods and attributes of an engine that `Attendance` runs; see `oz.publisher.engine`."""

    is_resting: bool
    wake: Callable[[], None]

    @property
    def waiting(self) -> list[Any]:
        """Messages that wait in a batch."""

    def attend(self, *, flushes: bool = False) -> bool:
        """Run due steps; return whether work remains."""

    def next_deadline(self) -> float | None:
        """Return the time at which `attend` must run next."""

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when a frame can be read."""


class AttendedEngine(Attended, Protocol):
    """Methods and attributes of an engine that `ThreadLifetime` closes."""

    @property
    def waiters(self) -> Waiters:
        """Functions that wake waiting threads and tasks."""

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a child of the process that created the engine."""

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Wait until subscribers have acknowledged or handled their messages; return when `timeout` ends."""

    def finish(self, end: float) -> int:
        """Close the sockets; return the number of unacknowledged or unhandled messages."""

    def end_context(self) -> None:
        """Terminate the context, if the engine has created it."""


class Attendance:
    """Calls `Engine.attend` in one thread. Between calls the thread sleeps until it has work.

    The sleep ends when a frame can be read, after `wake`, or at the next deadline.

    Attributes:
        more_descriptors: additional descriptors that end the sleep when they become readable.
    """

    def __init__(self, engine: Attended) -> None:
        """Connect `engine.wake` to the thread that calls `turn`."""
        self._engine = engine
        self._wake_up = WakeUp()
        self._polled: tuple[int, ...] = ()
        self._poll: Poll = make_poll()
        self.is_stopped = False
        self.more_descriptors: tuple[int, ...] = ()
        engine.wake = self.wake = self._wake_up.wake

    def turn(self, until: float | None) -> None:
        """Run the engine once, then sleep until its next step is due.

        Args:
            until: latest end of the sleep, in seconds of `time.monotonic`; None for no limit.

        Raises:
            ClosedError: the engine is closed.
        """
        engine = self._engine
        if engine.attend():
            time.sleep(_PAUSE)
            return
        # `is_resting` is set before `waiting` is checked, because `publish` appends to `waiting` before it reads
        # `is_resting`.
        engine.is_resting = not engine.waiting
        deadline = engine.next_deadline()
        if engine.waiting:
            engine.is_resting = False
            deadline = engine.next_deadline()
        if until is not None:
            deadline = until if deadline is None else min(deadline, until)
        self._sleep(deadline)

    def _sleep(self, deadline: float | None) -> None:
        descriptors = (*self._engine.descriptors(), *self.more_descriptors)
        if descriptors != self._polled:
            self._polled = descriptors
            self._poll = make_poll()
            for descriptor in (*descriptors, self._wake_up.fileno()):
                self._poll.register(descriptor, POLLIN)
        if self.is_stopped:
            return
        left = None if deadline is None else max(deadline - _clock(), 0.0)
        if left is not None and 0 < left < 0.001:
            # `poll` waits whole milliseconds only.
            time.sleep(left)
            left = 0.0
        self._poll.poll(None if left is None else left * 1000)
        # The next `attend` does all work that was requested by `wake` until now.
        self._wake_up.clear()


class PublisherThread:
    """Daemon thread that runs the engine of a publisher or a node."""

    def __init__(self, engine: Attended, kind: str = "publisher") -> None:
        """Create the thread, but do not start it.

        Args:
            engine: engine of the publisher or the node.
            kind: "publisher" or "node", for the name of the thread and the log.
        """
        self.attendance, self._kind = Attendance(engine), kind
        self._at_end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"oz {kind}", daemon=True)

    def start(self) -> None:
        """Start the thread if it was not started. A call that a signal handler interrupted can be repeated."""
        if self._thread.ident is None:
            self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, and wait for its end.

        A call in the thread itself, or while the interpreter stops, does not wait.
        """
        self.attendance.is_stopped = True
        self.attendance.wake()
        if self.is_alive and threading.current_thread() is not self._thread and not sys.is_finalizing():
            self._thread.join()

    def abandon(self, close: Callable[[], None]) -> None:
        """Make the thread of a garbage-collected publisher or node call `close` and then end."""
        self._at_end = close
        self.attendance.wake()

    def _run(self) -> None:
        while not self.attendance.is_stopped:
            if self._at_end is not None:
                self._at_end()
                return
            try:
                self.attendance.turn(None)
            except ClosedError:
                # The program terminated the context. This closes the publisher.
                return
            except Exception:
                _log.exception(
                    "a %s failed in its thread, and continues: please report this error", self._kind
                )
                time.sleep(_FAILURE_PAUSE)


class ThreadLifetime:
    """Thread of a publisher or a node, from its start to its close.

    The thread has no reference to the publisher or node. Therefore the garbage collector can free a publisher or node
    that the program no longer uses.
    """

    def __init__(self, engine: AttendedEngine, kind: str = "publisher") -> None:
        """Make the end of the program close the engine. `start` starts the thread.

        Args:
            engine: engine of the publisher or the node.
            kind: "publisher" or "node", for the name of the thread and the log.
        """
        self.engine, self._kind = engine, kind
        self.thread: PublisherThread | None = None
        self._closing = threading.Lock()
        OPEN.add(self)

    def start(self) -> None:
        """Start the thread if it was not started."""
        if self.thread is None:
            self.thread = PublisherThread(self.engine, self._kind)
        self.thread.start()

    def close(self, timeout: float | None) -> int:
        """Wait for acknowledgements and close; return the number of unacknowledged or unhandled messages."""
        engine = self.engine
        if engine.is_foreign:
            return 0
        return self._finish(wait_in_thread(engine.waiters, engine.acknowledgements(timeout)))

    def _finish(self, end: float) -> int:
        # `stop` waits for the thread, which may call `_finish` for a garbage-collected object: do not hold `_closing`.
        if self.thread is not None:
            self.thread.stop()
        with self._closing:
            left = self.engine.finish(end)
            self.engine.end_context()
        OPEN.discard(self)
        return left

    def drop(self) -> None:
        """Close a garbage-collected object without a wait. Any thread may call this."""
        thread = self.thread
        if thread is None or not thread.is_alive:
            self._finish(0.0)
            return

        def close() -> None:
            with suppress(ClosedError):
                self._finish(run(self.engine.acknowledgements(CLOSE_TIMEOUT), thread.attendance.turn))

        thread.abandon(close)

    def _close_at_exit(self, timeout: float) -> None:
        self.close(timeout)


def forget(engine: AttendedEngine) -> None:
    """Make the end of the program no longer close an engine, because a failed constructor has closed the engine."""
    for lifetime in [*OPEN]:
        if getattr(lifetime, "engine", None) is engine:
            OPEN.discard(lifetime)


OPEN: set[Closable] = set()
"""Lifetimes of open publishers and nodes. The end of the program closes all of them."""


@atexit.register
def _close_all() -> None:
    close_all(OPEN)
