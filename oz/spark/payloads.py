"""Decoding of payloads to typed columns: from MessagePack, JSON, or text.

If any part of a payload does not fit the schema, the whole payload is malformed and becomes null. Spark's modes
PERMISSIVE, FAILFAST and DROPMALFORMED set what happens to a row with a malformed payload. The functions for Arrow
arrays need no Spark session, so that they can run in executors.

docs/spark-reference.md lists the types, and the values that fit each type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgpack
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructType, VarcharType, VariantType

from oz.errors import OzError
from oz.wire.codec import MsgpackCodec

MODES = ("PERMISSIVE", "FAILFAST", "DROPMALFORMED")
"""Effects of a malformed payload, in this order: the payload becomes null, the query fails, or the row is dropped."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_BYTES = 60

Converter = Callable[[Any], Any]


class PayloadError(OzError, ValueError):
    """A payload does not fit the schema, and the mode is FAILFAST."""


def from_msgpack(column: Column | str, schema: DataType | str, *, mode: str = "PERMISSIVE") -> Column:
    """Decode MessagePack payloads, as publishers with `codec="msgpack"` write them.

    Args:
        column: binary column of payloads.
        schema: a type of Spark, or its text in DDL, such as `"price double, size int"` or `"array<double>"`.
        mode: effect of a malformed payload. With `PERMISSIVE` the value is null, and with `FAILFAST` the query
            fails. A column cannot drop rows. In place of `DROPMALFORMED`, filter with `isNotNull()`.

    Returns:
        A column of the type `schema`. It is null for a null payload.

    Raises:
        TypeError: payloads cannot be decoded to the type.
        ValueError: the mode is unknown.
        ParseException: Spark cannot parse the DDL.
        PayloadError: a payload is malformed, and the mode is FAILFAST. The query raises this error, and not this call.
    """
    if mode.upper() not in MODES[:2]:
        raise ValueError(
            f"mode={mode!r}: a column has the modes PERMISSIVE and FAILFAST; filter by isNotNull()"
        )
    kind = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    for fault in undecodable(kind):
        raise TypeError(fault)
    arrow, fails = arrow_type(kind), mode.upper() == "FAILFAST"

    def batch(payloads: pa.Array) -> pa.Array:
        decoded = decode_msgpack(payloads, arrow)
        if fails:
            check_decoded(payloads, decoded, "MessagePack")
        return decoded

    batch.__name__ = "from_msgpack"  # Spark shows this name in plans
    vectorise: Any = (
        arrow_udf  # its overloads ask for a function type, which Spark infers from the annotations
    )
    decoded: Column = vectorise(batch, kind)(F.col(column) if isinstance(column, str) else column)
    return decoded


def check_decoded(payloads: pa.Array, decoded: pa.Array, name: str) -> None:
    """Raise PayloadError for the first malformed payload.

    Args:
        payloads: binary array of payloads.
        decoded: array that a `decode_*` function returned for `payloads`.
        name: name of the format, for error messages.

    Raises:
        PayloadError: a payload is not null, but its decoded value is null.
    """
    for payload, value in zip(payloads, decoded, strict=True):
        if payload.is_valid and not value.is_valid:
            raise PayloadError(
                f"the payload {payload.as_py()[:_SHOWN_BYTES]!r} is no {name} of the type {decoded.type}; "
                "the mode PERMISSIVE gives null instead"
            )


def arrow_type(kind: DataType | pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses for values of a Spark type. An Arrow type is returned unchanged."""
    return kind if isinstance(kind, pa.DataType) else to_arrow_type(kind, timezone="UTC")


def undecodable(kind: DataType) -> Iterator[str]:
    """Yield the reasons why payloads cannot be decoded to a type. Without a reason, the type is allowed."""
    if isinstance(kind, (CharType, VarcharType, VariantType)):
        yield f"{kind.simpleString()}: no payload decodes to this type; docs/spark-reference.md lists the types"
    elif isinstance(kind, StructType):
        for field in kind:
            if kind.names.count(field.name) > 1:
                yield f"{kind.simpleString()}: the field {field.name!r} appears twice"
            if not field.nullable:
                yield f"{field.name!r} is NOT NULL, and a payload may lack it; remove NOT NULL"
            yield from undecodable(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from undecodable(kind.elementType)
    elif isinstance(kind, MapType):
        yield from undecodable(kind.keyType)
        yield from undecodable(kind.valueType)
    else:
        try:
            _converter(arrow_type(kind))
        except TypeError as error:
            yield str(error)


def decode_msgpack(payloads: pa.Array, kind: pa.DataType | DataType) -> pa.Array:
    """Decode MessagePack payloads.

    Args:
        payloads: binary array of payloads.
        kind: Arrow or Spark type of the decoded values.

    Returns:
        An array of the type `kind` with one value for each payload. A null or malformed payload becomes null.

    Raises:
        TypeError: payloads cannot be decoded to the type. A malformed payload raises no error.
    """
    return _decode(payloads, MsgpackCodec().decode, arrow_type(kind))


def decode_json(payloads: pa.Array, kind: pa.DataType | DataType) -> pa.Array:
    """Decode JSON payloads in UTF-8. The arguments, the result and the errors are those of `decode_msgpack`."""
    return _decode(payloads, lambda payload: json.loads(payload.decode()), arrow_type(kind))


def decode_string(payloads: pa.Array) -> pa.Array:
    """Decode payloads as text in UTF-8. A payload that is null or not UTF-8 becomes null."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return _decode(payloads, bytes.decode, pa.string())


def _decode(payloads: pa.Array, decode: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array:
    convert = _converter(kind)

    def value_of(payload: bytes | None) -> Any:
        try:
            return None if payload is None else convert(decode(payload))
        except Exception:  # codecs raise many classes of errors, such as RecursionError for deep nesting
            return None

    values = [value_of(payload) for payload in payloads.to_pylist()]
    try:
        return pa.array(values, kind)
    except Exception:  # an integer out of range, a decimal with too many digits, a lone surrogate
        return pa.array([value if _is_storable(value, kind) else None for value in values], kind)


def _is_storable(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except Exception:  # as in `_decode`
        return False
    return True


# A converter raises an error for a value that does not fit its type. Arrow would convert some values without an error,
# such as text to binary and True to 1; the converters refuse these values.


def _converter(kind: pa.DataType) -> Converter:
    inner: Converter
    if pa.types.is_struct(kind):
        inner = partial(_struct, [(field.name, _converter(field.type)) for field in kind])
    elif pa.types.is_map(kind):
        inner = partial(_map, _converter(kind.key_type), _converter(kind.item_type))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = partial(_list, _converter(kind.value_type))
    else:
        inner = _scalar(kind)
    return lambda value: None if value is None else inner(value)


def _struct(fields: Sequence[tuple[str, Converter]], value: Any) -> dict[str, Any]:
    values = _exactly(value, dict)
    return {name: convert(values.get(name)) for name, convert in fields}


def _list(convert: Converter, value: Any) -> list[Any]:
    return [convert(each) for each in _exactly(value, list)]


def _map(key: Converter, item: Converter, value: Any) -> list[tuple[Any, Any]]:
    return [(key(name), item(each)) for name, each in _exactly(value, dict).items()]


def _exactly(value: Any, *types: type) -> Any:
    if type(value) not in types:  # bool is a subclass of int
        raise TypeError
    return value


def _scalar(kind: pa.DataType) -> Converter:
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz else lambda value: _timestamp(value).replace(tzinfo=None)
    for is_kind, convert in _SCALARS:
        if is_kind(kind):
            return convert
    raise TypeError(f"{kind}: no payload decodes to this type; docs/spark-reference.md lists the types")


_SCALARS: list[tuple[Callable[[pa.DataType], bool], Converter]] = [
    (pa.types.is_integer, lambda value: _exactly(value, int)),
    (pa.types.is_floating, lambda value: float(_exactly(value, int, float))),
    (pa.types.is_boolean, lambda value: _exactly(value, bool)),
    (pa.types.is_string, lambda value: _exactly(value, str)),
    (pa.types.is_large_string, lambda value: _exactly(value, str)),
    (pa.types.is_binary, lambda value: _exactly(value, bytes)),
    (pa.types.is_large_binary, lambda value: _exactly(value, bytes)),
    (pa.types.is_decimal, lambda value: Decimal(_exactly(value, int, str))),
    (pa.types.is_date, lambda value: date.fromisoformat(_exactly(value, str))),
    (pa.types.is_null, lambda value: _exactly(value)),
]


def _timestamp(value: Any) -> datetime:
    if type(value) is msgpack.Timestamp:
        return _EPOCH + timedelta(microseconds=value.to_unix_nano() // 1000)
    moment = datetime.fromisoformat(_exactly(value, str))
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
