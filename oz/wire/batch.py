"""Batches: many messages in one ZeroMQ frame behind the key that they come on; docs/wire.md has the layout.

``key ‖ head ‖ body``. The head says who sends, and which messages of the key these are; the body is one
MessagePack array, subject and payload in turn. A control record has the same head and tells where the key
stands. Headers and further frames of a message cost nothing when they are absent. The head has the position
of the first message: see `positions`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

from oz.compiled import HOT
from oz.errors import ProtocolError
from oz.wire.codec import unpack_bounded
from oz.wire.denials import are_fields
from oz.wire.keys import MAX_PATTERN, PATTERN, STREAM, STREAM_SIZE
from oz.wire.positions import check_positions

VERSION = 1
"""Version of the head. A reader counts every other version as malformed."""

MESSAGES = 0x00
CONTROL = 0x01
RICH = 0x02
"""Some payload is not plain bytes but an array: payload and extras."""
LAST_VALUES = 0x04
"""These are last values, for one chunk only, whose number stands between head and body."""
_KNOWN_FLAGS = CONTROL | RICH | LAST_VALUES

MAX_COUNT = 16_384
"""Messages in one batch. Of the smallest there are, 13,107 fit into the bytes that oz holds batches to. Each
whose subject is new costs a subscriber 5 µs, and nothing else is read meanwhile."""

MOST_CONTAINERS, MOST_VALUES, MORE_VALUES = 5, 16, 65_536
"""Arrays and maps that a message has at most: payload and extras, the frames of a payload, the extras,
headers, and an id; values for each message of a large batch on average; and further ones for all together,
which is also how many frames or headers there are in one place."""

MOST_ANSWERED = 16_384
"""Chunks in one answer: a publisher has 8,192 of a stream at most, and a reader looks at each."""

MAX_REASON = 16_384
"""Characters of the reason for which a chunk is refused."""

LARGE = 65_536
"""Bytes from which a payload travels as a ZeroMQ frame of its own, behind the batch, without being copied."""

_HEAD = struct.Struct(">BB16sI")
_TAIL = struct.Struct(">QQIB")
_FULL = struct.Struct(">BB16sIQQIB")
_CHUNK = struct.Struct(">I")
_LONE = struct.Struct(f">{STREAM_SIZE}s2s16sIQQ7sB")
_BIN_8 = 0xC4
_LONE_START = bytes((VERSION, MESSAGES))
_RICH_START = bytes((VERSION, RICH))
_PAIR = 0x92
_LONE_ARRAY = b"\x00\x00\x00\x01\x00\x92\xc4"
HEAD_SIZE = _FULL.size

HEARTBEAT_SIZE = STREAM_SIZE + HEAD_SIZE
"""Bytes of a heartbeat on the key of a stream. Every batch there is longer."""
HEARTBEAT_ORIGIN = slice(STREAM_SIZE + 2, STREAM_SIZE + 18)
"""Where a heartbeat on the key of a stream names its publisher."""

SHORT = 600
"""Bytes that a frame has at most in which subject and payload take up to 255 bytes each."""
CHUNK_FIELD = _CHUNK.size


class Head(NamedTuple):
    """The head of a frame, which stands before the body.

    Attributes:
        flags: what the body is.
        origin: the publisher, 16 bytes that a restart changes.
        epoch: which life of the key this is at that publisher; sequences count anew in each.
        sequence: the number of the first message, from 0; of a control record, that of the next.
        count: how many messages.
        position: that of the first message; of a control record, that of the publisher's next one; 0 in
            multicast, which has no positions.
        width: bytes of each difference between two positions; 0 where they follow one another.
    """

    flags: int
    origin: bytes
    epoch: int
    sequence: int
    count: int  # type: ignore[assignment]
    position: int = 0
    width: int = 0


def key_size(frame: bytes) -> int:
    """Return the length of the key that a frame begins with.

    Raises:
        ProtocolError: it begins with no key that messages come on.
    """
    kind = frame[:3]
    if kind == STREAM:
        return STREAM_SIZE
    if kind == PATTERN and len(frame) >= 6:
        size = frame[4] << 8 | frame[5]
        if size <= MAX_PATTERN:
            return 6 + size
    raise ProtocolError(f"a frame begins with no key that messages come on: {frame[:8]!r}")


def parse_head(frame: bytes, at: int) -> Head:
    """Read the head of a batch that follows its key.

    Args:
        frame: the whole frame.
        at: where the key ends.

    Raises:
        ProtocolError: it is cut short, of a version that is not known here, or says what cannot be.
    """
    try:
        version, flags, origin, epoch, sequence, position, count, width = _FULL.unpack_from(frame, at)
    except struct.error:
        raise ProtocolError(f"a batch is cut short: {max(0, len(frame) - at)} bytes behind the key") from None
    if version != VERSION:
        raise ProtocolError(f"a batch of version {version}; this oz reads version {VERSION}")
    if flags & ~_KNOWN_FLAGS or count > MAX_COUNT or (flags != CONTROL if count == 0 else flags & CONTROL):
        raise ProtocolError(f"a batch with flags {flags:#04x} and {count} messages")
    check_positions(position, width, count)
    return Head(flags, origin, epoch, sequence, count, position, width)


def read_lone(frame: bytes) -> tuple[Any, ...] | None:
    """Read a batch of one message, with extras or without; None when it is anything else.

    Args:
        frame: the whole frame, on the key of a stream, not longer than `SHORT`.

    Returns:
        Key, origin, epoch, sequence, subject, payload, what stands for its extras, None for none, and
        position.
    """
    try:
        key, start, origin, epoch, sequence, position, one, size = _LONE.unpack_from(frame)
        if one != _LONE_ARRAY:
            return None
        at = _LONE.size + size
        subject = frame[_LONE.size : at]
        # Subject and payload are `bin 8`: its mark, one byte of length, and the bytes.
        if start == _LONE_START and frame[at] == _BIN_8 and at + 2 + frame[at + 1] == len(frame):
            return key, origin, epoch, sequence, subject, frame[at + 2 :], None, position
        if start == _RICH_START and frame[at] == _PAIR and frame[at + 1] == _BIN_8:
            end = at + 3 + frame[at + 2]
            extras = msgpack.unpackb(memoryview(frame)[end:])
            # Nothing in their place is malformed, and not the same as none.
            if extras is not None:
                return key, origin, epoch, sequence, subject, frame[at + 3 : end], extras, position
    except Exception:
        # Cut short, or not MessagePack, of which there are errors of many kinds.
        pass
    # Whoever reads it the long way says what it is.
    return None


def parse_body(frame: bytes, at: int, count: int) -> list[Any]:
    """Read the body of a batch: subjects and payloads in turn.

    Args:
        frame: the whole frame.
        at: where the body begins.
        count: the messages that the head speaks of.

    Raises:
        ProtocolError: it is no array of that many messages.
    """
    try:
        body = unpack_bounded(
            memoryview(frame)[at:],
            MOST_CONTAINERS * count + 1,
            MOST_VALUES * count + MORE_VALUES,
            max_array_len=max(2 * count, MORE_VALUES),
            max_map_len=MORE_VALUES,
        )
    except ProtocolError:
        raise
    except Exception as error:
        # msgpack raises of many kinds, ValueError above all; none may get past here.
        # Nor its text, which may hold all that was read.
        raise ProtocolError(f"the body of a batch is not MessagePack: {type(error).__name__}") from None
    if type(body) is not list or len(body) != 2 * count:
        raise ProtocolError(f"the body of a batch does not hold the {count} messages that its head says")
    return body


def parse_chunk(frame: bytes, at: int) -> int:
    """Read the number of the chunk that last values are for.

    Raises:
        ProtocolError: it is cut short.
    """
    try:
        (chunk,) = _CHUNK.unpack_from(frame, at)
    except struct.error:
        raise ProtocolError("a batch of last values is cut short") from None
    return int(chunk)


def parse_control(frame: bytes, at: int) -> dict[Any, Any]:
    """Read the body of a control record; an empty one is a heartbeat.

    Args:
        frame: the whole frame.
        at: where the body begins.

    Returns:
        A map. If it has `live`, that is a list of numbers; `refused`, numbers and text; `paths`, a number;
        `denied`, numbers and pairs of text.

    Raises:
        ProtocolError: it is no map, or no answer.
    """
    if len(frame) == at:
        return {}
    try:
        body = unpack_bounded(
            memoryview(frame)[at:],
            MOST_CONTAINERS,
            # A number of each that is live, and number and reason of each that is refused.
            3 * MOST_ANSWERED + MOST_VALUES,
            max_array_len=MOST_ANSWERED,
            max_map_len=MOST_ANSWERED,
            strict_map_key=False,
        )
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"a control record is not MessagePack: {type(error).__name__}") from None
    if type(body) is not dict:
        raise ProtocolError("a control record is no map")
    if "live" in body and not _is_answer(body["live"], body.get("refused", {}), body.get("paths", 0)):
        raise ProtocolError("an answer is not made of a list, a map and a number")
    if not are_fields(body.get("denied", {})):
        raise ProtocolError("what an answer denies is no map of pairs")
    return body


def _is_answer(live: Any, refused: Any, paths: Any) -> bool:
    return (
        type(live) is list
        and all(type(one) is int for one in live)
        and type(refused) is dict
        and all(
            type(number) is int and type(reason) is str and len(reason) <= MAX_REASON
            for number, reason in refused.items()
        )
        and type(paths) is int
    )


def head_start(key: bytes, flags: int, origin: bytes, epoch: int) -> bytes:
    """Return the constant part of a frame's beginning: the key and the first part of the head."""
    return key + _HEAD.pack(VERSION, flags, origin, epoch)


def head_end(sequence: int, count: int, position: int = 0, width: int = 0) -> bytes:
    """Return the part of a head that changes with each frame."""
    return _TAIL.pack(sequence, position, count, width)


pack_chunk = _CHUNK.pack
"""Called with the number of a chunk, gives what stands between head and body of last values."""


def pack_control(**fields: Any) -> bytes:
    """Pack the body of a control record."""
    packed: bytes = msgpack.packb(fields)
    return packed


def _pack(items: list[Any]) -> bytes:
    # `packb` takes six times as long to come to the same.
    packed: bytes = msgpack.Packer().pack(items)
    return packed


if HOT is not None:
    HOT.know_packer(_pack)

pack_array: Callable[[list[Any]], bytes] = _pack if HOT is None else HOT.pack
"""Called with subjects and payloads in turn, packs them with the header of the array.

Raises TypeError, ValueError or OverflowError for extras that MessagePack has no form for.
"""


def array_header(count: int) -> bytes:
    """Return the header of an array of so many items."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65_536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def strip_header(packed: bytes, count: int) -> bytes:
    """Take the header off a packed array of so many items."""
    return packed[1 if count < 16 else 3 if count < 65_536 else 5 :]
