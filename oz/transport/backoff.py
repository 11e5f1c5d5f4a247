"""Growing pauses between attempts: restarts of processes, connections and searches."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

FIRST = 0.1
LONGEST = 10.0
"""Seconds between two starts: the first pause and the longest."""

STEADY = 30.0
"""Seconds of running after which the next pause is the shortest again."""


def growing(first: float, longest: float) -> Iterator[float]:
    """Yield pauses in seconds, each twice as long as the one before.

    Args:
        first: the first pause.
        longest: upper limit.
    """
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


class Backoff:
    """Times at which a process may be started.

    Attributes:
        starts: number of starts.
        next_start: time of the next start at the earliest, in seconds of `time.monotonic`.
    """

    __slots__ = ("_pause", "_started_at", "next_start", "starts")

    def __init__(self) -> None:
        """Allow the first start without a pause."""
        self.starts = 0
        self._pause = FIRST
        self.next_start = -inf
        self._started_at = -inf

    def may_start(self, now: float) -> bool:
        """Return whether a start is allowed.

        Args:
            now: in seconds of `time.monotonic`.
        """
        return now >= self.next_start

    def started(self, now: float) -> None:
        """Record a start."""
        self.starts += 1
        self._started_at = now

    def ended(self, now: float) -> float:
        """Record an end; return the pause before the next start in seconds."""
        if now - self._started_at >= STEADY:
            self._pause = FIRST
        pause = self._pause
        self.next_start = now + pause
        self._pause = min(LONGEST, 2 * pause)
        return pause
