"""Access: which subscriptions a publisher grants to whom, where it has permissions.

What was asked before is answered at once. All answers are forgotten when the permissions change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from oz.errors import PatternError
from oz.security.denials import Denial
from oz.security.permissions import Action, Permissions
from oz.subjects import dialects
from oz.subjects.pattern import Pattern, compile

MOST_REMEMBERED = 65_536
"""Answers that are remembered; then all are forgotten."""

MOST_CHARACTERS = 1 << 24
"""Characters of their patterns and reasons; then all are forgotten too."""

_DOTTED = ("nats", "rv", "kubemq", "raims.rv")
"""The dialects whose subjects are words that are not empty, between dots."""


class Rights(NamedTuple):
    """The rights that a file and a directory give at one time.

    Attributes:
        trusted: the public keys that are trusted.
        permissions: what is allowed to whom; None for everything.
    """

    trusted: Container[str]
    permissions: Permissions | None


class Access:
    """The subscriptions that one publisher grants to keys.

    Attributes:
        rights: those that its answers are by.
        answers: those that are remembered.
    """

    __slots__ = (
        "_characters",
        "_delimiter",
        "_dialect",
        "_has_changed",
        "_read",
        "answers",
        "rights",
    )

    def __init__(
        self,
        read: Callable[[], Rights],
        dialect: str,
        delimiter: bytes = b"",
    ) -> None:
        """Start without an answer.

        Args:
            read: gives the rights as they are now, the same object as long as they are the same.
            dialect: the dialect that the publisher's subjects are valid in.
            delimiter: what ends the subject in a frame that holds the payload too, or nothing.
        """
        self._read = read
        self._delimiter = delimiter
        self._dialect = dialect
        self.answers: dict[tuple[str, Action, Pattern, str], Denial | None] = {}
        self._characters = 0
        self.rights = read()
        self._has_changed = False

    def has_changed(self) -> bool:
        """Tell whether the rights are others than at the last call, and answer by them from now on."""
        self._refresh()
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def _refresh(self) -> None:
        now = self._read()
        if now is not self.rights:
            self.rights = now
            self._has_changed = True
            self._forget()

    def denial(self, key: str, patterns: Iterable[Pattern], group: str = "") -> Denial | None:
        """Say why somebody may not subscribe to patterns, if so.

        Args:
            key: the public key of whoever asks.
            patterns: what is asked for.
            group: the queue group that is to be joined, or empty.
        """
        if key not in self.rights.trusted:
            # Whoever has come in a moment ago was trusted then: that is asked more often.
            self._refresh()
        if key not in self.rights.trusted:
            return Denial(f"the key {key} is not trusted any more")
        if self.rights.permissions is None:
            return None
        action: Action = "group" if group else "subscribe"
        answers = (self._answer(key, action, pattern, group) for pattern in patterns)
        return next((one for one in answers if one is not None), None)

    def denial_of_key(self, key: str, subscribed: bytes) -> Denial | None:
        """Return why a key may not have a plain subscription, or None.

        Args:
            key: as of `denial`.
            subscribed: a plain prefix.
        """
        if self.rights.permissions is None:
            return self.denial(key, ())
        try:
            patterns = self._beginning_with(subscribed)
            found = self.denial(key, patterns)
            if found is None:
                return None
            said = str(found)
            for one in patterns:
                said = said.replace(repr(one.text), f"the prefix {subscribed.decode(errors='replace')!r}")
            return Denial(said, found.rule, found.subject)
        except PatternError as error:
            return Denial(str(error))

    def _beginning_with(self, prefix: bytes) -> list[Pattern]:
        """Return patterns of the subjects that a plain subscription lets through, with any payload."""
        delimiter = self._delimiter
        if not delimiter:
            return [beginning_with(prefix, self._dialect)]
        subject, found, _ = prefix.partition(delimiter)
        if found:
            return [exactly(subject)]
        # It may end in the middle of a delimiter.
        parts = (prefix[:-size] for size in range(1, len(delimiter)) if prefix.endswith(delimiter[:size]))
        return [beginning_with(prefix, self._dialect), *map(exactly, parts)]

    def _answer(self, key: str, action: Action, pattern: Pattern, group: str) -> Denial | None:
        permissions = self.rights.permissions
        if permissions is None:
            return None
        asked = (key, action, pattern, group)
        if asked in self.answers:
            return self.answers[asked]
        verdict = permissions.decide(permissions.user_of(key), action, pattern, group or None)
        rule = None if verdict.rule is None else str(verdict.rule)
        found = None if verdict.granted else Denial(verdict.reason, rule, verdict.subject)
        if len(self.answers) >= MOST_REMEMBERED or self._characters > MOST_CHARACTERS:
            self._forget()
        self.answers[asked] = found
        self._characters += len(pattern.text) + len(found or "")
        return found

    def _forget(self) -> None:
        self.answers.clear()
        self._characters = 0


def beginning_with(prefix: bytes, dialect: str) -> Pattern:
    """Return a pattern of the subjects that a plain subscription lets through.

    Args:
        prefix: what they begin with.
        dialect: the dialect that they are valid in: `md.` lets all through that `md.>` of nats does, but
            also `md..x`, which no publisher of that dialect publishes.
    """
    assert dialect in dialects.BY_NAME
    try:
        text = prefix.decode()
    except UnicodeDecodeError:
        return compile(prefix, dialect="zmq")
    if dialect not in _DOTTED:
        return compile(prefix, dialect="zmq")
    is_whole = not text or text.endswith(".")
    rest = r"[^.]+(?:\.[^.]+)*" if is_whole else r"[^.]*(?:\.[^.]+)*"
    return compile(re.escape(text) + rest, dialect="regex")


def exactly(subject: bytes) -> Pattern:
    """Return a pattern of one subject.

    Raises:
        PatternError: it is not UTF-8, and so no subject that rules are about.
    """
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        raise PatternError("regex", subject, 0, "a subject that is not UTF-8") from None
    return compile(re.escape(text), dialect="regex")
