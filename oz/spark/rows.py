"""Records of a journal as rows of Spark.

The columns are the columns of the journal, in the same order. Options decode the payload, and add columns from headers.
Spark requires Arrow batches with exactly the types of its schema.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oz.errors import JournalError
from oz.journal.format import COLUMNS, MESSAGE
from oz.logs import logger
from oz.spark.options import option_error
from oz.spark.payloads import decode_json, decode_msgpack, decode_string, undecodable
from oz.times import iso_nanoseconds

DDL = {
    "offset": "BIGINT NOT NULL",
    "time": "TIMESTAMP NOT NULL",
    "kind": "TINYINT NOT NULL",
    "subject": "STRING NOT NULL",
    "payload": "BINARY NOT NULL",
    "subject_raw": "BINARY",
    "reply_to": "BINARY",
    "headers": "BINARY",
    "origin": "BINARY",
    "sequence": "BIGINT",
    "position": "BIGINT",
    "lost": "BIGINT",
}
"""The columns of a journal and their types in Spark. docs/spark-reference.md documents each column."""

_ARROW = {
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TINYINT": pa.int8(),
    "BINARY": pa.binary(),
    "STRING": pa.string(),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
}

# Entries of the column `headers` that are not headers, but other parts of a message; see oz.journal.records.
_NOT_HEADERS = ("oz-frames", "oz-id")

_LARGEST = (1 << 63) - 1
_SHOWN_BYTES = 60  # maximum number of bytes of a payload in the text of an error

_log = logger("oz.spark.source")


@dataclass(frozen=True)
class RowOptions:
    """Options of a read that change or add columns.

    Attributes:
        payload: format of payloads: "raw", "string", "json" or "msgpack".
        payload_schema: fields of a payload as DDL, for the formats "json" and "msgpack"; None for other formats.
        mode: Spark's mode for malformed payloads: "permissive", "failfast" or "dropmalformed".
        corrupt: name of the column that has the bytes of malformed payloads.
        header_map: whether the column `headers` is a map from string to string. Otherwise it is bytes in MessagePack.
        key_header: name of the header that becomes the column `key`; None for no column `key`.
        time_header: name of the header that becomes the column `published`; None for no column `published`.
        names_journal: whether there is a column `journal` with the directory of the journal.
    """

    payload: str = "raw"
    payload_schema: str | None = None
    mode: str = "permissive"
    corrupt: str = "payload_raw"
    header_map: bool = False
    key_header: str | None = None
    time_header: str | None = None
    names_journal: bool = False


class RowFormat:
    """All columns of a read.

    Attributes:
        types: dict from the name of each column to its type as DDL.
    """

    def __init__(self, options: RowOptions) -> None:
        """Choose the columns.

        Raises:
            ConfigurationError: the column for malformed payloads has the name of another column.
        """
        self.types = dict(DDL)
        if options.payload == "string":
            self.types["payload"] = "STRING"
        elif options.payload != "raw":
            self.types["payload"] = f"STRUCT<{options.payload_schema}>"
        if options.header_map:
            self.types["headers"] = "MAP<STRING, STRING>"
        if options.key_header is not None:
            self.types["key"] = "BINARY"
        if options.time_header is not None:
            self.types["published"] = "TIMESTAMP"
        if options.names_journal:
            self.types["journal"] = "STRING NOT NULL"
        if options.payload != "raw":
            if options.corrupt.lower() in self.types:
                raise option_error("columnNameOfCorruptRecord", options.corrupt, "there is such a column")
            self.types[options.corrupt] = "BINARY"

    @property
    def ddl(self) -> str:
        """Schema of all columns as DDL."""
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in self.types.items())


class RowConverter:
    """Converter from batches of a journal to batches with the schema of a query.

    Attributes:
        columns: names of the journal's columns that the conversion needs.
    """

    def __init__(self, options: RowOptions, schema: StructType) -> None:
        """Prepare the conversion.

        Args:
            options: the options that change or add columns.
            schema: the schema of the query: all columns, or the columns in `spark.read.schema(...)`.

        Raises:
            ConfigurationError: a column of the schema does not exist, or has another type.
        """
        self._options = options
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._check(schema)
        names = set(self._schema.names)
        self._has_payload = options.payload != "raw" and "payload" in names
        self._header_columns = {name: make for name, make in self._header_makers().items() if name in names}
        needed = names & set(COLUMNS)
        if self._has_payload:
            needed |= {"offset", "kind"}
        if self._header_columns:
            needed.add("headers")
        self.columns = [name for name in COLUMNS if name in needed] or ["offset"]

    def _check(self, schema: StructType) -> None:
        options, known = self._options, RowFormat(self._options).types
        for field, arrow in zip(schema.fields, self._schema, strict=True):
            if field.name not in known:
                raise option_error("schema", field.name, f"the columns are {', '.join(known)}")
            kind, _, not_null = known[field.name].partition(" NOT")
            if kind.startswith("STRUCT"):
                for wrong in undecodable(field.dataType):
                    raise option_error("payloadSchema", field.dataType.simpleString(), wrong)
                self._decode_empty(arrow.type)
            elif arrow.type != _ARROW[kind]:
                raise option_error("schema", f"{field.name} {field.dataType.simpleString()}", f"it is {kind}")
            if not field.nullable and not not_null:
                # Spark would omit its checks for null, and return wrong results.
                raise option_error("schema", f"{field.name} NOT NULL", "the column may be null")
        names = self._schema.names
        if "payload" not in names and (options.corrupt in names or options.mode != "permissive"):
            raise option_error(
                "schema", ", ".join(names), "mode and malformed payloads need the column payload"
            )

    def _decode_empty(self, kind: pa.DataType) -> None:
        try:
            decode_msgpack(pa.array([], pa.binary()), kind)
        except TypeError as error:
            raise option_error("payloadSchema", str(kind), str(error)) from None

    def convert(self, batch: pa.RecordBatch, journal: str) -> pa.RecordBatch:
        """Convert a batch of a journal.

        Args:
            batch: records with at least the columns `columns`.
            journal: the directory of the journal, for the column `journal`.

        Raises:
            JournalError: a payload is malformed, and the mode is "failfast".
        """
        made: dict[str, pa.Array] = {}
        malformed = None
        if self._has_payload:
            made, malformed = self._decode(batch)
        if self._header_columns:
            made |= self._convert_headers(batch.column("headers"))
        if "journal" in self._schema.names:
            made["journal"] = pa.repeat(pa.scalar(journal, pa.string()), batch.num_rows)
        arrays = [
            made[field.name] if field.name in made else batch.column(field.name).cast(field.type)
            for field in self._schema
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return rows if malformed is None else rows.filter(pc.invert(malformed))

    def _decode(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array | None]:
        """Return the columns for payloads; and for each row whether to drop it, or None if no row is dropped."""
        options, payloads = self._options, batch.column("payload")
        if options.payload == "string":
            decoded = decode_string(payloads)
        else:
            decode = decode_json if options.payload == "json" else decode_msgpack
            decoded = decode(payloads, self._schema.field("payload").type)
        failed = pc.is_null(decoded)
        raw = pc.if_else(failed, payloads, pa.scalar(None, pa.binary()))
        made = {"payload": decoded, options.corrupt: raw}
        malformed = pc.and_(failed, pc.equal(batch.column("kind"), MESSAGE))
        if options.mode == "permissive" or not malformed.true_count:
            return made, None
        first = pc.indices_nonzero(malformed)[0].as_py()
        offset, payload = batch.column("offset")[first].as_py(), payloads[first].as_py()
        shown = payload[:_SHOWN_BYTES]
        text = f"the payload at offset {offset} is no {options.payload} of the schema: {shown!r}"
        if options.mode == "failfast":
            raise JournalError(
                f"{text}; mode=permissive puts such payloads into the column {options.corrupt}"
            )
        _log.warning("%s; mode=dropmalformed drops %d rows of a batch", text, malformed.true_count)
        return made, malformed

    def _header_makers(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        options = self._options
        makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        if options.header_map:
            makers["headers"] = lambda headers: [
                (name, _header_text(value)) for name, value in headers.items() if name not in _NOT_HEADERS
            ]
        if options.key_header is not None:
            makers["key"] = lambda headers: _header_bytes(headers.get(str(options.key_header)))
        if options.time_header is not None:
            makers["published"] = lambda headers: _header_time(headers.get(str(options.time_header)))
        return makers

    def _convert_headers(self, packed: pa.Array) -> dict[str, pa.Array]:
        encoded = packed.dictionary_encode()  # equal headers of several messages are unpacked only once
        headers = [_unpack(each) for each in encoded.dictionary.to_pylist()]
        return {
            name: pa.array(
                [None if each is None else make(each) for each in headers], self._schema.field(name).type
            ).take(encoded.indices)
            for name, make in self._header_columns.items()
        }

    def __getstate__(self) -> tuple[Any, ...]:
        # The functions of `_header_makers` are not pickled, because they are lambdas.
        return self._options, self._schema, self._has_payload, set(self._header_columns), self.columns

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._options, self._schema, self._has_payload, headers, self.columns = state
        self._header_columns = {name: make for name, make in self._header_makers().items() if name in headers}


def _unpack(packed: bytes) -> dict[str, Any] | None:
    try:
        found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    except Exception:  # msgpack has no common class for its errors
        return None
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in found.items() if isinstance(name, str)}


def _header_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else json.dumps(value, default=str)


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, bytes):
        return value
    text = _header_text(value)
    return None if text is None else text.encode()


def _header_time(value: Any) -> int | None:
    """Return the value of a header as microseconds since 1970; None if the value is no time.

    The value may be an integer in nanoseconds since 1970, or a text in ISO 8601 with a zone.
    """
    found = iso_nanoseconds(value) if isinstance(value, str) else value
    return found // 1000 if type(found) is int and abs(found) <= _LARGEST else None
