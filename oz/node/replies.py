"""Replies of a node: errors of handlers on the wire, and replies that wait for the session of the requester.

Theory of operation
-------------------
A request may arrive before the HELLO of the requester, so that the requester has no session yet. `WaitingReplies`
keeps the reply until the session is up, for `WAIT` seconds at most. The replies to one node are sent in order. The
bounds hold for all nodes together. Beyond them a reply is refused, so that a peer without a HELLO cannot fill the
memory.

An error is a reply with the extra `error`: the class name of the exception and its text. Both are empty if
the responder hides them.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from oz.errors import ReplyError

WAIT = 2.0
"""Seconds that a reply waits for the session of its requester."""
MAX_REPLIES = 1_000
"""Maximum number of waiting replies."""
MAX_BYTES = 8 << 20
"""Maximum size of all waiting replies in bytes."""
ERROR = "error"
"""Key of an error among the extras."""
MAX_KIND = 200
"""Characters of a class name on the wire."""
MAX_TEXT = 1_000
"""Characters of the text of an exception on the wire."""


class Reply(NamedTuple):
    """A direct message to the requester.

    Attributes:
        subject: `reply_to` of the request.
        payload: encoded.
        extras: map for the wire, or None.
    """

    subject: str
    payload: bytes
    extras: dict[str, Any] | None


class WaitingReplies:
    """Replies that wait for the session of their requester.

    Attributes:
        given_up: replies without a session in time, and refused replies.
    """

    def __init__(self) -> None:
        self._replies: dict[bytes, deque[tuple[float, Reply]]] = {}
        self._count = self._bytes = 0
        self.given_up = 0

    def __len__(self) -> int:
        """Return the number of replies that wait."""
        return self._count

    def add(self, node: bytes, reply: Reply, now: float) -> bool:
        """Queue a reply; return False if the queue is full.

        Args:
            node: id of the requester.
            reply: to keep.
            now: in seconds.
        """
        size = _size(reply)
        if self._count >= MAX_REPLIES or self._bytes + size > MAX_BYTES:
            self.given_up += 1
            return False
        self._replies.setdefault(node, deque()).append((now + WAIT, reply))
        self._count += 1
        self._bytes += size
        return True

    @property
    def nodes(self) -> list[bytes]:
        """Nodes that replies wait for."""
        return list(self._replies)

    def take(self, node: bytes) -> list[Reply]:
        """Remove and return the replies for a node whose session is up, in order."""
        found = [reply for _, reply in self._replies.pop(node, ())]
        self._forget(found)
        return found

    def _forget(self, replies: list[Reply]) -> None:
        self._count -= len(replies)
        self._bytes -= sum(map(_size, replies))

    def tick(self, now: float) -> None:
        """Drop the replies whose timeout has passed."""
        for node, waiting in list(self._replies.items()):
            over = []
            while waiting and waiting[0][0] <= now:
                over.append(waiting.popleft()[1])
            if not waiting:
                del self._replies[node]
            self._forget(over)
            self.given_up += len(over)

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` has something to do; None if no reply waits."""
        return min((waiting[0][0] for waiting in self._replies.values()), default=None)


def _size(reply: Reply) -> int:
    # Headers have no bound of their own that is worth a second encoding here.
    return 256 + len(reply.subject) + len(reply.payload) + (len(repr(reply.extras)) if reply.extras else 0)


def encode_error(error: BaseException, *, is_hidden: bool) -> list[str]:
    """Return an exception of a handler for the extras of a reply.

    Args:
        error: that the handler raised.
        is_hidden: whether class and text are not sent.
    """
    if is_hidden:
        return ["", ""]
    try:
        text = str(error)
    except Exception:
        text = ""
    return [_printable(type(error).__name__, MAX_KIND), _printable(text, MAX_TEXT)]


def _printable(text: str, limit: int) -> str:
    """Return the start of a text as UTF-8 can hold it: file names may have lone surrogates."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def decode_error(found: Any, subject: str, node: str) -> ReplyError:
    """Return the error that a reply carries. The bytes of the peer are untrusted.

    Args:
        found: value of the extra `error`.
        subject: of the request.
        node: name of the responder.
    """
    kind = text = ""
    if type(found) is list and len(found) == 2 and type(found[0]) is str and type(found[1]) is str:
        kind, text = found[0][:MAX_KIND], found[1][:MAX_TEXT]
    shown = f"{kind}: {text}" if text else kind or "an error that it does not show (error_replies=False)"
    return ReplyError(
        f"the handler of node {node!r} for {subject!r} raised {shown}",
        subject=subject,
        kind=kind,
        text=text,
        node=node,
    )
