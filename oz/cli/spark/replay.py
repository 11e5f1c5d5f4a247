"""`oz spark replay`: a journal or a lake goes back to the bus, through Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from oz.cli.options import (
    DEFAULT_ENDPOINT,
    TEXT_OF_PLACE,
    Number,
    Whole,
    dialect_option,
    endpoint_options,
    parse_all,
    refused_to_option,
)
from oz.cli.output import console, say
from oz.cli.ranges import RANGES, range_options
from oz.cli.spark.engine import engine, engine_options
from oz.escaping import printable

if TYPE_CHECKING:  # needs PySpark, an extra
    from oz.spark.jobs.replay import Replayed

_HELP = f"""Publish SOURCE once more, as fast as subscribers take it: a journal, or a lake of Parquet files.

For much data: tasks on all cores stage it, and one process publishes it, in the order of its offsets. `oz
replay` needs no Spark and keeps the time between messages.

Each message has an id, so that subscribers with dedupe drop what a run with the same --run name repeats,
after one that was interrupted. Without --bind and --connect it binds {DEFAULT_ENDPOINT}, where `oz sub`
looks for it. The publisher is there anew for each piece of a journal, and waits for the subscribers that were
there before.

{RANGES}

\b
Examples:
  oz spark replay recorded --connect tcp://192.0.2.7:5751 --subject 'md.xetra.>'
  oz spark replay lake --bind tcp://*:5750 --from 2026-03-01T09:00 --until 2026-03-01T09:30
  oz spark replay recorded --connect tcp://192.0.2.7:5751 --run monday --staging /shared/staging
"""


@click.command(help=_HELP, short_help="Publish a journal or a lake once more.")
@click.argument("source", metavar="SOURCE", type=TEXT_OF_PLACE)
@endpoint_options(default="--bind")
@refused_to_option
@click.option("--subject", metavar="PATTERN", help="Only what this pattern matches.")
@dialect_option("the pattern when it names none")
@range_options()
@click.option("--subscribers", type=Whole(), default=1, metavar="N",
              help="Subscriptions to wait for; with 0 nobody need listen.  [default: 1]")  # fmt: skip
@click.option("--timeout", type=Number(above=True), default=30.0, metavar="SECONDS",
              help="Time to wait for them, and for one that does not read.  [default: 30]")  # fmt: skip
@click.option(
    "--staging", metavar="DIRECTORY", help="The directory to stage rows in; all executors must see it."
)
@click.option("--run", metavar="NAME", help="Reuse the message ids of the run before with this name.")
@click.option("--skip-invalid", is_flag=True, help="Leave out what cannot be published, and count it.")
@engine_options
@click.pass_context
def replay(
    ctx: click.Context,
    source: str,
    bind: list[str],
    connect: list[str],
    subject: str | None,
    dialect: str,
    start: int | datetime | None,
    end: int | datetime | None,
    subscribers: int,
    timeout: float,
    staging: str | None,
    run: str | None,
    skip_invalid: bool,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Replay; the text of the help is `_HELP`."""
    pattern = None if subject is None else parse_all([subject], dialect)[0]
    where = {"endpoint": ",".join(connect), "bind": ",".join(bind)}
    if not any(where.values()):
        where["bind"] = DEFAULT_ENDPOINT
    options: dict[str, Any] = {name: value for name, value in where.items() if value}
    options |= {name: value for name, value in (("staging", staging), ("run", run)) if value is not None}
    options |= {"subscribers": subscribers, "timeout": timeout, "invalid": "skip" if skip_invalid else "fail"}
    with engine(master, conf) as spark, _progress() as on_progress:
        from oz.spark.jobs.replay import replay as run_replay

        done = run_replay(
            spark, source, subject=pattern, start=start, end=end, on_progress=on_progress, **options
        )
    _report(ctx, done)


def _report(ctx: click.Context, done: Replayed) -> None:
    rate = done.published / done.seconds if done.seconds else 0.0
    line = f"published {done.published:,} messages in {done.seconds:.1f} s, {rate:,.0f} a second"
    if done.skipped:
        line += f"; {done.skipped:,} could not be published: {printable(done.example or '')}"
    say(ctx, line)


@contextmanager
def _progress() -> Iterator[Callable[[int, int | None], object] | None]:
    """Show a bar on stderr while it lasts, if that is a terminal; gives what is to be told how it goes."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[state]}"), BarColumn(), TextColumn("{task.completed:,} messages"))
    with Progress(*columns, console=screen) as bar:
        task = bar.add_task("", total=None, state="staging   ")

        def tell(published: int, total: int | None) -> None:
            state = "staging   " if total is None else "publishing"
            bar.update(task, completed=published, total=total, state=state)

        yield tell
