"""Times of the calls of one handler.

Calls are measured only for some time after a snapshot, because two readings of the clock cost as much as the delivery
of a message. The worker calls `Stopwatch.call` with each message. Without a measurement, `call` is the handler itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from oz.node.snapshot import HandlerTimes


class Stopwatch:
    """Stopwatch for the handler of one lane (`oz.node.lanes`).

    Attributes:
        call: function that the worker calls with each message: the handler, or a method that measures the handler.
        calls: number of measured calls that have ended.
        seconds: total seconds of these calls.
        longest: seconds of the longest of these calls.
        began: time at which the current call began; None if no call runs.
        on_call: function that is called after each measured call, with the message and the seconds of the call; None
            without a trace.
    """

    __slots__ = ("_clock", "_handler", "began", "call", "calls", "longest", "on_call", "seconds")

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        """Create the stopwatch. It measures calls after `start`."""
        self._handler = self.call = handler
        self._clock: Callable[[], float] | None = None
        self.calls, self.seconds, self.longest = 0, 0.0, 0.0
        self.began: float | None = None
        self.on_call: Callable[[Any, float], object] | None = None

    def start(self, clock: Callable[[], float], *, is_running: bool) -> None:
        """Measure the calls of the handler from now on.

        Args:
            clock: function that returns the time in seconds.
            is_running: whether a call runs now. The time of this call counts from now on.
        """
        if self._clock is None:
            self._clock = clock
            self.began = clock() if is_running else None
            self.call = self._measured

    def stop(self) -> None:
        """Stop measuring."""
        self._clock, self.began, self.call, self.on_call = None, None, self._handler, None

    def _measured(self, message: Any) -> Any:
        clock = self._clock
        if clock is None:
            return self._handler(message)
        began = self.began = clock()
        try:
            result = self._handler(message)
        except BaseException:
            self._end(message, began, clock())
            raise
        if result is not None and isawaitable(result):
            return self._awaited(message, result, began, clock)
        self._end(message, began, clock())
        return result

    async def _awaited(
        self, message: Any, result: Awaitable[Any], began: float, clock: Callable[[], float]
    ) -> Any:
        try:
            return await result
        finally:
            self._end(message, began, clock())

    def _end(self, message: Any, began: float, now: float) -> None:
        self.began = None
        self.calls += 1
        self.seconds += now - began
        self.longest = max(self.longest, now - began)
        # A local variable, because another thread may call `stop` between the check and the call.
        on_call = self.on_call
        if on_call is not None:
            on_call(message, now - began)


def sum_of(watches: list[Stopwatch], running: list[Stopwatch], now: float) -> HandlerTimes:
    """Return the times of a handler.

    Args:
        watches: stopwatches of the handler's lanes.
        running: stopwatches of the lanes that have a worker, or wait for one.
        now: time in seconds.
    """
    began = min((watch.began for watch in running if watch.began is not None), default=None)
    return HandlerTimes(
        sum(watch.calls for watch in watches),
        sum(watch.seconds for watch in watches),
        max((watch.longest for watch in watches), default=0.0),
        # `began` is later than `now` if the call or its measurement began after `now` was read.
        None if began is None else max(0.0, now - began),
    )
