"""The requests of one node that wait for replies, and the inbox that the replies come to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from oz.message import Message
from oz.protocol.distinguished import INBOX

OnReply = Callable[[Message], Any]


class Requests:
    """Gives each request an inbox of its own below the node's, and each reply to whoever waits for it.

    Attributes:
        prefix: what all its inboxes begin with.
        late: replies that came when nobody waited for them any more.
    """

    __slots__ = ("_numbers", "_waiting", "late", "prefix")

    def __init__(self, uuid: bytes) -> None:
        """Start with none."""
        self.prefix = f"{INBOX}{uuid.hex()}."
        self.late = 0
        self._numbers = count(1)
        self._waiting: dict[str, OnReply] = {}

    def __len__(self) -> int:
        """Count those that wait."""
        return len(self._waiting)

    @property
    def pattern(self) -> str:
        """The one standing subscription, in the nats dialect."""
        return f"{self.prefix}*"

    def begin(self, on_reply: OnReply) -> str:
        """Begin to wait; gives the subject to answer on.

        Args:
            on_reply: called with each reply until `end`, wherever messages are received.
        """
        inbox = f"{self.prefix}{next(self._numbers)}"
        self._waiting[inbox] = on_reply
        return inbox

    def end(self, inbox: str, unread: int = 0) -> None:
        """Stop waiting: what still comes is late.

        Args:
            inbox: what `begin` gave.
            unread: replies that have come, and that nobody waits for either.
        """
        self.late += unread
        self._waiting.pop(inbox, None)

    def take(self, message: Message) -> None:
        """Give a reply to whoever waits for it."""
        on_reply = self._waiting.get(str(message.subject))
        if on_reply is None:
            self.late += 1
        else:
            on_reply(message)


def owner(inbox: str | bytes) -> bytes | None:
    """Give the uuid of the node whose inbox it is; None when the subject is no inbox of a node."""
    text = inbox.decode("utf-8", "replace") if isinstance(inbox, bytes) else inbox
    parts = text.split(".")
    if len(parts) != 3 or f"{parts[0]}." != INBOX:
        return None
    try:
        uuid = bytes.fromhex(parts[1])
    except ValueError:
        return None
    return uuid if len(uuid) == 16 else None
