"""`oz spark report`: rates, sizes and losses of recorded messages."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, Whole, parse_all, separator_option
from oz.cli.output import json_option, plain_table, quiet_option, write_json, write_line
from oz.cli.progress import progress_bar
from oz.cli.ranges import RANGES, pattern_option, range_options
from oz.cli.spark.engine import engine, engine_options
from oz.escaping import printable

_HELP = f"""Report on SOURCE, the directory of a journal or of an archive.

The report has rates over time, the subjects with most messages, sizes of payloads, and losses of each publisher. --html
writes one page, which loads no other file. Standard output gets a summary, or all figures with --json. The command
needs the extra ozmq[spark] and Java 17 or newer.

{RANGES}

\b
Examples:
  oz spark report recorded --html report.html
  oz spark report archive --pattern 'md.>' --json > figures.json
  oz spark report recorded --start -1h
"""

_FILE = PathName(dir_okay=False, path_type=Path)


@click.command(help=_HELP, short_help="Report rates, subjects, sizes and losses, as a page and as JSON.")
@click.argument("source", type=TEXT_OF_PLACE)
@click.option("--html", type=_FILE, metavar="FILE", help="Write the page to this file.")
@json_option("Write the figures as JSON.")
@pattern_option
@range_options
@separator_option("tokens")
@click.option(
    "--limit", type=Whole(1), default=10, show_default=True, metavar="N", help="Maximum rows of each table."
)
@quiet_option
@engine_options
def report(
    source: str,
    html: Path | None,
    as_json: bool,
    pattern: str | None,
    dialect: str,
    start: int | datetime | None,
    end: int | datetime | None,
    separator: str,
    limit: int,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Write the report; `_HELP` is the text of `--help`."""
    import oz.spark

    compiled = parse_all([pattern], dialect)[0] if pattern is not None else None
    with progress_bar("counting with Spark", None), engine(master, conf) as spark:
        found = oz.spark.report(spark, source, compiled, top=limit, separator=separator, start=start, end=end)
        found.save(html=html)
    if as_json:
        write_json(found.figures)
    else:
        write_line(plain_table(_summary(found.figures)))


def _summary(figures: dict[str, Any]) -> list[tuple[str, str]]:
    total, losses = figures["total"], figures["losses"]
    rate = total["messages_per_second"]
    unknown = f", and {losses['unknown']:,} losses of unknown size" if losses["unknown"] else ""
    return [
        ("messages", f"{total['messages']:,}" + (f" ({rate:,.1f}/s)" if rate is not None else "")),
        ("payloads", f"{total['bytes']:,} bytes"),
        ("time", f"{total['seconds']:,.3f} s"),
        ("subjects", f"{total['subjects']:,}"),
        ("publishers", f"{total['publishers']:,}"),
        ("lost", f"{losses['lost']:,}{unknown}"),
        *(("top", _top(row)) for row in figures["subjects"]["by_messages"][:3]),
    ]


def _top(row: dict[str, Any]) -> str:
    return f"{printable(row['subject'])}  {row['messages']:,} messages, {row['bytes']:,} bytes"
