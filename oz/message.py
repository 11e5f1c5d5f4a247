"""Messages and reports of gaps that programs receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from oz.errors import ReplyError

MessageId = bytes | tuple[bytes, int]
"""Id of a message: bytes, or a pair of bytes and a number. The pair identifies a series of messages and a message in
it."""

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Forwarded(NamedTuple):
    """Original publisher of a message that a forwarder has published.

    Attributes:
        origin: id of the first publisher, 16 bytes.
        position: number of the message; the first publisher counts all of its messages.
        via: ids of the forwarders that the message has passed, 6 bytes each, without separators.
    """

    origin: bytes
    position: int
    via: bytes


class Extras(NamedTuple):
    """Optional fields of a message in addition to subject and payload. An absent field is None.

    `oz.wire.extras` defines the format of each field, and checks the fields.

    Attributes:
        headers: dict from header names to values. A value is text, bytes, a number, a boolean or None.
        reply_to: subject for the reply to a request.
        message_id: id of the message. If the publisher sends the message again, it has the same id.
        key: text by which a sticky queue group picks a member, instead of the subject. It is not sent.
        forwarded: original publisher of the message, if a forwarder has published it.
        to_all: True if a request expects the replies of all responders.
        redelivered: True if another forwarder may already have published the message.
    """

    headers: Mapping[str, Any] | None = None
    reply_to: str | None = None
    message_id: MessageId | None = None
    key: str | bytes | None = None
    forwarded: Forwarded | None = None
    to_all: bool | None = None
    redelivered: bool | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Report that the program does not receive some published messages.

    Attributes:
        origin: id of the publisher's process, 16 bytes; None if unknown.
        count: number of missing messages; None if the number is unknown.
        recovered: number of the missing messages that have arrived since.
        reason: one of the words in docs/errors.md. "lost" means that a resume limit was exceeded, "dropped" that the
            publisher dropped messages, and "full" that the queue of the subscription was full.
    """

    origin: bytes | None
    count: int | None
    recovered: int
    reason: str


class Message:
    """A message that a program receives. Subscribers, nodes and journals create messages."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        """Subject as text. `surrogateescape` represents bytes that are not UTF-8; see `subject_bytes`."""
        raise NotImplementedError

    @property
    def payload(self) -> Any:
        """Payload: bytes, or the value that the codec has decoded. A message without payload has `b""`."""
        raise NotImplementedError

    @property
    def frames(self) -> list[bytes]:
        """Received frames of the message: subject and payload. The codec has not decoded this payload."""
        raise NotImplementedError

    @property
    def time_ns(self) -> int:
        """Time at which oz read the message from the socket, in nanoseconds since 1970."""
        raise NotImplementedError

    @property
    def _extras(self) -> Extras | None:
        return None

    @property
    def subject_bytes(self) -> bytes:
        """Subject as bytes."""
        return self.subject.encode("utf-8", "surrogateescape")

    @property
    def headers(self) -> Mapping[str, Any]:
        """Headers of the message; empty if the publisher gave no headers."""
        return NO_HEADERS if self._extras is None else self._extras.headers or NO_HEADERS

    @property
    def reply_to(self) -> str | None:
        """Subject on which the reply must be published; None if the message is no request."""
        return None if self._extras is None else self._extras.reply_to

    @property
    def id(self) -> MessageId | None:
        """Id that the publisher gave to the message; None without an id."""
        return None if self._extras is None else self._extras.message_id

    @property
    def origin(self) -> bytes | None:
        """Id of the publisher's process, 16 bytes; None if a plain publisher sent the message."""
        return None

    @property
    def sequence(self) -> int | None:
        """Number of the message in its session; None if a plain publisher sent the message."""
        return None

    @property
    def position(self) -> int | None:
        """Number of the message in the sequence of its publisher; None if a plain publisher sent the message."""
        return None

    @property
    def gap(self) -> int:
        """Number of messages that were lost directly before this message. Losses of unknown size are not counted."""
        return 0

    @property
    def redelivered(self) -> bool:
        """Whether another member of the queue group may already have handled the message."""
        return False

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Active subscriptions whose patterns match the subject."""
        return ()

    def ack(self) -> None:
        """Acknowledge the message, if its subscription has `ack="handled"`. Otherwise do nothing."""

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Reply to a request that a node has received.

        Args:
            payload: bytes, or a value for the codec of the node.
            headers: headers of the reply.

        Returns:
            An awaitable if the node is an `oz.asyncio.Node`, else None.

        Raises:
            ReplyError: the message is no request, or no node has received it.
            ClosedError: the node is closed.
            OwnershipError: the node was created before a fork.
        """
        if self.reply_to is None:
            raise ReplyError(f"{self.subject!r} is no request: it has no subject to reply on")
        raise ReplyError(
            f"{self.subject!r} did not come through a node; publish the reply on {self.reply_to!r}"
        )

    def __repr__(self) -> str:
        shown = repr(self.payload)
        if len(shown) > 80:
            shown = f"{shown[:70]}… "
        return f"<oz.Message {self.subject!r} {shown}>"
