"""Messages for a handler alone, which record what it answers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from oz.errors import SubjectError
from oz.message import Extras, MessageId
from oz.protocol.messages import DELIVERED, Arrival, Message, RichMessage

INBOX = "_INBOX.testing"
"""Where the messages of `message` are to be answered, unless said otherwise."""


class _Answered:
    """Something to await that is done already, as handlers of `oz.asyncio.Node` await `reply`."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class _Recorder:
    """Stands for the route of a message, and for the subscription that answers it."""

    is_counted = False
    handled: tuple[Any, ...] = ()
    is_listed = is_only_listed = True
    handler = None

    def __init__(self) -> None:
        self.replies: list[Message] = []
        self.subscriptions: tuple[Any, ...] = (self,)

    def answer(self, message: Message, payload: Any, headers: dict[str, Any] | None) -> _Answered:
        assert message.reply_to is not None
        self.replies.append(_make(message.reply_to, payload, DELIVERED, Extras(headers), _ARRIVAL))
        return _Answered()


class RecordedMessage(RichMessage):
    """A message that nobody sent, for a handler.

    Attributes:
        replies: what was answered, the first first: messages with `payload` and `headers`, as the node that
            asked would get them.
    """

    __slots__ = ("replies",)

    replies: list[Message]


_ORIGIN = bytes(16)
_ARRIVAL = Arrival(_ORIGIN, 0, 0, 0, 0)


def _make(subject: str, payload: Any, route: Any, extras: Extras, arrival: Arrival) -> RecordedMessage:
    made = RecordedMessage(subject, payload, route, payload, extras, arrival, 0)
    made.replies = []
    return made


def message(
    subject: str | bytes,
    payload: Any = b"",
    *,
    headers: Mapping[str, Any] | None = None,
    reply_to: str | None = INBOX,
    message_id: MessageId | None = None,
    origin: bytes = _ORIGIN,
    sequence: int = 0,
    position: int | None = None,
    gap: int = 0,
    time_ns: int = 0,
) -> RecordedMessage:
    """Make a message for a handler alone, without a socket.

    What the handler answers by `reply` is in the message's `replies`; awaiting `reply` works too.

    Args:
        subject: of the message.
        payload: what the handler finds: bytes, or a value as a codec would have decoded it.
        headers: text to text, bytes, numbers, truth values or None.
        reply_to: the subject to answer on; None makes a message that is no request.
        message_id: bytes, or a series and a number in it.
        origin: the publisher, 16 bytes.
        sequence: its number among those of its publisher; 0 or more.
        position: its number among all that its publisher has sent; None where that gives none.
        gap: how many messages were lost before it; 0 or more.
        time_ns: when it came, in nanoseconds since 1970.

    Returns:
        The message.

    Raises:
        SubjectError: there is no subject.
        ValueError: the origin has not 16 bytes, or a number is negative.
    """
    text = subject.decode(errors="surrogateescape") if isinstance(subject, bytes) else subject
    if not text:
        raise SubjectError("nats", subject, 0, "a message has a subject such as 'svc.price'")
    if len(origin) != 16:
        raise ValueError(f"an origin has 16 bytes, not {len(origin)}: {origin!r}")
    numbers = ("sequence", sequence), ("position", position or 0), ("gap", gap), ("time_ns", time_ns)
    for name, number in numbers:
        if number < 0:
            raise ValueError(f"{name} is 0 or more, not {number}")
    recorder = _Recorder()
    extras = Extras(headers, reply_to, message_id)
    positions = None if position is None else (position,)
    made = _make(text, payload, recorder, extras, Arrival(origin, sequence, time_ns, gap, 0, positions))
    made.replies = recorder.replies
    return made
