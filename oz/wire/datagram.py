"""The frame of messages that are multicast; docs/wire.md has the layout.

``prefix 00 head body crc``. ZeroMQ over PGM can hand over frames that are torn, glued together or corrupt, so
each says how long it is and ends with a checksum over all of it. Its first bytes are those that all its
subjects begin with: of one message, the subject. Numbers count messages of the publisher, whatever their
subjects, so that a subscriber who takes in everything knows of every loss.
"""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import msgpack

from oz.errors import ProtocolError
from oz.wire.batch import CONTROL, RICH, Head, pack_array, parse_body

VERSION = 1
MAGIC = b"oz"

BATCH = 0x08
"""The body is an array of what follows the prefix in each subject, and of payloads, in turn."""

LONGEST_QUIET = 3_600
"""Seconds for which a publisher may say that nothing can be heard of it."""

_KNOWN_FLAGS = CONTROL | RICH | BATCH

_HEAD = struct.Struct(">x2sBBI16sIQH")
_CRC = struct.Struct("<I")

OVERHEAD = _HEAD.size + _CRC.size
"""Bytes of a frame that are neither subject nor payload."""

_RESIDUE = 0x2144DF1C
"""What CRC-32 gives for bytes that end with their own CRC-32, lowest byte first. Source: ISO 3309."""


def pack(prefix: bytes, head: Head, body: bytes) -> bytes:
    """Make a frame.

    Args:
        prefix: what all its subjects begin with; holds no zero byte.
        head: what the body is, who sends it, and which messages these are.
        body: see `BATCH`; without that flag, the payload of one message whose subject is the prefix.
    """
    flags, origin, epoch, sequence, count, *_ = head
    size = len(prefix) + OVERHEAD + len(body)
    frame = prefix + _HEAD.pack(MAGIC, VERSION, flags, size, origin, epoch, sequence, count) + body
    return frame + _CRC.pack(crc32(frame))


def parse(frame: bytes) -> tuple[bytes, Head, int]:
    """Read a frame up to its body, which ends where `CRC_SIZE` bytes are left.

    Returns:
        The prefix, the head, and where the body begins.

    Raises:
        ProtocolError: it is corrupt, torn, glued to another, of a version that is not known here, or says
            what cannot be.
    """
    if crc32(frame) != _RESIDUE:
        raise ProtocolError(f"a multicast frame of {len(frame)} bytes is corrupt: its checksum is wrong")
    at = frame.find(0)
    try:
        magic, version, flags, size, origin, epoch, sequence, count = _HEAD.unpack_from(frame, at)
    except struct.error:
        raise ProtocolError(f"a multicast frame is cut short: {len(frame)} bytes") from None
    if at < 0 or magic != MAGIC:
        raise ProtocolError("a multicast frame has no head behind its subject")
    if version != VERSION:
        raise ProtocolError(f"a multicast frame of version {version}; this oz reads version {VERSION}")
    if size != len(frame) or size < at + OVERHEAD:
        raise ProtocolError(f"a multicast frame has {len(frame)} bytes and says {size}")
    if flags & ~_KNOWN_FLAGS or not _is_count(flags, count):
        raise ProtocolError(f"a multicast frame with flags {flags:#04x} and {count} messages")
    return frame[:at], Head(flags, origin, epoch, sequence, count), at + _HEAD.size


CRC_SIZE = _CRC.size


def _is_count(flags: int, count: int) -> bool:
    if flags & CONTROL:
        return flags == CONTROL and count == 0
    return count >= 1 if flags & BATCH else flags == 0 and count == 1


def parse_messages(frame: bytes, prefix: bytes, at: int, head: Head) -> tuple[list[Any], list[Any]]:
    """Read the messages of a frame that is no control record.

    Returns:
        Their subjects and their payloads.

    Raises:
        ProtocolError: the body is not what the head says.
    """
    if not head.flags & BATCH:
        return [prefix], [frame[at:-CRC_SIZE]]
    body = parse_body(frame[:-CRC_SIZE], at, head.count)
    ends = body[0::2]
    try:
        subjects = [prefix + end for end in ends] if prefix else ends
    except TypeError:
        raise ProtocolError("a subject in a multicast batch is not bytes") from None
    return subjects, body[1::2]


def parse_control(frame: bytes, at: int) -> dict[Any, Any]:
    """Read the body of a control record.

    Returns:
        A map with `to` (text), `rate` (kbit/s), `age` (seconds) and perhaps `bye` or `quiet` (seconds); more
        may be in it.

    Raises:
        ProtocolError: it is no such map.
    """
    try:
        body = msgpack.unpackb(memoryview(frame)[at:-CRC_SIZE], strict_map_key=False)
    except Exception as error:
        raise ProtocolError(
            f"a multicast control record is not MessagePack: {type(error).__name__}"
        ) from None
    if type(body) is not dict or type(body.get("to")) is not str:
        raise ProtocolError("a multicast control record does not say where it was sent to")
    if type(body.get("rate")) is not int or type(body.get("age")) not in (int, float):
        raise ProtocolError("a multicast control record does not say at what rate, or since when")
    quiet = body.get("quiet", 0.0)
    if type(quiet) not in (int, float) or not 0 <= quiet <= LONGEST_QUIET:
        raise ProtocolError("a multicast control record announces a silence that is none")
    return body


def pack_batch(subjects: list[bytes], payloads: list[Any]) -> tuple[bytes, bytes]:
    """Pack the messages of a batch.

    Args:
        subjects: of each.
        payloads: of each: bytes, or what `oz.wire.batch` packs as a rich payload.

    Returns:
        The prefix, and the body.
    """
    prefix = common_prefix(subjects)
    size = len(prefix)
    items: list[Any] = [None] * (2 * len(subjects))
    items[0::2] = [subject[size:] for subject in subjects] if size else subjects
    items[1::2] = payloads
    return prefix, pack_array(items)


def common_prefix(subjects: list[bytes]) -> bytes:
    """Return what all subjects begin with, up to the first zero byte."""
    first, last = min(subjects), max(subjects)
    size = 0
    for one, other in zip(first, last, strict=False):
        # A frame must not begin as the keys of routed messages do, nor hold a zero byte before its head.
        if one != other or not one:
            break
        size += 1
    return first[:size]
