"""When to start again what has ended, and when to look again: less and less often while nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

FIRST = 0.1
LONGEST = 10.0
"""Seconds between two starts."""

STEADY = 30.0
"""Seconds after which what was started counts as working."""


def growing(first: float, longest: float) -> Iterator[float]:
    """Return the seconds between looks at what nobody tells of: each twice the one before.

    So a look is late by no more than what has been waited for already, and by `longest`.

    Args:
        first: the first pause.
        longest: the last ones.
    """
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


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
