"""Reserved subjects begin with an underscore: they mean something of their own, and wildcards pass them by.

Source: TIBCO Rendezvous Concepts, "Distinguished Subject Names". That `>` does not reach them is oz's rule
for nodes, as `#` does not reach `$SYS` in MQTT.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from oz.errors import PatternError, SubjectError
from oz.subjects.index.patterns import Matches, PatternIndex
from oz.subjects.pattern import Pattern

INBOX = "_INBOX."
LOCAL = "_LOCAL."
OWN = "_OZ."
ADVISORY = "_OZ.ADVISORY."

MARK = b"_"


class ReservedIndex(PatternIndex):
    """A `PatternIndex` in which only patterns that begin with an underscore match subjects that do."""

    __slots__ = ("_special",)

    def __init__(self, *, cache_size: int = 0) -> None:
        """Start empty."""
        super().__init__(cache_size=cache_size)
        self._special = PatternIndex(cache_size=cache_size)

    def __len__(self) -> int:
        """Count the pairs of pattern and value; one that begins either way counts twice."""
        return super().__len__() + len(self._special)

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern."""
        for is_special in _kinds(pattern):
            (self._special.add if is_special else super().add)(pattern, value)

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Take a pair of pattern and value out, if it is there."""
        for is_special in _kinds(pattern):
            (self._special.discard if is_special else super().discard)(pattern, value)

    def find(self, subject: str | bytes) -> Matches:
        """Find the values of the patterns that match, and those that ran out of time."""
        raw = subject.encode("utf-8", "surrogatepass") if isinstance(subject, str) else subject
        if raw.startswith(MARK):
            return self._special.find(subject)
        return super().find(subject)


def _kinds(pattern: Pattern) -> Iterator[bool]:
    """Say in which of the two indexes a pattern is at home: special, general or both."""
    starts = {prefix.startswith(MARK) for prefix in pattern.prefixes}
    yield from starts


def check_published(subject: object, dialect: str) -> None:
    """Refuse what applications may not publish on a node.

    Raises:
        SubjectError: it is one of oz's own subjects, advisories among them.
    """
    text = subject.decode("utf-8", "replace") if isinstance(subject, bytes) else subject
    if isinstance(text, str) and (text.startswith(OWN) or text == OWN[:-1]):
        raise SubjectError(dialect, text, 0, "subjects that begin with '_OZ.' are published by oz only")


def check_subscribed(pattern: Pattern) -> None:
    """Refuse what applications may not subscribe to on a node.

    Raises:
        PatternError: it would listen in on the inboxes of others, or on what nodes say to each other.
    """
    for prefix in pattern.prefixes:
        text = prefix.decode("utf-8", "replace")
        reaches_all = text.startswith("_") and not pattern.is_literal
        if text.startswith(INBOX[:-1]) or (reaches_all and INBOX.startswith(text)):
            rule = "an inbox is point to point: request() listens on it, and message.reply() publishes there"
            raise PatternError(pattern.dialect, pattern.text, 0, rule)
        is_own = text.startswith(OWN[:-1]) or (reaches_all and OWN.startswith(text))
        if is_own and not is_advisory(pattern):
            rule = f"of the subjects that begin with '_OZ.' only advisories can be had: '{ADVISORY}>'"
            raise PatternError(pattern.dialect, pattern.text, 0, rule)


def is_advisory(pattern: Pattern) -> bool:
    """Tell whether a pattern asks for nothing but advisories."""
    return all(prefix.startswith(ADVISORY.encode()) for prefix in pattern.prefixes)
