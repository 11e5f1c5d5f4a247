"""Keys: the ZeroMQ subscriptions by which a subscriber says what it wants; docs/wire.md has the layout.

Subscriptions are all that flows from a subscriber to a publisher, and all that proxies pass on. So an
interest is a subscription to bytes that no subject begins with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from oz.errors import ProtocolError

OWN = b"\x00\x31"
"""The two bytes that open every key of oz; no subject may begin with them."""

STREAM = OWN + b"S"
DECLARATION = OWN + b"D"
PATTERN = OWN + b"P"

ID_SIZE = 16
STREAM_SIZE = len(STREAM) + ID_SIZE

MAX_PATTERN = 8_192
"""Bytes of one pattern: libzmq walks a key byte by byte, and in places by recursion."""

CHUNK_SIZE = 4_096
"""Bytes after which a declaration takes no more patterns; the next one goes into another chunk."""

MAX_KEY = 16_384
"""Bytes of a whole key; a longer one is malformed."""

MAX_GROUP = 255
"""Bytes of the name of a queue group."""

OVERFLOWS = (None, "conflate", "drop_oldest", "drop_newest")
POLICIES = ("round_robin", "sticky", "failover")

_SHARED, _GROUP, _LAST_VALUE, _LIMIT = 0x01, 0x02, 0x04, 0x08
_OVERFLOW_SHIFT = 4
_CLOSING = 0x40
_KNOWN_FLAGS = 0x7F
_CHUNK = struct.Struct(">IB")
_FLAGS_AT = len(DECLARATION) + ID_SIZE + 4
_ENTRY = struct.Struct(">BH")
_LIMIT_FIELD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Declared:
    """One pattern as it travels.

    Attributes:
        dialect: what stands for its dialect, 0 to 255; `oz.wire.declared` knows which is which.
        text: the pattern's bytes.
    """

    dialect: int
    text: bytes

    def encode(self) -> bytes:
        """Return its bytes: dialect, length, text."""
        return _ENTRY.pack(self.dialect, len(self.text)) + self.text


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """The treatment of a stream's messages; the same in every chunk of it.

    Attributes:
        is_shared: they come on the keys of the patterns, not on the stream's.
        group: the queue group, or empty.
        policy: how a member of the group is picked.
        overflow: what to do when this subscriber cannot take more.
        limit: messages kept for it then; 0 with `overflow=None`.
    """

    is_shared: bool = False
    group: str = ""
    policy: str = "round_robin"
    overflow: str | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Declaration:
    """One numbered chunk of what a subscriber wants.

    Attributes:
        stream: the 16 bytes that name the stream.
        chunk: its number, not used again by this stream.
        delivery: those of the stream.
        wants_last_value: whether the last values are asked for first.
        is_closing: the stream wants nothing more: a goodbye.
        patterns: what it wants.
    """

    stream: bytes
    chunk: int
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    wants_last_value: bool = False
    is_closing: bool = False
    patterns: tuple[Declared, ...] = ()

    def encode(self) -> bytes:
        """Return the key."""
        delivery = self.delivery
        flags = (
            _SHARED * delivery.is_shared
            | _GROUP * bool(delivery.group)
            | _LAST_VALUE * self.wants_last_value
            | _LIMIT * bool(delivery.limit)
            | _CLOSING * self.is_closing
            | OVERFLOWS.index(delivery.overflow) << _OVERFLOW_SHIFT
        )
        parts = [DECLARATION, self.stream, _CHUNK.pack(self.chunk, flags)]
        if delivery.group:
            name = delivery.group.encode()
            parts.append(bytes((len(name),)) + name + bytes((POLICIES.index(delivery.policy),)))
        if delivery.limit:
            parts.append(_LIMIT_FIELD.pack(delivery.limit))
        parts.extend(pattern.encode() for pattern in self.patterns)
        return b"".join(parts)


def stream_key(stream: bytes) -> bytes:
    """Return the key on which a stream's messages come."""
    return STREAM + stream


def pattern_key(pattern: Declared) -> bytes:
    """Return the key on which the messages of a shared pattern come."""
    return PATTERN + pattern.encode()


def stream_of(key: bytes) -> bytes:
    """Return the stream that a `D` key names, which may be malformed behind that."""
    return key[len(DECLARATION) : len(DECLARATION) + ID_SIZE]


def names_stream(key: bytes) -> bool:
    """Tell whether a `D` key names a whole stream: part of a name begins the names of others."""
    return len(key) >= STREAM_SIZE


def chunk_of(key: bytes) -> int:
    """Return the number of the chunk that a `D` key names, which may be malformed behind that."""
    return int.from_bytes(key[_FLAGS_AT - 4 : _FLAGS_AT], "big")


def is_shared(key: bytes) -> bool:
    """Tell whether a `D` key is of a stream whose patterns are shared."""
    return len(key) > _FLAGS_AT and bool(key[_FLAGS_AT] & _SHARED)


def is_goodbye(key: bytes) -> bool:
    """Tell whether a `D` key is a goodbye."""
    return len(key) > _FLAGS_AT and bool(key[_FLAGS_AT] & _CLOSING)


def may_carry(key: bytes) -> bool:
    """Tell whether messages may go out on a key: it is that of a stream, or perhaps of a shared pattern."""
    kind, size = key[: len(STREAM)], len(key)
    return (kind == STREAM and size == STREAM_SIZE) or (
        kind == PATTERN and size >= len(PATTERN) + _ENTRY.size
    )


def parse_stream(key: bytes) -> bytes:
    """Return the stream that an `S` key names.

    Raises:
        ProtocolError: it has not the right length.
    """
    if len(key) != STREAM_SIZE:
        raise ProtocolError(f"a stream key has {STREAM_SIZE} bytes, not {len(key)}")
    return key[len(STREAM) :]


def parse_pattern(key: bytes) -> Declared:
    """Return the pattern that a `P` key names.

    Raises:
        ProtocolError: it is not one whole pattern.
    """
    if len(key) > MAX_KEY:
        raise ProtocolError(f"a key of {len(key)} bytes; the limit is {MAX_KEY}")
    found = tuple(_patterns(key, len(PATTERN)))
    if len(found) != 1:
        raise ProtocolError(f"a pattern key holds one pattern, not {len(found)}")
    return found[0]


def parse_declaration(key: bytes) -> Declaration:
    """Read a `D` key.

    Raises:
        ProtocolError: it is cut short, too long, or holds what this version does not know.
    """
    if len(key) > MAX_KEY:
        raise ProtocolError(f"a key of {len(key)} bytes; the limit is {MAX_KEY}")
    at = len(DECLARATION) + ID_SIZE
    stream = key[len(DECLARATION) : at]
    try:
        chunk, flags = _CHUNK.unpack_from(key, at)
        at += _CHUNK.size
        if flags & ~_KNOWN_FLAGS:
            raise ProtocolError(f"declaration flags {flags:#04x} are not known here")
        group, policy, limit = "", "round_robin", 0
        if flags & _GROUP:
            size = key[at]
            group = key[at + 1 : at + 1 + size].decode()
            policy = POLICIES[key[at + 1 + size]]
            at += size + 2
        if flags & _LIMIT:
            (limit,) = _LIMIT_FIELD.unpack_from(key, at)
            at += _LIMIT_FIELD.size
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a declaration is cut short or wrong at byte {at}: {error}") from None
    except UnicodeDecodeError:
        raise ProtocolError("the name of a queue group is not UTF-8") from None
    delivery = DeliveryOptions(
        bool(flags & _SHARED), group, policy, OVERFLOWS[flags >> _OVERFLOW_SHIFT & 3], limit
    )
    _check_delivery(delivery, flags)
    patterns = tuple(_patterns(key, at))
    if flags & _CLOSING and patterns:
        raise ProtocolError("a goodbye with patterns")
    return Declaration(stream, chunk, delivery, bool(flags & _LAST_VALUE), bool(flags & _CLOSING), patterns)


def _check_delivery(delivery: DeliveryOptions, flags: int) -> None:
    """Refuse what no subscriber means, so that each declaration has one spelling.

    Raises:
        ProtocolError: it is none of what subscribers say.
    """
    if flags & _GROUP and not delivery.group:
        raise ProtocolError("a queue group without a name")
    if bool(flags & _LIMIT) != (delivery.limit > 0) or (delivery.limit and delivery.overflow is None):
        raise ProtocolError(f"a limit of {delivery.limit} where {delivery.overflow!r} is kept")
    if delivery.is_shared and (delivery.group or delivery.overflow is not None):
        raise ProtocolError("a shared stream with a queue group or an overflow of its own")


def _patterns(key: bytes, at: int) -> Iterable[Declared]:
    while at < len(key):
        if at + _ENTRY.size > len(key):
            raise ProtocolError(f"a pattern is cut short at byte {at}")
        number, size = _ENTRY.unpack_from(key, at)
        at += _ENTRY.size
        if size > MAX_PATTERN or at + size > len(key):
            raise ProtocolError(f"a pattern of {size} bytes at byte {at} is cut short or too long")
        yield Declared(number, key[at : at + size])
        at += size
