"""The virtual clock: it stands still while something happens, and jumps to what happens next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

LONGEST_WAIT = 3600.0
"""Virtual seconds after which a wait without an end is taken for one that never ends."""


class Timer:
    """Something that is to happen; it can be called off."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        """Keep what is to be done."""
        self.action: Callable[[], None] | None = action

    def __call__(self) -> None:
        """Let it happen, if it was not called off."""
        action, self.action = self.action, None
        if action is not None:
            action()

    def cancel(self) -> None:
        """Call it off."""
        self.action = None


class VirtualClock:
    """A time, and what is to happen at later ones; what is at the same time happens in the order it came in.

    Attributes:
        now: seconds since the clock was made.
    """

    __slots__ = ("_events", "_order", "now")

    def __init__(self) -> None:
        """Begin at time 0, with nothing to happen."""
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call something at a time, or now if that is past."""
        timer = Timer(action)
        self.add(when, timer)
        return timer

    def add(self, when: float, action: Callable[[], None]) -> None:
        """Do the same with what is not called off: nearly all, and it costs less."""
        heappush(self._events, (when if when > self.now else self.now, next(self._order), action))

    def next_event(self) -> float | None:
        """Return when something happens next, or None."""
        events = self._events
        while events:
            when, _, action = events[0]
            if type(action) is not Timer or action.action is not None:
                return when
            heappop(events)
        return None

    def advance(self, ends: float = inf) -> bool:
        """Let the next thing happen that is to happen up to a time; tell whether there was one."""
        when = self.next_event()
        if when is None or when > ends:
            return False
        self._happen()
        return True

    def _happen(self) -> None:
        when, _, action = heappop(self._events)
        # An action may let time pass itself, and come back later than what it was called for.
        if when > self.now:
            self.now = when
        action()

    def run_until(self, when: float) -> None:
        """Let everything happen up to a time, which is the time then."""
        events = self._events
        while events and events[0][0] <= when:
            # As `_happen` does, without a call for each.
            at, _, action = heappop(events)
            if at > self.now:
                self.now = at
            action()
        self.now = max(self.now, when)

    def wait(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Let time pass until something is so; tell whether it is.

        Args:
            condition: what is waited for.
            deadline: the time to give up; by default after `LONGEST_WAIT`, or when nothing is left to happen.
        """
        ends = self.now + LONGEST_WAIT if deadline is None else deadline
        while not condition():
            when = self.next_event()
            if when is None or when > ends:
                if deadline is not None:
                    self.now = max(self.now, deadline)
                return condition()
            self._happen()
        return True
