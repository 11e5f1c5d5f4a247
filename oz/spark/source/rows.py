"""Records as Spark's rows: the columns, and Arrow batches of exactly the types that Spark expects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oz.errors import JournalError, OptionError
from oz.journal.record import Kind
from oz.journal.schema import bytes_array, whole_number
from oz.logs import logger
from oz.spark.payloads import decode_json, decode_msgpack, decode_string, undecodable
from oz.spark.source.headers import HeaderColumns

_log = logger("oz.spark.source")

DDL = {
    "offset": "BIGINT NOT NULL",
    "time": "TIMESTAMP",
    "time_ns": "BIGINT",
    "kind": "TINYINT",
    "lost": "BIGINT",
    "origin": "BINARY",
    "sequence": "BIGINT",
    "subject": "STRING",
    "subject_raw": "BINARY",
    "reply_to": "BINARY",
    "headers": "BINARY",
    "payload": "BINARY",
    "position": "BIGINT",
}
"""The columns; docs/spark-source.md explains each."""

JOURNAL = "journal"
"""The column for the directory, where there are several journals."""

_NEVER_NULL = ("offset", "time", "time_ns", "kind", "subject", JOURNAL)

PAYLOAD_RAW = "payload_raw"
"""The column for payloads that do not decode."""

_ARROW = {
    "BIGINT NOT NULL": pa.int64(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TINYINT": pa.int8(),
    "BINARY": pa.binary(),
    "STRING": pa.string(),
}
_NANO, _MICRO = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")
_FEW_ROWS = 2048  # rows of a chunk; smaller ones are put together


_AS_THEY_ARE = HeaderColumns()
_MESSAGE = whole_number(int(Kind.MESSAGE), pa.int8())
_SHOWN = 60  # bytes of a payload in an error


class Malformed(NamedTuple):
    """The fate of payloads that do not decode.

    Attributes:
        mode: `permissive`, `failfast` or `dropmalformed`.
        column: the column that has them.
    """

    mode: str = "permissive"
    column: str = PAYLOAD_RAW


_PERMISSIVE = Malformed()


def ddl(
    payload: str,
    payload_schema: str | None,
    headers: HeaderColumns = _AS_THEY_ARE,
    malformed: Malformed = _PERMISSIVE,
    *,
    names_journal: bool = False,
) -> str:
    """Write down the columns as Spark reads them.

    Args:
        payload: how payloads are decoded, one of `options.PAYLOADS`.
        payload_schema: the columns of a payload, for those that have such.
        headers: the columns that come out of the headers.
        malformed: the column for payloads that do not decode.
        names_journal: whether rows say which journal they are of.

    Raises:
        OptionError: it is missing, or a column of it has no type that Spark knows.
    """
    columns = DDL | headers.ddl
    if payload in ("json", "msgpack"):
        if payload_schema is None or not payload_schema.strip():
            wanted = "payloadSchema, the columns of a payload as in 'price DOUBLE, size BIGINT'"
            raise OptionError("payload", payload, f"it needs the option {wanted}")
        columns["payload"] = f"STRUCT<{payload_schema}>"
    if payload == "string":
        columns["payload"] = "STRING"
    if names_journal:
        columns[JOURNAL] = "STRING"
    if payload != "raw":
        _refuse_taken(malformed.column, columns)
        columns[malformed.column] = "BINARY"
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def _refuse_taken(corrupt: str, columns: Iterable[str]) -> None:
    """Refuse another column's name for that of malformed payloads, whatever its case: Spark goes by none."""
    if not corrupt.strip() or corrupt.lower() in map(str.lower, columns):
        rule = f"it is a column of its own, beside {', '.join(columns)}"
        raise OptionError("columnNameOfCorruptRecord", corrupt, rule)


class DecodedRows:
    """Makes rows of records."""

    def __init__(
        self,
        schema: StructType,
        payload: str,
        headers: HeaderColumns = _AS_THEY_ARE,
        malformed: Malformed = _PERMISSIVE,
        *,
        names_journal: bool = False,
    ) -> None:
        """Prepare.

        Args:
            schema: the columns that Spark expects: these ones, or some of them.
            payload: how payloads are decoded.
            headers: the columns that come out of the headers.
            malformed: what becomes of payloads that do not decode.
            names_journal: whether rows say which journal they are of.

        Raises:
            OptionError: there is no such column, or it has another type.
        """
        if payload != "raw":
            _refuse_undecodable(schema)
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._payload = payload
        self._headers = headers
        self._malformed = malformed
        self._names_journal = names_journal
        self._has_headers = not headers.ddl.keys().isdisjoint(self._schema.names)
        self._check()

    def _check(self) -> None:
        known = {name: _ARROW[kind] for name, kind in DDL.items()} | self._headers.arrow
        if self._names_journal:
            known[JOURNAL] = pa.string()
        if self._payload != "raw":
            _refuse_taken(self._malformed.column, known)
            known[self._malformed.column] = pa.binary()
        for field in self._schema:
            if field.name not in known:
                raise OptionError("schema", field.name, f"there are the columns {', '.join(known)}")
            wanted = known[field.name]
            if field.name == "payload" and self._payload != "raw":
                wanted = pa.string() if self._payload == "string" else field.type
            if field.type != wanted:
                raise OptionError("schema", f"{field.name}: {field.type}", f"its type is {wanted}")
            if not field.nullable and not self._is_never_null(field.name):
                # Spark goes by it, and finds none where it is asked for those that are null.
                raise OptionError("schema", f"{field.name} NOT NULL", "it may be null")
        corrupt, mode = self._malformed.column, self._malformed.mode
        if mode != "permissive" and self._payload != "raw" and "payload" not in self._schema.names:
            raise OptionError("mode", mode, "it needs the column payload, whose type decides")
        if corrupt in self._schema.names and "payload" not in self._schema.names:
            raise OptionError("schema", corrupt, "it needs the column payload, whose type decides")

    def _is_never_null(self, name: str) -> bool:
        return name in _NEVER_NULL or (name == "payload" and self._payload == "raw")

    @property
    def columns(self) -> set[str]:
        """The columns of the journal that these are made of."""
        needed = set(self._schema.names)
        if "time" in needed:
            needed.add("time_ns")
        if self._has_headers:
            needed.add("headers")
        if "payload" in needed and self._payload != "raw":
            needed |= {"offset", "kind"}
        return needed

    def of(self, records: pa.Table, journal: str = "") -> Iterator[pa.RecordBatch]:
        """Make batches of the records of a table.

        Args:
            records: the table, with `columns`.
            journal: the directory.

        Raises:
            JournalError: a payload does not decode, and that is an error.
        """
        if records.num_rows < _FEW_ROWS * records.column(0).num_chunks:
            records = records.combine_chunks()
        for batch in records.to_batches():
            made = self._made(batch, journal)
            if made.num_rows:
                yield made

    def _made(self, batch: pa.RecordBatch, journal: str) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {}
        failed = None
        if self._payload != "raw" and "payload" in self._schema.names:
            made, failed = self._decoded(batch)
        if self._has_headers:
            made |= self._headers.of(batch.column("headers"))
        if JOURNAL in self._schema.names:
            made[JOURNAL] = pa.repeat(
                bytes_array([os.fsencode(journal)])[0].cast(pa.string()), batch.num_rows
            )
        if "time" in self._schema.names:
            made["time"] = microseconds(batch.column("time_ns"))
        columns = [made[name] if name in made else batch.column(name) for name in self._schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if failed is None or self._malformed.mode == "permissive":
            return rows
        return self._without(rows, failed, batch)

    def _decoded(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array | None]:
        """Decode payloads; and tell which are malformed, None where none is."""
        payloads = batch.column("payload")
        decoded, corrupt = self._decoder()(payloads), self._malformed.column
        failed = pc.is_null(decoded)
        if failed.true_count == 0:
            return {"payload": decoded, corrupt: pa.nulls(len(payloads), pa.binary())}, None
        raw = pc.if_else(failed, payloads, pa.nulls(1, pa.binary())[0])
        return {"payload": decoded, corrupt: raw}, pc.and_(failed, pc.equal(batch.column("kind"), _MESSAGE))

    def _without(self, rows: pa.RecordBatch, failed: pa.Array, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out what is malformed, unless that is an error."""
        bad = batch.filter(failed)
        if not bad.num_rows:
            return rows
        first, payload = bad.column("offset")[0].as_py(), bad.column("payload")[0].as_py()
        said = f"the payload of offset {first} is no {self._payload} of the schema: {payload[:_SHOWN]!r}"
        if self._malformed.mode == "failfast":
            column = self._malformed.column
            raise JournalError(f"{said}; mode=permissive gives null, and the bytes in the column {column}")
        _log.warning("%s; it and %d more are left out by mode=dropmalformed", said, bad.num_rows - 1)
        return rows.filter(pc.invert(failed))

    def _decoder(self) -> Any:
        if self._payload == "string":
            return decode_string
        kind = self._schema.field("payload").type
        return partial(decode_json if self._payload == "json" else decode_msgpack, kind=kind)


def _refuse_undecodable(schema: StructType) -> None:
    for field in schema:
        if field.name == "payload":
            for fault in undecodable(field.dataType):
                raise OptionError("payloadSchema", field.dataType.simpleString(), fault)


def microseconds(times: pa.Array) -> pa.Array:
    """Cast times in nanoseconds since 1970 to Spark's timestamps, which are earlier by the rest."""
    moments = times.view(_NANO)
    made = moments.cast(_MICRO, safe=False)  # towards 1970
    if (pc.min(times).as_py() or 0) >= 0:
        return made
    return pc.floor_temporal(moments, unit="microsecond").cast(_MICRO)
