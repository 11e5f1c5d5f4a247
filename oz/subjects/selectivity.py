"""The selectivity of a pattern's prefixes, measured on real subjects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern


@dataclass(slots=True)
class Selectivity:
    """The result of one pattern on a stream of subjects.

    Attributes:
        pattern: the pattern.
        seen: the messages of the stream.
        crossed: those that its prefixes let through, so that they cross the wire.
        matched: those of them that it matches, so that they are delivered.
    """

    pattern: Pattern
    seen: int = 0
    crossed: int = 0
    matched: int = 0

    @property
    def in_vain(self) -> int:
        """The messages that cross the wire only to be filtered on arrival."""
        return self.crossed - self.matched

    @property
    def precision(self) -> float:
        """The part of what crosses that is delivered; 1.0 when nothing crosses."""
        return self.matched / self.crossed if self.crossed else 1.0


def measure(patterns: Iterable[Pattern], subjects: Iterable[bytes]) -> list[Selectivity]:
    """Count, for each pattern, what crosses the wire and what of it matches.

    Args:
        patterns: those to compare.
        subjects: one for each message; the same subject may come many times.

    Returns:
        One result for each pattern, in their order.
    """
    counts: dict[bytes, int] = {}
    for subject in subjects:
        counts[subject] = counts.get(subject, 0) + 1
    return [_measure_one(pattern, counts) for pattern in patterns]


def _measure_one(pattern: Pattern, counts: dict[bytes, int]) -> Selectivity:
    found = Selectivity(pattern)
    for subject, count in counts.items():
        found.seen += count
        if subject.startswith(pattern.prefixes):
            found.crossed += count
            found.matched += count * _matches(pattern, subject)
    return found


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except (SubjectError, PatternTimeout):
        # Neither would be delivered.
        return False
