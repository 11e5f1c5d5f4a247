"""`oz spark archive`: copy a journal to Parquet files by day and first token."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from oz.cli.options import TEXT_OF_PLACE, Number, PathName, Whole, separator_option
from oz.cli.output import json_option, plain_table, print_status, quiet_option, write_json, write_line
from oz.cli.progress import progress_bar
from oz.cli.spark.engine import engine, engine_options

_HELP = """Copy the records of a JOURNAL to ARCHIVE, a directory of Parquet files, each record once.

The files are in directories by day and first token, and are sorted by subject. The next run continues at the
end of the archive, even if the last run was killed. DuckDB, Polars, pandas and Spark can read the archive at any time.
Gap records are archived too, with kind = 1.

\b
Examples:
  oz spark archive recorded archive
  oz spark archive recorded archive --compact
  oz spark archive recorded archive --follow
  oz spark archive /shared/recorded hdfs://hub/archive --master spark://hub:7077
"""


@click.command(help=_HELP, short_help="Copy a journal to Parquet files by day and first token.")
@click.argument("journal", type=PathName(file_okay=False, path_type=Path))
@click.argument("archive", type=TEXT_OF_PLACE)
@click.option("--follow", is_flag=True, help="Continue with new records until interrupted.")
@click.option("--interval", type=Number(), default=10.0, metavar="SECONDS",
              help="With --follow, time between two batches.  [default: 10]")  # fmt: skip
@click.option("--compact", is_flag=True, help="Merge small batches. Queries that run meanwhile may fail.")
@click.option("--skip-lost", is_flag=True, help="Skip records that retention has removed.")
@separator_option("tokens")
@click.option("--max-tokens", type=Whole(1), default=100, metavar="N",
              help="Maximum number of first tokens that get a directory.  [default: 100]")  # fmt: skip
@click.option("--batch-rows", type=Whole(1), default=4_000_000, metavar="N",
              help="Maximum number of records in a batch.  [default: 4000000]")  # fmt: skip
@json_option("Print the result as JSON.")
@quiet_option
@engine_options
@click.pass_context
def archive(
    ctx: click.Context,
    journal: Path,
    archive: str,
    follow: bool,
    interval: float,
    compact: bool,
    skip_lost: bool,
    separator: str,
    max_tokens: int,
    batch_rows: int,
    as_json: bool,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Write the archive; `_HELP` is the text of `--help`."""
    import oz.spark

    if follow and (compact or as_json):
        raise click.UsageError("--follow runs until it is interrupted; use --compact and --json without it")
    layout: dict[str, Any] = {"separator": separator, "max_tokens": max_tokens, "fail_on_loss": not skip_lost}
    with engine(master, conf) as spark:
        if follow:
            query = oz.spark.archive_stream(spark, journal, archive, interval=interval, **layout)
            _run_until_interrupted(ctx, query)
            return
        with _progress(ctx) as show:
            done = oz.spark.archive(
                spark, journal, archive, compact=compact, batch_rows=batch_rows, on_progress=show, **layout
            )
    if as_json:
        write_json(asdict(done))
        return
    rows = [
        ("records", f"{done.rows:,} in {done.batches:,} batches"),
        ("offsets", f"{done.first_offset:,} to {done.end_offset:,}"),
    ]
    if done.merged:
        rows.append(("merged", f"{done.merged:,} batches into {done.merged_into:,}"))
    write_line(plain_table(rows))


def _run_until_interrupted(ctx: click.Context, query: Any) -> None:
    # PySpark's own handler of SIGINT would cancel all jobs, so that the query would fail.
    signal.signal(signal.SIGINT, lambda *_: query.stop())
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    print_status(ctx, "archiving; interrupt to end")
    query.awaitTermination()


@contextmanager
def _progress(ctx: click.Context) -> Iterator[Callable[[int, int], object]]:
    """Show the progress on stderr: a bar on a terminal, otherwise a line for each batch."""
    with progress_bar("archiving", None) as update:

        def show(done: int, total: int) -> None:
            text = f"{done:,} of {total:,} offsets"
            print_status(ctx, text) if update is None else update(done, text)

        yield show
