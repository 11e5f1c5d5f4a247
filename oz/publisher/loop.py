"""Execution of a publisher or a node in an event loop, and its close."""

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
"""Seconds after which `await publish(...)` yields to the loop, so that other tasks run."""
_DROPPED_LINGER = 0.05  # Maximum time in seconds to send the last frames of a garbage-collected object.

_log = peer_logger("oz.publisher")
_Result = TypeVar("_Result")


class AttendedInLoop(AttendedEngine, Protocol):
    """Engine calls that a publisher or node in an event loop needs."""

    @property
    def runtime(self) -> Runtime:
        """Functions that access sockets and clocks."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""

    @property
    def is_closed(self) -> bool:
        """Whether the sockets are closed."""

    def abort(self) -> None:
        """Close the sockets without BYE."""


class LoopAttendance:
    """Calls of `Engine.attend` in an event loop: on a readable descriptor, on `wake`, and at the next deadline.

    Messages that wait for a batch are sent at the end of the loop's turn. Therefore the engine counts as asleep
    whenever no call is scheduled, and the first waiting message schedules a call.

    Attributes:
        turned_at: time in seconds at which `await publish(...)` last yielded to the loop.
        clock, busy_clock: clocks of the engine.
    """

    def __init__(self, engine: AttendedInLoop, kind: str = "publisher") -> None:
        """Make the engine wake the loop that `start` finds.

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
        """Run the engine in the running loop. Do nothing outside a loop, or if this loop runs the engine already.

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
        """Raise OwnershipError if the running loop is not the loop that runs the engine."""
        running = asyncio._get_running_loop()
        if running is not None and self._loop is not None and running is not self._loop:
            raise OwnershipError(f"this {self._kind} belongs to another event loop: make one in this loop")

    def leave_closed_loop(self) -> None:
        """Drop a closed loop, so that `close` works in another loop."""
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
            # The context was terminated, which closes the publisher.
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
        self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        deadline = self._engine.next_deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = loop.call_later(max(deadline - self.clock(), 0.0), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._turn()

    def stop(self) -> None:
        """Stop running the engine. The caller runs in the loop, or the loop does not run."""
        loop, self._loop = self._loop, None
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        if loop is not None and loop.is_closed():
            # A closed loop never runs its scheduled calls.
            self._is_scheduled, self._descriptors = False, ()
        elif loop is not None:
            for descriptor in self._descriptors:
                loop.remove_reader(descriptor)
            self._descriptors = ()

    def call(self, work: Callable[[], None]) -> None:
        """Call a function in the loop. Without a loop, or after its end, call the function at once."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # The loop may be closed in this moment.
                loop.call_soon_threadsafe(work)
                return
        work()

    async def wait(self, steps: Steps[_Result], waiters: Waiters | None = None) -> _Result:
        """Run the steps of a wait. A cancellation ends the steps at a point where they hold no lock.

        Args:
            steps: steps to run.
            waiters: dict that gets the function by which this wait is woken; None for `Engine.waiters`.
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
    """Execution of a publisher or a node in an event loop, from its creation to its close."""

    def __init__(self, engine: AttendedInLoop, kind: str = "publisher") -> None:
        """Create the attendance, and register the object, so that the end of the program closes it.

        Args:
            engine: engine of the publisher or the node.
            kind: "publisher" or "node", for the log.
        """
        self.engine, self.attendance = engine, LoopAttendance(engine, kind)
        OPEN.add(self)

    def forget(self) -> None:
        """Remove the object from the objects that the end of the program closes."""
        OPEN.discard(self)

    def finish(self, end: float) -> int:
        """Close the sockets, but not the context; return the number of unacknowledged or unhandled messages."""
        self.attendance.stop()
        self.forget()
        return self.engine.finish(end)

    def abort(self) -> None:
        """Close without BYE, because the sockets are dead."""
        self.attendance.stop()
        self.forget()
        self.engine.abort()

    def drop(self) -> None:
        """Close without a wait."""
        if not self.engine.is_closed:
            self.finish(self.engine.runtime.clock() + _DROPPED_LINGER)
            self.engine.end_context()

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program, when no loop runs; see `close_all`."""
        engine = self.engine
        if engine.is_foreign:
            return
        self.attendance.stop()
        turn = Attendance(engine).turn
        with suppress(ClosedError):
            self.finish(run(engine.acknowledgements(timeout), turn))
        engine.end_context()
