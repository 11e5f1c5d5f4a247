"""The summary of a segment's subjects: enough to know that a pattern matches none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern

MOST = 64
LONGEST = 128
_SAFE = "".join(chr(code) for code in range(33, 127) if chr(code) != "%")


class Subjects(NamedTuple):
    """A summary.

    Attributes:
        prefixes: every subject begins with one of them.
        complete: whether they are the subjects themselves, all of them.
    """

    prefixes: tuple[bytes, ...]
    complete: bool

    def may_match(self, pattern: Pattern) -> bool:
        """Tell whether the pattern may match a subject; False is certain, True is not."""
        if self.complete:
            return any(may_match(pattern, subject) for subject in self.prefixes)
        return any(
            ours.startswith(theirs) or theirs.startswith(ours)
            for ours in self.prefixes
            for theirs in pattern.prefixes
        )

    def as_data(self) -> dict[str, object]:
        """Return it as JSON can hold it; bytes beyond printable ASCII are percent-encoded."""
        return {
            "complete": self.complete,
            "prefixes": [quote_from_bytes(one, safe=_SAFE) for one in self.prefixes],
        }

    @classmethod
    def from_data(cls, data: dict[str, object]) -> Subjects:
        """Read what `as_data` returned."""
        prefixes = data["prefixes"]
        assert isinstance(prefixes, list)
        return cls(tuple(unquote_to_bytes(one) for one in prefixes), bool(data["complete"]))


def may_match(pattern: Pattern, subject: bytes) -> bool:
    """Tell whether a pattern matches, taking one that ran out of time for a match."""
    try:
        return pattern.matches(subject)
    except SubjectError:  # not UTF-8, in a dialect of text
        return False
    except PatternTimeout:
        return True


def summarise(subjects: Iterable[bytes]) -> Subjects:
    """Summarise subjects: themselves when they are few, otherwise their longest prefixes that are few."""
    distinct = sorted(set(subjects))
    longest = max(map(len, distinct), default=0)
    if len(distinct) <= MOST and longest <= LONGEST:
        return Subjects(tuple(distinct), complete=True)
    low, high = 0, min(longest, LONGEST)
    while low < high:
        middle = (low + high + 1) // 2
        if len({subject[:middle] for subject in distinct}) <= MOST:
            low = middle
        else:
            high = middle - 1
    return Subjects(tuple(sorted({subject[:low] for subject in distinct})), complete=False)
