"""`oz spark report`: what passes over the bus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oz.cli.options import TEXT_OF_PLACE, Number, PathName, Whole, parse_all
from oz.cli.output import plain_table, write_line
from oz.cli.spark.engine import engine, engine_options, stages
from oz.escaping import printable

_HELP = """Report on SOURCE, a journal's directory or a lake of Parquet files: what passed over the bus.

It counts messages, bytes and rates by level of subject and in time, and payload sizes. It names top subjects
and publishers, subjects that fell silent, and losses by publisher and hour. --html writes one page that needs
nothing else and reads well on a phone, --json the same figures. A summary comes on standard output. Needs the
extra ozmq[spark] and Java 17 or newer.

\b
Examples:
  oz spark report recorded --html report.html
  oz spark report lake --subject 'md.>' --levels 4 --json figures.json
"""

_FILE = PathName(dir_okay=False, path_type=Path)


@click.command(help=_HELP, short_help="Report what passed over the bus, as a page and as JSON.")
@click.argument("source", type=TEXT_OF_PLACE)
@click.option("--html", type=_FILE, metavar="FILE", help="Write the page here.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the figures here, as JSON.")
@click.option(
    "--subject", metavar="PATTERN", help="Only what this pattern matches, such as 'md.>' or 'rv:RUN.*'."
)
@click.option("--separator", default=".", metavar="TEXT", help="The text between tokens.  [default: .]")
@click.option("--levels", type=Whole(1), default=3, show_default=True, metavar="N",
              help="The number of levels of subjects to go down.")  # fmt: skip
@click.option("--most", type=Whole(1), default=10, show_default=True, metavar="N",
              help="The number to name of each kind.")  # fmt: skip
@click.option("--silent-after", type=Number(), metavar="SECONDS",
              help="When a subject counts as silent.  [default: a tenth of the time]")  # fmt: skip
@engine_options
@click.pass_context
def report(
    ctx: click.Context,
    source: str,
    html: Path | None,
    json_file: Path | None,
    subject: str | None,
    separator: str,
    levels: int,
    most: int,
    silent_after: float | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Report; the text of the help is `_HELP`."""
    import oz.spark

    if not separator:
        raise click.BadParameter("the separator is empty", param_hint="--separator")
    pattern = parse_all([subject], "nats")[0] if subject is not None else None
    if html is not None:
        import oz.spark.jobs.reporting.page  # what it lacks is said before Spark has read everything
    with stages(ctx) as on_progress, engine(master, conf) as spark:
        found = oz.spark.report(
            spark,
            source,
            pattern=pattern,
            separator=separator,
            levels=levels,
            most=most,
            silent_after=silent_after,
            on_progress=on_progress,
        )
    found.save(html=html, json=json_file)
    write_line(plain_table(_summary(found.figures)))


def _summary(figures: dict[str, Any]) -> list[tuple[str, str]]:
    total, losses = figures["total"], figures["losses"]
    rate = total["messages_per_second"]
    rows = [
        ("messages", f"{total['messages']:,}" + (f" ({rate:,.1f}/s)" if rate is not None else "")),
        ("payload", f"{total['payload_bytes']:,} bytes"),
        ("time", f"{total['seconds']:,.3f} s"),
        ("subjects", f"{total['subjects']:,}, of which {figures['silent']['count']:,} are silent at the end"),
        ("publishers", f"{figures['publishers']['count']:,}"),
        ("lost", f"{losses['lost']:,} in {losses['gaps']:,} gap records" if losses else "0"),
    ]
    if losses and losses["unknown"]:
        rows.append(("", f"and {losses['unknown']:,} losses of unknown size"))
    rows += [("most", _top(row)) for row in figures["subjects"]["by_messages"][:3]]
    return rows


def _top(row: dict[str, Any]) -> str:
    return f"{printable(row['subject'])}  {row['messages']:,} messages, {row['payload_bytes']:,} bytes"
