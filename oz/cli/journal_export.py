"""`oz journal export`: records in the formats of other tools."""

from __future__ import annotations

import base64
import csv
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, dialect_option, parse_all
from oz.cli.output import console
from oz.cli.ranges import RANGES, range_options
from oz.escaping import json_text

if TYPE_CHECKING:  # needs pyarrow, an extra
    import pyarrow as pa

    from oz.journal import Journal, Record
    from oz.journal.places import Place

_HELP = f"""Write records to FILE, or to standard output, for other tools.

FILE is a path, or the URI of a file on a file system that pyarrow reaches, such as s3://bucket/march.parquet.

Losses are written too, with their kind. Where subject, payload, reply_to or headers are not UTF-8, jsonl and
csv have them in base64, under the name with _base64 after it.

{RANGES}

\b
Examples:
  oz journal export recorded march.parquet --from 2026-03-01 --until 2026-04-01
  oz journal export recorded --since -1h
  oz journal export recorded --subject 'rv:RUN.*' --format csv > runs.csv
"""

_FORMATS = ("jsonl", "csv", "parquet")

_BYTES = ("payload", "subject", "reply_to", "headers")
_FIELDS = ("offset", "time_ns", "kind", "lost", "origin", "sequence", "position")
_CSV_FIELDS = (*_FIELDS, *(f"{name}{suffix}" for name in _BYTES for suffix in ("", "_base64")))


@click.command(help=_HELP, short_help="Write records as jsonl, csv or parquet.")
@click.argument("directory", type=PathName(file_okay=False, path_type=Path))
@click.argument("file", required=False, type=TEXT_OF_PLACE)
@click.option("--format", "form", type=click.Choice(_FORMATS), metavar="NAME",
              help="jsonl, csv or parquet.  [default: by the ending of FILE, or jsonl]")  # fmt: skip
@click.option("--subject", metavar="PATTERN", help="Only what this pattern matches.")
@range_options("--to")
@dialect_option("the pattern when it names none")
def export(
    directory: Path,
    file: str | None,
    form: str | None,
    subject: str | None,
    start: int | datetime | None,
    end: int | datetime | None,
    dialect: str,
) -> None:
    """Export; the text of the help is `_HELP`."""
    from oz.journal import Journal

    name = file and _path_of(file)
    form = form or (PurePosixPath(name).suffix.lstrip(".") if name else "jsonl")
    if form not in _FORMATS:
        raise click.UsageError(f"{file!r} does not tell the format: give --format jsonl, csv or parquet")
    if form == "parquet" and file is None:
        raise click.UsageError("parquet needs a FILE to write to")
    found = Journal(directory)
    to = _place_of(file) if file else None
    pattern = parse_all([subject], dialect)[0] if subject is not None else None
    batches = found.batches(pattern, start=start, end=end, gaps=True)
    with _progress(found, start, end) as counted:
        if to is None:
            _write(_lines(counted(batches), form), sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        with to.writing() as out, to.errors():
            if form == "parquet":
                _write_parquet(counted(batches), out)
            else:
                _write(_lines(counted(batches), form), out)


def _path_of(file: str) -> str:
    from oz.journal.places import is_uri

    return urlsplit(file).path if is_uri(file) else file


def _place_of(file: str) -> Place:
    from oz.journal.places import place_of

    return place_of(file)


@contextmanager
def _progress(journal: Journal, start: Any, end: Any) -> Iterator[Any]:
    """Show a bar on stderr while it lasts, if stderr is a terminal; gives what batches must pass through."""
    if not sys.stderr.isatty() or not (screen := console(stderr=True)).is_terminal:
        yield lambda batches: batches
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    first = max(start, journal.first_offset) if isinstance(start, int) else journal.first_offset
    last = min(end, journal.end_offset) if isinstance(end, int) else journal.end_offset
    columns = (TextColumn("records passed"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as bar:
        task = bar.add_task("", total=max(0, last - first))

        def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                bar.update(task, completed=batch.column("offset")[-1].as_py() + 1 - first)
            bar.update(task, completed=max(0, last - first))

        yield counted


def _write_parquet(batches: Iterable[pa.RecordBatch], to: BinaryIO) -> None:
    """Write a Parquet file with the columns of a journal, compressed; a row group for each batch.

    Args:
        batches: with all columns.
        to: an open file.
    """
    import pyarrow.parquet as pq

    from oz.journal.schema import SCHEMA

    with pq.ParquetWriter(to, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _lines(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[bytes]:
    """Write records as text, a piece for each batch.

    Args:
        batches: with all columns.
        form: `"jsonl"`, an object a line without what is null; or `"csv"`, with a line of names first.
            What may be any bytes stands under its name when it is UTF-8, and otherwise in base64 under its
            name with `_base64` after it; the origin is hexadecimal.
    """
    from oz.journal.schema import records_of

    if form == "csv":
        yield _rows([dict(zip(_CSV_FIELDS, _CSV_FIELDS, strict=True))])
    for batch in batches:
        data = map(_as_data, records_of(batch))
        yield _rows(data) if form == "csv" else "".join(map(_line, data)).encode()


def _write(pieces: Iterable[bytes], to: BinaryIO) -> None:
    """Write the pieces to an open file."""
    for piece in pieces:
        to.write(piece)


def _as_data(record: Record) -> dict[str, Any]:
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
    return json_text(data) + "\n"


def _rows(data: Iterable[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, _CSV_FIELDS, lineterminator="\n")
    writer.writerows(data)
    return out.getvalue().encode()
