"""Virtual clock: it stops while code runs, and jumps to the next event."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf


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
        """Run the next event, if its time is not after a limit; return whether an event was run."""
        when = self.next_event()
        if when is None or when > ends:
            return False
        when, _, action = heappop(self._events)
        self.now = max(self.now, when)
        action()
        return True

    def run_until(self, when: float) -> None:
        """Run all events until a time, and set the clock to it."""
        while self.advance(when):
            pass
        self.now = max(self.now, when)
