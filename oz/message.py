"""Messages and gaps, as programs receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from oz.errors import ReplyError

MessageId = bytes | tuple[bytes, int]
"""Id of a message: bytes, or a series and the number of the message in the series."""

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Forwarded(NamedTuple):
    """Source of a message that a forwarder published.

    Attributes:
        origin: id of the first publisher, 16 bytes.
        position: of the message at the first publisher.
        via: ids of the forwarders that the message has passed, 6 bytes each.
    """

    origin: bytes
    position: int
    via: bytes


class Extras(NamedTuple):
    """Optional fields of a message beside subject and payload. None is an absent field.

    `oz.wire.extras` has the format and the checks of each field.

    Attributes:
        headers: text to text, bytes, numbers, truth values or None.
        reply_to: subject to reply on.
        message_id: identifies a repeated message.
        key: for sticky queue groups, in place of the subject. It is not sent.
        forwarded: source of a message that a forwarder published.
        to_all: True if a request expects the replies of all responders.
        redelivered: True if another forwarder may have passed the message on before.
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
    """Messages that a publisher sent, but that do not arrive.

    Attributes:
        origin: id of the publisher's process, 16 bytes; None if unknown.
        count: messages; None if the number is unknown.
        recovered: lost messages that arrived later.
        reason: one of the words in docs/errors.md, such as "lost" (over the resume limits), "dropped" (by the
            publisher) or "full" (by the queue of the subscription).
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
        """Payload as bytes, or the value that the codec decoded. Without payload it is `b""`."""
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
        """Headers that were published with the message; empty without headers."""
        return NO_HEADERS if self._extras is None else self._extras.headers or NO_HEADERS

    @property
    def reply_to(self) -> str | None:
        """Subject to publish the reply on, or None."""
        return None if self._extras is None else self._extras.reply_to

    @property
    def id(self) -> MessageId | None:
        """Id that the message was published with: bytes, or a series and a number; or None."""
        return None if self._extras is None else self._extras.message_id

    @property
    def origin(self) -> bytes | None:
        """Id of the publisher's process, 16 bytes; None from a plain publisher."""
        return None

    @property
    def sequence(self) -> int | None:
        """Number in the session; None from a plain publisher."""
        return None

    @property
    def position(self) -> int | None:
        """Number among all messages of the publisher; None from a plain publisher."""
        return None

    @property
    def gap(self) -> int:
        """Messages that were lost directly before this one, as far as their number is known."""
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
        """Acknowledge a message of a subscription with `ack="handled"`. Without it there is no effect."""

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Reply to a request that came through a node.

        Args:
            payload: bytes, or a value for the codec of the node.
            headers: of the reply.

        Returns:
            None; an awaitable from a node of `oz.asyncio`.

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
