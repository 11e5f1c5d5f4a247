"""Messages that a subscriber has received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from oz import message
from oz.message import Extras, Forwarded


class Arrival:
    """Fields that all messages of one batch share.

    Attributes:
        origin: id of the publisher's process; None for a plain publisher.
        time_ns: time at which the batch was read, in nanoseconds since 1970.
        is_redelivered: whether another member of the group may have handled the messages.
        link: link over which the batch arrived; None for a plain publisher.
        epoch: epoch of the link.
        stream: number of the stream to which the messages belong.
        frames: all frames of a plain message that does not have exactly two frames; otherwise None.
        acknowledge: function to call when a message is handled; None if the stream does not have `ack="handled"`.
        sequence: sequence number of the first message; None for a plain publisher.
        positions: position of each message.
        gap: number of messages that were lost directly before the message at `gap_offset`.
        gap_offset: index of the first message after the loss.
        left: None if only one queue received the message. Otherwise each queue has a copy of the message with its own
            `Arrival`, and all copies share this list. Its only item is the number of queues that have not handled the
            message.
        is_done: whether the queue with this copy has handled the message.
    """

    __slots__ = (
        "acknowledge",
        "epoch",
        "frames",
        "gap",
        "gap_offset",
        "is_done",
        "is_redelivered",
        "left",
        "link",
        "origin",
        "positions",
        "sequence",
        "stream",
        "time_ns",
    )

    def __init__(
        self,
        origin: bytes | None,
        time_ns: int,
        is_redelivered: bool = False,
        link: Any = None,
        epoch: bytes = b"",
        stream: int = 0,
        frames: list[bytes] | None = None,
        acknowledge: Callable[[Any], object] | None = None,
        sequence: int | None = None,
        positions: Sequence[int] = (),
        gap: int = 0,
        gap_offset: int = 0,
    ) -> None:
        self.origin, self.time_ns, self.is_redelivered = origin, time_ns, is_redelivered
        self.link, self.epoch, self.stream = link, epoch, stream
        self.frames, self.acknowledge = frames, acknowledge
        self.sequence, self.positions, self.gap, self.gap_offset = sequence, positions, gap, gap_offset
        self.left: list[int] | None = None
        self.is_done = False

    def copy(self, left: list[int]) -> Arrival:
        """Return a copy for a message that several queues receive.

        Args:
            left: list that all copies share; see the attribute `left`.
        """
        made = Arrival(
            self.origin, self.time_ns, self.is_redelivered, self.link, self.epoch, self.stream, self.frames,
            self.acknowledge, self.sequence, self.positions, self.gap, self.gap_offset,
        )  # fmt: skip
        made.left = left
        return made


class MessageFields(NamedTuple):
    """Fields of a message.

    A message is a tuple, because one C call can create thousands of tuples. `arrival` has the fields that all messages
    of a batch share, and `offset` is the index of the message in the batch. A message with extras or a decoded payload
    has two more elements: the extras or None, and the payload before decoding or None.
    """

    subject: str
    payload: Any
    route: Any
    arrival: Arrival
    offset: int


class Message(MessageFields, message.Message):
    """A message that a subscriber received. Two messages are equal only if they are the same object.

    Attributes:
        subject: subject as text. The error handler `surrogateescape` decodes bytes that are not UTF-8; see
            `subject_bytes`.
        payload: payload as bytes, or the value that the codec decoded. A message without payload has `b""`.
    """

    __slots__ = ()

    __repr__ = message.Message.__repr__
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    @property
    def sequence(self) -> int | None:
        """Sequence number of the message in its session; None for a message from a plain publisher."""
        first = self.arrival.sequence
        return None if first is None else first + self.offset

    @property
    def position(self) -> int | None:
        """Number of the message among all messages of its publisher; None for a message from a plain publisher.

        For a forwarded message, this is its number at the publisher that published the message first.
        """
        forwarded = self._forwarded
        if forwarded is not None:
            return forwarded.position
        positions = self.arrival.positions
        return positions[self.offset] if positions else None

    @property
    def gap(self) -> int:
        """Number of messages lost directly before this message. Losses of unknown size do not count."""
        arrival = self.arrival
        return arrival.gap if arrival.gap and arrival.gap_offset == self.offset else 0

    @property
    def _extras(self) -> Extras | None:
        return self[5] if len(self) > 5 else None

    @property
    def body(self) -> bytes | None:
        """Payload before decoding; None without a codec."""
        return self[6] if len(self) > 5 else None

    def for_delivery(self, arrival: Arrival) -> Self:
        """Return a copy of the message for one of several queues, with the given `Arrival`."""
        return tuple.__new__(type(self), (*self[:3], arrival, *self[4:]))

    @property
    def frames(self) -> list[bytes]:
        """Frames of the message as they arrived, before decoding: subject and payload."""
        frames = self.arrival.frames
        if frames is not None:
            return list(frames)
        return [self.subject_bytes, self.payload if self.body is None else self.body]

    @property
    def time_ns(self) -> int:
        """Time at which the message was read from the socket, in nanoseconds since 1970."""
        return self.arrival.time_ns

    @property
    def origin(self) -> bytes | None:
        """Id of the process that published the message first, 16 bytes; None for a plain publisher."""
        forwarded = self._forwarded
        return self.arrival.origin if forwarded is None else forwarded.origin

    @property
    def _forwarded(self) -> Forwarded | None:
        extras = self._extras
        return None if extras is None else extras.forwarded

    @property
    def redelivered(self) -> bool:
        """Whether another member of the group may have handled the message."""
        extras = self._extras
        return self.arrival.is_redelivered or (extras is not None and extras.redelivered is True)

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Subscriptions that the message matches, without subscriptions that `unsubscribe` has ended."""
        if self.route is None:
            return ()
        return tuple(inbox.handle for inbox in self.route.inboxes if not inbox.is_removed)

    def reply(self, payload: Any = b"", *, headers: dict[str, Any] | None = None) -> Any:
        """Reply to a request that came through a node; see `oz.message.Message.reply`."""
        replier = None if self.route is None else self.route.inboxes[0].replier
        if replier is None:
            return super().reply(payload, headers=headers)
        return replier(self, payload, headers)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message without its subscriptions, because they exist only in this process."""
        arrival = self.arrival
        shared = arrival.origin, arrival.time_ns, arrival.is_redelivered, arrival.frames
        extras = None if self._extras is None else tuple(self._extras)
        own = self.subject, self.payload, self.sequence, self.position, self.gap, self.body
        return _restore, (own, extras, shared)


class HandledMessage(Message):
    """A message of a subscription with `ack="handled"`."""

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledge the message. A second call has no effect."""
        if self.arrival.acknowledge is not None:
            self.arrival.acknowledge(self)


def _restore(own: tuple[Any, ...], extras: tuple[Any, ...] | None, shared: tuple[Any, ...]) -> Message:
    subject, payload, sequence, position, gap, body = own
    origin, time_ns, is_redelivered, frames = shared
    arrival = Arrival(
        origin, time_ns, is_redelivered, frames=frames, sequence=sequence, gap=gap,
        positions=() if position is None else (position,),
    )  # fmt: skip
    found = None if extras is None else Extras(*extras)
    fields = (subject, payload, None, arrival, 0)
    return tuple.__new__(Message, fields if found is body is None else (*fields, found, body))
