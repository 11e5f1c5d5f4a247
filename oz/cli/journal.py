"""`oz journal`: describe, check and repair a journal, and export records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oz.cli.exits import FAILED
from oz.cli.journal_export import export
from oz.cli.options import PathName
from oz.cli.output import json_option, plain_table, quiet_option, write_json, write_line
from oz.cli.progress import progress_bar
from oz.escaping import printable

if TYPE_CHECKING:  # the module needs pyarrow, which is an extra
    from oz.journal import Journal, Report

_HELP = """Describe, check and repair a journal, and export records from it.

A journal is a directory that `oz record` or oz.journal.Writer writes. All commands except repair work while
a writer appends. They need the extra ozmq[journal].

\b
Examples:
  oz journal info recorded
  oz journal verify recorded && echo intact
  oz journal export recorded --pattern 'md.xetra.>' --start 2026-03-01T09:00 > morning.jsonl
"""

_DIRECTORY = click.argument("directory", type=PathName(file_okay=False, path_type=Path))
_JSON = json_option("Write JSON.")


@click.group(help=_HELP, short_help="Describe, check and repair a journal; export from it.")
def journal() -> None:
    """Group the commands of `oz journal`; `_HELP` is the text of `--help`."""


@journal.command(short_help="List the segments.")
@_DIRECTORY
@_JSON
def ls(directory: Path, as_json: bool) -> None:
    """List the segments: their files, offsets and sizes, and whether they are sealed."""
    rows = [
        {
            "file": segment.name,
            "first": segment.first,
            "end": segment.end,
            "records": segment.end - segment.first,
            "bytes": segment.bytes,
            "state": "sealed" if segment.is_sealed else "active",
        }
        for segment in _open(directory).segments
    ]
    if as_json:
        write_json(rows)
    else:
        headings = ("file", "first", "end", "records", "bytes", "state")
        write_line(plain_table([headings, *([str(row[name]) for name in headings] for row in rows)]))


@journal.command(short_help="Print the amount of data, and the losses.")
@_DIRECTORY
@_JSON
@quiet_option
def info(directory: Path, as_json: bool) -> None:
    """Print the number of records, the times of the first and last record, and the losses.

    "lost" counts messages that never reached the recorder. "missing" counts records of the journal that are lost. A gap
    of unknown size is a time in which nothing was recorded, or a loss that the publisher could not count.
    """
    found = _open(directory)
    segments = found.segments
    first, end = found.first_offset, found.end_offset
    data: dict[str, Any] = {
        "directory": str(directory),
        "segments": len(segments),
        "first_offset": first,
        "end_offset": end,
        "bytes": sum(segment.bytes for segment in segments),
        **_counts(found, first, end),
    }
    if as_json:
        write_json(data)
    else:
        write_line("\n".join(f"{name.replace('_', ' ')}: {'-' if value is None else value}"
                             for name, value in data.items()))  # fmt: skip


def _counts(found: Journal, first: int, end: int) -> dict[str, Any]:
    import pyarrow.compute as pc

    from oz.journal import GAP

    messages = lost = unknown = records = 0
    times: list[datetime] = []
    with progress_bar("reading", max(1, end - first)) as update:
        for batch in found.batches(columns=["time", "kind", "lost"], gaps=True, end=end):
            gaps = batch.filter(pc.equal(batch.column("kind"), GAP))
            records += batch.num_rows
            messages += batch.num_rows - gaps.num_rows
            lost += pc.sum(gaps.column("lost")).as_py() or 0
            unknown += gaps.column("lost").null_count
            bounds = pc.min_max(batch.column("time")).as_py()
            times = [min([*times[:1], bounds["min"]]), max([*times[1:], bounds["max"]])]
            if update is not None:
                update(records, "reading")
    first_time, last_time = (f"{time:%Y-%m-%dT%H:%M:%S.%fZ}" for time in times) if times else (None, None)
    return {
        "messages": messages,
        "first_time": first_time,
        "last_time": last_time,
        "lost": lost,
        "gaps_of_unknown_size": unknown,
        "missing": end - first - records,
    }


@journal.command(short_help="Check every byte; exit 1 on damage.")
@_DIRECTORY
@_JSON
@quiet_option
@click.pass_context
def verify(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Check every byte, and exit with 1 if there is a fault."""
    found = _open(directory)
    with _working("checking", found) as progress:
        report = found.verify(progress=progress)
    _print_report(report, as_json)
    if not report.ok:
        ctx.exit(FAILED)


@journal.command(short_help="Repair the faults that verify finds.")
@_DIRECTORY
@_JSON
@quiet_option
def repair(directory: Path, as_json: bool) -> None:
    """Repair the faults that verify finds. No writer may have opened the journal.

    Intact records keep their offsets, and lost records become gaps. A damaged file stays in the directory,
    with the suffix .damaged.
    """
    found = _open(directory)
    with _working("repairing", found) as progress:
        report = found.repair(progress=progress)
    _print_report(report, as_json)


@contextmanager
def _working(text: str, found: Journal) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar of the checked bytes; yield the function that updates the bar, or None without a bar."""
    with progress_bar(text, sum(segment.bytes for segment in found.segments)) as update:
        yield None if update is None else lambda done, _: update(done, text)


def _print_report(report: Report, as_json: bool) -> None:
    if as_json:
        write_json({**vars(report), "findings": [vars(finding) for finding in report.findings]})
        return
    for finding in report.findings:
        write_line(printable(str(finding)))
    result = f"{len(report.findings)} findings" if report.findings else "intact"
    write_line(f"{report.segments} segments, {report.records} records, {report.bytes} bytes: {result}")


def _open(directory: Path) -> Journal:
    from oz.journal import Journal

    return Journal(directory)


journal.add_command(export)
