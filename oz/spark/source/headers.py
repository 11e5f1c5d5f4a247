"""Columns out of the headers of messages: a map, a key, and the time that a publisher wrote there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa

from oz.times import iso_nanoseconds
from oz.wire.extras import restore_extras

KEY, PUBLISHED = "key", "published"

_MORE = "oz-more"  # the recorder keeps the frames behind the payload under this name
_MAP = pa.map_(pa.string(), pa.string())
_MICRO = pa.timestamp("us", "UTC")
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class HeaderColumns:
    """The columns that a query wants of the headers.

    Attributes:
        as_map: whether the column `headers` is a map of text to text.
        key: the header that the column `key` has; None for no such column.
        time: the header that the column `published` has; None for no such column.
    """

    as_map: bool = False
    key: str | None = None
    time: str | None = None

    @property
    def ddl(self) -> dict[str, str]:
        """The columns that are made, and how Spark writes their types."""
        wanted = {
            "headers": "MAP<STRING, STRING>" if self.as_map else None,
            KEY: None if self.key is None else "BINARY",
            PUBLISHED: None if self.time is None else "TIMESTAMP",
        }
        return {name: kind for name, kind in wanted.items() if kind is not None}

    @property
    def arrow(self) -> dict[str, pa.DataType]:
        """The same columns with the types that Arrow has for them."""
        types = {"headers": _MAP, KEY: pa.binary(), PUBLISHED: _MICRO}
        return {name: types[name] for name in self.ddl}

    def of(self, packed: pa.Array) -> dict[str, pa.Array]:
        """Make the columns, each distinct value of the headers once.

        Args:
            packed: headers as the journal has them.
        """
        encoded = packed.dictionary_encode()
        headers = [_unpacked(one) for one in encoded.dictionary.to_pylist()]
        makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "headers": lambda one: [(name, _text(value)) for name, value in one.items()],
            KEY: lambda one: _bytes(one.get(str(self.key))),
            PUBLISHED: lambda one: _microseconds(one.get(str(self.time))),
        }
        made = {}
        for name, kind in self.arrow.items():
            values = [None if one is None else makers[name](one) for one in headers]
            made[name] = pa.array(values, kind).take(encoded.indices)
        return made


def _unpacked(packed: bytes) -> dict[str, Any] | None:
    """Unpack headers as a publisher gave them; None where they are malformed."""
    try:
        found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    except Exception:  # whatever msgpack raises for bytes that are no MessagePack
        return None
    if not isinstance(found, dict):
        return None
    found.pop(_MORE, None)
    restore_extras(found)
    return {name: value for name, value in found.items() if isinstance(name, str)}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else json.dumps(value, default=str)


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, bytes):
        return value
    text = _text(value)
    return None if text is None else text.encode()


def _microseconds(value: Any) -> int | None:
    """Read a time: whole nanoseconds since 1970, or ISO 8601 with a zone."""
    found = iso_nanoseconds(value) if isinstance(value, str) else value
    return found // 1000 if type(found) is int and abs(found) <= _MOST else None
