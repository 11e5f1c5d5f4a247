"""Last values: the newest message of each subject, for subscriptions that ask for them.

Theory of operation
-------------------
The publisher remembers the newest message of each subject within a bound of subjects and bytes; the subject
that was published longest ago leaves first. When a declaration adds a subscription with `last_value`, the
session sends the matching messages once, before any later message, marked with the number of the subscription
(`sid` in the extras). They keep their positions. A subscription that is declared again in the same epoch gets
no values again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern
from oz.wire.links import SID


class LastValues:
    """Newest message of each subject.

    Attributes:
        bytes: of all remembered messages.
    """

    def __init__(self, *, subjects: int = 65_536, size: int = 64 << 20) -> None:
        """Start empty.

        Args:
            subjects: remembered at most.
            size: bytes of subjects and payloads at most.
        """
        self._subjects, self._size = subjects, size
        self._values: dict[bytes, tuple[int, bytes, Any]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of subjects."""
        return len(self._values)

    def put(self, position: int, subject: bytes, payload: bytes, extras: Any) -> None:
        """Remember a message in place of an older one of its subject."""
        values = self._values
        old = values.pop(subject, None)
        if old is not None:
            self.bytes -= len(subject) + len(old[1])
        values[subject] = position, payload, extras
        self.bytes += len(subject) + len(payload)
        while len(values) > self._subjects or self.bytes > self._size:
            oldest = next(iter(values))
            self.bytes -= len(oldest) + len(values.pop(oldest)[1])

    def matching(self, pattern: Pattern, sid: int) -> Iterator[tuple[int, bytes, bytes, Any]]:
        """Return position, subject, payload and extras of the values that match, in the order of publishing.

        Args:
            pattern: of the subscription.
            sid: number of the subscription, added to the extras.
        """
        values = self._values
        if pattern.literal is not None:
            found = values.get(pattern.literal)
            subjects = [] if found is None else [pattern.literal]
        else:
            subjects = [subject for subject in values if _matches(pattern, subject)]
        for subject in subjects:
            position, payload, extras = values[subject]
            yield position, subject, payload, {**(extras or {}), SID: sid}


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except (SubjectError, PatternTimeout):
        return False
