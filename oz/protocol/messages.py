"""The messages that nodes receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from oz import message
from oz.errors import NoRequest
from oz.message import BARE, Extras, MessageId
from oz.message import NO_HEADERS as _NO_HEADERS


class Recipient(Protocol):
    """A subscription, as a message sees it."""

    answer: Callable[[Message, Any, Any], Any] | None


class MessageRoute(Protocol):
    """Whom a message is for; a subscriber's route is one."""

    subscriptions: tuple[Any, ...]
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that a publisher sent and that did not arrive.

    Attributes:
        origin: the publisher: 16 bytes that it has anew at each start.
        subscription: whom they were for, when only one subscription can be meant; otherwise None.
        count: how many there were; None when that cannot be known, because the publisher had forgotten
            this subscriber in the meantime, or a multicast publisher fell silent: then there may be none, and
            once it is heard again those that were lost are reported with their number.
        recovered: how many of them were had again since.
        sequence: the number of the first of them; None when `count` is.
    """

    origin: bytes
    subscription: Any
    count: int | None
    recovered: int = 0
    sequence: int | None = None


class Message(message.Message):
    """One message as it was delivered.

    Attributes:
        subject: text. Bytes that are not UTF-8 come by `surrogateescape`, as in file names, and go back the
            same way when it is published or matched; `subject_bytes` are the bytes themselves.
        payload: the frame behind the subject, or the value that the codec made of it. A message that
            was sent with no payload at all has `b""`.
        frames: subject and payload as they came: every ZeroMQ frame, the subject's first.
        route: whom it is for, as the subscriber worked it out.
        time_ns: when it was taken from the socket, in nanoseconds since 1970 (`time.time_ns`).
        origin: the publisher, 16 bytes that it has anew at each start; None unless the message was routed.
        sequence: its number among those of its publisher for this subscriber, from 0; None unless routed.
        position: its number among all that its publisher has sent to anybody: the same for all who get it.
            It rises, and does not count; None where the publisher gives none.
        gap: how many messages were lost just before this one; 0 also when nobody can know.
    """

    __slots__ = ("frames", "payload", "route", "subject", "time_ns")

    subject: str
    payload: Any
    frames: list[bytes]
    time_ns: int
    extras: Extras = BARE
    origin: bytes | None = None
    sequence: int | None = None
    position: int | None = None
    gap: int = 0

    def __init__(
        self, subject: str, payload: Any, frames: list[bytes], route: MessageRoute, time_ns: int
    ) -> None:
        """Put a message together; subscribers do."""
        self.subject = subject
        self.payload = payload
        self.frames = frames
        self.route = route
        self.time_ns = time_ns

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what came, not whom it was for: subscriptions belong to a socket."""
        if self.origin is None:
            return Message, (self.subject, self.payload, self.frames, DELIVERED, self.time_ns)
        arrival = (self.origin, self.sequence, self.time_ns, self.gap, self.position)
        return _remake, (self.subject, self.payload, self.body, arrival, tuple(self.extras))

    @property
    def subject_bytes(self) -> bytes:
        """The subject as it was on the wire."""
        return _as_bytes(self.subject)

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """The subscriptions that the message was delivered for."""
        return self.route.subscriptions

    @property
    def body(self) -> Any:
        """The bytes of the payload, or a list of those of several frames."""
        _, *frames = self.frames
        return frames[0] if len(frames) == 1 else frames or b""

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that were published with it; empty unless the message was routed."""
        return self.extras.headers or _NO_HEADERS

    @property
    def reply_to(self) -> str | None:
        """The subject to answer on, or None."""
        return self.extras.reply_to

    @property
    def id(self) -> MessageId | None:
        """The id that it was published with, bytes or a series and a number; or None."""
        return self.extras.message_id

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Answer a request that came through a node.

        Args:
            payload: bytes, or what the node's codec encodes.
            headers: go with it.

        Returns:
            None; on a node for asyncio something to await.

        Raises:
            NoRequest: the message is no request, or did not come through a node.
            ClosedError: the node is closed.
            OwnershipError: it was made before a fork.
        """
        if self.reply_to is None:
            raise NoRequest(f"{self.subject!r} is no request: it came with no subject to answer on")
        recipients: tuple[Recipient, ...] = self.route.subscriptions
        for recipient in recipients:
            if recipient.answer is not None:
                return recipient.answer(self, payload, headers)
        raise NoRequest(
            f"{self.subject!r} did not come through a node; publish the answer on {self.reply_to!r}"
        )

    def __repr__(self) -> str:
        """Show subject and payload, a long payload cut."""
        shown = repr(self.payload)
        if len(shown) > 80:
            shown = f"{shown[:70]}… "
        return f"<oz.Message {self.subject!r} {shown}>"


class Arrival:
    """The fields that all messages of one batch have in common.

    Attributes:
        origin: the publisher.
        sequence: the number of the first message.
        time_ns: when the batch was taken from the socket.
        gap: how many messages were lost before it.
        first: the place in the batch of the first message that was new.
        positions: of each message; None where the publisher gives none.
    """

    __slots__ = ("first", "gap", "origin", "positions", "sequence", "time_ns")

    def __init__(
        self,
        origin: bytes,
        sequence: int,
        time_ns: int,
        gap: int,
        first: int,
        positions: Sequence[int] | None = None,
    ) -> None:
        """For subscribers."""
        self.positions = positions
        self.origin = origin
        self.sequence = sequence
        self.time_ns = time_ns
        self.gap = gap
        self.first = first


def _frames(message: Any) -> list[bytes]:
    """Subject and payload, as the frames of a plain message."""
    return [_as_bytes(message.subject), message.payload]


class LoneMessage(Message):
    """A routed message that came by itself, which is the common case where one answers another.

    Attributes:
        body: the bytes of the payload.
    """

    __slots__ = ("body", "origin", "position", "sequence")

    body: bytes
    origin: bytes
    sequence: int

    def __init__(
        self,
        subject: str,
        payload: Any,
        route: MessageRoute,
        body: bytes,
        origin: bytes,
        sequence: int,
        time_ns: int,
        position: int | None = None,
    ) -> None:
        """Put a message together; `payload` is what the codec, if any, made of `body`."""
        self.subject = subject
        self.payload = payload
        self.route = route
        self.body = body
        self.origin = origin
        self.sequence = sequence
        self.time_ns = time_ns
        self.position = position

    @property
    def frames(self) -> list[bytes]:  # type: ignore[override]
        """Subject and payload, as the frames of a plain message."""
        return [_as_bytes(self.subject), self.body]


class RoutedMessage(Message):
    """A message that came in a batch: what it has in common with the others is kept once for all."""

    __slots__ = ("_place", "arrival")

    body = property(attrgetter("payload"))
    frames = property(_frames)

    def __init__(self, subject: str, payload: Any, route: MessageRoute, arrival: Arrival, place: int) -> None:
        """Put a message together.

        Args:
            subject: as it is shown.
            payload: its bytes.
            route: whom it is for.
            arrival: what it has in common with the batch.
            place: where in the batch it was, from 0.
        """
        self.subject = subject
        self.payload = payload
        self.route = route
        self.arrival = arrival
        self._place = place

    @property
    def time_ns(self) -> int:  # type: ignore[override]
        """When it was taken from the socket."""
        return self.arrival.time_ns

    @property
    def origin(self) -> bytes:  # type: ignore[override]
        """The publisher."""
        return self.arrival.origin

    @property
    def sequence(self) -> int:  # type: ignore[override]
        """Its number among those of its publisher for this subscriber."""
        return self.arrival.sequence + self._place

    @property
    def position(self) -> int | None:  # type: ignore[override]
        """Its number among all that its publisher has sent; None where that gives none."""
        positions = self.arrival.positions
        return None if positions is None else positions[self._place]

    @property
    def gap(self) -> int:  # type: ignore[override]
        """The number of messages that were lost just before this one."""
        arrival = self.arrival
        return arrival.gap if self._place == arrival.first else 0


class RichMessage(Message):
    """A routed message with extras, several frames or a decoded payload; it has all that is its own.

    Attributes:
        body: the bytes of the payload, or a list of those of several frames.
    """

    __slots__ = ("body", "extras", "gap", "origin", "position", "sequence")

    body: Any
    extras: Extras
    gap: int
    origin: bytes
    sequence: int
    reply_to = property(attrgetter("extras.reply_to"))
    id = property(attrgetter("extras.message_id"))

    def __init__(
        self,
        subject: str,
        payload: Any,
        route: MessageRoute,
        body: Any,
        extras: Extras,
        arrival: Arrival,
        place: int,
    ) -> None:
        """Put a message together; see `RoutedMessage`."""
        self.subject = subject
        self.payload = payload
        self.route = route
        self.body = body
        self.extras = extras
        self.origin = arrival.origin
        self.sequence = arrival.sequence + place
        self.position = None if arrival.positions is None else arrival.positions[place]
        self.time_ns = arrival.time_ns
        self.gap = arrival.gap if place == arrival.first else 0

    @property
    def frames(self) -> list[bytes]:  # type: ignore[override]
        """Subject and payload, as the frames of a plain message."""
        subject = _as_bytes(self.subject)
        return [subject, *self.body] if type(self.body) is list else [subject, self.body]


def _as_bytes(subject: str) -> bytes:
    return subject.encode(errors="surrogateescape")


def _remake(subject: str, payload: Any, body: Any, arrived: tuple[Any, ...], extras: tuple[Any, ...]) -> Any:
    origin, sequence, time_ns, gap, position = arrived
    arrival = Arrival(origin, sequence, time_ns, gap, 0, None if position is None else (position,))
    return RichMessage(subject, payload, DELIVERED, body, Extras(*extras), arrival, 0)


class _Delivered:
    """Stands for the route of a message that was copied out of its process."""

    subscriptions: tuple[Any, ...] = ()
    is_counted = False

    def __reduce__(self) -> str:
        return "DELIVERED"


DELIVERED: MessageRoute = _Delivered()
