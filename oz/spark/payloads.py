"""Payloads decoded to typed columns: msgpack as the sockets' codec reads it, JSON, or text.

A payload decodes, or the result is null: bytes that are no value of the format, or a value that does not fit
the schema, fail no query. So what was broken is where the payload is not null and the result is.

Columns that an option writes are checked before, as Spark says of a mistake in them that another is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructType,
    VarcharType,
    VariantType,
)

from oz.errors import OptionError
from oz.spark.fitting import fit
from oz.wire.codec import MsgpackCodec

FORMATS = ("binary", "string", "json", "msgpack")
"""What `from_payload` reads; `binary` is the payload as it is."""

_CORRUPT = "__oz_corrupt"


def from_msgpack(column: Column | str, schema: DataType | str) -> Column:
    """Decode MessagePack, as `codec="msgpack"` of the sockets does, to a struct or whatever the schema is.

    Args:
        column: payloads, binary.
        schema: a type, or DDL: `"price double, size int"`, `"array<double>"`. Fields that a payload lacks are
            null, fields that the schema lacks are passed by.

    Returns:
        A column of that type; null where the payload is null, is not MessagePack, or does not fit the schema.

    Raises:
        TypeError: nothing decodes to one of the types.
        ParseException: Spark's own: the schema is no DDL.
    """
    kind = _data_type(schema)
    for wrong in undecodable(kind):
        raise TypeError(wrong)
    arrow = arrow_kind(kind)
    fit([], arrow)  # refuses now what it would refuse in the query

    def batch(payloads: pa.Array) -> pa.Array:
        return decode_msgpack(payloads, arrow)

    batch.__name__ = "from_msgpack"  # which Spark shows in plans, and as the name of the column
    vectorise: Any = (
        arrow_udf  # its types ask for the number of the kind, which it finds from the annotations
    )
    decoded: Column = vectorise(batch, kind)(_column(column))
    return decoded


def from_payload(column: Column | str, format: str, schema: DataType | str | None = None) -> Column:
    """Decode payloads by the name of their format.

    Args:
        column: payloads, binary.
        format: one of `FORMATS`. `string` gives text, and null where the payload is not UTF-8; `json` is
            Spark's own `from_json`, but null where any of it is malformed; `msgpack` is `from_msgpack`.
        schema: for `json` and `msgpack`, a type or DDL; the others take none.

    Raises:
        ValueError: no such format, or a schema where none belongs, or none where one is needed.
        TypeError: nothing decodes to one of the types.
    """
    if format not in FORMATS:
        raise ValueError(f"no payload format is called {format!r}; there are {', '.join(FORMATS)}")
    payload = _column(column)
    if format in ("binary", "string"):
        if schema is not None:
            raise ValueError(f"a schema is for json and msgpack; {format} has none")
        text = payload.cast("string")
        return payload if format == "binary" else F.when(F.is_valid_utf8(text), text)
    if schema is None:
        raise ValueError(f"{format} needs a schema, such as 'price double, size int'")
    return from_msgpack(payload, schema) if format == "msgpack" else _from_json(payload, _data_type(schema))


def _from_json(payload: Column, kind: DataType) -> Column:
    text = payload.cast("string")
    if not isinstance(kind, StructType):
        return F.when(F.is_valid_utf8(text), F.from_json(text, kind))
    # Spark gives a row of nulls for what is broken, and says so in a field that is asked for by name.
    watched = StructType([*kind.fields]).add(_CORRUPT, StringType())
    read = F.from_json(text, watched, {"columnNameOfCorruptRecord": _CORRUPT})
    is_whole = F.is_valid_utf8(text) & read[_CORRUPT].isNull()
    return F.when(is_whole & read.isNotNull(), read.dropFields(_CORRUPT))


def decode_msgpack(payloads: pa.Array, kind: pa.DataType | DataType) -> pa.Array:
    """Decode MessagePack, a batch at a time; a plain function, for executors.

    Args:
        payloads: binary.
        kind: the type to decode to, Arrow's or Spark's; `oz.spark.fitting.fit` says what fits. Fields that a
            payload lacks are null, fields that `kind` lacks are passed by.

    Returns:
        An array of that type and that length; null where the payload is null, is not one whole value, or does
        not fit. Never raises for a payload.

    Raises:
        TypeError: nothing decodes to one of the types.
    """
    return _decode(payloads, kind, MsgpackCodec().decode)


def decode_json(payloads: pa.Array, kind: pa.DataType | DataType) -> pa.Array:
    """Decode JSON in UTF-8, a batch at a time; arguments, result and errors are those of `decode_msgpack`."""
    return _decode(payloads, kind, json.loads)


def decode_string(payloads: pa.Array) -> pa.Array:
    """Decode text, a batch at a time; null where it is not UTF-8."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return _decode(payloads, pa.string(), bytes.decode)


def arrow_kind(kind: pa.DataType | DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type, as Spark itself transfers it; Arrow's own stays as it is."""
    return kind if isinstance(kind, pa.DataType) else to_arrow_type(kind, timezone="UTC")


def _decode(payloads: pa.Array, kind: pa.DataType | DataType, decode: Callable[[bytes], Any]) -> pa.Array:
    def read(payload: bytes | None) -> Any:
        if payload is None:
            return None
        try:
            return decode(payload)
        except Exception:  # a codec's way to say that it is malformed; deep nesting is a RecursionError
            return None

    return fit([read(payload) for payload in payloads.to_pylist()], arrow_kind(kind))[0]


def _data_type(schema: DataType | str) -> DataType:
    return DataType.fromDDL(schema) if isinstance(schema, str) else schema


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


def undecodable(kind: DataType) -> Iterator[str]:
    """Say what of a type no payload decodes to, as far as its form in Arrow does not tell.

    Args:
        kind: the type of payloads.
    """
    if isinstance(kind, (VariantType, CharType, VarcharType)):
        yield f"no payload decodes to {kind.simpleString()}: take one of the types in docs/spark.md"
    if isinstance(kind, StructType):
        names = kind.names
        yield from (f"there are two fields {name!r}" for name in sorted(set(names)) if names.count(name) > 1)
        yield from (
            f"{one.name!r} is NOT NULL, and a payload may lack it" for one in kind if not one.nullable
        )
    for inner in _inner(kind):
        yield from undecodable(inner)


def _inner(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [one.dataType for one in kind]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    return [kind.keyType, kind.valueType] if isinstance(kind, MapType) else []


_TYPES = (
    "TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC BOOLEAN "
    "STRING CHAR CHARACTER VARCHAR BINARY DATE TIME TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ ARRAY MAP STRUCT "
    "INTERVAL VARIANT VOID GEOMETRY GEOGRAPHY"
)
_KNOWN = frozenset(_TYPES.split())
_TOKEN = re.compile(
    r"""`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s`'"<>(),:]+""", re.DOTALL
)
_MARKS = frozenset("<>(),:")
_DIGITS = 38
"""Digits that a decimal of Spark has at most."""


def refuse_misread(payload_schema: str) -> None:
    """Refuse columns that Spark would misread, and name the one that is wrong.

    Args:
        payload_schema: columns, as in `price DOUBLE, size BIGINT`.

    Raises:
        OptionError: one is no name and type.
    """
    columns = _Columns(payload_schema)
    if not columns.are_right():
        rule = f"{columns.wrong!r} is no name and type as in 'price DOUBLE, size BIGINT'"
        raise OptionError("payloadSchema", payload_schema, rule)


class _Columns:
    """Reads columns word by word; each method tells whether it found what it looks for, and passes it by."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(_TOKEN.finditer(text))
        self._at = self._begins = 0

    @property
    def wrong(self) -> str:
        """The column that it stopped in, up to there."""
        ends = self._found[min(self._at, len(self._found) - 1)].end() if self._found else 0
        begins = self._found[self._begins].start() if self._begins < len(self._found) else ends
        return self._text[begins:ends]

    def are_right(self) -> bool:
        """Read them all."""
        while self._column():
            if self._at == len(self._found):
                return True
            if not self._take(","):
                return False
            self._begins = self._at
        return False

    def _column(self) -> bool:
        if self._word() in ("", *_MARKS):
            return False
        self._at += 1
        self._take(":")
        return self._kind() and self._rest()

    def _rest(self) -> bool:
        while self._word() in ("NOT", "COMMENT"):
            is_null = self._take("NOT")
            self._at += 1
            if is_null:
                continue
            if not self._word().startswith(("'", '"')):
                return False
            while self._word().startswith(("'", '"')):
                self._at += 1
        return True

    def _kind(self) -> bool:
        kind = self._word()
        if kind not in _KNOWN:
            return False
        self._at += 1
        if kind == "STRUCT":
            return self._take("<") and (self._take(">") or (self._fields() and self._take(">")))
        if kind == "ARRAY":
            return self._take("<") and self._kind() and self._take(">")
        if kind == "MAP":
            return self._take("<") and self._kind() and self._take(",") and self._kind() and self._take(">")
        return self._size(is_decimal=kind.startswith(("DEC", "NUM"))) and self._more(kind)

    def _fields(self) -> bool:
        while self._column():
            if not self._take(","):
                return True
        return False

    def _size(self, *, is_decimal: bool) -> bool:
        """Pass by what stands in brackets, as in `DECIMAL(9, 2)`."""
        if not self._take("("):
            return True
        if is_decimal and not (self._word().isdecimal() and int(self._word()) <= _DIGITS):
            return False
        while self._word() not in ("", ")"):
            self._at += 1
        return self._take(")")

    def _more(self, kind: str) -> bool:
        """Pass by the other words of a type, as in `TIMESTAMP WITHOUT TIME ZONE`."""
        begins = {"INTERVAL": "", "STRING": "COLLATE"}.get(kind, "WITH" if kind.startswith("TIME") else None)
        if begins is None or not self._word().startswith(begins):
            return True
        while self._word() not in ("", "NOT", "COMMENT", *_MARKS):
            self._at += 1
        return True

    def _take(self, word: str) -> bool:
        is_there = self._word() == word
        self._at += is_there
        return is_there

    def _word(self) -> str:
        return self._found[self._at][0].upper() if self._at < len(self._found) else ""
