"""Decisions of a publisher about subscriptions, according to the permissions of the subscriber's key.

Decisions are cached until the permissions change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from oz.errors import PatternError, PatternTimeout, SubjectError
from oz.security.denials import Denial
from oz.security.permissions import Action, Permissions
from oz.subjects import dialects
from oz.subjects.pattern import Pattern, compile, is_timed, match_within

MAX_CACHED = 65_536
"""Maximum number of cached decisions. Beyond it, the cache is cleared."""

MAX_CHARACTERS = 1 << 24
"""Maximum number of characters in all cached patterns and reasons. Beyond it, the cache is cleared."""

MAX_COMPARED, MATCH_TIME = 100, 0.001
"""Limits for one error message: the maximum number of denied patterns that are matched, and the time limit in seconds
for the match of a pattern that may backtrack."""

_DOTTED = ("nats", "rv", "kubemq", "raims.rv")
"""Dialects in which a subject consists of non-empty words with dots between them."""


class Rights(NamedTuple):
    """Permissions and trusted keys at one time.

    Attributes:
        trusted: public keys that are trusted.
        permissions: content of the permission file; None if there is no file, so that everything is allowed.
    """

    trusted: Container[str]
    permissions: Permissions | None


class Access:
    """Decisions of one publisher about subscriptions.

    Attributes:
        rights: rights from which the cached decisions follow.
        answers: cache of decisions by key, action, pattern and group. A decision is a denial, or None if the action is
            allowed.
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
        """Start with an empty cache.

        Args:
            read: function that returns the current rights. It returns the same object until the rights change.
            dialect: dialect of the publisher's subjects.
            delimiter: bytes between subject and payload in a message of one frame; empty if messages have two frames.
        """
        self._read = read
        self._delimiter = delimiter
        self._dialect = dialect
        self.answers: dict[tuple[str, Action, Pattern, str], Denial | None] = {}
        self._characters = 0
        self.rights = read()
        self._has_changed = False

    def has_changed(self) -> bool:
        """Return whether the rights have changed since the last call. Later decisions follow the new rights."""
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
        """Return the reason why a key may not subscribe to patterns. Return None if the subscription is allowed.

        Args:
            key: public key of the subscriber.
            patterns: patterns of the subscription.
            group: name of the queue group; empty without a group.
        """
        if key not in self.rights.trusted:
            # The authenticator reads the files more often than this object. Perhaps it has accepted a key that was just
            # added.
            self._refresh()
        if key not in self.rights.trusted:
            return Denial(f"the key {key} is not trusted any more")
        if self.rights.permissions is None:
            return None
        action: Action = "group" if group else "subscribe"
        answers = (self._answer(key, action, pattern, group) for pattern in patterns)
        return next((answer for answer in answers if answer is not None), None)

    def denial_of_key(self, key: str, subscribed: bytes) -> Denial | None:
        """Return the reason why a key may not subscribe to a plain prefix. Return None if the subscription is allowed.

        Args:
            key: public key of the subscriber.
            subscribed: prefix that the subscriber has set with ZMQ_SUBSCRIBE.
        """
        if self.rights.permissions is None:
            return self.denial(key, ())
        try:
            patterns = self._beginning_with(subscribed)
            found = self.denial(key, patterns)
            if found is None:
                return None
            reason = str(found)
            for pattern in patterns:
                reason = reason.replace(
                    repr(pattern.text), f"the prefix {subscribed.decode(errors='replace')!r}"
                )
            return Denial(reason, found.rule, found.subject)
        except PatternError as error:
            return Denial(str(error))

    def _beginning_with(self, prefix: bytes) -> list[Pattern]:
        """Return patterns for a plain prefix.

        Together they match every subject whose message can begin with the prefix.
        """
        delimiter = self._delimiter
        if not delimiter:
            return [beginning_with(prefix, self._dialect)]
        subject, found, _ = prefix.partition(delimiter)
        if found:
            return [exactly(subject)]
        # The prefix may end with the first bytes of the delimiter. Then the bytes before it may be a whole subject.
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
        found = None if verdict.granted else Denial(verdict.explanation, verdict.rule_text, verdict.subject)
        if len(self.answers) >= MAX_CACHED or self._characters > MAX_CHARACTERS:
            self._forget()
        self.answers[asked] = found
        self._characters += len(pattern.text) + len(found or "")
        return found

    def denied_subscriptions(self, subject: str | None) -> Iterator[tuple[str, Denial]]:
        """Yield the key and the denial of each denied subscription that matches a subject.

        The method checks only the newest `MAX_COMPARED` denied subscriptions.

        Args:
            subject: subject to match; None to yield all of these subscriptions.
        """
        denied = ((asked, denial) for asked, denial in reversed(self.answers.items()) if denial is not None)
        for (key, _, pattern, _), denial in islice(denied, MAX_COMPARED):
            with suppress(PatternTimeout, SubjectError):
                if subject is None or _matches(pattern, subject):
                    yield key, denial

    def _forget(self) -> None:
        self.answers.clear()
        self._characters = 0


def _matches(pattern: Pattern, subject: str) -> bool:
    return match_within(pattern, subject, MATCH_TIME) if is_timed(pattern) else pattern.matches(subject)


def denial_of(permissions: Permissions | None, key: str, action: Action, subject: str) -> Denial | None:
    """Return the reason why permissions deny an action on one subject. Return None if the action is allowed.

    For a subject that is not UTF-8 the result is also None, because rules apply only to subjects in UTF-8.

    Args:
        permissions: content of the permission file; None to allow everything.
        key: public key of the user.
        action: any action except "group".
        subject: subject as text.
    """
    if permissions is None:
        return None
    try:
        asked = _exact_pattern(subject)
    except PatternError:
        return None
    verdict = permissions.decide(permissions.user_of(key), action, asked)
    return None if verdict.granted else Denial(verdict.explanation, verdict.rule_text, verdict.subject)


def beginning_with(prefix: bytes, dialect: str) -> Pattern:
    """Return a pattern that matches all subjects with a prefix.

    In a dialect with non-empty words between dots, the pattern matches only subjects of the dialect: not `md..x`, for
    example. Therefore the pattern for the prefix `md.` matches the same subjects as `md.>` of nats.

    Args:
        prefix: first bytes of the subjects.
        dialect: dialect of the subjects.
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
    """Return a pattern that matches only one subject.

    Raises:
        PatternError: the subject is not UTF-8. Rules apply only to subjects in UTF-8.
    """
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        raise PatternError("regex", subject, 0, "a subject that is not UTF-8") from None
    return compile(re.escape(text), dialect="regex")


def _exact_pattern(subject: str) -> Pattern:
    try:
        pattern = compile(subject, dialect="nats")
    except PatternError:
        return exactly(subject.encode("utf-8", "surrogateescape"))
    return pattern if pattern.is_literal else exactly(subject.encode("utf-8", "surrogateescape"))
