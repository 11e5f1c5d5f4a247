"""Codecs: what stands between a value and the bytes of a payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgpack


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
            packed: bytes = msgpack.packb(value, use_bin_type=True)
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
        return msgpack.unpackb(payload, raw=False, strict_map_key=False)


_BY_NAME: dict[str, Callable[[], Codec]] = {"msgpack": MsgpackCodec}


def find_codec(codec: str | Codec | None) -> Codec | None:
    """Give the codec of a name, or the codec that was given.

    Raises:
        ValueError: there is no codec of that name.
        TypeError: neither a name nor something with `encode` and `decode`.
    """
    if codec is None:
        return None
    if isinstance(codec, str):
        if codec not in _BY_NAME:
            raise ValueError(f"no codec is called {codec!r}; there are {', '.join(_BY_NAME)}")
        return _BY_NAME[codec]()
    if callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None)):
        return codec
    raise TypeError(f"a codec is a name or has encode and decode, not {codec!r}")
