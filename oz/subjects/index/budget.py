"""The budget of an index: how long patterns that have to be tried one by one may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oz.subjects.index.words import Leaf
from oz.subjects.pattern import Pattern

Attempt = tuple[Pattern, Leaf, float, float]
"""A pattern that was tried, its leaf, and when that began and ended, by `Budget.clock`."""


class Budget(Protocol):
    """Decides how long patterns may take, and is told how long they took.

    Attributes:
        clock: gives seconds; those of the wall will do, for it says only when to look closer.
        most: seconds that a pattern may take on one subject while nothing is tight.
        is_tight: whether `limit` is to be asked before each pattern.
    """

    clock: Callable[[], float]
    most: float
    is_tight: bool

    def begin(self) -> float:
        """Begin to look a subject up; return the seconds after which `spend` is to be called."""

    def limit(self, leaf: Leaf) -> float:
        """Return the seconds that a pattern may take now; 0 if it is to be passed over."""

    def spend(self, tried: list[Attempt]) -> float:
        """Record which patterns were tried; return the seconds after which to call again."""

    def end(self, tried: list[Attempt]) -> None:
        """Record the last patterns that were tried, and that nothing more is looked up for this subject."""
