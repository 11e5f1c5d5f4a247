"""Time budget of an index for patterns that are matched one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oz.subjects.index.words import Leaf
from oz.subjects.pattern import Pattern

Attempt = tuple[Pattern, Leaf, float, float]
"""Pattern, leaf, and the start and end of one match by `Budget.clock`."""


class Budget(Protocol):
    """Budget for the matches of one index.

    Attributes:
        clock: returns seconds. Wall time is sufficient, because it only decides when processor time is measured.
        seconds: seconds of one match if `is_tight` is false.
        is_tight: whether the index calls `limit` before each match.
    """

    clock: Callable[[], float]
    seconds: float
    is_tight: bool

    def begin(self) -> float:
        """Start the lookup of a subject. Return the seconds until the next call of `spend`."""

    def limit(self, leaf: Leaf) -> float:
        """Return the seconds for the next match of a pattern; 0 skips the pattern."""

    def spend(self, tried: list[Attempt]) -> float:
        """Record matches. Return the seconds until the next call."""

    def end(self, tried: list[Attempt]) -> None:
        """Record the last matches and end the lookup."""
