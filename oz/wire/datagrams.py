"""Frames of multicast messages. A frame is `prefix 00 head body crc`.

ZeroMQ over PGM may deliver frames that are cut, joined or corrupt. Therefore a frame contains its length, and ends with
a checksum of all its other bytes. The prefix is the common beginning of all subjects in the frame. In a frame with one
message, the prefix is the whole subject. The publisher gives all its messages sequence numbers, so that each subscriber
detects every loss.

========== ================================================================================================
flags      body
========== ================================================================================================
0          payload of one message without extras; the prefix is the subject
`BATCH`    MessagePack array with three items for each message: subject without prefix, payload, extras or nil
`CONTROL`  MessagePack map of a *record* (see `Record`): `rate` (kbit/s), `age` (seconds), and optionally `bye`
           (true) and `quiet` (seconds)
========== ================================================================================================
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeGuard
from zlib import crc32

import msgpack

from oz.errors import ProtocolError
from oz.wire.links import decode_body, encode_body

VERSION = 2
MAGIC = b"oz"

CONTROL, BATCH = 1, 2
"""Flags in the head of a frame. A flag gives the kind of the body. Without a flag, the body is one payload."""

MAX_COUNT = 65_535
"""Maximum number of messages in a frame."""
MAX_QUIET = 3_600.0
"""Maximum value of `Record.quiet` in seconds."""
_MAX_RECORD = 4_096  # Maximum size of a record in bytes.

_HEAD = struct.Struct(">x2sBBI16sIQH")
_CRC = struct.Struct("<I")

OVERHEAD = _HEAD.size + _CRC.size
"""Number of bytes of a frame without its prefix and body."""

_RESIDUE = 0x2144DF1C
"""CRC-32 of any valid frame, because a frame ends with the CRC-32 of its other bytes. Source: ISO 3309."""


class Head(NamedTuple):
    """Head of a frame.

    Attributes:
        flags: `BATCH`, `CONTROL` or 0.
        origin: id of the publisher, 16 bytes.
        epoch: number that the publisher raises after a loss of unknown size. Sequence numbers of different epochs
            cannot be compared.
        sequence: sequence number of the first message in the frame. If the frame carries a record, sequence number of
            the publisher's next message.
        count: number of messages in the frame; 0 if the frame carries a record.
    """

    flags: int
    origin: bytes
    epoch: int
    sequence: int
    count: int  # type: ignore[assignment]


class Record(NamedTuple):
    """State that a publisher announces several times a second.

    Attributes:
        rate: maximum rate in kilobits per second at which the publisher sends.
        age: seconds since the publisher's first message; 0 before the first message.
        bye: whether the publisher is closing.
        quiet: seconds for which the publisher may send no frame after this record, because it sends a large message.
    """

    rate: int
    age: float
    bye: bool = False
    quiet: float = 0.0


def encode(prefix: bytes, head: Head, body: bytes) -> bytes:
    """Return a frame.

    Args:
        prefix: common beginning of all subjects, without a zero byte.
        head: fields of the frame's head.
        body: encoded messages if the flags of the head are 0 or `BATCH`; the encoded record if they are `CONTROL`.
    """
    flags, origin, epoch, sequence, count = head
    size = len(prefix) + OVERHEAD + len(body)
    frame = prefix + _HEAD.pack(MAGIC, VERSION, flags, size, origin, epoch, sequence, count) + body
    return frame + _CRC.pack(crc32(frame))


def encode_messages(flat: list[Any], origin: bytes, epoch: int, sequence: int) -> bytes:
    """Return one frame with all messages of a list.

    Args:
        flat: list with three items for each message: subject, payload, and extras or None.
        origin: id of the publisher, 16 bytes.
        epoch: epoch of the sequence number.
        sequence: sequence number of the first message.
    """
    subjects = flat[0::3]
    if len(flat) == 3 and flat[2] is None and 0 not in flat[0]:
        return encode(flat[0], Head(0, origin, epoch, sequence, 1), flat[1])
    prefix = common_prefix(subjects)
    size = len(prefix)
    items = list(flat)
    items[0::3] = [subject[size:] for subject in subjects]
    return encode(prefix, Head(BATCH, origin, epoch, sequence, len(subjects)), encode_body(items))


def encode_record(record: Record, origin: bytes, epoch: int, sequence: int) -> bytes:
    """Return the frame of a record. The other parameters have the same meaning as in `encode_messages`."""
    fields: dict[str, Any] = {"rate": record.rate, "age": record.age}
    if record.bye:
        fields["bye"] = True
    if record.quiet:
        fields["quiet"] = record.quiet
    return encode(b"", Head(CONTROL, origin, epoch, sequence, 0), msgpack.packb(fields))


def decode(frame: bytes) -> tuple[Head, list[Any] | Record]:
    """Return the head of a frame, and either its record or its messages.

    The messages are a list with three items for each message: subject, payload, and extras or None.

    Raises:
        ProtocolError: the frame is damaged or malformed, or has another version.
    """
    if crc32(frame) != _RESIDUE:
        raise ProtocolError(f"a multicast frame of {len(frame)} bytes has a wrong checksum")
    at = frame.find(0)
    try:
        magic, version, *fields = _HEAD.unpack_from(frame, at)
    except struct.error:
        raise ProtocolError(f"a multicast frame of {len(frame)} bytes is too short") from None
    if at < 0 or magic != MAGIC:
        raise ProtocolError("a multicast frame has no head behind its prefix")
    if version != VERSION:
        raise ProtocolError(f"a multicast frame has version {version}; this oz reads version {VERSION}")
    flags, size, *numbers = fields
    head = Head(flags, *numbers)
    if size != len(frame) or size < at + OVERHEAD:
        raise ProtocolError(f"a multicast frame has {len(frame)} bytes, and its head says {size}")
    body = frame[at + _HEAD.size : -_CRC.size]
    if flags == 0 and head.count == 1:
        return head, [frame[:at], body, None]
    if flags == BATCH and head.count:
        return head, _messages(frame[:at], decode_body(body, head.count))
    if flags == CONTROL and not head.count:
        return head, _record(body)
    raise ProtocolError(f"a multicast frame has flags {flags:#04x} and {head.count} messages")


def _messages(prefix: bytes, flat: list[Any]) -> list[Any]:
    if prefix:
        flat[0::3] = [prefix + rest for rest in flat[0::3]]
    return flat


def _record(body: bytes) -> Record:
    if len(body) > _MAX_RECORD:
        raise ProtocolError(f"a record of {len(body)} bytes, at most {_MAX_RECORD} are allowed")
    try:
        fields = msgpack.unpackb(body)
    except Exception as error:
        # msgpack raises exceptions of several classes.
        raise ProtocolError(f"a record does not decode: {error or type(error).__name__}") from None
    if type(fields) is not dict:
        raise ProtocolError("a record is no map")
    rate, age = fields.get("rate"), fields.get("age")
    quiet = fields.get("quiet", 0.0)
    if type(rate) is not int or not _is_number(age) or not age >= 0:
        raise ProtocolError("a record has no rate or no age")
    if not _is_number(quiet) or not 0 <= quiet <= MAX_QUIET:
        raise ProtocolError(f"a record announces {quiet!r} seconds of silence")
    return Record(rate, min(age, 1e9), fields.get("bye") is True, quiet)


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in (int, float)


def common_prefix(subjects: list[bytes]) -> bytes:
    """Return the common beginning of all subjects, up to the first zero byte."""
    first, last = min(subjects), max(subjects)
    size = 0
    for left, other in zip(first, last, strict=False):
        # No zero byte may be in the prefix, because the first zero byte of a frame begins its head.
        if left != other or not left:
            break
        size += 1
    return first[:size]
