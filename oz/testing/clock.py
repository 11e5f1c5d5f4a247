"""Virtual clock. Its time stops while code runs. When the loop would wait, the clock jumps to the next event."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf


class VirtualClock:
    """Virtual time, and a queue of events. Events with the same time run in the order of their creation.

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
        """Set the clock to the next event and run the event. Return False if no event is due at `ends` or earlier."""
        if not self._events or self._events[0][0] > ends:
            return False
        when, _, action = heappop(self._events)
        self.now = max(self.now, when)
        action()
        return True

    def run_until(self, when: float) -> None:
        """Run all events that are due at a time or earlier, and set the clock to this time."""
        while self.advance(when):
            pass
        self.now = max(self.now, when)
