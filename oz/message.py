"""Messages and gaps, as programs receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from oz.errors import ReplyError

MessageId = bytes | tuple[bytes, int]
"""Id of a message: bytes, or a pair of the id of a series and the message's number in the series."""

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Forwarded(NamedTuple):
    """Source of a message that a forwarder published.

    Attributes:
        origin: id of the first publisher, 16 bytes.
        position: number of the message among all messages of the first publisher.
        via: concatenated ids of the forwarders that the message has passed, 6 bytes each.
    """

    origin: bytes
    position: int
    via: bytes


class Extras(NamedTuple):
    """Optional fields of a message beside subject and payload. A field that is None is absent.

    `oz.wire.extras` describes the format of each field, and checks the fields.

    Attributes:
        headers: names of headers, with text, bytes, numbers, truth values or None as values.
        reply_to: subject for the reply to a request.
        message_id: id of the message; a repeated message has the same id.
        key: key by which a sticky queue group picks a member, in place of the subject. The key is not sent.
        forwarded: source of a message that a forwarder published.
        to_all: True if a request expects the replies of all responders.
        redelivered: True if a second forwarder may have published the message before.
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
    """Report of messages that were published, but that the program does not receive.

    Attributes:
        origin: id of the publisher's process, 16 bytes; None if unknown.
        count: number of missing messages; None if the number is unknown.
        recovered: number of missing messages that arrived later.
        reason: one of the words in docs/errors.md. "lost" means that the resume limits were exceeded, "dropped"
            that the publisher dropped messages, and "full" that the queue of the subscription was full.
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
        """Subject. Bytes that are not UTF-8 are kept by `surrogateescape`; see `subject_bytes`."""
        raise NotImplementedError

    @property
    def payload(self) -> Any:
        """Payload as bytes, or the value that the codec decoded. A message without payload has `b""`."""
        raise NotImplementedError

    @property
    def frames(self) -> list[bytes]:
        """Frames of the message: subject and payload as they arrived, before the codec."""
        raise NotImplementedError

    @property
    def time_ns(self) -> int:
        """Time at which the message was read from the socket, in nanoseconds since 1970."""
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
        """Headers that the publisher gave to the message; empty without headers."""
        return NO_HEADERS if self._extras is None else self._extras.headers or NO_HEADERS

    @property
    def reply_to(self) -> str | None:
        """Subject to publish the reply on, or None."""
        return None if self._extras is None else self._extras.reply_to

    @property
    def id(self) -> MessageId | None:
        """Id that the publisher gave to the message (`MessageId`), or None."""
        return None if self._extras is None else self._extras.message_id

    @property
    def origin(self) -> bytes | None:
        """Id of the publisher's process, 16 bytes; None for a message from a plain publisher."""
        return None

    @property
    def sequence(self) -> int | None:
        """Number of the message in the session; None for a message from a plain publisher."""
        return None

    @property
    def position(self) -> int | None:
        """Number of the message among all messages of the publisher; None for a message from a plain publisher."""
        return None

    @property
    def gap(self) -> int:
        """Number of messages that were lost directly before this message, as far as the number is known."""
        return 0

    @property
    def redelivered(self) -> bool:
        """Whether another member of the group may have handled the message."""
        return False

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Active subscriptions that the message matches."""
        return ()

    def ack(self) -> None:
        """Acknowledge the message, if its subscription has `ack="handled"`; otherwise do nothing."""

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Reply to a request that came through a node.

        Args:
            payload: bytes, or a value for the codec of the node.
            headers: headers of the reply.

        Returns:
            None, or an awaitable if the node is an `oz.asyncio.Node`.

        Raises:
            ReplyError: the message has no subject to reply on, or it did not come through a node.
            ClosedError: the node is closed.
            OwnershipError: the node was created before a fork.
        """
        if self.reply_to is None:
            raise ReplyError(f"{self.subject!r} is no request: it has no subject to reply on")
        raise ReplyError(
            f"{self.subject!r} did not come through a node; publish the reply on {self.reply_to!r}"
        )

    def __repr__(self) -> str:
        """Show subject and payload. A long payload is cut."""
        shown = repr(self.payload)
        if len(shown) > 80:
            shown = f"{shown[:70]}… "
        return f"<oz.Message {self.subject!r} {shown}>"
