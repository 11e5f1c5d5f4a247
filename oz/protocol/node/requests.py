"""The requests of one node that wait for replies, and the inbox that the replies come to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from oz.errors import ReplyError
from oz.message import Message
from oz.protocol.node.reserved_subjects import INBOX
from oz.wire.node_codec import Failure

FAILED = ".failed"
"""What stands behind an inbox where it is told that a handler raised: nodes that know of no such thing do not
subscribe to it."""


MOST_NOTES = 10
"""Further errors that are told with the first one."""

OnReply = Callable[[Message], Any]
Unread = Callable[[], int]


class Requests:
    """The requests of a node: each has an inbox of its own below the node's, which its replies come to.

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
        self._waiting: dict[str, tuple[OnReply, Unread]] = {}

    def __len__(self) -> int:
        """Count those that wait."""
        return len(self._waiting)

    @property
    def pattern(self) -> str:
        """The one standing subscription, in the nats dialect: to replies, and to what handlers raised."""
        return f"{self.prefix}>"

    def begin(self, on_reply: OnReply, unread: Unread) -> str:
        """Begin to wait; gives the subject to answer on.

        Args:
            on_reply: called with each reply until `end`, wherever messages are received.
            unread: called at the end, takes out the replies that nobody has read, and counts them.
        """
        inbox = f"{self.prefix}{next(self._numbers)}"
        self._waiting[inbox] = on_reply, unread
        return inbox

    def end(self, inbox: str) -> None:
        """Stop waiting: what was not read, and what still comes, is late.

        Args:
            inbox: what `begin` gave.
        """
        ended = self._waiting.pop(inbox, None)
        if ended is not None:
            self._count_late(ended[1]())

    def take(self, message: Message) -> None:
        """Hand a reply to the request that waits for it."""
        subject = message.subject
        inbox = subject.removesuffix(FAILED)
        waiting = self._waiting.get(inbox)
        if waiting is None or (inbox != subject) != (type(message.payload) is Failure):
            self._count_late(1)
            return
        on_reply, unread = waiting
        on_reply(message)
        if inbox not in self._waiting:
            # Another thread has ended it meanwhile, and may have counted before this one came.
            self._count_late(unread())

    def _count_late(self, count: int) -> None:
        # In one step, with no call in between: threads do it at the same time.
        self.late += count


class Failures:
    """The errors that handlers raised at one request."""

    __slots__ = ("_subject", "raised")

    def __init__(self, subject: Any) -> None:
        """Start with none."""
        self._subject = subject.decode("utf-8", "replace") if isinstance(subject, bytes) else str(subject)
        self.raised: list[ReplyError] = []

    def take(self, reply: Message) -> bool:
        """Record the error of a handler; tell whether a reply was one."""
        failure = reply.payload
        if type(failure) is not Failure:
            return False
        kind, text, node = failure
        self.raised.append(
            ReplyError(
                f"the handler of {node} raised {kind} at {self._subject!r}: {text}",
                subject=self._subject, kind=kind, text=text, node=node,
            )
        )  # fmt: skip
        return True

    def check(self) -> None:
        """Tell of them, if there are any.

        Raises:
            ReplyError: the first, with notes of the others.
        """
        if not self.raised:
            return
        first, *others = self.raised
        for other in others[:MOST_NOTES]:
            first.add_note(str(other))
        if len(others) > MOST_NOTES:
            first.add_note(f"and {len(others) - MOST_NOTES} more")
        raise first


def owner(inbox: str | bytes) -> bytes | None:
    """Return the uuid of the node whose inbox it is; None when the subject is no inbox of a node."""
    text = inbox.decode("utf-8", "replace") if isinstance(inbox, bytes) else inbox
    parts = text.split(".")
    if len(parts) != 3 or f"{parts[0]}." != INBOX:
        return None
    try:
        uuid = bytes.fromhex(parts[1])
    except ValueError:
        return None
    return uuid if len(uuid) == 16 else None
