"""The messages of a gateway and its multicast processes, over a PAIR socket between them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from oz.message import BARE, Extras
from oz.protocol.messages import Message

READY = 1
"""From a process: it has opened its endpoints."""

BEAT = 2
"""From a process, every second: it works."""

MESSAGES = 3
"""Either way: messages, and to the sender the number that the next one will have."""

REACHED = 4
"""From the receiver, when nothing waits in it and they have changed: for each publisher the number that comes
next."""

GAP = 5
"""From the receiver: numbers of a publisher that are lost. To the sender: some are, nobody knows how many."""

ADVISORY = 6
"""From the receiver: what it noticed."""

CLOSE = 7
"""To a process: end in order."""

MANY = 500
"""Messages in one frame at most."""

BEAT_SECONDS = 1.0
"""Seconds between two signs of a process that it works."""

ORIGIN_HEADER = "oz-origin"
"""Carries the publisher that a message came from first: 16 bytes."""

SEQUENCE_HEADER = "oz-sequence"
"""Carries its number among those of that publisher, for whoever it published it to."""


class Relayed(NamedTuple):
    """One message on its way.

    Attributes:
        origin: to a gateway, the publisher it was heard from; to the sender, nothing.
        sequence: its number there; to the sender, the number that it is to have.
        subject: bytes.
        payload: bytes, or a list of them for several frames.
        extras: what it has beside them.
    """

    origin: bytes
    sequence: int
    subject: bytes
    payload: Any
    extras: Extras


class Numbering:
    """The numbers that the sender's messages have, whichever process it is: so losses are seen.

    Attributes:
        epoch: of its sequence.
        number: that of the next message.
        reported: that which the sender was told comes next.
    """

    __slots__ = ("_began_at", "_has_untold_gap", "_origin", "epoch", "number", "reported")

    def __init__(self) -> None:
        """Begin as a publisher of which nobody has heard."""
        self._origin = os.urandom(16)
        self._began_at: float | None = None
        self.epoch = int(time.time())
        self.number = self.reported = 0
        self._has_untold_gap = False

    def take(self) -> int:
        """Return the number of a message, which no other one gets."""
        if self._began_at is None:
            self._began_at = time.monotonic()
        number, self.number = self.number, self.number + 1
        return number

    def resume(self) -> dict[str, Any]:
        """Return what has a sender go on for the last one, as the same publisher."""
        age = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        self.reported = self.number
        # It begins with the epoch that says so.
        self._has_untold_gap = False
        return {"origin": self._origin.hex(), "epoch": self.epoch, "next": self.number, "age": age}

    def lose(self, count: int | None) -> None:
        """Record that messages are lost which the sender never gets; None when nobody knows how many."""
        if count is None:
            # A higher epoch says so.
            self.epoch += 1
            self._has_untold_gap = True
        else:
            self.number += count

    def tell_gap(self, send: Callable[[bytes], bool]) -> None:
        """Have the sender begin a higher epoch too, if it has not.

        Args:
            send: hands it a frame, if there is room for that; tells whether there was.
        """
        if self._has_untold_gap and send(pack(GAP)):
            self._has_untold_gap = False


def pack(kind: int, *body: Any) -> bytes:
    """Make a frame."""
    packed: bytes = msgpack.packb((kind, body), use_bin_type=True)
    return packed


def unpack(frame: bytes) -> tuple[int, Sequence[Any]]:
    """Read a frame: its kind and its body."""
    kind, body = msgpack.unpackb(frame, use_list=True, strict_map_key=False)
    return kind, body


def unpack_message(fields: Sequence[Any]) -> Relayed:
    """Read one message of a frame."""
    *others, extras = fields
    return Relayed._make((*others, Extras(*extras)))


def extras_of(message: Relayed) -> Extras | None:
    """Return what it is published with beside subject and payload."""
    # Where to answer is for peers of the bus that it was heard on.
    extras = message.extras._replace(reply_to=None)
    return None if extras == BARE else extras


def relayed(message: Message) -> Relayed:
    """Take what is to be passed on out of a message."""
    sequence = message.sequence or 0
    return Relayed(message.origin or b"", sequence, message.subject_bytes, message.body, message.extras)


def with_origin(message: Relayed) -> Relayed:
    """Add to the headers of a message who published it first, unless another gateway has."""
    if not message.origin:
        return message
    extras = message.extras
    origin = {ORIGIN_HEADER: message.origin, SEQUENCE_HEADER: message.sequence}
    return message._replace(extras=extras._replace(headers={**origin, **(extras.headers or {})}))
