"""Codecs: from values to the bytes of payloads and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgpack

from oz.errors import ConfigurationError


class Codec(Protocol):
    """A codec is any object with these two methods."""

    def encode(self, value: Any) -> bytes:
        """Turn a value into the bytes of a payload."""
        ...

    def decode(self, payload: bytes) -> Any:
        """Turn the bytes of a payload into a value; any exception means that the bytes are malformed."""
        ...


class MsgpackCodec:
    """MessagePack, with text as `str` and binary as `bytes`."""

    def encode(self, value: Any) -> bytes:
        """Pack a value.

        Raises:
            TypeError: MessagePack cannot represent the value.
        """
        try:
            # `packb` has the same result in six times the time.
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
    """JSON of RFC 8259 in UTF-8, without NaN and infinity."""

    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            TypeError: JSON cannot represent the value.
            ValueError: a number is not finite, or a list or dict contains itself.
        """
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # Half a surrogate pair cannot be encoded as UTF-8, but JSON can escape it.
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
    """Return the codec with a name. An object with `encode` and `decode` is returned unchanged, and so is None.

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
