"""The codec of a node: the application's, and beside it what nodes tell each other."""

from __future__ import annotations

from typing import Any

from oz.wire.codec import Codec

_MARK = b"\xc1\x00oz nodes\x00\xc1"
"""What no payload begins with: 0xc1 is the one byte that MessagePack never uses."""


class Introduction(str):
    """Announcements of nodes, as text; every node reads them, whatever the codec of its application is."""

    __slots__ = ()


class NodeCodec:
    """Encodes introductions as they are, and everything else by the application's codec."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        """Put it before the application's."""
        self._codec = codec

    def encode(self, value: Any) -> bytes:
        """Turn a value into the bytes of a payload."""
        if type(value) is Introduction:
            return _MARK + value.encode("ascii")
        return self._codec.encode(value)

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value."""
        if payload.startswith(_MARK):
            return Introduction(payload[len(_MARK) :].decode("ascii"))
        return self._codec.decode(payload)
