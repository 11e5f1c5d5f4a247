"""Messages and gaps as a program receives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oz import message
from oz.message import Extras


class Arrival:
    """Fields that all messages of one batch share.

    Attributes:
        origin: id of the publisher's process; None for a plain publisher.
        time_ns: time at which the batch was read, in nanoseconds since 1970.
        is_redelivered: whether another member of the group may have handled the messages.
        link: that the batch came over, None for a plain publisher.
        epoch: of the link.
        stream: of the messages.
        frames: of a plain message that has not two frames.
        acknowledge: called with a message that is handled; None unless the stream has `ack="handled"`.
        left: of a handled message that several queues received, the number of queues that have not handled it.
            Each queue has a copy of the message with an `Arrival` of its own.
        is_done: whether the queue of such a copy has handled it.
    """

    __slots__ = (
        "acknowledge",
        "epoch",
        "frames",
        "is_done",
        "is_redelivered",
        "left",
        "link",
        "origin",
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
    ) -> None:
        self.origin, self.time_ns, self.is_redelivered = origin, time_ns, is_redelivered
        self.link, self.epoch, self.stream = link, epoch, stream
        self.frames, self.acknowledge = frames, acknowledge
        self.left: list[int] | None = None
        self.is_done = False

    def copy(self, left: list[int]) -> Arrival:
        """Return a copy for one of several deliveries of a message."""
        made = Arrival(
            self.origin, self.time_ns, self.is_redelivered, self.link, self.epoch, self.stream,
            acknowledge=self.acknowledge,
        )  # fmt: skip
        made.left = left
        return made


class MessageFields(NamedTuple):
    """Fields of a message.

    A message is a tuple inside, because thousands of tuples are made in one call without Python code for each.
    """

    subject: str
    payload: Any
    sequence: int | None
    position: int | None
    gap: int
    route: Any
    extras: Extras | None
    arrival: Arrival
    body: bytes | None


class Message(MessageFields, message.Message):
    """A message that a subscriber received. Two messages are equal only if they are the same object.

    Attributes:
        subject: text. Bytes that are not UTF-8 are kept by `surrogateescape`; see `subject_bytes`.
        payload: bytes, or the value that the codec decoded. A plain message without payload has `b""`.
        sequence: number in the session; None from a plain publisher.
        position: number among all messages of the publisher; None from a plain publisher.
        gap: messages that were lost directly before this one, as far as their number is known.
    """

    __slots__ = ()

    __repr__ = message.Message.__repr__
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    @property
    def frames(self) -> list[bytes]:
        """Frames of the message: subject and payload as they arrived, before the codec."""
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
        """Id of the publisher's process, 16 bytes; None from a plain publisher."""
        return self.arrival.origin

    @property
    def redelivered(self) -> bool:
        """Whether another member of the group may have handled the message."""
        return self.arrival.is_redelivered

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Subscriptions that the message matches, without those that `unsubscribe` has ended."""
        if self.route is None:
            return ()
        return tuple(one.handle for one in self.route.inboxes if not one.is_removed)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the content. Subscriptions belong to a process."""
        arrival = self.arrival
        shared = arrival.origin, arrival.time_ns, arrival.is_redelivered, arrival.frames
        extras = None if self.extras is None else tuple(self.extras)
        own = self.subject, self.payload, self.sequence, self.position, self.gap, self.body
        return _restore, (own, extras, shared)


class HandledMessage(Message):
    """A message that counts as delivered when it is acknowledged."""

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledge the message. A second call has no effect."""
        if self.arrival.acknowledge is not None:
            self.arrival.acknowledge(self)


def _restore(own: tuple[Any, ...], extras: tuple[Any, ...] | None, shared: tuple[Any, ...]) -> Message:
    subject, payload, sequence, position, gap, body = own
    origin, time_ns, is_redelivered, frames = shared
    return Message(
        subject,
        payload,
        sequence,
        position,
        gap,
        None,
        None if extras is None else Extras(*extras),
        Arrival(origin, time_ns, is_redelivered, frames=frames),
        body,
    )
