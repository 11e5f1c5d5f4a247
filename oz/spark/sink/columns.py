"""The columns of a DataFrame that the sink publishes, and its rows as they are staged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

from oz.errors import OzError, SinkError
from oz.spark.sink.encoding import check_headers, encoder, pack_headers, plain
from oz.spark.sink.settings import SinkSettings
from oz.transport.publisher.subjects import subject_check

STAGED = pa.schema(
    [
        pa.field("subject", pa.large_binary(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
        pa.field("headers", pa.large_binary()),
        pa.field("key", pa.large_binary()),
    ]
)
"""Rows as they wait to be published."""

_TEXT, _BYTES = T.StringType, T.BinaryType
_SIMPLE = (T.StringType, T.BinaryType, T.NumericType, T.BooleanType)
_REMEMBERED = 65_536
_SHOWN = 200


class SinkColumns(NamedTuple):
    """The places of fields in a row; None where there is no such column, or none is needed."""

    subject: int | None
    payload: int
    headers: int | None
    key: int | None
    has_struct: bool
    has_map: bool


def find_columns(schema: T.StructType, *, needs_subject: bool = True) -> SinkColumns:
    """Find the columns to publish; others are left alone.

    Args:
        schema: the DataFrame's.
        needs_subject: whether the rows say their subject; else a column of that name is one of the others.

    Raises:
        SinkError: one is missing or has the wrong type; names them all.
    """
    found: dict[str, int] = {}
    wrong = []
    for at, one in enumerate(schema.fields):
        name = one.name.lower()
        if name in _TYPES and (needs_subject or name != "subject"):
            if name in found:
                wrong.append(f"there are two columns {name!r}")
            elif not _TYPES[name][0](one.dataType):
                wrong.append(f"column {name!r} is {one.dataType.simpleString()}, not {_TYPES[name][1]}")
            found[name] = at
    needed = ("subject", "payload") if needs_subject else ("payload",)
    wrong += [f"there is no column {name!r}" for name in needed if name not in found]
    if wrong:
        raise SinkError(
            f"the sink cannot publish these rows: {', '.join(wrong)}. It takes subject (string or binary), "
            "payload (binary, string or struct), and, if any, headers (a map, or binary as the journal has "
            "them) and key (string or binary). The option subject says one for all rows. "
            f"The columns are: {_shown(schema)}"
        )
    kinds = [one.dataType for one in schema.fields]
    headers = found.get("headers")
    return SinkColumns(
        found.get("subject"),
        found["payload"],
        headers,
        found.get("key"),
        isinstance(kinds[found["payload"]], T.StructType),
        headers is not None and isinstance(kinds[headers], T.MapType),
    )


def _is_map(kind: T.DataType) -> bool:
    return (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, _TEXT)
        and isinstance(kind.valueType, _SIMPLE)
    )


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "subject": (lambda kind: isinstance(kind, (_TEXT, _BYTES)), "string or binary"),
    "payload": (lambda kind: isinstance(kind, (_TEXT, _BYTES, T.StructType)), "binary, string or a struct"),
    "headers": (
        lambda kind: isinstance(kind, _BYTES) or _is_map(kind),
        "binary or a map of string to string, binary, numbers or boolean",
    ),
    "key": (lambda kind: isinstance(kind, (_TEXT, _BYTES)), "string or binary"),
}


def _shown(schema: T.StructType) -> str:
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema.fields) or "none"


@dataclass
class RowReader:
    """Makes rows ready to be staged, within one task.

    Attributes:
        rows: rows that came.
        skipped: rows that cannot be published.
        example: what was wrong with the first of those.
    """

    columns: SinkColumns
    settings: SinkSettings
    partition: int
    rows: int = 0
    skipped: int = 0
    example: str | None = None
    _known: dict[bytes, str | None] = field(default_factory=dict)
    _check: Callable[[bytes], object] = field(init=False)

    def __post_init__(self) -> None:
        """Make what checks subjects, once for all."""
        self._check = subject_check(self.settings.dialect, b"", self.settings.endpoints)

    def ready(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of batches as they are staged.

        Raises:
            SinkError: a row cannot be published, unless such rows are skipped.
        """
        for batch in batches:
            if batch.num_rows:
                yield self._ready(batch)
                self.rows += batch.num_rows

    def _ready(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at, wrong = self.columns, dict[int, str]()
        subjects = self._subjects(batch)
        payloads, headers = batch.column(at.payload), None
        self._check_subjects(subjects, wrong)
        _note_nulls(payloads, "the payload is null", wrong)
        if at.has_struct:
            encode = encoder(self.settings.payload)
            payloads = _each(payloads, lambda one: encode(plain(one)), "the payload", wrong)
        if at.headers is not None:
            read = pack_headers if at.has_map else check_headers
            headers = _each(batch.column(at.headers), read, "headers", wrong)
        keys = None if at.key is None else _as_bytes(batch.column(at.key))
        made = [subjects, _as_bytes(payloads), headers, keys]
        arrays = [pa.nulls(batch.num_rows, pa.large_binary()) if one is None else one for one in made]
        if wrong:
            arrays = self._without(arrays, wrong)
        return pa.RecordBatch.from_arrays(arrays, schema=STAGED)

    def _subjects(self, batch: pa.RecordBatch) -> pa.Array:
        if self.columns.subject is not None:
            return _as_bytes(batch.column(self.columns.subject))
        subject = str(self.settings.subject).encode(errors="surrogateescape")
        return pa.repeat(pa.scalar(subject, pa.large_binary()), batch.num_rows)

    def _check_subjects(self, subjects: pa.Array, wrong: dict[int, str]) -> None:
        _note_nulls(subjects, "the subject is null", wrong)
        encoded = subjects.dictionary_encode()
        reasons = [self._reason(one) for one in encoded.dictionary.to_pylist()]
        if any(reasons):
            for row, which in enumerate(encoded.indices.to_pylist()):
                if which is not None and (reason := reasons[which]):
                    wrong.setdefault(row, reason)

    def _reason(self, subject: bytes) -> str | None:
        """Say why a subject may not be published; None when it may."""
        try:
            return self._known[subject]
        except KeyError:
            pass
        try:
            self._check(subject)
            reason = None
        except OzError as error:
            reason = str(error)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[subject] = reason
        return reason

    def _without(self, arrays: list[pa.Array], wrong: dict[int, str]) -> list[pa.Array]:
        """Leave out rows that cannot be published, if that is what was asked for."""
        first = min(wrong)
        said = f"row {self.rows + first} of partition {self.partition}: {wrong[first]}"
        if len(said) > _SHOWN * 3:
            said = f"{said[: _SHOWN * 3]}…"
        if self.settings.invalid == "fail":
            raise SinkError(
                f"{said}; nothing of this batch was published: correct it, or give the sink's option "
                "invalid=skip to leave such rows out and count them"
            )
        self.skipped += len(wrong)
        self.example = self.example or said
        keep = pa.array([row not in wrong for row in range(len(arrays[0]))])
        return [one.filter(keep) for one in arrays]


def _as_bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_string() if pa.types.is_string(values.type) else pa.large_binary()).cast(
        pa.large_binary()
    )


def _note_nulls(values: pa.Array, what: str, wrong: dict[int, str]) -> None:
    if values.null_count:
        for row, is_null in enumerate(values.is_null().to_pylist()):
            if is_null:
                wrong.setdefault(row, what)


def _each(values: pa.Array, make: Callable[[pa.Scalar], Any], what: str, wrong: dict[int, str]) -> pa.Array:
    """Make bytes of each value; where that fails the row is noted as wrong."""
    made: list[bytes | None] = []
    for row, value in enumerate(values):
        try:
            made.append(make(value) if value.is_valid else None)
        except Exception as error:  # whatever a value may do to a codec
            wrong.setdefault(row, f"{what} cannot be encoded: {type(error).__name__}: {error}")
            made.append(None)
    return pa.array(made, pa.large_binary())
