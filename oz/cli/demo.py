"""`oz demo`: show wildcard subscriptions at work on a month of flights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from oz.cli.exits import FAILED
from oz.cli.output import (
    console,
    is_terminal,
    json_option,
    plain_table,
    print_stderr,
    quiet_option,
    write_json,
    write_line,
)
from oz.cli.progress import progress_bar

if TYPE_CHECKING:  # the command imports this module when it runs
    from oz.demo.run import PatternResult
    from oz.options import Filtering

_HELP = """Replay a month of real flights to five subscribers with patterns.

A publisher process replays the 27,004 flights that left New York City in January 2013, on subjects
flight.<origin>.<destination>.<carrier>. Five subscribers in four dialects receive the flights that their
patterns match. At the end a table shows how many messages crossed the wire to each subscriber, and how many were
delivered and lost (none). The demo needs no server, uses a free port of this machine, and takes a few seconds.

With --filtering publisher the publisher filters by the whole pattern, and only matching messages cross the wire.

With --spark the same flights are written as Parquet, and Spark counts the matches of the same patterns. The table gets
a column with these counts, which equal the delivered messages. --spark needs the extra ozmq[spark] and Java 17 or
newer, and takes longer.

\b
Examples:
  oz demo
  oz demo --filtering publisher
  oz demo --spark
  oz demo --json | jq '.[] | {pattern, received, delivered, lost}'
"""

_TITLE = "January 2013: 27,004 flights from New York City"
_HEADINGS = ("pattern", "dialect", "prefixes", "crossed the wire", "delivered", "lost", "messages/s")


@click.command(help=_HELP, short_help="Watch wildcard subscriptions at work on real flights.")
@json_option("Write a JSON list of objects.")
@click.option(
    "--filtering",
    type=click.Choice(["prefix", "publisher"]),
    default="prefix",
    show_default=True,
    help="The side that filters: ZeroMQ by prefix and then the subscriber, or the publisher.",
)
@click.option("--spark", "in_spark", is_flag=True, help="Count the same patterns in Spark too.")
@quiet_option
@click.pass_context
def demo(ctx: click.Context, as_json: bool, filtering: Filtering, in_spark: bool) -> None:
    """Run the demo; `_HELP` is the text of `--help`."""
    results = _run(in_spark, filtering)
    if as_json:
        write_json([_as_data(result) for result in results])
    elif is_terminal():
        _show(results)
    else:
        headings = (*_HEADINGS, "spark") if in_spark else _HEADINGS
        write_line(plain_table([headings, *map(_cells, results)]))
    if lost := sum(result.lost for result in results):
        print_stderr(
            ctx,
            f"{lost:,} messages were lost, although the publisher waits for subscribers: report it as a fault of oz",
        )
        ctx.exit(FAILED)
    wrong = [result.pattern for result in results if result.spark not in (None, result.delivered)]
    if wrong:
        print_stderr(
            ctx,
            f"Spark and oz count different numbers of matches of {', '.join(wrong)}: report it as a fault of oz",
        )
        ctx.exit(FAILED)


def _run(in_spark: bool, filtering: Filtering) -> list[PatternResult]:
    from oz.demo.run import SPECS, count_in_spark, require_spark, run

    if in_spark:
        require_spark()
    with progress_bar("starting", None) as update:
        show = None if update is None else lambda done, total: update(done, f"{done:,} of {total:,} messages")
        results = run(progress=show, filtering=filtering)
    if not in_spark:
        return results
    counts = count_in_spark(SPECS)
    return [replace(result, spark=count) for result, count in zip(results, counts, strict=True)]


def _as_data(result: PatternResult) -> dict[str, Any]:
    counted = {} if result.spark is None else {"spark": result.spark}
    return {
        "pattern": result.pattern,
        "dialect": result.dialect,
        "prefixes": list(result.prefixes),
        "received": result.received,
        "delivered": result.delivered,
        "expected": result.expected,
        "lost": result.lost,
        "rate": round(result.rate, 1),
        **counted,
    }


def _cells(result: PatternResult) -> tuple[str, ...]:
    return (result.pattern, result.dialect, ", ".join(result.prefixes), *_numbers(result))


def _numbers(result: PatternResult) -> tuple[str, ...]:
    counted = () if result.spark is None else (result.spark,)
    numbers = (result.received, result.delivered, result.lost, round(result.rate), *counted)
    return tuple(f"{number:,}" for number in numbers)


def _show(results: list[PatternResult]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # The prefixes have no column, so that the table fits into 80 columns.
    table = Table(title=_TITLE, box=box.SIMPLE_HEAD)
    table.add_column("pattern\n  and its prefixes", overflow="fold")
    table.add_column("dialect")
    in_spark = any(result.spark is not None for result in results)
    for heading in ("crossed\nthe wire", "delivered", "lost", "messages\na second", *["spark"] * in_spark):
        table.add_column(heading, justify="right")
    for result in results:
        prefixes = "".join(f"\n  {prefix}" for prefix in result.prefixes)
        pattern = Text.assemble((result.pattern, "bold"), (prefixes, "dim"))
        table.add_row(pattern, *map(Text, (result.dialect, *_numbers(result))))
    console().print(table)
