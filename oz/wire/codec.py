"""Codecs: what stands between a value and the bytes of a payload; of a node, and of its application.

msgpack bounds the length of each array and map, but not how many there are in all, and a byte may stand for
an object that takes 64 in memory. Where that could take much it is counted before anything is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, Protocol

import msgpack

from oz.errors import ConfigurationError, ProtocolError
from oz.wire.keys import ID_SIZE

_MARK = b"\xc1\x00oz nodes\x00\xc1"
"""What no payload begins with: 0xc1 is the one byte that MessagePack never uses."""

_NEVER = _MARK[:1]

_FAILED = b"\xc1\x00oz failed\x00\xc1"

_ABOUT = b"\xc1\x00oz wants\x00\xc1"

_VERSION = 1

MAX_OWN = 2_097_152
"""Bytes of what a node tells another of itself: 65,536 streams have 23 each."""

_QUESTION, _ASKED = 1, 2
_MOST_QUESTIONS = 2**63 - 1
_MOST_CHUNKS = 2**32 - 1

MAX_KIND = 200
"""Characters of the name of an exception's class; what is longer is cut."""

MAX_FAILURE_TEXT = 4_096
"""Characters of what an exception says, and of the name of a node; what is longer is cut."""


class Codec(Protocol):
    """Anything with these two methods can be a codec."""

    def encode(self, value: Any) -> bytes:
        """Turn a value into the bytes of a payload."""
        ...

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value; any exception means that they are malformed."""
        ...


class MsgpackCodec:
    """MessagePack, with text as `str` and binary as `bytes`."""

    def encode(self, value: Any) -> bytes:
        """Pack a value.

        Raises:
            TypeError: msgpack has no form for it.
        """
        try:
            # `packb` takes six times as long to come to the same.
            packed: bytes = msgpack.Packer().pack(value)
        except TypeError as error:
            raise TypeError(
                f"a payload cannot be packed: {error}; MessagePack has None, truth values, numbers, text, "
                "bytes, lists and dicts. Turn it into these, or give a codec="
            ) from None
        return packed

    def decode(self, payload: bytes) -> Any:
        """Unpack a value; map keys may be of any type that can be hashed.

        Raises:
            ValueError: the bytes are not one whole MessagePack value.
        """
        return _unpack(payload)


_unpack = partial(msgpack.unpackb, raw=False, strict_map_key=False)


class JsonCodec:
    """JSON as RFC 8259 has it, in UTF-8: no NaN, no infinity."""

    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            TypeError: JSON has no form for it.
            ValueError: a number is none of JSON, or a list or dict holds itself.
        """
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # Half a surrogate pair has no UTF-8, but an escape.
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except TypeError as error:
            raise TypeError(
                f"a payload cannot be written as JSON: {error}; JSON has None, truth values, numbers, text, "
                "lists and dicts. Turn it into these, or give another codec="
            ) from None

    def decode(self, payload: bytes) -> Any:
        """Read a value.

        Raises:
            ValueError: the bytes are not one whole JSON value.
        """
        return json.loads(payload, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_BY_NAME: dict[str, Callable[[], Codec]] = {"msgpack": MsgpackCodec, "json": JsonCodec}


def find_codec(codec: str | Codec | None) -> Codec | None:
    """Return the codec of a name, or the codec that was given.

    Raises:
        ConfigurationError: no codec has this name.
        TypeError: neither a name nor something with `encode` and `decode`.
    """
    if codec is None:
        return None
    if isinstance(codec, str):
        if codec not in _BY_NAME:
            rule = f"no codec has this name; there are {', '.join(_BY_NAME)}, or give an object with encode and decode"
            raise ConfigurationError("codec", codec, "argument", rule)
        return _BY_NAME[codec]()
    if callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None)):
        return codec
    raise TypeError(f"a codec is a name or has encode and decode, not {codec!r}")


class Introduction(str):
    """Announcements of nodes, as text; every node reads them, whatever the codec of its application is."""

    __slots__ = ()


class Failure(NamedTuple):
    """The error that a handler raised at a request, as the requester learns it.

    Attributes:
        kind: the name of the exception's class.
        text: what it said.
        node: the name of the node whose handler it was.
    """

    kind: str
    text: str
    node: str


class Question(NamedTuple):
    """A node asks a peer what that has asked for.

    Attributes:
        number: counts the questions of a node; the answer repeats it.
    """

    number: int


class Asked(NamedTuple):
    """The interest of a node when it was asked about that.

    Attributes:
        number: that of the question.
        chunks: the number of the newest chunk that stands, for each of its streams.
    """

    number: int
    chunks: dict[bytes, int]


_OWN = {Introduction, Failure, Question, Asked}


class NodeCodec:
    """Encodes what nodes tell each other as it is, and everything else by the application's codec."""

    __slots__ = ("_decode", "_encode")

    def __init__(self, codec: Codec) -> None:
        """Put it before the application's."""
        self._encode = codec.encode
        # Each message is decoded, so it is by as few calls as can be.
        self._decode = _unpack if type(codec) is MsgpackCodec else codec.decode

    def encode(self, value: Any) -> bytes:
        """Turn a value into the bytes of a payload."""
        if type(value) not in _OWN:
            return self._encode(value)
        if type(value) is Introduction:
            return _MARK + value.encode("ascii")
        if type(value) is Failure:
            return _FAILED + _pack_failure(value)
        return _ABOUT + _pack_about(value)

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value.

        Raises:
            ProtocolError: it is a failure, a question or its answer, of another form.
        """
        if payload[:1] != _NEVER:
            return self._decode(payload)
        if payload.startswith(_MARK):
            return Introduction(payload[len(_MARK) :].decode("ascii"))
        if payload.startswith(_FAILED):
            return _unpack_failure(payload[len(_FAILED) :])
        if payload.startswith(_ABOUT):
            return _unpack_about(payload[len(_ABOUT) :])
        return self._decode(payload)


def _pack_failure(failure: Failure) -> bytes:
    cut = (failure.kind[:MAX_KIND], failure.text[:MAX_FAILURE_TEXT], failure.node[:MAX_FAILURE_TEXT])
    # A text may hold half a pair of surrogates, as one that was read from a file name does.
    fields = [one.encode("utf-8", "backslashreplace").decode() for one in cut]
    packed: bytes = msgpack.packb([_VERSION, *fields])
    return packed


def _unpack_failure(packed: bytes) -> Failure:
    kind, text, node = _fields(packed, "what a handler raised", 4)[1:4]
    if not all(type(one) is str for one in (kind, text, node)):
        raise ProtocolError("what a handler raised is told in three texts")
    return Failure(kind, text, node)


def _pack_about(about: Question | Asked) -> bytes:
    kind = _QUESTION if type(about) is Question else _ASKED
    packed: bytes = msgpack.packb([_VERSION, kind, *about])
    return packed


def _unpack_about(packed: bytes) -> Question | Asked:
    kind, number, *rest = _fields(packed, "what a node wants", 3)[1:]
    if not _is_number(number, _MOST_QUESTIONS):
        raise ProtocolError(f"a question has a number from 0 to {_MOST_QUESTIONS}, not {number!r}")
    if kind == _QUESTION:
        return Question(number)
    if kind != _ASKED or not rest or type(rest[0]) is not dict:
        raise ProtocolError(f"what a node wants is told in a map, by kind {_ASKED}, not {kind!r}")
    for name, chunk in rest[0].items():
        if type(name) is not bytes or len(name) != ID_SIZE or not _is_number(chunk, _MOST_CHUNKS):
            raise ProtocolError("what a node wants is told in the names of streams and numbers of chunks")
    return Asked(number, rest[0])


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _fields(packed: bytes, what: str, least: int) -> list[Any]:
    """Read an array of our version with so many fields at least."""
    if len(packed) > MAX_OWN:
        raise ProtocolError(f"{what} takes {len(packed):,} bytes, and has {MAX_OWN:,} at most")
    try:
        fields = msgpack.unpackb(packed, max_array_len=16)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{what} is no MessagePack: {error}") from None
    if type(fields) is not list or len(fields) < least or fields[0] != _VERSION:
        raise ProtocolError(f"{what} is told in an array of version {_VERSION}")
    return fields


FREE = 262_144
"""Bytes below which nothing is counted: 16 MiB in memory at the worst."""

MAX_DEPTH = 16
"""Arrays and maps within each other, where they are counted."""

_SHORT, _LONG = Struct(">H"), Struct(">I")
_WIDTHS = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 1),
    0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9,
    0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18,
}  # fmt: skip
_PREFIXED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_TYPED = range(0xC7, 0xCA)


def unpack_bounded(packed: memoryview, most_containers: int, most_items: int, **options: Any) -> Any:
    """Read one MessagePack value.

    Args:
        packed: all of it.
        most_containers: arrays and maps that it may hold, itself included.
        most_items: values that it may hold in all.
        options: for `msgpack.unpackb`.

    Raises:
        ProtocolError: it holds more, or is cut short.
        Exception: whatever msgpack raises.
    """
    if len(packed) > FREE:
        try:
            _count(packed, most_containers, most_items)
        except (IndexError, ValueError) as error:
            raise ProtocolError(f"a MessagePack value is malformed or too much: {error}") from None
    return msgpack.unpackb(packed, **options)


def _count(packed: memoryview, containers: int, items: int) -> None:
    """Go through a value without making it.

    Raises:
        ValueError: it holds too much.
        IndexError: it is cut short.
    """
    at, left = 0, [1]
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        items -= 1
        at, inside = _step(packed, at)
        if inside is not None:
            containers -= 1
            left.append(inside)
            if containers < 0 or len(left) > MAX_DEPTH:
                raise ValueError("too many arrays and maps, or too deep ones")
        # An array says how long it is before anything in it has come.
        if items < (inside or 0):
            raise ValueError("too many values")


def _step(packed: memoryview, at: int) -> tuple[int, int | None]:
    """Pass over one value, of an array or a map its beginning; return what is in that."""
    mark = packed[at]
    if mark <= 0x7F or mark >= 0xE0:
        return at + 1, None
    if mark <= 0x8F:
        return at + 1, 2 * (mark & 0x0F)
    if mark <= 0x9F:
        return at + 1, mark & 0x0F
    if mark <= 0xBF:
        return at + 1 + (mark & 0x1F), None
    width = _WIDTHS.get(mark)
    if width is not None:
        return at + width, None
    width = _PREFIXED.get(mark)
    if width is not None:
        size = int.from_bytes(packed[at + 1 : at + 1 + width], "big")
        return at + 1 + width + size + (mark in _TYPED), None
    if mark == 0xC1:
        raise ValueError("a byte that MessagePack never uses")
    unpack = _SHORT if mark in (0xDC, 0xDE) else _LONG
    if at + 1 + unpack.size > len(packed):
        raise IndexError("cut short")
    (count,) = unpack.unpack_from(packed, at + 1)
    return at + 1 + unpack.size, count * (2 if mark in (0xDE, 0xDF) else 1)
