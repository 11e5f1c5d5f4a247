"""Frames between a gateway and its multicast processes, over a PAIR socket.

`READY` to `CLOSE` are the kinds of frames. The *receiver* and the *sender* are the two multicast processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

READY = 1
"""A process reports that its endpoints are open. The receiver also reports the time at which it began to listen."""
BEAT = 2
"""A process reports every second that it runs."""
MESSAGES = 3
"""Messages from the receiver to the gateway, or from the gateway to the sender. The gateway adds the number of the next
message."""
REACHED = 4
"""The receiver reports the number of the next message of each publisher. With this frame, the gateway detects a loss
even if no message follows."""
GAP = 5
"""The receiver reports to the gateway that messages of a publisher were lost. The gateway reports a loss of unknown
size to the sender."""
ADVISORY = 6
"""The receiver reports a notice of its watchdog."""
CLOSE = 7
"""The gateway asks a process to end."""

MANY = 500
"""Maximum number of messages in one frame."""
BEAT_SECONDS = 1.0
"""Seconds between two BEAT frames of a process."""

ORIGIN_HEADER = "oz-origin"
"""Header with the id of the first publisher of a message, 16 bytes."""
SEQUENCE_HEADER = "oz-sequence"
"""Header with the position of a message among all messages of its first publisher."""


class Relayed(NamedTuple):
    """A message between the gateway and a multicast process.

    Attributes:
        origin: id of the publisher; empty in messages to the sender.
        sequence: number of the message at its publisher. In a message to the sender, it is the multicast number.
        subject: subject as bytes.
        payload: payload as bytes.
        headers: headers of the message, or None.
        id: id of the message as bytes, or as a pair of bytes and a number; None without an id.
    """

    origin: bytes
    sequence: int
    subject: bytes
    payload: bytes
    headers: dict[str, Any] | None = None
    id: bytes | tuple[bytes, int] | None = None


class Numbering:
    """Numbers of the messages that the sender multicasts.

    The numbers continue when the sender is restarted. Therefore multicast subscribers detect each loss.

    Attributes:
        epoch: epoch of the sequence.
        number: number of the next message.
        reported: number of the next message that the sender knows of.
    """

    __slots__ = ("_began_at", "_has_unsent_gap", "_origin", "epoch", "number", "reported")

    def __init__(self) -> None:
        self._origin = os.urandom(16)
        self._began_at: float | None = None
        self.epoch = int(time.time())
        self.number = self.reported = 0
        self._has_unsent_gap = False

    def take(self) -> int:
        """Return the number of the next message, and count it."""
        if self._began_at is None:
            self._began_at = time.monotonic()
        number, self.number = self.number, self.number + 1
        return number

    def resume(self) -> dict[str, Any]:
        """Return the arguments with which a new sender continues the sequence."""
        age = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        self.reported = self.number
        # A new sender begins with the current epoch. Subscribers see the higher epoch and report the unknown loss.
        self._has_unsent_gap = False
        return {"origin": self._origin.hex(), "epoch": self.epoch, "next": self.number, "age": age}

    def lose(self, count: int | None) -> None:
        """Record a loss of messages that have not reached the sender.

        Args:
            count: number of lost messages; None if the number is unknown.
        """
        if count is None:
            # A higher epoch makes subscribers report an unknown loss.
            self.epoch += 1
            self._has_unsent_gap = True
        else:
            self.number += count

    def send_gap(self, send: Callable[[bytes], bool]) -> None:
        """Report an unknown loss to the sender, if one is recorded and not reported yet.

        Args:
            send: function that sends a frame, and returns whether the queue had space.
        """
        if self._has_unsent_gap and send(pack(GAP)):
            self._has_unsent_gap = False


def pack(kind: int, *body: Any) -> bytes:
    """Return a frame."""
    packed: bytes = msgpack.packb((kind, body), use_bin_type=True)
    return packed


def unpack(frame: bytes) -> tuple[int, Sequence[Any]]:
    """Return the kind and the body of a frame."""
    kind, body = msgpack.unpackb(frame, use_list=True, strict_map_key=False)
    return kind, body


def unpack_message(fields: Sequence[Any]) -> Relayed:
    """Return a message from its fields in a frame."""
    message = Relayed._make(fields)
    return message._replace(id=tuple(message.id)) if isinstance(message.id, list) else message


def with_origin(message: Relayed) -> Relayed:
    """Return a message whose headers name its first publisher. Headers that an earlier gateway has set are kept."""
    if not message.origin:
        return message
    origin = {ORIGIN_HEADER: message.origin, SEQUENCE_HEADER: message.sequence}
    return message._replace(headers={**origin, **(message.headers or {})})
