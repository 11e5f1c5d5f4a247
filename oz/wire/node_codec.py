"""The codec of a node: the application's, and beside it what nodes tell each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from oz.errors import ProtocolError
from oz.wire.codec import Codec

_MARK = b"\xc1\x00oz nodes\x00\xc1"
"""What no payload begins with: 0xc1 is the one byte that MessagePack never uses."""

_FAILED = b"\xc1\x00oz failed\x00\xc1"

_VERSION = 1

MAX_KIND = 200
"""Characters of the name of an exception's class; what is longer is cut."""

MAX_FAILURE_TEXT = 4_096
"""Characters of what an exception says, and of the name of a node; what is longer is cut."""


class Introduction(str):
    """Announcements of nodes, as text; every node reads them, whatever the codec of its application is."""

    __slots__ = ()


class Failure(NamedTuple):
    """What a handler raised at a request, as whoever asked is told.

    Attributes:
        kind: the name of the exception's class.
        text: what it said.
        node: the name of the node whose handler it was.
    """

    kind: str
    text: str
    node: str


class NodeCodec:
    """Encodes introductions and failures as they are, and everything else by the application's codec."""

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
        return self._codec.encode(value)

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value.

        Raises:
            ProtocolError: it is a failure of another form.
        """
        if payload.startswith(_MARK):
            return Introduction(payload[len(_MARK) :].decode("ascii"))
        if payload.startswith(_FAILED):
            return _unpack_failure(payload[len(_FAILED) :])
        return self._codec.decode(payload)


def _pack_failure(failure: Failure) -> bytes:
    cut = (failure.kind[:MAX_KIND], failure.text[:MAX_FAILURE_TEXT], failure.node[:MAX_FAILURE_TEXT])
    # A text may hold half a pair of surrogates, as one that was read from a file name does.
    fields = [one.encode("utf-8", "backslashreplace").decode() for one in cut]
    packed: bytes = msgpack.packb([_VERSION, *fields])
    return packed


def _unpack_failure(packed: bytes) -> Failure:
    try:
        fields = msgpack.unpackb(packed, max_array_len=16)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"what a handler raised is no MessagePack: {error}") from None
    if type(fields) is not list or len(fields) < 4 or fields[0] != _VERSION:
        raise ProtocolError(f"what a handler raised is told in an array of version {_VERSION}")
    kind, text, node = fields[1:4]
    if not all(type(one) is str for one in (kind, text, node)):
        raise ProtocolError("what a handler raised is told in three texts")
    return Failure(kind, text, node)
