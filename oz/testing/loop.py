"""The event loop on a virtual clock: where a loop would wait, the clock jumps to what happens next."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
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
"""Real seconds for a thread or a real socket to wake a loop that has nothing else to wait for."""

LONGEST_RUN = 86_400.0
"""Virtual seconds of one run after which it is taken for one that never ends."""

_MOST_WAITS = 10_000
"""Waits of one run at least until it is taken for that: a sleep of years is one."""

_BUSY_TURNS, _BUSY_SECONDS = 100, 0.001
"""Turns of a busy loop after which time passes, and how much: else a task that never waits would stop the clock."""

_SELDOM = 64
"""Turns of a loop between two looks at its own descriptor, by which signals wake it: each asks the system.
What a thread has given it to do it finds without."""

_SHOWN = 5
"""Tasks that an error names at most."""

_IDLE = ("asyncio_", "ThreadPoolExecutor-")
"""How threads are called that only wait for work of the loop's own."""


class Deadlock(OzError):
    """Nothing is left to happen: what the tasks of a virtual loop wait for never comes."""


class VirtualSelector(selectors.BaseSelector):
    """A selector that lets virtual time pass. Real descriptors are looked at, and waited for by no clock.

    Attributes:
        clock: the time.
        is_woken: something was given to the loop to do.
        work: pieces of work that threads do for the loop, for which the clock stands.
        explain: says what the tasks of the loop wait for.
        longest: virtual seconds of one run after which it is given up.
    """

    def __init__(self, clock: VirtualClock, longest: float) -> None:
        """Begin without descriptors.

        Args:
            clock: the time.
            longest: virtual seconds of one run after which it is given up.
        """
        self.clock = clock
        self.longest = longest
        self._ends, self._waits = inf, 0
        self._busy_since, self._busy_turns = 0.0, 0
        self.is_woken = False
        self.work = self._watched = 0
        self.explain: Callable[[], str] = str
        self._real = selectors.DefaultSelector()

    def begin(self) -> None:
        """Count from now on what one run takes."""
        self._ends, self._waits = self.clock.now + self.longest, 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a real descriptor."""
        key = self._real.register(fileobj, events, data)
        self._watched += 1
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch it no more."""
        key = self._real.unregister(fileobj)
        self._watched -= 1
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch it for something else."""
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """Return how a descriptor is watched."""
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return all that is watched."""
        return self._real.get_map()

    def close(self) -> None:
        """Watch nothing any more."""
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let time pass until something happens.

        Args:
            timeout: virtual seconds until the loop has something to do anyway; None for never.

        Raises:
            Deadlock: nothing will happen.
        """
        self.is_woken = False
        self._waits += 1
        self._pass_busy_time(timeout)
        if self.clock.now > self._ends and self._waits > _MOST_WAITS:
            self.begin()
            raise Deadlock(
                f"this has run for {self.longest:g} s and never ends: {self.explain()}. Give what waits a "
                "timeout, or see who should wake it; longest= allows more"
            )
        found = self._look()
        clock = self.clock
        ends = inf if timeout is None else clock.now + max(0.0, timeout)
        if found or self._let_happen(clock.now):
            return found
        if self.work and ends > clock.now:
            # What a thread gives back comes at this time; only what takes it longer in truth is ahead of it.
            found = self._real.select(timeout)
            if found:
                return found
        if not self._let_happen(ends):
            if ends < inf:
                clock.now = max(clock.now, ends)
            elif not self.is_woken:
                found = self._wait_for_others()
        return found

    def _pass_busy_time(self, timeout: float | None) -> None:
        """Let time pass after many turns at one time."""
        clock = self.clock
        if timeout != 0 or clock.now != self._busy_since:
            self._busy_since, self._busy_turns = clock.now, 0
            return
        self._busy_turns += 1
        if self._busy_turns >= _BUSY_TURNS:
            clock.run_until(clock.now + _BUSY_SECONDS)

    def _look(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Look at real descriptors; at the one that the loop has itself only now and then."""
        if self._watched < 2 and not self.work and self._waits % _SELDOM:
            return []
        return self._real.select(0)

    def _let_happen(self, ends: float) -> bool:
        """Let things happen until the loop has something to do, or a time has come; tell which."""
        clock = self.clock
        while not self.is_woken and clock.advance(ends):
            pass
        return self.is_woken

    def _wait_for_others(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait in truth for what no clock knows of."""
        # The loop itself has one, by which threads wake it.
        has_others = self._watched > 1 or any(
            one is not threading.current_thread() and not one.name.startswith(_IDLE)
            for one in threading.enumerate()
        )
        found = self._real.select(_PATIENCE) if has_others else []
        if not found:
            raise Deadlock(
                f"nothing is left to happen at {self.clock.now:g} s: no timer is set and no message is on "
                f"its way, but {self.explain()}. Give what waits a timeout, or see who should wake it"
            )
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock, for `asyncio.Runner(loop_factory=oz.testing.VirtualLoop)`.

    `asyncio.sleep(3600)` returns at once, an hour later by `time()`; so do timeouts. While
    `asyncio.to_thread` or `run_in_executor` has a thread work the clock stands, unless that takes longer in
    truth than whatever comes next. It waits for no other thread, process or real socket: time jumps on.

    Attributes:
        clock: the time.
    """

    _closed = True
    """Of a loop that is not made yet: it may be refused, and asyncio looks when it goes."""

    def __init__(self, clock: VirtualClock | None = None, *, longest: float = LONGEST_RUN) -> None:
        """Make a loop.

        Args:
            clock: by default one of its own, which begins at 0.
            longest: virtual seconds of one run after which it is given up, and an error says what waits.
                Publishers and nodes have timers for ever, by which time goes on. Sleeps alone may be longer.
        """
        check_number("longest", longest)
        self.clock = clock = VirtualClock() if clock is None else clock
        self._waiting = selector = VirtualSelector(clock, longest)
        super().__init__(selector)
        selector.explain = self._explain

    def run_forever(self) -> None:
        """Run until it is stopped."""
        self._waiting.begin()
        super().run_forever()

    def time(self) -> float:
        """Return the seconds since the clock was made."""
        return self.clock.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something in the next turn of the loop."""
        self._waiting.is_woken = True
        return super().call_soon(callback, *args, context=context)

    def add_reader(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call something whenever a descriptor is readable: a real one, or one of a model socket."""
        found = descriptors.find(fd) if isinstance(fd, int) else None
        if found is None:
            super().add_reader(fd, callback, *args)
        else:
            found.watch(self, lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Watch a descriptor no more; return whether it was watched."""
        if isinstance(fd, int) and fd >= descriptors.FIRST:
            found = descriptors.find(fd)
            return found is not None and found.unwatch()
        return super().remove_reader(fd)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Have a thread do something, for which the clock stands."""
        future = super().run_in_executor(executor, func, *args)
        self._waiting.work += 1
        future.add_done_callback(self._has_worked)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait in truth for the threads of the executor to end."""
        self._waiting.work += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._waiting.work -= 1

    def _has_worked(self, _: asyncio.Future[Any]) -> None:
        self._waiting.work -= 1

    def _explain(self) -> str:
        """Say which tasks wait, and where."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        texts = [_where(task) for task in tasks[:_SHOWN]]
        if len(tasks) > _SHOWN:
            texts.append(f"and {len(tasks) - _SHOWN} more wait")
        return "; ".join(texts) or "the loop waits for a future that is no task"


def _where(task: asyncio.Task[Any]) -> str:
    """Say where a task waits."""
    text = f"{task.get_name()} waits"
    for frame in task.get_stack(limit=1):
        code = frame.f_code
        text += f" in {code.co_name} (line {frame.f_lineno} of {code.co_filename})"
    return text
