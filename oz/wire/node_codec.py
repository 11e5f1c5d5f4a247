"""The codec of a node: the application's, and beside it what nodes tell each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from oz.errors import ProtocolError
from oz.wire.codec import Codec
from oz.wire.keys import ID_SIZE

_MARK = b"\xc1\x00oz nodes\x00\xc1"
"""What no payload begins with: 0xc1 is the one byte that MessagePack never uses."""

_FAILED = b"\xc1\x00oz failed\x00\xc1"

_ABOUT = b"\xc1\x00oz wants\x00\xc1"

_VERSION = 1

_QUESTION, _ASKED = 1, 2
_MOST_QUESTIONS = 2**63 - 1
_MOST_CHUNKS = 2**32 - 1

MAX_KIND = 200
"""Characters of the name of an exception's class; what is longer is cut."""

MAX_FAILURE_TEXT = 4_096
"""Characters of what an exception says, and of the name of a node; what is longer is cut."""


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


class NodeCodec:
    """Encodes what nodes tell each other as it is, and everything else by the application's codec."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        """Put it before the application's."""
        self._codec = codec

    def encode(self, value: Any) -> bytes:
        """Turn a value into the bytes of a payload."""
        if type(value) is Introduction:
            return _MARK + value.encode("ascii")
        if type(value) is Failure:
            return _FAILED + _pack_failure(value)
        if type(value) is Question or type(value) is Asked:
            return _ABOUT + _pack_about(value)
        return self._codec.encode(value)

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value.

        Raises:
            ProtocolError: it is a failure, a question or its answer, of another form.
        """
        if payload.startswith(_MARK):
            return Introduction(payload[len(_MARK) :].decode("ascii"))
        if payload.startswith(_FAILED):
            return _unpack_failure(payload[len(_FAILED) :])
        if payload.startswith(_ABOUT):
            return _unpack_about(payload[len(_ABOUT) :])
        return self._codec.decode(payload)


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
    try:
        fields = msgpack.unpackb(packed, max_array_len=16)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{what} is no MessagePack: {error}") from None
    if type(fields) is not list or len(fields) < least or fields[0] != _VERSION:
        raise ProtocolError(f"{what} is told in an array of version {_VERSION}")
    return fields
