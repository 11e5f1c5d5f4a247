"""Last values: the newest message of each subject, for subscriptions that request last values.

Theory of operation
-------------------
The publisher keeps the newest message of each subject, up to a maximum number of subjects and bytes. The subject
that was published longest ago is removed first. When a declaration adds a subscription with `last_value`, the
session sends the matching messages one time, before any later message. Each of these messages carries the number of
the subscription (`sid` in the extras) and the position with which it was published. If the subscriber declares the
subscription again in the same epoch, the session does not send these messages again.

Before the subscription begins, `search` compares its pattern with all subjects. The search is split into steps, so
that `publish` can run between two steps. A pattern that exceeds its time limit for three subjects is refused.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern, is_timed, match_within
from oz.wire.links import SID

STEP, SLOW_STEP = 256, 2
"""Number of subjects compared in one step: `STEP` for most patterns, `SLOW_STEP` for patterns that may be slow."""
STRIKES = 3
"""A pattern is refused when this number of matches has exceeded the time limit."""


class LastValues:
    """Newest message of each subject.

    Attributes:
        bytes: total size of all subjects and payloads in bytes.
    """

    def __init__(self, *, subjects: int = 65_536, size: int = 64 << 20) -> None:
        """Start empty.

        Args:
            subjects: maximum number of subjects.
            size: maximum total size of all subjects and payloads in bytes.
        """
        self._subjects, self._size = subjects, size
        self._values: dict[bytes, tuple[int, bytes, Any]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def put(self, position: int, subject: bytes, payload: bytes, extras: Any) -> None:
        """Store a message, and remove the older message with the same subject."""
        values = self._values
        old = values.pop(subject, None)
        if old is not None:
            self.bytes -= len(subject) + len(old[1])
        values[subject] = position, payload, extras
        self.bytes += len(subject) + len(payload)
        while len(values) > self._subjects or self.bytes > self._size:
            oldest = next(iter(values))
            self.bytes -= len(oldest) + len(values.pop(oldest)[1])

    def search(self, pattern: Pattern, seconds: float) -> Generator[None, None, set[bytes]]:
        """Return the subjects that match a pattern. The generator yields after each step, so that other code can run.

        Args:
            pattern: pattern of the subscription.
            seconds: time limit in seconds for the match of one subject.

        Raises:
            PatternTimeout: the pattern exceeded the time limit for `STRIKES` subjects.
        """
        if pattern._compiled.literal is not None:
            return {pattern._compiled.literal}
        step = SLOW_STEP if is_timed(pattern) else STEP
        known: set[bytes] = set()
        matched: set[bytes] = set()
        strikes = 0
        while new := [subject for subject in self._values if subject not in known]:
            for at, subject in enumerate(new, 1):
                try:
                    if _matches(pattern, subject, seconds):
                        matched.add(subject)
                except PatternTimeout:
                    strikes += 1
                    if strikes >= STRIKES:
                        raise
                if not at % step:
                    yield
            # `publish` may have added subjects during a yield.
            known.update(new)
            if len(new) < step:
                break
        return matched

    def values_of(self, subjects: set[bytes], sid: int) -> Iterator[tuple[int, bytes, bytes, Any]]:
        """Yield the newest message of each subject, as tuples of position, subject, payload and extras, oldest first.

        Args:
            subjects: subjects to look up; a subject without a message is skipped.
            sid: number of the subscription, added to the extras of each message.
        """
        values = self._values
        found = [(values[subject], subject) for subject in subjects if subject in values]
        for (position, payload, extras), subject in sorted(found, key=lambda item: item[0][0]):
            yield position, subject, payload, {**(extras or {}), SID: sid}


def _matches(pattern: Pattern, subject: bytes, seconds: float) -> bool:
    try:
        if is_timed(pattern):
            return match_within(pattern, subject if pattern._dialect.is_bytes else subject.decode(), seconds)
        return pattern.matches(subject)
    except (SubjectError, UnicodeDecodeError):
        return False
