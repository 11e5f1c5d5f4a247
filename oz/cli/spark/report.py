"""`oz spark report`: rates, sizes and losses of recorded messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, Whole, parse_all
from oz.cli.output import console, plain_table, write_line
from oz.cli.spark.engine import engine, engine_options
from oz.escaping import printable

_HELP = """Report on SOURCE, the directory of a journal or of an archive.

The report has rates over time, top subjects, sizes of payloads, losses, and gaps by publisher. --html
writes one page that loads nothing from elsewhere, --json the figures. Standard output gets a summary. Needs
the extra ozmq[spark] and Java 17 or newer.

\b
Examples:
  oz spark report recorded --html report.html
  oz spark report archive --subject 'md.>' --json figures.json
  oz spark report recorded --start -1h
"""

_FILE = PathName(dir_okay=False, path_type=Path)


@click.command(help=_HELP, short_help="Report rates, subjects, sizes and losses, as a page and as JSON.")
@click.argument("source", type=TEXT_OF_PLACE)
@click.option("--html", type=_FILE, metavar="FILE", help="Write the page to this file.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the figures to this file.")
@click.option("--subject", metavar="PATTERN", help="Count only matching subjects: 'md.>', 'rv:RUN.*'.")
@click.option("--start", metavar="WHEN", help="First offset or time of a journal: 2026-03-01, -1h.")
@click.option("--end", metavar="WHEN", help="Offset or time of a journal before which to stop.")
@click.option("--separator", default=".", metavar="TEXT", help="Text between tokens.  [default: .]")
@click.option("--top", type=Whole(1), default=10, show_default=True, metavar="N", help="Rows of each table.")
@engine_options
def report(
    source: str,
    html: Path | None,
    json_file: Path | None,
    subject: str | None,
    start: str | None,
    end: str | None,
    separator: str,
    top: int,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Run the command; its help is `_HELP`."""
    import oz.spark

    if not separator:
        raise click.BadParameter("the text between tokens is empty", param_hint="--separator")
    pattern = parse_all([subject], "nats")[0] if subject is not None else None
    bounds = {"start": _bound(start), "end": _bound(end)}
    with console(stderr=True).status("counting with Spark"), engine(master, conf) as spark:
        found = oz.spark.report(spark, source, pattern, top=top, separator=separator, **bounds)
        found.save(html=html, json=json_file)
    write_line(plain_table(_summary(found.figures)))


def _bound(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


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
