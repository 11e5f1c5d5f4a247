"""Replies of a node: encoding of error replies, and queue of replies that wait for the session of the requester.

Theory of operation
-------------------
A request may arrive before the HELLO of its requester. Then the requester has no session yet, and `WaitingReplies`
keeps the reply until the session is up, for `WAIT` seconds at most. The number and the total size of waiting replies
are limited. At a limit, `add` refuses further replies. Therefore a peer that sends no HELLO cannot fill the memory.

An error reply has the extra `error`, a list of two texts: the class name of the exception, and the text of the
exception. Both texts are empty if the responder hides them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from oz.errors import ReplyError
from oz.wire.links import encode_body

WAIT = 2.0
"""Maximum seconds that a reply waits for the session of its requester."""
MAX_REPLIES = 1_000
"""Maximum number of waiting replies."""
MAX_BYTES = 8 << 20
"""Maximum size of all waiting replies in bytes."""
ERROR = "error"
"""Key in the extras of an error reply. The value is a list of the class name and the text of the exception."""
MAX_KIND = 200
"""Maximum length of a class name in an error reply, in characters."""
MAX_TEXT = 1_000
"""Maximum length of the text of an exception in an error reply, in characters."""


class Reply(NamedTuple):
    """A direct message to the requester.

    Attributes:
        subject: `reply_to` of the request.
        payload: encoded payload.
        extras: map that is sent with the payload, or None.
    """

    subject: str
    payload: bytes
    extras: dict[str, Any] | None


class WaitingReplies:
    """Replies that wait for the session of their requester, in order.

    Attributes:
        given_up: number of replies that were refused, or that waited longer than `WAIT`.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int, bytes, Reply]] = deque()
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, node: bytes, reply: Reply, now: float) -> bool:
        """Queue a reply; return False if the queue is full.

        Args:
            node: id of the requester.
            reply: reply to keep.
            now: time in seconds.
        """
        size = len(encode_body((reply.payload, reply.extras)))
        if len(self) >= MAX_REPLIES or size + sum(known for _, known, _, _ in self._waiting) > MAX_BYTES:
            self.given_up += 1
            return False
        self._waiting.append((now + WAIT, size, node, reply))
        return True

    def pop_ready(self, now: float, has_session: Callable[[bytes], bool]) -> list[tuple[bytes, Reply]]:
        """Remove and return the replies whose requester has a session; drop replies that have waited too long.

        Args:
            now: time in seconds.
            has_session: function that returns whether a node has a session.
        """
        found = []
        for _ in range(len(self)):
            entry = until, _, node, reply = self._waiting.popleft()
            if has_session(node):
                found.append((node, reply))
            elif now < until:
                self._waiting.append(entry)
            else:
                self.given_up += 1
        return found


def encode_error(error: BaseException, *, is_hidden: bool) -> list[str]:
    """Return the value of the extra `error` for an exception of a handler.

    Args:
        error: exception that the handler raised.
        is_hidden: whether the class and the text of the exception are left out.
    """
    if is_hidden:
        return ["", ""]
    try:
        text = str(error)
    except Exception:
        text = ""
    return [_printable(type(error).__name__, MAX_KIND), _printable(text, MAX_TEXT)]


def _printable(text: str, limit: int) -> str:
    """Return the start of a text. Lone surrogates are escaped, because UTF-8 cannot encode them."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


def decode_error(found: Any, subject: str, node: str) -> ReplyError:
    """Return the error that an error reply describes. The value comes from a peer and is untrusted.

    Args:
        found: value of the extra `error`.
        subject: subject of the request.
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
