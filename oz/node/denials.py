"""Notices of denied messages: a node that drops a message by permissions sends the reason to the sender.

The file of permissions of the receiving node decides what a peer may publish and request. The sender does not have
this file, so the node sends a direct message with the rule and the reason. Such a notice ends a request with
`PermissionDenied`. A publication is reported as an event, and by `wait_ready`. The sender learns of each subject
once, and of each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgpack

from oz.errors import PatternError, PermissionDenied
from oz.security.access import Rights, exactly
from oz.security.permissions import Action, Verdict
from oz.subjects.pattern import Pattern, compile

NOTICE = "_OZ.DENIED"
"""Subject of the direct message."""
_MAX_WAITING = 1_000
_MAX_REPORTED = 10_000
_MAX_TEXT = 1_000  # Characters of a text in a notice.


class Notice(NamedTuple):
    """Denial of one message.

    Attributes:
        subject: of the message.
        reason: in words.
        rule: that decided, or None.
        reply_to: of a request; None for a publication.
    """

    subject: str
    reason: str
    rule: str | None
    reply_to: str | None

    def error(self, peer: str) -> PermissionDenied:
        """Return the error for the sender of the message.

        Args:
            peer: name of the node that denies it.
        """
        what = "publication on" if self.reply_to is None else "request to"
        text = f"peer {peer!r} denies the {what} {self.subject!r}: {self.reason}"
        return PermissionDenied(text, rule=self.rule, subject=self.subject)

    def encode(self) -> bytes:
        """Return the payload of the direct message."""
        packed: bytes = msgpack.packb(tuple(item and item[:_MAX_TEXT] for item in self))
        return packed


def decode(payload: bytes) -> Notice | None:
    """Return the notice of a direct message; None if it is malformed."""
    try:
        subject, reason, rule, reply_to = msgpack.unpackb(payload)
    except Exception:
        return None
    if not (isinstance(subject, str) and isinstance(reason, str)):
        return None
    if not all(item is None or isinstance(item, str) for item in (rule, reply_to)):
        return None
    return Notice(subject, reason, rule, reply_to)


class Denials:
    """Denied messages whose senders are not informed yet."""

    def __init__(self, rights: Callable[[], Rights]) -> None:
        """Start without messages.

        Args:
            rights: returns the current rights, the same object while they do not change.
        """
        self._rights = rights
        self._waiting: deque[tuple[bytes, str, str, str | None]] = deque(maxlen=_MAX_WAITING)
        self._reported: set[tuple[str, str]] = set()
        self._reported_by: Rights | None = None

    def add(self, node: bytes, key: str, subject: bytes, reply_to: object) -> bool:
        """Add a denied message; return whether a notice will be sent.

        Args:
            node: id of the sender.
            key: of the sender.
            subject: of the message.
            reply_to: of a request, else None.
        """
        if self._rights() is not self._reported_by or len(self._reported) >= _MAX_REPORTED:
            self._reported_by = self._rights()
            self._reported.clear()
        text = subject.decode(errors="backslashreplace")
        inbox = reply_to if isinstance(reply_to, str) else None
        if inbox is None:
            if (key, text) in self._reported:
                return False
            self._reported.add((key, text))
        self._waiting.append((node, key, text, inbox))
        return True

    def __len__(self) -> int:
        """Return the number of senders to inform."""
        return len(self._waiting)

    def notices(self) -> Iterator[tuple[bytes, Notice]]:
        """Yield and remove the notices, each with the id of the sender."""
        while self._waiting:
            node, key, subject, reply_to = self._waiting.popleft()
            verdict = self._verdict(key, subject, "publish" if reply_to is None else "request")
            if verdict is not None and not verdict.granted:
                rule = None if verdict.rule is None else str(verdict.rule)
                yield node, Notice(subject, verdict.reason, rule, reply_to)

    def _verdict(self, key: str, subject: str, action: Action) -> Verdict | None:
        """Return why a message was denied; None without permissions, or if its subject is not text."""
        permissions = self._rights().permissions
        if permissions is None:
            return None
        try:
            return permissions.decide(permissions.user_of(key), action, exact_pattern(subject))
        except PatternError:
            return None


def exact_pattern(subject: str) -> Pattern:
    """Return a pattern of one subject, as plain as possible, because reasons quote it."""
    try:
        pattern = compile(subject, dialect="nats")
    except PatternError:
        return exactly(subject.encode())
    return pattern if pattern.is_literal else exactly(subject.encode())
