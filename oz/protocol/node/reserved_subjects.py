"""Reserved subjects begin with an underscore: they mean something of their own, and wildcards pass them by.

Source: TIBCO Rendezvous Concepts, "Distinguished Subject Names". That `>` does not reach them is oz's rule
for nodes, as `#` does not reach `$SYS` in MQTT.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from oz.errors import PatternError, SubjectError
from oz.subjects.index.budget import Budget
from oz.subjects.index.patterns import Matches, PatternIndex
from oz.subjects.pattern import Pattern

INBOX = "_INBOX."
LOCAL = "_LOCAL."
OWN = "_OZ."
ADVISORY = "_OZ.ADVISORY."
NAMING = "_OZ.NAMING."
"""What the subject begins with on which a node is told of others; its uuid follows."""
INTEREST = "_OZ.INTEREST."
"""The same, where it is asked what it wants, and answered."""

MARK = b"_"

_INBOX = INBOX.encode()

_MOST_INBOXES = 65_536
_LONGEST_INBOX = 100
_LONGEST_NUMBER = 60
"""How many owners of inboxes an index remembers the answer for, the bytes of the longest, and the digits of
the longest number behind it."""


class ReservedIndex(PatternIndex):
    """A `PatternIndex` in which only patterns that begin with an underscore match subjects that do.

    Each inbox is the subject of one reply, and not worth remembering. But those of one owner differ in a
    number only: where every pattern that reaches inboxes asks for all of an owner's, as nodes do, what is
    found is remembered for the owner.
    """

    __slots__ = ("_inboxes", "_special", "_uneven")

    def __init__(self, *, cache_size: int = 0) -> None:
        """Start empty."""
        super().__init__(cache_size=cache_size)
        self._special = PatternIndex(cache_size=cache_size)
        self._inboxes: dict[bytes, Matches] = {}
        # Patterns that reach inboxes and may tell those of one owner apart, with their values.
        self._uneven: set[tuple[Pattern, Any]] = set()

    def __len__(self) -> int:
        """Count the pairs of pattern and value; one that begins either way counts twice."""
        return super().__len__() + len(self._special)

    def _keep_to(self, budget: Budget) -> None:
        """Keep the patterns that have to be tried to a budget."""
        super()._keep_to(budget)
        self._special._keep_to(budget)

    def add(self, pattern: Pattern, value: Hashable = None) -> None:
        """Add a pattern."""
        for is_special in _kinds(pattern):
            (self._special.add if is_special else super().add)(pattern, value)
        self._inboxes.clear()
        if _is_uneven(pattern):
            self._uneven.add((pattern, value))

    def discard(self, pattern: Pattern, value: Hashable = None) -> None:
        """Take a pair of pattern and value out, if it is there."""
        for is_special in _kinds(pattern):
            (self._special.discard if is_special else super().discard)(pattern, value)
        self._inboxes.clear()
        self._uneven.discard((pattern, value))

    def find(self, subject: str | bytes) -> Matches:
        """Find the values of the patterns that match, and those that ran out of time."""
        raw = subject.encode("utf-8", "surrogatepass") if isinstance(subject, str) else subject
        if not raw.startswith(MARK):
            return super().find(subject)
        if not raw.startswith(_INBOX) or self._uneven:
            return self._special.find(subject)
        owner, _, number = raw.rpartition(b".")
        if not number.isdigit() or len(number) > _LONGEST_NUMBER or len(owner) > _LONGEST_INBOX:
            return self._special.find(subject)
        found = self._inboxes.get(owner)
        if found is None:
            found = self._special.find(subject)
            if len(self._inboxes) >= _MOST_INBOXES:
                self._inboxes.clear()
            self._inboxes[owner] = found
        return found


def _kinds(pattern: Pattern) -> Iterator[bool]:
    """Say in which of the two indexes a pattern is at home: special, general or both."""
    starts = {prefix.startswith(MARK) for prefix in pattern.prefixes}
    yield from starts


def _is_uneven(pattern: Pattern) -> bool:
    """Tell whether a pattern may match one inbox of an owner, and another not."""
    if not any(one.startswith(_INBOX) or _INBOX.startswith(one) for one in pattern.prefixes if one):
        return False
    text = pattern.text
    if pattern.dialect != "nats" or not isinstance(text, str) or "*" in text:
        return True
    tokens = text.split(".")
    return len(tokens) != 3 or tokens[2] != ">"


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
    if reaches(pattern, INBOX):
        rule = "an inbox is point to point: request() listens on it, and message.reply() publishes there"
        raise PatternError(pattern.dialect, pattern.text, 0, rule)
    if reaches(pattern, OWN) and not is_advisory(pattern):
        rule = f"of the subjects that begin with '_OZ.' only advisories can be had: '{ADVISORY}>'"
        raise PatternError(pattern.dialect, pattern.text, 0, rule)


def reaches(pattern: Pattern, reserved: str) -> bool:
    """Tell whether a pattern, on a node, may match subjects that begin with `INBOX`, or with `OWN`."""
    for prefix in pattern.prefixes:
        text = prefix.decode("utf-8", "replace")
        reaches_all = text.startswith("_") and not pattern.is_literal
        if text.startswith(reserved[:-1]) or (reaches_all and reserved.startswith(text)):
            return True
    return False


def is_advisory(pattern: Pattern) -> bool:
    """Tell whether a pattern asks for nothing but advisories."""
    return all(prefix.startswith(ADVISORY.encode()) for prefix in pattern.prefixes)
