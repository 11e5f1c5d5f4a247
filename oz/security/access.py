"""Access: the subscriptions that a publisher grants to a key.

Answers are cached until the permissions change.
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
"""Number of cached answers at which the cache is cleared."""

MAX_CHARACTERS = 1 << 24
"""Number of characters in the cached patterns and reasons. Above this number the cache is cleared too."""

MAX_COMPARED, MATCH_TIME = 100, 0.001
"""Maximum number of denied patterns that are compared with a subject for one error message. The second number is the
time limit, in seconds, for the match of a pattern that may backtrack."""

_DOTTED = ("nats", "rv", "kubemq", "raims.rv")
"""Dialects whose subjects are non-empty words with dots between them."""


class Rights(NamedTuple):
    """Content of the permission file and of the trusted certificates at one time.

    Attributes:
        trusted: public keys that are trusted.
        permissions: content of the permission file; None without a file, which allows everything.
    """

    trusted: Container[str]
    permissions: Permissions | None


class Access:
    """Decisions of one publisher about subscriptions.

    Attributes:
        rights: rights by which the cached answers were decided.
        answers: cache of answers by key, action, pattern and group. An answer is a denial, or None if it is granted.
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
            read: function that returns the current rights: the same object while they do not change.
            dialect: dialect of the publisher's subjects.
            delimiter: bytes between subject and payload if a message has one frame; empty if it has two frames.
        """
        self._read = read
        self._delimiter = delimiter
        self._dialect = dialect
        self.answers: dict[tuple[str, Action, Pattern, str], Denial | None] = {}
        self._characters = 0
        self.rights = read()
        self._has_changed = False

    def has_changed(self) -> bool:
        """Return whether the rights have changed since the last call. Later answers follow the new rights."""
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
        """Return why a key may not subscribe to patterns; None if the subscription is allowed.

        Args:
            key: public key of the subscriber.
            patterns: patterns of the subscription.
            group: name of the queue group; empty without a group.
        """
        if key not in self.rights.trusted:
            # The authenticator reads the files more often: the key may have been added a moment ago.
            self._refresh()
        if key not in self.rights.trusted:
            return Denial(f"the key {key} is not trusted any more")
        if self.rights.permissions is None:
            return None
        action: Action = "group" if group else "subscribe"
        answers = (self._answer(key, action, pattern, group) for pattern in patterns)
        return next((answer for answer in answers if answer is not None), None)

    def denial_of_key(self, key: str, subscribed: bytes) -> Denial | None:
        """Return why a key may not subscribe to a plain prefix; None if the subscription is allowed.

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
        """Return patterns that together match each subject whose message may begin with a plain prefix."""
        delimiter = self._delimiter
        if not delimiter:
            return [beginning_with(prefix, self._dialect)]
        subject, found, _ = prefix.partition(delimiter)
        if found:
            return [exactly(subject)]
        # The prefix may end in the middle of a delimiter.
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
        """Yield key and denial of each denied subscription that matches a subject.

        Only the newest `MAX_COMPARED` denied subscriptions are compared.

        Args:
            subject: subject to match; None yields all compared subscriptions.
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
    """Return why permissions deny an action on one subject; None if the action is allowed.

    The result is also None for a subject that is not UTF-8, because no rule applies to such a subject.

    Args:
        permissions: content of the permission file; None allows everything.
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
    """Return a pattern that matches the subjects with a prefix.

    For dialects with words between dots, the pattern leaves out subjects with an empty word, such as `md..x`. No
    publisher of these dialects publishes them. For example, the prefix `md.` then means the same as `md.>` of nats.

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
        PatternError: the subject is not UTF-8. No rule applies to such a subject.
    """
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        raise PatternError("regex", subject, 0, "a subject that is not UTF-8") from None
    return compile(re.escape(text), dialect="regex")


def _exact_pattern(subject: str) -> Pattern:
    """Return a pattern that matches only one subject. Its text is short if possible, because messages quote it.

    Raises:
        PatternError: the subject is not UTF-8.
    """
    try:
        pattern = compile(subject, dialect="nats")
    except PatternError:
        return exactly(subject.encode("utf-8", "surrogateescape"))
    return pattern if pattern.is_literal else exactly(subject.encode("utf-8", "surrogateescape"))
