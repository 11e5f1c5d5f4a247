"""Virtual clock: it stands still while code runs, and jumps to the next event."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

LONGEST_WAIT = 3600.0
"""Virtual seconds of a wait without deadline at most."""


class Timer:
    """Event that can be cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        """Create an event."""
        self.action: Callable[[], None] | None = action

    def __call__(self) -> None:
        """Run the event, unless it was cancelled."""
        action, self.action = self.action, None
        if action is not None:
            action()

    def cancel(self) -> None:
        """Cancel the event."""
        self.action = None


class VirtualClock:
    """Time and later events. Events of the same time run in the order of their creation.

    Attributes:
        now: seconds since the clock was created.
    """

    __slots__ = ("_events", "_order", "now")

    def __init__(self) -> None:
        """Create a clock at time 0 without events."""
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call a function at a time, or now if the time is past. The result can be cancelled."""
        timer = Timer(action)
        self.add(when, timer)
        return timer

    def add(self, when: float, action: Callable[[], None]) -> None:
        """Call a function at a time as `call_at`, without a `Timer`, which costs less."""
        heappush(self._events, (when if when > self.now else self.now, next(self._order), action))

    def next_event(self) -> float | None:
        """Return the time of the next event, or None."""
        events = self._events
        while events:
            when, _, action = events[0]
            if type(action) is not Timer or action.action is not None:
                return when
            heappop(events)
        return None

    def advance(self, ends: float = inf) -> bool:
        """Run the next event until a time; return whether there was one."""
        when = self.next_event()
        if when is None or when > ends:
            return False
        self._happen()
        return True

    def _happen(self) -> None:
        when, _, action = heappop(self._events)
        # An event may let time pass itself.
        if when > self.now:
            self.now = when
        action()

    def run_until(self, when: float) -> None:
        """Run all events until a time, and set the clock to it."""
        events = self._events
        while events and events[0][0] <= when:
            # As `_happen` does, without a call for each.
            at, _, action = heappop(events)
            if at > self.now:
                self.now = at
            action()
        self.now = max(self.now, when)

    def wait(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Advance the virtual time until a condition holds; return whether it does.

        Args:
            condition: checked before the first event, and after each.
            deadline: end of the wait; by default `LONGEST_WAIT` from now, or the last event.
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
