"""Run and close the engine of a publisher or a node in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from oz.errors import ClosedError, OwnershipError
from oz.logs import peer_logger
from oz.publisher.thread import OPEN, Attendance, AttendedEngine
from oz.transport.runtime import Runtime
from oz.transport.steps import Steps, run, run_async
from oz.transport.waiting import Waiters

TURN = 0.001
"""Seconds after which `await publish(...)` yields to the loop again, so that other tasks run."""
_DROPPED_LINGER = 0.05  # Maximum time in seconds in which a garbage-collected object sends its last frames.

_log = peer_logger("oz.publisher")
_Result = TypeVar("_Result")


class AttendedInLoop(AttendedEngine, Protocol):
    """Methods and attributes of an engine that runs in an event loop."""

    @property
    def runtime(self) -> Runtime:
        """Clocks and socket functions."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""

    @property
    def is_closed(self) -> bool:
        """Whether the sockets are closed."""

    def abort(self) -> None:
        """Close the sockets without sending BYE to the subscribers."""


class LoopAttendance:
    """Calls `Engine.attend` in an event loop: when a descriptor is readable, after `wake`, and at the next deadline.

    Messages that wait in a batch are sent at the end of the loop's current iteration. While no call of `attend` is
    scheduled, `is_resting` of the engine is set, so that the first waiting message schedules a call.

    Attributes:
        turned_at: time in seconds at which `await publish(...)` last yielded to the loop.
        clock, busy_clock: clocks of the engine.
    """

    def __init__(self, engine: AttendedInLoop, kind: str = "publisher") -> None:
        """Connect `engine.wake` to this object. `start` chooses the loop.

        Args:
            engine: engine of the publisher or the node.
            kind: "publisher" or "node", for the log.
        """
        self._engine, self._kind = engine, kind
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptors: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._is_scheduled = False
        self.turned_at = 0.0
        self.clock, self.busy_clock = engine.runtime.clock, engine.runtime.busy_clock
        engine.wake = self._wake

    @property
    def is_started(self) -> bool:
        """Whether a loop runs the engine."""
        return self._loop is not None

    def start(self) -> None:
        """Run the engine in the current loop. Do nothing outside a loop, or if this loop already runs the engine.

        Raises:
            OwnershipError: another loop runs the engine.
        """
        if self._loop is not None:
            self.check_loop()
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._engine.is_resting = True
        self._wake()

    def check_loop(self) -> None:
        """Raise OwnershipError if the engine runs in another loop than the current one."""
        running = asyncio._get_running_loop()
        if running is not None and self._loop is not None and running is not self._loop:
            raise OwnershipError(f"this {self._kind} belongs to another event loop: make one in this loop")

    def leave_closed_loop(self) -> None:
        """Stop using the loop if it is closed, so that `close` works in another loop."""
        if self._loop is not None and self._loop.is_closed():
            self.stop()

    def _wake(self) -> None:
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        engine, loop = self._engine, self._loop
        if loop is None:
            return
        if engine.is_closed:
            self.stop()
            return
        try:
            more = engine.attend(flushes=True)
        except ClosedError:
            # The program terminated the context. This closes the publisher.
            self.stop()
            return
        except Exception:
            _log.exception(
                "a %s failed in its event loop, and continues: please report this error", self._kind
            )
            more = False
        engine.is_resting = True
        try:
            descriptors = engine.descriptors()
        except ClosedError:
            self.stop()
            return
        if descriptors != self._descriptors:
            for descriptor in descriptors:
                loop.add_reader(descriptor, self._turn)
            self._descriptors = descriptors
        if more:
            self._wake()
        deadline = engine.next_deadline()
        if deadline is not None:
            self.attend_by(deadline)

    def attend_by(self, deadline: float) -> None:
        """Call `Engine.attend` no later than a deadline, in seconds of the engine's clock."""
        loop = self._loop
        if loop is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = loop.call_later(max(deadline - self.clock(), 0.0), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._turn()

    def stop(self) -> None:
        """Stop running the engine. The caller is in the thread of the loop, or the loop does not run."""
        loop, self._loop = self._loop, None
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        if loop is not None and loop.is_closed():
            # A closed loop never runs the scheduled call that would clear `_is_scheduled`.
            self._is_scheduled, self._descriptors = False, ()
        elif loop is not None:
            for descriptor in self._descriptors:
                loop.remove_reader(descriptor)
            self._descriptors = ()

    def call(self, work: Callable[[], None]) -> None:
        """Call a function in the loop. Without an open loop, call the function at once in the current thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # Another thread may close the loop after the check.
                loop.call_soon_threadsafe(work)
                return
        work()

    async def wait(self, steps: Steps[_Result], waiters: Waiters | None = None) -> _Result:
        """Run the steps of a wait, and return their result. A cancellation ends the steps only where they hold no lock.

        Args:
            steps: steps to run.
            waiters: dict in which the wait registers the function that wakes it; None for `Engine.waiters`.
        """
        self.start()
        news = asyncio.Event()

        async def wait(until: float | None) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else max(until - self.clock(), 0.0)):
                    await news.wait()
            news.clear()

        waiters = self._engine.waiters if waiters is None else waiters
        waiters[news.set] = None
        try:
            return await run_async(steps, wait)
        finally:
            waiters.pop(news.set, None)


class LoopLifetime:
    """Runs the engine of a publisher or a node in an event loop, from its creation to its close."""

    def __init__(self, engine: AttendedInLoop, kind: str = "publisher") -> None:
        """Create the attendance, and make the end of the program close the engine.

        Args:
            engine: engine of the publisher or the node.
            kind: "publisher" or "node", for the log.
        """
        self.engine, self.attendance = engine, LoopAttendance(engine, kind)
        OPEN.add(self)

    def forget(self) -> None:
        """Make the end of the program no longer close this engine."""
        OPEN.discard(self)

    def finish(self, end: float) -> int:
        """Close the sockets, but not the context; return the number of unacknowledged or unhandled messages.

        Args:
            end: time in seconds of the engine's clock until which libzmq may continue to send.
        """
        self.attendance.stop()
        self.forget()
        return self.engine.finish(end)

    def abort(self) -> None:
        """Close the sockets without sending BYE, because the sockets cannot send."""
        self.attendance.stop()
        self.forget()
        self.engine.abort()

    def drop(self) -> None:
        """Close without a wait."""
        if not self.engine.is_closed:
            self.finish(self.engine.runtime.clock() + _DROPPED_LINGER)
            self.engine.end_context()

    def _close_at_exit(self, timeout: float) -> None:
        engine = self.engine
        if engine.is_foreign:
            return
        self.attendance.stop()
        turn = Attendance(engine).turn
        with suppress(ClosedError):
            self.finish(run(engine.acknowledgements(timeout), turn))
        engine.end_context()
