"""Rows of a DataFrame as messages: subject, payload, headers, key and id.

**Ids.** A message of the sink has an id, so that a subscriber with `dedupe` drops a repeated message. Spark
repeats a task or a batch after a failure, and the rows may come in another order. If the id were the number of the row,
`dedupe` would then drop a new row in place of a repeated row. Therefore the id is a digest.

- If the DataFrame has a column `id`, the id is made from the id of the query and the value in this column.
- Otherwise the id is a digest of the id of the query, the number of the batch, the number of the partition, and all
  fields of the row. If the partition has equal rows, the digest also covers how many of them come before the row.

The order of rows does not change an id. Without the column `id`, a row that moves to another partition gets another id.
The message of this row is then delivered twice, and is not lost.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa
from pyspark.sql import types as T

from oz.errors import SinkError
from oz.message import Extras
from oz.wire.extras import check_extras

MessageId = bytes | tuple[bytes, int]

_TEXT, _BYTES = T.StringType, T.BinaryType
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_HEADER_VALUES = (T.StringType, T.BinaryType, T.NumericType, T.BooleanType)
_ID_BYTES = 16
_LENGTHS = struct.Struct(">qqqq")
_ABSENT = -1  # length of a null field in the digest
_FRAMES, _OWN = "oz-frames", "oz-"  # see oz.journal.records


class Row(NamedTuple):
    """A row of a DataFrame as a message to publish."""

    subject: bytes
    payload: bytes
    headers: dict[str, Any] | None
    key: bytes | None
    id: MessageId


class Columns(NamedTuple):
    """Positions of the columns in a DataFrame. An absent column has the position None."""

    payload: int
    subject: int | None
    subject_raw: int | None
    headers: int | None
    key: int | None
    id: int | None


def find_columns(schema: T.StructType, *, needs_subject: bool) -> Columns:
    """Find the columns that the sink publishes. Other columns are ignored.

    Args:
        schema: the schema of the DataFrame.
        needs_subject: whether the column `subject` is required, because the option `subject` is not set.

    Raises:
        SinkError: a column is absent, occurs twice, or has a wrong type. The message names all these columns.
    """
    found: dict[str, int] = {}
    wrong = []
    for at, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in _TYPES or (name in ("subject", "subject_raw") and not needs_subject):
            continue
        if name in found:
            wrong.append(f"there are two columns {name!r}")
        elif not _TYPES[name][0](field.dataType):
            wrong.append(f"column {name!r} is {field.dataType.simpleString()}, not {_TYPES[name][1]}")
        found[name] = at
    required = ("subject", "payload") if needs_subject else ("payload",)
    wrong += [f"there is no column {name!r}" for name in required if name not in found]
    if wrong:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        raise SinkError(
            f"the sink cannot publish these rows: {', '.join(wrong)}. The option subject gives one subject "
            f"to all rows. The columns are: {columns or 'none'}"
        )
    return Columns(found["payload"], *(found.get(name) for name in Columns._fields[1:]))


def _is_header_map(kind: T.DataType) -> bool:
    return (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, _TEXT)
        and isinstance(kind.valueType, _HEADER_VALUES)
    )


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "subject": (lambda kind: isinstance(kind, (_TEXT, _BYTES)), "string or binary"),
    "subject_raw": (lambda kind: isinstance(kind, _BYTES), "binary"),
    "payload": (lambda kind: isinstance(kind, (_TEXT, _BYTES, T.StructType)), "binary, string or a struct"),
    "headers": (
        lambda kind: isinstance(kind, _BYTES) or _is_header_map(kind),
        "binary, or a map of string to string, binary, numbers or boolean",
    ),
    "key": (lambda kind: isinstance(kind, (_TEXT, _BYTES)), "string or binary"),
    "id": (lambda kind: isinstance(kind, (_TEXT, _BYTES, *_INTEGERS)), "an integer, string or binary"),
}


class RowIds:
    """Message ids for the rows of one partition."""

    def __init__(self, query: str, batch: int, partition: int) -> None:
        """Prepare the digests.

        Args:
            query: the id of the query, or the name of a batch write.
            batch: the number of the batch.
            partition: the number of the partition in the batch.
        """
        self._series = blake2b(f"oz.spark {query}".encode(), digest_size=_ID_BYTES).digest()
        self._content = blake2b(f"oz.spark {query} {batch} {partition}".encode(), digest_size=_ID_BYTES)
        self._counts: dict[bytes, int] = {}

    def of_value(self, value: int | bytes) -> MessageId:
        """Return the id of a row from its value in the column `id`.

        Raises:
            ValueError: the value is a negative integer.
        """
        if isinstance(value, bytes):
            return blake2b(self._series + value, digest_size=_ID_BYTES).digest()
        if value < 0:
            raise ValueError(f"an integer of the column id must be at least 0, and this one is {value}")
        return self._series, value

    def of_content(
        self, subject: bytes, payload: bytes, headers: bytes | None = None, key: bytes | None = None
    ) -> bytes:
        """Return the id of a row from its other fields, if it has no value in the column `id`."""
        lengths = _LENGTHS.pack(
            len(subject),
            len(payload),
            _ABSENT if headers is None else len(headers),
            _ABSENT if key is None else len(key),
        )
        content = b"".join((lengths, subject, payload, headers or b"", key or b""))
        digest = self._digest(content)
        count = self._counts.get(digest, 0)
        self._counts[digest] = count + 1
        return self._digest(b"%s %d" % (content, count)) if count else digest

    def _digest(self, content: bytes) -> bytes:
        state = self._content.copy()
        state.update(content)
        return state.digest()


class RowReader:
    """Converter from the rows of one task to messages."""

    def __init__(self, columns: Columns, ids: RowIds, *, subject: str | None, encoding: str) -> None:
        """Prepare the conversion.

        Args:
            columns: the positions of the columns.
            ids: ids of the rows of the task.
            subject: the subject of all rows; None to use the column `subject`.
            encoding: encoding of payloads that are structs: "msgpack" or "json".
        """
        self._columns = columns
        self._ids = ids
        self._subject = None if subject is None else subject.encode(errors="surrogateescape")
        self._encode = encode_msgpack if encoding == "msgpack" else encode_json

    def read(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Yield the rows of a batch as messages.

        Raises:
            ValueError: a row cannot be published.
        """
        rows, at = batch.num_rows, self._columns
        nothing = [None] * rows
        # To convert a whole column takes a tenth of the time that its single values would take.
        names = [None if place is None else batch.column(place) for place in at]
        payload, subject, raw, headers, key, ids = (
            nothing if column is None else _values(column) for column in names
        )
        if self._subject is not None:
            subject = [self._subject] * rows
        for row in zip(subject, raw, payload, headers, key, ids, strict=True):
            yield self._row(*row)

    def _row(self, subject: Any, raw: Any, payload: Any, headers: Any, key: Any, own_id: Any) -> Row:
        if raw is not None:
            subject = raw
        if subject is None or payload is None:
            raise ValueError(f"the {'subject' if subject is None else 'payload'} is null")
        subject = _bytes(subject)
        payload = self._encode(payload) if type(payload) is dict else _bytes(payload)
        key = None if key is None else _bytes(key)
        fields: dict[str, Any] | None = None
        packed: bytes | None = None
        if headers:
            if isinstance(headers, bytes):
                packed = headers
                fields, frames = unpack_headers(headers)
                if frames:
                    raise ValueError(
                        f"the message was recorded with {len(frames) + 1} frames of payload, and a message has "
                        "one: join them in the column payload, and give a column headers without oz-frames"
                    )
            else:
                fields = pack_values(headers)
                packed = msgpack.packb(fields)
        if own_id is None:
            message_id: MessageId = self._ids.of_content(subject, payload, packed, key)
        else:
            message_id = self._ids.of_value(own_id if type(own_id) is int else _bytes(own_id))
        return Row(subject, payload, fields, key, message_id)


def _values(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode(errors="surrogateescape")


def encode_msgpack(value: Any) -> bytes:
    """Encode a struct as MessagePack. Times become text in ISO 8601, and decimals become text of digits."""
    packed: bytes = msgpack.packb(value, use_bin_type=True, default=_text)
    return packed


def encode_json(value: Any) -> bytes:
    """Encode a struct as JSON.

    Times and decimals become text, as in `encode_msgpack`. Binary values become base64. NaN and infinity become text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_text)
    except ValueError:
        # JSON has no NaN and no infinity. Spark's function `to_json` also writes these values as text.
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=_json_text)
    return text.encode()


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _json_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _text(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def pack_values(headers: dict[str, Any]) -> dict[str, Any]:
    """Return headers with text in place of decimals, and check them.

    Raises:
        ValueError, TypeError: a message cannot have such a header.
    """
    fields = {name: _text(value) if isinstance(value, Decimal) else value for name, value in headers.items()}
    check_extras(Extras(headers=fields))
    return fields


def unpack_headers(packed: bytes) -> tuple[dict[str, Any] | None, list[bytes]]:
    """Return the parts of a value of the column `headers`: headers, and frames after the first payload frame.

    Raises:
        ValueError: the value is no map of headers in MessagePack.
    """
    try:
        found = msgpack.unpackb(packed, raw=False, strict_map_key=True)
    except Exception as error:  # msgpack has no common class for its errors
        raise ValueError(f"the headers are no MessagePack map: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the headers are no MessagePack map")
    frames = found.pop(_FRAMES, [])
    fields = {name: value for name, value in found.items() if not name.startswith(_OWN)}
    check_extras(Extras(headers=fields))
    return fields or None, frames
