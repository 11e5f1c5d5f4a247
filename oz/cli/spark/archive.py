"""`oz spark archive`: a journal becomes a Parquet lake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, Whole
from oz.cli.output import console, plain_table, say, write_json, write_line
from oz.cli.spark.engine import engine, engine_options

if TYPE_CHECKING:  # needs PySpark, an extra
    from oz.spark import Archived

_HELP = """Copy a JOURNAL to LAKE, a directory of Parquet files or a URI of one, each record once.

The files lie in folders by day and first token and are sorted by subject, so that a query for a pattern reads
little of them. Run it again and again: it goes on where it ended, also when it was killed. Readers of the
lake see whole files only meanwhile, and no record twice. Records that are no messages (losses, damage) are
archived too, in folders of their own: ask for kind = 0.

Segments are archived when they are sealed; --unsealed takes what the last one has too. Needs the extra
ozmq[spark] and Java 17 or newer.

\b
Examples:
  oz spark archive recorded lake
  oz spark archive recorded lake --unsealed --compact
  oz spark archive /shared/recorded /shared/lake --master spark://hub:7077
  oz spark archive recorded s3a://lakes/recorded
"""

_COUNT = Whole(1)

_Progress = Callable[[int, int, str], object]


@click.command(help=_HELP, short_help="Copy a journal to a lake of Parquet files.")
@click.argument("journal", type=PathName(file_okay=False, path_type=Path))
@click.argument("lake", type=TEXT_OF_PLACE)
@click.option("--unsealed", is_flag=True, help="Also what the segment that still grows has.")
@click.option("--compact", is_flag=True, help="Then merge small files; queries may fail meanwhile.")
@click.option("--skip-lost", is_flag=True, help="Go on where retention has removed records, and count them.")
@click.option(
    "--separator", default=".", metavar="TEXT", help="The text that ends the first token.  [default: .]"
)
@click.option("--most-tokens", type=Whole(), default=100, metavar="N",
              help="So many first tokens have folders of their own.  [default: 100]")  # fmt: skip
@click.option("--file-bytes", type=_COUNT, default=128 << 20, metavar="BYTES",
              help="About how large a file becomes.  [default: 134217728]")  # fmt: skip
@click.option("--step-rows", type=_COUNT, default=4_000_000, metavar="N",
              help="Archive so many records at a time.  [default: 4000000]")  # fmt: skip
@click.option("--staging", type=PathName(file_okay=False, path_type=Path),
              help="Staging.  [default: LAKE.staging; for a URI JOURNAL.archiving]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@engine_options
@click.pass_context
def archive(
    ctx: click.Context,
    journal: Path,
    lake: str,
    unsealed: bool,
    compact: bool,
    skip_lost: bool,
    separator: str,
    most_tokens: int,
    file_bytes: int,
    step_rows: int,
    staging: Path | None,
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Archive; the text of the help is `_HELP`."""
    import oz.spark

    if not separator:
        raise click.BadParameter("the separator is empty", param_hint="--separator")
    layout = oz.spark.LakeLayout(
        separator=separator, most_tokens=most_tokens, file_bytes=file_bytes, step_rows=step_rows
    )
    with engine(master, conf) as spark, _shown(ctx) as shown:
        done = oz.spark.archive(
            spark,
            journal,
            lake,
            layout=layout,
            unsealed=unsealed,
            compact=compact,
            fail_on_data_loss=not skip_lost,
            staging=staging,
            on_progress=shown,
        )
    if as_json:
        write_json({**vars(done), "days": sorted(done.days), "tokens": sorted(done.tokens)})
    else:
        write_line(plain_table(_summary(done)))


def _summary(done: Archived) -> list[tuple[str, str]]:
    rate = f" ({done.rows / done.seconds:,.0f} records/s)" if done.seconds else ""
    days = f" ({min(done.days)} to {max(done.days)})" if done.days else ""
    rows = [
        ("records", f"{done.rows:,}, of which {done.gaps:,} are no messages"),
        ("files", f"{done.files:,}, {done.bytes:,} bytes"),
        ("days", f"{len(done.days):,}{days}"),
        ("first tokens", f"{len(done.tokens):,}"),
        ("skipped", f"{done.skipped:,} that retention had removed"),
        ("left", f"{done.unsealed:,} in a segment that is not sealed"),
        ("offsets", f"{done.first_offset} to {done.end_offset} are in the lake"),
        ("time", f"{done.seconds:.1f} s{rate}"),
    ]
    merged = [("merged", f"{done.merged:,} files into {done.merged_into:,}")] if done.merged else []
    return [*rows[:-1], *merged, rows[-1]]


@contextmanager
def _shown(ctx: click.Context) -> Iterator[_Progress]:
    """Show how it goes on stderr: a bar on a terminal, else a line for each step."""
    if not sys.stderr.isatty():

        def line(done: int, total: int, what: str) -> None:
            say(ctx, f"{done:,} of {total:,} records, {what}")

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total or None, description=what
        )
