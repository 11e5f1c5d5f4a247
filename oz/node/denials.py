"""Notices of denied messages. If permissions deny a message, the receiving node sends a notice to the sender.

The file of permissions of the receiving node decides what a peer may publish and request. The sender does not have
this file. Therefore the receiving node sends a *notice*, a direct message with the rule and the reason. If the denied
message is a request, the notice ends the request with `PermissionDenied`. If the denied message is a publication, the
sender reports an event, and its `wait_ready` raises `PermissionDenied`.

A sender receives one notice for each denied request, and one notice for each subject on which publications are denied.
The receiving node reports one event for each key and subject.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgpack

from oz.errors import PermissionDenied
from oz.security.access import Rights, denial_of
from oz.security.permissions import Action

NOTICE = "_OZ.DENIED"
"""Subject of the direct message that carries a notice."""
_MAX_WAITING = 1_000
_MAX_REPORTED = 10_000
_MAX_TEXT = 1_000  # Maximum length in characters of each text in a notice.


class Notice(NamedTuple):
    """Denial of one message.

    Attributes:
        subject: subject of the denied message.
        reason: sentence that explains the denial.
        rule: rule that denied the message, from the file of permissions; None if the default of the
            file denied it.
        reply_to: inbox for the replies to a denied request; None for a publication.
    """

    subject: str
    reason: str
    rule: str | None
    reply_to: str | None

    def error(self, peer: str) -> PermissionDenied:
        """Return the error for the sender of the message.

        Args:
            peer: name of the node that denies the message.
        """
        what = "publication on" if self.reply_to is None else "request to"
        text = f"peer {peer!r} denies the {what} {self.subject!r}: {self.reason}"
        return PermissionDenied(text, rule=self.rule, subject=self.subject)

    def encode(self) -> bytes:
        """Return the payload of the direct message."""
        packed: bytes = msgpack.packb(tuple(text and text[:_MAX_TEXT] for text in self))
        return packed


def decode(payload: bytes) -> Notice | None:
    """Return the notice in the payload of a direct message; None if the payload is malformed."""
    try:
        subject, reason, rule, reply_to = msgpack.unpackb(payload)
    except Exception:
        return None
    texts = [subject, reason, *(text for text in (rule, reply_to) if text is not None)]
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in texts):
        return None
    return Notice(subject, reason, rule, reply_to)


class Denials:
    """Denied messages for which no notice has been sent yet."""

    def __init__(self, rights: Callable[[], Rights]) -> None:
        """Start without messages.

        Args:
            rights: function that returns the current rights. The result is the same object until the rights change.
        """
        self._rights = rights
        self._waiting: deque[tuple[bytes, str, str, str | None, bool]] = deque(maxlen=_MAX_WAITING)
        self._reported: set[tuple[str, str, bool]] = set()
        self._reported_by: Rights | None = None

    def add(self, node: bytes, key: str, subject: bytes, reply_to: object) -> bool:
        """Add a denied message; return whether a notice will be sent.

        Args:
            node: id of the sender.
            key: public key of the sender.
            subject: subject of the denied message.
            reply_to: inbox for the replies to a request; None for a publication.
        """
        if self._rights() is not self._reported_by or len(self._reported) >= _MAX_REPORTED:
            self._reported_by = self._rights()
            self._reported.clear()
        text = subject.decode(errors="backslashreplace")
        inbox = reply_to if isinstance(reply_to, str) else None
        is_first = (about := (key, text, inbox is None)) not in self._reported
        self._reported.add(about)
        if not is_first and inbox is None:
            return False
        self._waiting.append((node, key, text, inbox, is_first))
        return True

    def __len__(self) -> int:
        return len(self._waiting)

    def notices(self) -> Iterator[tuple[bytes, Notice, bool]]:
        """Remove and yield the denied messages.

        Each tuple has the id of the sender, the notice, and whether this is the first denial for the subject.
        """
        while self._waiting:
            node, key, subject, reply_to, is_first = self._waiting.popleft()
            action: Action = "publish" if reply_to is None else "request"
            denial = denial_of(self._rights().permissions, key, action, subject)
            if denial is not None:
                yield node, Notice(subject, str(denial), denial.rule, reply_to), is_first
