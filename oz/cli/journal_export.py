"""`oz journal export`: records in the formats of other tools."""

from __future__ import annotations

import base64
import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, parse_all
from oz.cli.output import quiet_option
from oz.cli.progress import progress_bar
from oz.cli.ranges import RANGES, pattern_option, range_options, span_of
from oz.escaping import json_text

if TYPE_CHECKING:  # needs pyarrow, an extra
    import pyarrow as pa

    from oz.journal import Journal

_HELP = f"""Write records to FILE, or to standard output, for other tools.

FILE is a path, or the URI of a file on a file system of pyarrow, such as s3://bucket/march.parquet.

Gap records are written too, with kind 1, for each --pattern. If subject, payload, reply_to or headers are not
UTF-8, jsonl and csv have them in base64, under the name with the suffix _base64.

{RANGES}

\b
Examples:
  oz journal export recorded march.parquet --start 2026-03-01 --end 2026-04-01
  oz journal export recorded --start -1h
  oz journal export recorded --pattern 'rv:RUN.*' --file-format csv > runs.csv
"""

_FORMATS = ("jsonl", "csv", "parquet")

_TEXTS = ("payload", "subject", "reply_to", "headers")
_FIELDS = ("offset", "time", "kind", "lost", "origin", "sequence", "position")
_CSV_FIELDS = (*_FIELDS, *(f"{name}{suffix}" for name in _TEXTS for suffix in ("", "_base64")))


@click.command(help=_HELP, short_help="Write records as jsonl, csv or parquet.")
@click.argument("directory", type=PathName(file_okay=False, path_type=Path))
@click.argument("file", required=False, type=TEXT_OF_PLACE)
@click.option("--file-format", "form", type=click.Choice(_FORMATS), metavar="NAME",
              help="jsonl, csv or parquet.  [default: by the suffix of FILE, or jsonl]")  # fmt: skip
@pattern_option
@range_options
@quiet_option
def export(
    directory: Path,
    file: str | None,
    form: str | None,
    pattern: str | None,
    start: int | datetime | None,
    end: int | datetime | None,
    dialect: str,
) -> None:
    """Export; the text of the help is `_HELP`."""
    from oz.journal import Journal

    path = urlsplit(file).path if file and "://" in file else file
    form = form or (PurePosixPath(path).suffix.lstrip(".") if path else "jsonl")
    if form not in _FORMATS:
        raise click.UsageError(
            f"{file!r} has no suffix of a format: give --file-format jsonl, csv or parquet"
        )
    if form == "parquet" and file is None:
        raise click.UsageError("parquet needs a FILE, because it is not written to a pipe")
    found = Journal(directory)
    compiled = parse_all([pattern], dialect)[0] if pattern is not None else None
    batches = _counted(found, start, end, found.batches(compiled, start=start, end=end, gaps=True))
    if file is None:
        _write(_lines(batches, form), sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with _output(file) as out:
        if form == "parquet":
            _write_parquet(batches, out)
        else:
            _write(_lines(batches, form), out)


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """Open a file for writing; a local regular file gets its name when it is complete."""
    if "://" in file:
        from pyarrow import ArrowException, fs

        try:
            system, path = fs.FileSystem.from_uri(file)
            with system.open_output_stream(path) as out:
                yield out
        except ArrowException as error:
            raise click.ClickException(f"{file}: {error}") from None
        return
    path = Path(file)
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as out:
            yield out
        return
    if not path.parent.is_dir():
        raise click.ClickException(f"{file}: there is no directory {path.parent}; create it first")
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as out:
            yield out
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _counted(
    journal: Journal, start: Any, end: Any, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, and show a progress bar."""
    first, last = span_of(journal, start, end)
    with progress_bar("exporting", last - first) as update:
        for batch in batches:
            yield batch
            if update is not None:
                update(batch.column("offset")[-1].as_py() + 1 - first, "exporting")


def _write_parquet(batches: Iterable[pa.RecordBatch], to: BinaryIO) -> None:
    import pyarrow.parquet as pq

    from oz.journal import SCHEMA

    with pq.ParquetWriter(to, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write(pieces: Iterable[bytes], to: BinaryIO) -> None:
    for piece in pieces:
        to.write(piece)


def _lines(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[bytes]:
    """Yield the records as text, one piece for each batch: JSON objects without nulls, or rows of CSV."""
    if form == "csv":
        yield _rows([dict(zip(_CSV_FIELDS, _CSV_FIELDS, strict=True))])
    for batch in batches:
        data = map(_as_data, batch.to_pylist())
        yield _rows(data) if form == "csv" else "".join(f"{json_text(row)}\n" for row in data).encode()


def _as_data(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record in types of JSON, without nulls."""
    data = {name: row[name] for name in _FIELDS}
    data["time"] = f"{row['time']:%Y-%m-%dT%H:%M:%S.%fZ}"
    data["origin"] = row["origin"] and row["origin"].hex()
    row["subject"] = row["subject"].encode() if row["subject_raw"] is None else row["subject_raw"]
    for name in _TEXTS:
        value = row[name]
        try:
            data[name] = value and value.decode()
        except UnicodeDecodeError:
            data[f"{name}_base64"] = base64.b64encode(value).decode()
    return {
        name: value if type(value) is not bytes else "" for name, value in data.items() if value is not None
    }


def _rows(data: Iterable[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    csv.DictWriter(out, _CSV_FIELDS, lineterminator="\n").writerows(data)
    return out.getvalue().encode()
