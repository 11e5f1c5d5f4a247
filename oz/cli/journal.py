"""`oz journal`: look at a journal, check and repair it, and take records out of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oz.cli.exits import FAILED
from oz.cli.journal_export import export
from oz.cli.options import TEXT_OF_PLACE, PathName, dialect_option, parse_all
from oz.cli.output import plain_table, write_json, write_line
from oz.escaping import printable

if TYPE_CHECKING:  # needs pyarrow, an extra
    from oz.journal import Journal, Report
    from oz.journal.files import Segment
    from oz.journal.manifest import Entry

_HELP = """Look at a journal, check and repair it, and take records out of it.

A journal is a directory that a recorder writes, or a program with oz.journal.Writer. All commands but repair
and seal may be used while it is written. Needs the extra ozmq[journal].

\b
Examples:
  oz journal info recorded
  oz journal verify recorded && echo "all is well"
  oz journal export recorded --subject 'md.xetra.>' --from 2026-03-01T09:00 > morning.jsonl
"""

_DIRECTORY = click.argument("directory", type=PathName(file_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@click.group(help=_HELP, short_help="Look at a journal, repair it, export from it.")
def journal() -> None:
    """Hold the commands; the text of the help is `_HELP`."""


@journal.command(short_help="List the segments and what they hold.")
@_DIRECTORY
@_JSON
@click.option("--subject", metavar="PATTERN", help="Only those that may hold what this pattern matches.")
@dialect_option("the pattern when it names none")
def ls(directory: Path, as_json: bool, subject: str | None, dialect: str) -> None:
    """List the segments: their offsets, times, sizes, losses as far as they are known, and subjects."""
    found = _opened(directory)
    pattern = parse_all([subject], dialect)[0] if subject is not None else None
    rows = [_segment_data(found, segment, entry) for segment, entry in found.segments(pattern)]
    if as_json:
        write_json(rows)
        return
    headings = ("segment", "first", "end", "bytes", "from", "to", "lost", "subjects")
    cells = [[printable(_cell(name, row)) for name in headings] for row in rows]
    write_line(plain_table([headings, *cells]))


def _segment_data(journal: Journal, segment: Segment, entry: Entry | None) -> dict[str, Any]:
    path = journal.directory / segment.name
    data: dict[str, Any] = {
        "segment": segment.name,
        "first": segment.base,
        "end": None,
        "bytes": path.stat().st_size if path.exists() else 0,
        "from": None,
        "to": None,
        "lost": None,
        "subjects": None,
    }
    if entry is not None:
        prefixes = entry.subjects.as_data()["prefixes"]
        assert isinstance(prefixes, list)
        shown = prefixes if entry.subjects.complete else [f"{prefix}…" for prefix in prefixes]
        data |= {"end": entry.end_offset, "lost": entry.lost, "subjects": shown}
        data |= {"from": _time(entry.min_time_ns), "to": _time(entry.max_time_ns)}
    return data


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(value[:4]) + (f" … ({len(value)})" if len(value) > 4 else "")
    return str(value)


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds} ns"


@journal.command(short_help="Say how much there is, and what is lost.")
@_DIRECTORY
@_JSON
def info(directory: Path, as_json: bool) -> None:
    """Say how much the journal holds, from when to when, and what is lost.

    A gap of unknown size is where nobody knows how many messages are missing, as while no recorder ran. What
    is damaged was recorded, and its file was damaged or taken away; a repair left records that say so.
    """
    found = _opened(directory)
    listed = [(_segment_data(found, segment, entry), entry) for segment, entry in found.segments()]
    known, unknown, damaged = _losses(found, listed)
    data = {
        "directory": str(directory),
        "segments": len(listed),
        "first_offset": found.first_offset,
        "end_offset": found.end_offset,
        "records": found.end_offset - found.first_offset,
        "bytes": sum(row["bytes"] for row, _ in listed),
        "first_time": _edge(found, found.first_offset),
        "last_time": _edge(found, found.end_offset - 1),
        "lost": known,
        "gaps_of_unknown_size": unknown,
        "damaged": damaged,
    }
    if as_json:
        write_json(data)
    else:
        write_line("\n".join(f"{name.replace('_', ' ')}: {'-' if value is None else value}"
                             for name, value in data.items()))  # fmt: skip


def _edge(journal: Journal, offset: int) -> str | None:
    first = max(offset, 0)
    for record in journal.read(start=first, end=first + 1, columns=["time_ns"], gaps=True):
        return _time(record.time_ns or 0)
    return None


def _losses(journal: Journal, listed: list[tuple[dict[str, Any], Entry | None]]) -> tuple[int, int, int]:
    """Count what is lost.

    Returns:
        The messages that are known to be lost, the gaps of which nobody knows how many they are, and the
        damage records.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from oz.journal.record import Kind
    from oz.journal.schema import whole_number

    gap, damage = (whole_number(int(kind), pa.int8()) for kind in (Kind.GAP, Kind.DAMAGED))
    known = unknown = damaged = 0
    ends = [row["first"] for row, _ in listed[1:]]
    for (row, entry), end in zip(listed, [*ends, None], strict=True):
        if entry is not None and not entry.gaps:
            continue
        for batch in journal.batches(start=row["first"], end=end, columns=["kind", "lost"], gaps=True):
            lost = batch.column("lost").filter(pc.equal(batch.column("kind"), gap))
            known += pc.sum(lost).as_py() or 0
            unknown += lost.null_count
            damaged += pc.sum(pc.equal(batch.column("kind"), damage)).as_py() or 0
    return known, unknown, damaged


@journal.command(short_help="Check every byte; exit 1 on damage.")
@_DIRECTORY
@_JSON
@click.pass_context
def verify(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Check every byte, and exit 1 when something is not as it should be."""
    _report(ctx, _opened(directory).verify(), as_json)


@journal.command(short_help="Mend what verify finds.")
@_DIRECTORY
@_JSON
def repair(directory: Path, as_json: bool) -> None:
    """Put in order whatever verify finds, while nobody writes.

    Intact records stay at their offsets; lost records are replaced by ones that say so. A segment that is
    written anew stays beside the new one, as .damaged.
    """
    _report(None, _opened(directory).repair(), as_json)


@journal.command(short_help="Copy sealed segments as Parquet, to S3 for example.")
@_DIRECTORY
@click.argument("lake", type=TEXT_OF_PLACE)
@_JSON
def archive(directory: Path, lake: str, as_json: bool) -> None:
    """Copy each sealed segment as a Parquet file to LAKE, unless it is there.

    LAKE is a folder: a path, or a URI such as s3://bucket/lake or file:///srv/lake. After a kill the same
    command goes on where it was.
    """
    done = _opened(directory).archive(lake)
    if as_json:
        write_json(vars(done))
        return
    for first, end in done.missing:
        write_line(f"the records from offset {first} to {end - 1} are not there: retention was faster")
    write_line(f"{len(done.written)} files written, {done.present} were there; all ends at {done.end_offset}")


@journal.command(short_help="Seal the last segment, for other programs.")
@_DIRECTORY
def seal(directory: Path) -> None:
    """Seal the last segment, so that other programs see all records.

    A writer does it when it is closed, and when a segment is old or large enough. This is for a writer that
    was killed; while one is at work it is refused.
    """
    _opened(directory)
    from oz.journal import Writer

    with Writer(directory) as writer:
        pass
    for finding in writer.findings:
        write_line(printable(str(finding)))
    write_line(f"all {writer.end_offset} offsets are in sealed segments")


def _report(ctx: click.Context | None, report: Report, as_json: bool) -> None:
    if as_json:
        write_json({**vars(report), "findings": [vars(finding) for finding in report.findings]})
    else:
        for finding in report.findings:
            write_line(printable(str(finding)))
        write_line(f"{report.segments} segments, {report.records} intact records, {report.bytes} bytes: "
                   + (f"{len(report.findings)} findings" if report.findings else "all is well"))  # fmt: skip
    if ctx is not None and not report.ok:
        ctx.exit(FAILED)


def _opened(directory: Path) -> Journal:
    from oz.journal import Journal

    return Journal(directory)


journal.add_command(export)
