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
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from oz.cli.options import PathName, parse_all
from oz.cli.output import quiet_option
from oz.cli.progress import progress_bar
from oz.cli.ranges import RANGES, pattern_option, range_options, span_of
from oz.escaping import json_text

if TYPE_CHECKING:  # the module needs pyarrow, which is an extra
    import pyarrow as pa

    from oz.journal import Journal

_HELP = f"""Write records to FILE, or to standard output, for other tools.

The end of the name of FILE selects the format: .parquet, .csv or .jsonl. Standard output gets jsonl, one JSON object in
each line.

Gap records, with kind 1, are written with any --pattern. If subject, payload, reply_to or headers are not UTF-8, jsonl
and csv write the value in base64, under the name with the suffix _base64.

{RANGES}

\b
Examples:
  oz journal export recorded march.parquet --start 2026-03-01 --end 2026-04-01
  oz journal export recorded --start -1h
  oz journal export recorded --pattern 'rv:RUN.*' > runs.jsonl
"""

_TEXTS = ("payload", "subject", "reply_to", "headers")
_FIELDS = ("offset", "time", "kind", "lost", "origin", "sequence", "position")
_CSV_FIELDS = (*_FIELDS, *(f"{name}{suffix}" for name in _TEXTS for suffix in ("", "_base64")))


@click.command(help=_HELP, short_help="Write records as jsonl, csv or parquet.")
@click.argument("directory", type=PathName(file_okay=False, path_type=Path))
@click.argument("file", required=False, type=PathName(path_type=Path))
@pattern_option
@range_options
@quiet_option
def export(
    directory: Path,
    file: Path | None,
    pattern: str | None,
    start: int | datetime | None,
    end: int | datetime | None,
    dialect: str,
) -> None:
    """Export records; `_HELP` is the text of `--help`."""
    from oz.journal import Journal

    if file is not None and file.suffix not in _WRITERS:
        raise click.UsageError(f"{str(file)!r}: the name of FILE ends with .parquet, .csv or .jsonl")
    found = Journal(directory)
    compiled = parse_all([pattern], dialect)[0] if pattern is not None else None
    batches = _counted(found, start, end, found.batches(compiled, start=start, end=end, gaps=True))
    if file is None:
        _write_lines(batches, sys.stdout.buffer)
        return
    with _output(file) as out:
        _WRITERS[file.suffix](batches, out)


@contextmanager
def _output(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. A regular file gets its name when it is complete."""
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as out:
            yield out
        return
    if not path.parent.is_dir():
        raise click.ClickException(f"{path}: there is no directory {path.parent}; create it first")
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


def _write_lines(batches: Iterable[pa.RecordBatch], to: BinaryIO) -> None:
    for batch in batches:
        to.write("".join(f"{json_text(_as_data(row))}\n" for row in batch.to_pylist()).encode())
    to.flush()


def _write_csv(batches: Iterable[pa.RecordBatch], to: BinaryIO) -> None:
    text = io.TextIOWrapper(to, "utf-8", newline="")
    rows = csv.DictWriter(text, _CSV_FIELDS, lineterminator="\n")
    rows.writeheader()
    for batch in batches:
        rows.writerows(map(_as_data, batch.to_pylist()))
    text.detach()


_WRITERS = {"": _write_lines, ".jsonl": _write_lines, ".csv": _write_csv, ".parquet": _write_parquet}


def _as_data(row: dict[str, Any]) -> dict[str, Any]:
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
