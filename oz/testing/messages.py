"""Messages for tests of handlers. A message keeps the replies that the handler sends."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from oz.errors import SubjectError
from oz.message import Message, MessageId

INBOX = "_INBOX.testing"
"""Default subject for the replies to a message that `message` creates."""

_ORIGIN = bytes(16)


class _Done:
    """Awaitable that `reply` returns. Handlers of `oz.asyncio.Node` may await it."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class _Fields(NamedTuple):
    """Fields of a `RecordedMessage`."""

    subject: str
    payload: Any
    headers: Mapping[str, Any]
    reply_to: str | None
    id: MessageId | None
    origin: bytes
    sequence: int
    position: int | None
    gap: int
    time_ns: int
    redelivered: bool
    replies: list[RecordedMessage]


class RecordedMessage(_Fields, Message):
    """Message for a handler, without a socket. Two messages are equal only if they are the same object.

    Attributes:
        subject: subject as text. `surrogateescape` represents bytes that are not UTF-8.
        payload: payload as bytes, or a decoded value.
        headers: headers of the message; empty without headers.
        reply_to: subject on which the reply is published; None if the message is not a request.
        id: id of the message: bytes, or a pair of a series and a number; None without an id.
        origin: id of the publisher, 16 bytes.
        sequence: number of the message in the session.
        position: number of the message among all messages that the publisher has sent; None if it is unknown.
        gap: number of messages that were lost directly before this message.
        time_ns: time of arrival, in nanoseconds since 1970.
        redelivered: whether another member of the queue group may have handled the message before.
        replies: messages that the handler has sent with `reply`, in order.
    """

    __slots__ = ()

    __repr__ = Message.__repr__
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    @property
    def frames(self) -> list[bytes]:
        """List of the subject as bytes and the payload. The payload may be a decoded value."""
        return [self.subject_bytes, self.payload]

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Append a message to `replies`.

        Args:
            payload: payload of the reply: bytes, or a value that a node's codec would encode.
            headers: headers of the reply; None for a reply without headers.

        Returns:
            An awaitable.

        Raises:
            ReplyError: the message has no subject to reply on.
        """
        if self.reply_to is None:
            return super().reply(payload, headers=headers)
        reply = message(self.reply_to, payload, headers=headers, reply_to=None)
        self.replies.append(reply)
        return _Done()


def message(
    subject: str | bytes,
    payload: Any = b"",
    *,
    headers: Mapping[str, Any] | None = None,
    reply_to: str | None = INBOX,
    id: MessageId | None = None,
    origin: bytes = _ORIGIN,
    sequence: int = 0,
    position: int | None = None,
    gap: int = 0,
    time_ns: int = 0,
    redelivered: bool = False,
) -> RecordedMessage:
    """Create a message for a test of a handler, without a socket.

    The attribute `replies` contains the replies of the handler. A handler may await `reply`.

    Args:
        subject: subject of the message.
        payload: payload as bytes, or a value that a codec would have decoded.
        headers: headers of the message. Each name is text; each value is text, bytes, a number, a boolean or None.
        reply_to: subject on which a reply is published; None for a message that is not a request.
        id: id of the message: bytes, or a pair of a series and a number in this series; None without an id.
        origin: id of the publisher, 16 bytes.
        sequence: number of the message in the session; 0 or more.
        position: number of the message among all messages that the publisher has sent; None if it is unknown.
        gap: number of messages that were lost directly before this message; 0 or more.
        time_ns: time of arrival, in nanoseconds since 1970.
        redelivered: whether another member of the queue group may have handled the message before.

    Raises:
        TypeError: the subject is neither text nor bytes.
        SubjectError: the subject is empty.
        ValueError: the length of the origin is not 16 bytes, or a number is negative.
    """
    if not isinstance(subject, str | bytes):
        raise TypeError(f"a subject is str or bytes, not {type(subject).__name__}: {subject!r}")
    text = subject.decode(errors="surrogateescape") if isinstance(subject, bytes) else subject
    if not text:
        raise SubjectError("nats", subject, 0, "a message has a subject such as 'svc.price'")
    if len(origin) != 16:
        raise ValueError(f"an origin has 16 bytes, not {len(origin)}: {origin!r}")
    numbers = ("sequence", sequence), ("position", position or 0), ("gap", gap), ("time_ns", time_ns)
    for name, number in numbers:
        if number < 0:
            raise ValueError(f"{name} is 0 or more, not {number}")
    return RecordedMessage(
        text, payload, headers or {}, reply_to, id, origin, sequence, position, gap, time_ns, redelivered, []
    )
