"""Structs as payloads, and headers as the bus takes them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgpack
import pyarrow as pa

from oz.message import Extras
from oz.wire.extras import check_extras

Encoder = Callable[[Any], bytes]

_MORE = "oz-more"  # the recorder keeps the frames behind the payload under this name
_ALLOWED = (str, bytes, int, float, bool, type(None))


def encoder(name: str) -> Encoder:
    """Return what encodes a struct, which comes as a dict.

    Args:
        name: `msgpack` or `json`.
    """
    return _as_msgpack if name == "msgpack" else _as_json


def _as_msgpack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True, default=_text)
    return packed


def _as_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_text)
    except ValueError:
        # Numbers that JSON does not have, as text: so Spark's own to_json writes them.
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=_json_text)
    return text.encode()


def _text(value: Any) -> str:
    """Write what has no form of its own: times as ISO 8601, decimals in digits."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _json_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _text(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def plain(value: pa.Scalar) -> Any:
    """Return an Arrow value as Python's own, with maps as dicts.

    Raises:
        ValueError: text that is not UTF-8, or a map with a key twice.
    """
    return value.as_py(maps_as_pydicts="strict")


def pack_headers(value: pa.Scalar) -> bytes | None:
    """Check a map of headers and pack it; decimals become digits, as in payloads.

    Raises:
        ValueError, TypeError: the bus does not take it.
    """
    headers = plain(value)
    if not headers:
        return None
    headers = {name: _text(one) if isinstance(one, Decimal) else one for name, one in headers.items()}
    check_extras(Extras(headers=headers))
    packed: bytes = msgpack.packb(headers, use_bin_type=True)
    return packed


def check_headers(value: pa.Scalar) -> bytes | None:
    """Check headers that are packed already, as the journal has them.

    Raises:
        ValueError: they are no MessagePack map.
    """
    packed: bytes | None = value.as_py()
    if packed:
        try:
            found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
        except Exception:  # whatever msgpack raises for bytes that are no MessagePack
            found = None
        if not isinstance(found, dict):
            raise ValueError("headers are no MessagePack map")
    return packed or None


def unpack_headers(packed: bytes) -> tuple[dict[str, Any] | None, list[bytes]]:
    """Return headers and the frames behind the payload; what oz itself refuses to publish is left out."""
    found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    more = found.pop(_MORE, [])
    fields = {name: value for name, value in found.items() if type(name) is str and type(value) in _ALLOWED}
    is_frames = isinstance(more, list) and all(type(frame) is bytes for frame in more)
    return fields or None, more if is_frames else []
