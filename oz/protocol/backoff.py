"""When to start again what has ended: at once, and less and less often while it does not last."""

from __future__ import annotations

from math import inf

FIRST = 0.1
LONGEST = 10.0
"""Seconds between two starts."""

STEADY = 30.0
"""Seconds after which what was started counts as working."""


class Backoff:
    """The times at which one thing may be started.

    Attributes:
        starts: how often it was started.
        next_start: when it may be started next, in monotonic seconds.
    """

    __slots__ = ("_pause", "_started_at", "next_start", "starts")

    def __init__(self) -> None:
        """It may be started at once."""
        self.starts = 0
        self._pause = FIRST
        self.next_start = -inf
        self._started_at = -inf

    def may_start(self, now: float) -> bool:
        """Tell whether it is time.

        Args:
            now: monotonic seconds.
        """
        return now >= self.next_start

    def started(self, now: float) -> None:
        """Record a start."""
        self.starts += 1
        self._started_at = now

    def ended(self, now: float) -> float:
        """Record an end; return the seconds after which it may be started again."""
        if now - self._started_at >= STEADY:
            self._pause = FIRST
        pause = self._pause
        self.next_start = now + pause
        self._pause = min(LONGEST, 2 * pause)
        return pause
