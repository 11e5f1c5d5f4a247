"""Event loop on a virtual clock. When an ordinary loop would wait, this loop sets its clock to the next event."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Any, TypeVar, TypeVarTuple

from oz.errors import OzError
from oz.numbers import check_number
from oz.testing import descriptors
from oz.testing.clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PATIENCE = 5.0
"""If no virtual event remains, the loop waits for this number of real seconds for a thread or a real socket. Then it
raises `Deadlock`."""

LONGEST_RUN = 86_400.0
"""Default for the maximum duration of one run, in virtual seconds."""

_MAX_WAITS = 10_000
"""A run may exceed its maximum duration if it has at most this number of waits. For example, one sleep of years is one
wait."""

_BUSY_TURNS, _BUSY_SECONDS = 100, 0.001
"""After `_BUSY_TURNS` turns of the loop at the same virtual time, the clock advances by `_BUSY_SECONDS`. Otherwise the
clock would stand still while a task never waits."""

_SELDOM = 64
"""Number of turns of the loop between two polls of its wake-up descriptor, which reports signals. Each poll is a system
call, and therefore polls are rare. The loop runs callbacks of threads without a poll."""

_SHOWN = 5
"""Maximum number of tasks that an error names."""

_IDLE = ("asyncio_", "ThreadPoolExecutor-")
"""Prefixes of the names of threads that belong to executors."""


class Deadlock(OzError):
    """Tasks of a virtual loop wait although no event remains, or a run takes too long."""


class VirtualSelector(selectors.DefaultSelector):
    """Selector that advances the virtual clock. It also polls real descriptors, but usually does not wait for them.

    Attributes:
        clock: virtual clock.
        is_woken: whether the loop has a callback to run.
        work: number of calls that run in executor threads of the loop. The clock stops while this number is not 0.
        explain: function that returns a text about the waiting tasks.
        longest: maximum duration of one run in virtual seconds.
    """

    def __init__(self, clock: VirtualClock, longest: float) -> None:
        super().__init__()
        self.clock = clock
        self.longest = longest
        self._ends, self._waits = inf, 0
        self._busy_since, self._busy_turns = 0.0, 0
        self.is_woken = False
        self.work = 0
        self.explain: Callable[[], str] = str

    def begin(self) -> None:
        """Start the time limit of a run."""
        self._ends, self._waits = self.clock.now + self.longest, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the virtual time until an event wakes the loop.

        Args:
            timeout: virtual seconds until the next timer of the loop; None without a timer.

        Raises:
            Deadlock: no event remains, or the run takes too long.
        """
        self.is_woken = False
        self._waits += 1
        self._pass_busy_time(timeout)
        if self.clock.now > self._ends and self._waits > _MAX_WAITS:
            self.begin()
            raise Deadlock(
                f"this has run for {self.longest:g} s and never ends: {self.explain()}. Give the waiting "
                "call a timeout, or find the missing event; longest= allows more"
            )
        found = self._look()
        clock = self.clock
        ends = inf if timeout is None else clock.now + max(0.0, timeout)
        if found or self._let_happen(clock.now):
            return found
        if self.work and ends > clock.now:
            # Wait for the thread in real time, at most as long as the virtual time until the next timer.
            found = super().select(timeout)
            if found:
                return found
        if not self._let_happen(ends):
            if ends < inf:
                clock.now = max(clock.now, ends)
            elif not self.is_woken:
                found = self._wait_for_others()
        return found

    def _pass_busy_time(self, timeout: float | None) -> None:
        """Count the turns of the loop at the same virtual time; advance the clock after `_BUSY_TURNS` turns."""
        clock = self.clock
        if timeout != 0 or clock.now != self._busy_since:
            self._busy_since, self._busy_turns = clock.now, 0
            return
        self._busy_turns += 1
        if self._busy_turns >= _BUSY_TURNS:
            clock.run_until(clock.now + _BUSY_SECONDS)

    def _look(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll real descriptors. If the only descriptor is the wake-up descriptor, poll once in `_SELDOM` turns."""
        if len(self.get_map()) < 2 and not self.work and self._waits % _SELDOM:
            return []
        return super().select(0)

    def _let_happen(self, ends: float) -> bool:
        """Run events until an event wakes the loop, or until a time; return whether the loop was woken.

        All events with the same time run before the next turn of the loop. Therefore an engine reads all messages with
        the same time of arrival in one turn.
        """
        clock = self.clock
        while clock.advance(clock.now if self.is_woken else ends):
            pass
        return self.is_woken

    def _wait_for_others(self) -> list[tuple[selectors.SelectorKey, int]]:
        # One descriptor belongs to the loop itself. Threads use it to wake the loop.
        has_others = len(self.get_map()) > 1 or any(
            thread is not threading.current_thread() and not thread.name.startswith(_IDLE)
            for thread in threading.enumerate()
        )
        found = super().select(_PATIENCE) if has_others else []
        if not found:
            raise Deadlock(
                f"nothing is left to happen at {self.clock.now:g} s: no timer is set and no message is on "
                f"its way, but {self.explain()}. Give the waiting call a timeout, or find the missing event"
            )
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop on a virtual clock, for `asyncio.Runner(loop_factory=oz.testing.VirtualLoop)`.

    `asyncio.sleep(3600)` returns at once, and after it `time()` is an hour later. Timeouts pass in the same way.

    While a thread runs a function for `asyncio.to_thread` or `run_in_executor`, the clock stops. If the thread takes
    more real seconds than the virtual seconds until the next timer, the clock continues. The clock does not stop for
    other threads, for processes or for real sockets.

    Attributes:
        clock: virtual clock.
    """

    _closed = True
    """Value for a loop whose constructor has raised an error. asyncio reads it when it deletes the loop."""

    def __init__(self, clock: VirtualClock | None = None, *, longest: float = LONGEST_RUN) -> None:
        """Create a loop.

        Args:
            clock: virtual clock. Default: a new clock, which begins at 0.
            longest: maximum duration of one run in virtual seconds. A longer run raises `Deadlock`, whose text names
                the waiting tasks. Without a maximum, a run could last for ever, because timers of publishers and nodes
                never end. A run that only sleeps may be longer.
        """
        check_number("longest", longest)
        self.clock = clock = VirtualClock() if clock is None else clock
        self._waiting = selector = VirtualSelector(clock, longest)
        super().__init__(selector)
        selector.explain = self._explain

    def run_forever(self) -> None:
        """Run until `stop`."""
        self._waiting.begin()
        super().run_forever()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.clock.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in the next turn of the loop."""
        self._waiting.is_woken = True
        return super().call_soon(callback, *args, context=context)

    def add_reader(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function whenever a descriptor is readable. The descriptor is real, or belongs to a model socket."""
        found = descriptors.find(fd) if isinstance(fd, int) else None
        if found is None:
            super().add_reader(fd, callback, *args)
        else:
            found.watch(self, lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Remove the callback of a descriptor; return whether the descriptor had a callback."""
        if isinstance(fd, int) and fd >= descriptors.FIRST:
            found = descriptors.find(fd)
            return found is not None and found.unwatch()
        return super().remove_reader(fd)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call a function in a thread. The clock stops while the thread runs the function."""
        future = super().run_in_executor(executor, func, *args)
        self._waiting.work += 1
        future.add_done_callback(self._has_worked)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait until the threads of the executor have ended. This wait takes real time."""
        self._waiting.work += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._waiting.work -= 1

    def _has_worked(self, _: asyncio.Future[Any]) -> None:
        self._waiting.work -= 1

    def _explain(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        texts = [_where(task) for task in tasks[:_SHOWN]]
        if len(tasks) > _SHOWN:
            texts.append(f"and {len(tasks) - _SHOWN} more wait")
        return "; ".join(texts) or "the loop waits for a future that is no task"


def _where(task: asyncio.Task[Any]) -> str:
    """Return the name of a task and the place where it waits."""
    text = f"{task.get_name()} waits"
    for frame in task.get_stack(limit=1):
        code = frame.f_code
        text += f" in {code.co_name} (line {frame.f_lineno} of {code.co_filename})"
    return text
