"""Growing pauses between attempts to restart a process, connect or search."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

FIRST = 0.1
LONGEST = 10.0
"""First and longest pause between the end of a process and its next start, in seconds."""

STEADY = 30.0
"""After a run of this number of seconds or longer, the next pause is `FIRST` again."""


def growing(first: float, longest: float) -> Iterator[float]:
    """Yield pauses in seconds. Each pause is twice as long as the pause before.

    Args:
        first: first pause, in seconds.
        longest: longest pause, in seconds.
    """
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


class Backoff:
    """Times at which a process may be started.

    Attributes:
        starts: number of starts.
        next_start: earliest time of the next start, in seconds of `time.monotonic`.
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
            now: current time, in seconds of `time.monotonic`.
        """
        return now >= self.next_start

    def started(self, now: float) -> None:
        """Record a start of the process."""
        self.starts += 1
        self._started_at = now

    def ended(self, now: float) -> float:
        """Record the end of the process; return the pause before its next start, in seconds."""
        if now - self._started_at >= STEADY:
            self._pause = FIRST
        pause = self._pause
        self.next_start = now + pause
        self._pause = min(LONGEST, 2 * pause)
        return pause
