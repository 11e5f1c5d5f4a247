"""Codecs, which encode values as payloads and decode payloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgpack

from oz.errors import ConfigurationError


class Codec(Protocol):
    """Encoder and decoder of payloads. Any object with these two methods is a codec."""

    def encode(self, value: Any) -> bytes:
        """Return a value as the bytes of a payload."""
        ...

    def decode(self, payload: bytes) -> Any:
        """Return the value of a payload. Raise any exception if the payload is malformed."""
        ...


class MsgpackCodec:
    """MessagePack. The MessagePack type str is `str` in Python, and bin is `bytes`."""

    def encode(self, value: Any) -> bytes:
        """Pack a value.

        Raises:
            TypeError: MessagePack cannot represent the value.
        """
        try:
            # `msgpack.packb` returns the same result, but takes six times as long.
            packed: bytes = msgpack.Packer().pack(value)
        except TypeError as error:
            raise TypeError(
                f"a payload cannot be packed: {error}; MessagePack has None, booleans, numbers, text, "
                "bytes, lists and dicts. Turn it into these, or give a codec="
            ) from None
        return packed

    def decode(self, payload: bytes) -> Any:
        """Unpack a value. The keys of a map may have any type that can be hashed.

        Raises:
            ValueError: the bytes are not exactly one MessagePack value.
        """
        return _unpack(payload)


_unpack = partial(msgpack.unpackb, raw=False, strict_map_key=False)


class JsonCodec:
    """JSON according to RFC 8259 in UTF-8, without NaN and infinity."""

    def encode(self, value: Any) -> bytes:
        """Return a value as JSON.

        Raises:
            TypeError: JSON cannot represent the value.
            ValueError: a number is not finite, or a list or dict contains itself.
        """
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # A lone surrogate cannot be encoded as UTF-8, but JSON can escape the surrogate.
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except TypeError as error:
            raise TypeError(
                f"a payload cannot be written as JSON: {error}; JSON has None, booleans, numbers, text, "
                "lists and dicts. Turn it into these, or give another codec="
            ) from None

    def decode(self, payload: bytes) -> Any:
        """Return the value of a JSON text.

        Raises:
            ValueError: the bytes are not exactly one JSON value.
        """
        return json.loads(payload, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_BY_NAME: dict[str, Callable[[], Codec]] = {"msgpack": MsgpackCodec, "json": JsonCodec}


def find_codec(codec: str | Codec | None) -> Codec | None:
    """Return the codec with this name. A codec object or None is returned unchanged.

    Raises:
        ConfigurationError: no codec has this name.
        TypeError: the argument is neither a name nor an object with `encode` and `decode`.
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
