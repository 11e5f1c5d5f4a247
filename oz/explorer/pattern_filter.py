"""Subjects that match the pattern on the page.

The cost of a pattern is bounded: `advance` tests only new subjects, and has a time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.escaping import printable
from oz.explorer.subject_table import Entry, SubjectTable, busiest
from oz.subjects.advice import advice
from oz.subjects.explanation import is_delivered, regex_text
from oz.subjects.pattern import Pattern

_STEP = 100  # Number of subjects that are tested between two reads of the clock.


class PatternFilter:
    """Subjects of a table that match a pattern.

    Attributes:
        matched: table entries of the subjects that match.
    """

    def __init__(self, pattern: Pattern, table: SubjectTable) -> None:
        """Create a filter that has tested no subject."""
        self._pattern, self._table = pattern, table
        self._tested = 0
        self._crossed: list[Entry] = []
        self.matched: list[Entry] = []

    def advance(self, clock: Callable[[], float], seconds: float) -> None:
        """Test the subjects of the table that were not tested yet.

        Args:
            clock: function that returns the time in seconds.
            seconds: time after which the call returns, in seconds, so that a slow regex does not block the page.
        """
        end = clock() + seconds
        while self._tested < len(self._table.subjects) and clock() < end:
            for entry in self._table.subjects[self._tested : self._tested + _STEP]:
                self._test(entry)
            self._tested = min(self._tested + _STEP, len(self._table.subjects))

    def _test(self, entry: Entry) -> None:
        subject = (entry.subject or "").encode(errors="surrogateescape")
        if not subject.startswith(self._pattern.prefixes):
            return
        self._crossed.append(entry)
        if is_delivered(self._pattern, subject):
            self.matched.append(entry)

    def busiest(self, count: int) -> list[Entry]:
        """Return the `count` matching subjects with the highest rates, sorted by name."""
        return sorted(busiest(self.matched, count), key=lambda entry: entry.subject or "")

    def summary(self) -> dict[str, Any]:
        """Return the prefixes and the regex of the pattern, and numbers of subjects and messages, for the page."""
        pattern = self._pattern
        return {
            "dialect": pattern.dialect,
            "prefixes": [printable(prefix) for prefix in pattern.prefixes],
            "regex": printable(regex_text(pattern)),
            "warnings": [printable(warning) for warning in advice(pattern)],
            "tested": self._tested,
            "crossed": len(self._crossed),
            "matched": len(self.matched),
            "crossed_messages": sum(entry.messages for entry in self._crossed),
            "matched_messages": sum(entry.messages for entry in self.matched),
        }
