"""Virtual clock: its time stops while code runs, and jumps to the next event."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf


class VirtualClock:
    """Virtual time, and events at later times. Events with the same time run in the order of their creation.

    Attributes:
        now: seconds since the clock was created.
    """

    __slots__ = ("_events", "_order", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Call a function at a time, or at once if the time is in the past."""
        heappush(self._events, (when if when > self.now else self.now, next(self._order), action))

    def advance(self, ends: float = inf) -> bool:
        """Run the next event unless its time is later than `ends`; return whether an event was run."""
        if not self._events or self._events[0][0] > ends:
            return False
        when, _, action = heappop(self._events)
        self.now = max(self.now, when)
        action()
        return True

    def run_until(self, when: float) -> None:
        """Run all events until a time, and set the clock to this time."""
        while self.advance(when):
            pass
        self.now = max(self.now, when)
