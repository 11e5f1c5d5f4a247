"""Writing a journal in the formats of other tools."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from oz.journal.record import Record
from oz.journal.schema import SCHEMA, records_of

FORMATS = ("jsonl", "csv", "parquet")

_BYTES = ("payload", "subject", "reply_to", "headers")
_FIELDS = ("offset", "time_ns", "kind", "lost", "origin", "sequence")
_CSV_FIELDS = (*_FIELDS, *(f"{name}{suffix}" for name in _BYTES for suffix in ("", "_base64")))


def write_parquet(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write a Parquet file with the columns of a journal, compressed; a row group for each batch.

    Args:
        batches: with all columns.
        path: the file; replaced if it is there.
    """
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def lines(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[bytes]:
    """Write records as text, a piece for each batch.

    Args:
        batches: with all columns.
        form: `"jsonl"`, an object a line without what is null; or `"csv"`, with a line of names first.
            What may be any bytes stands under its name when it is UTF-8, and otherwise in base64 under its
            name with `_base64` after it; the origin is hexadecimal.
    """
    if form == "csv":
        yield _rows([dict(zip(_CSV_FIELDS, _CSV_FIELDS, strict=True))])
    for batch in batches:
        data = map(as_data, records_of(batch))
        yield _rows(data) if form == "csv" else "".join(map(_line, data)).encode()


def write(pieces: Iterable[bytes], to: BinaryIO) -> None:
    """Write the pieces to an open file."""
    for piece in pieces:
        to.write(piece)


def as_data(record: Record) -> dict[str, Any]:
    """Return a record as JSON can hold it, without what is null."""
    data = {name: getattr(record, name) for name in _FIELDS}
    if record.origin is not None:
        data["origin"] = record.origin.hex()
    for name in _BYTES:
        data |= _text(name, getattr(record, name))
    return {name: value for name, value in data.items() if value is not None}


def _text(name: str, value: str | bytes | None) -> dict[str, str | None]:
    try:
        return {name: value.decode() if isinstance(value, bytes) else value}
    except UnicodeDecodeError:
        assert isinstance(value, bytes)
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"


def _rows(data: Iterable[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, _CSV_FIELDS, lineterminator="\n")
    writer.writerows(data)
    return out.getvalue().encode()
