"""`oz bench`: how fast this machine, or the way to another, is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from oz.cli.exits import FAILED, INTERRUPTED
from oz.cli.options import Number, Whole, one_endpoint_option
from oz.cli.output import console, is_terminal, plain_table, say, write_json, write_line

if TYPE_CHECKING:  # loaded when the command runs: the others need none of it
    from oz.cli.measuring.plan import BenchPlan, Result
    from oz.cli.measuring.running import BenchRun, Progress

_HERE = "tcp://127.0.0.1:*"
_START_SECONDS = 20.0

_HELP = """Measure how fast messages are published and delivered, and how long one takes.

Without options it measures on this machine, over tcp on the loopback, in about five seconds. Publisher and
subscriber are processes of their own; ZeroMQ filters by prefix once, and the publisher once. Nothing else
needs to run.

Between two machines: `oz bench --listen ENDPOINT` on the one publishes until Ctrl-C;
`oz bench --connect ENDPOINT` on the other subscribes and prints the result. Either may be started first. It
takes the port of --listen and the two after it. Anybody who reaches them can make it publish: listen only in
a network that you trust.

The subscription is 'bench.*.hit'. As all subjects begin with 'bench.', a prefix lets all of them through; a
publisher that filters sends only what matches. --match says how much that is.

The publisher waits for a subscriber that cannot keep up, so nothing may be lost. A loss is shown, and the
exit code is then 1. Half the time goes to lone messages, one a millisecond, and half to publishing as fast as
possible. A message then waits in queues of up to 16 MiB on either side, and its latency is mostly that.
Latency is one way where both ends have one clock; between machines it is that of a round trip, as their
clocks differ.

\b
Examples:
  oz bench
  oz bench --match 0.01 --subscribers 4
  oz bench --size 10000 --filtering publisher --json
  oz bench --listen 'tcp://*:5760'
  oz bench --connect tcp://192.0.2.7:5760 --seconds 10
"""


@click.command(help=_HELP, short_help="Measure rates and latency, here or between two machines.")
@one_endpoint_option("--listen", "Publish for an `oz bench --connect`, until Ctrl-C.")
@one_endpoint_option("--connect", "Measure with the `oz bench --listen` there.")
@click.option(
    "--size",
    type=Whole(0, 64 * 1024 * 1024),
    default=100,
    metavar="BYTES",
    help="Size of each payload.  [default: 100]",
)
@click.option(
    "--subjects",
    type=Whole(1, 1_000_000),
    default=1000,
    metavar="N",
    help="The number of subjects to publish on, in turn.  [default: 1000]",
)
@click.option(
    "--match",
    type=Number(0, 1, above=True),
    default=1.0,
    metavar="FRACTION",
    help="The share of the subjects that the pattern matches: 0.01 is one in a hundred.  [default: 1]",
)
@click.option(
    "--subscribers",
    type=Whole(1, 64),
    default=1,
    metavar="N",
    help="Subscribers, each a process that gets all that matches.  [default: 1]",
)
@click.option(
    "--seconds",
    type=Number(0.1, 3600),
    default=2.0,
    metavar="SECONDS",
    help="Time to measure each filtering.  [default: 2]",
)
@click.option(
    "--filtering",
    type=click.Choice(["prefix", "publisher", "both"]),
    default="both",
    help="The side that filters: ZeroMQ by prefix, the oz publisher, or both in turn.  [default: both]",
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object.")
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    listen: str | None,
    connect: str | None,
    filtering: str,
    as_json: bool,
    **numbers: Any,
) -> None:
    """Measure; the text of the help is `_HELP`."""
    if listen is not None:
        _refuse_others(ctx)
        return _listen(ctx, listen)
    from oz.cli.measuring.plan import FILTERINGS, BenchFailed, BenchPlan

    kinds = FILTERINGS if filtering == "both" else (filtering,)
    plans = [BenchPlan(kind, is_echoed=connect is not None, **numbers) for kind in kinds]
    try:
        plans[0].check()
    except BenchFailed as error:
        raise click.UsageError(str(error)) from None
    results, is_cut_short = _measure(ctx, plans, connect)
    if as_json:
        write_json(_as_data(plans[0], results, is_cut_short))
    elif results:
        _show(plans[0], results)
    if any(result.lost for result in results):
        say(ctx, f"{sum(result.lost for result in results):,} messages were lost")
    if is_cut_short:
        ctx.exit(INTERRUPTED)
    if any(result.lost for result in results):
        ctx.exit(FAILED)


def _refuse_others(ctx: click.Context) -> None:
    for name in ctx.params:
        if name != "listen" and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = "json" if name == "as_json" else name
            raise click.UsageError(f"--listen goes alone: give --{option} where you --connect")


def _listen(ctx: click.Context, endpoint: str) -> None:
    from oz.cli.measuring.server import Server

    server = Server(endpoint)
    try:
        say(ctx, f"ready, bound to {server.endpoint}")
        server.serve()
    finally:
        server.close()


def _measure(ctx: click.Context, plans: list[BenchPlan], connect: str | None) -> tuple[list[Result], bool]:
    """Measure all plans; give what there is, and whether Ctrl-C cut it short."""
    from oz.cli.measuring.running import BenchRun, Orders

    total = sum(plan.seconds for plan in plans)
    with _publisher(connect) as endpoint:
        orders = Orders(endpoint)
        try:
            orders.greet()
            where = "connected to" if connect else "on this machine,"
            say(ctx, f"ready, {where} {endpoint}: {_what(plans[0])}; {total:g} s of measuring")
            with _progress_bar(total) as progress:
                run = BenchRun(orders, endpoint, progress)
                return run.results, _is_cut_short(run, plans)
        finally:
            orders.close()


def _is_cut_short(run: BenchRun, plans: list[BenchPlan]) -> bool:
    try:
        for plan in plans:
            run.measure(plan)
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def _publisher(connect: str | None) -> Iterator[str]:
    """Return where the publisher is told what to do; without an endpoint, start one."""
    if connect is not None:
        yield connect
        return
    from oz.cli.measuring.plan import BenchFailed
    from oz.cli.measuring.running import Child

    child = Child("the publisher process", "server", _HERE)
    try:
        started = child.hear(_START_SECONDS)
        if started is None:
            raise BenchFailed("the publisher process did not start in time; is the machine busy?")
        yield started["endpoint"]
    finally:
        child.end()


def _what(plan: BenchPlan) -> str:
    matching = plan.matching_subjects
    some = "all" if matching == plan.subjects else f"{matching:,}"
    number = f"{plan.subscribers} subscriber{'s' if plan.subscribers > 1 else ''}"
    return f"{plan.size:,} bytes, {plan.subjects:,} subjects of which {some} match, {number}"


def _as_data(plan: BenchPlan, results: list[Result], is_cut_short: bool) -> dict[str, Any]:
    import platform

    import zmq

    return {
        "size": plan.size,
        "subjects": plan.subjects,
        "matching_subjects": plan.matching_subjects,
        "subscribers": plan.subscribers,
        "seconds": plan.seconds,
        "latency": "round trip" if plan.is_echoed else "one way",
        "interrupted": is_cut_short,
        "python": platform.python_version(),
        "libzmq": zmq.zmq_version(),
        "results": [result.as_data() for result in results],
    }


_ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("published, messages/s", "published_per_second", lambda value: f"{value:,.0f}"),
    ("published, MB/s", "published_mb_per_second", lambda value: f"{value:,.1f}"),
    ("delivered, messages/s", "delivered_per_second", lambda value: f"{value:,.0f}"),
    ("delivered, MB/s", "delivered_mb_per_second", lambda value: f"{value:,.1f}"),
    ("published", "published", lambda value: f"{value:,}"),
    ("crossed the wire", "received", lambda value: f"{value:,}"),
    ("delivered", "delivered", lambda value: f"{value:,}"),
    ("lost", "lost", lambda value: f"{value:,}"),
)


def _rows(plan: BenchPlan, results: list[Result]) -> list[tuple[str, ...]]:
    """Lay out the results: a row for each number, a column for each filtering."""
    has_load = ["loaded" in result.latency for result in results]
    found = [result.as_data() for result in results]
    rows = [("filtering", *(result.filtering for result in results))]
    for heading, name, form in _ROWS:
        cells = (form(data[name]) if has else "-" for data, has in zip(found, has_load, strict=True))
        rows.append((heading, *cells))
    way = "round trip" if plan.is_echoed else "one way"
    for heading, phase in (("lone", "lone"), ("loaded", "loaded")):
        figures = [data[f"latency_{phase}"] for data in found]
        for name in ("p50", "p90", "p99", "p99.9", "max"):
            cells = (
                f"{value:,.0f}" if (value := one.get(f"{name}_us")) is not None else "-" for one in figures
            )
            rows.append((f"{heading}, {way}, {name}, µs", *cells))
    return rows


def _show(plan: BenchPlan, results: list[Result]) -> None:
    rows = _rows(plan, results)
    if not is_terminal():
        return write_line(plain_table(rows))
    from rich import box
    from rich.table import Table

    table = Table(title=_what(plan), box=box.SIMPLE_HEAD)
    heading, *filterings = rows[0]
    table.add_column(heading)
    for name in filterings:
        table.add_column(name, justify="right")
    for number, row in enumerate(rows[1:]):
        if number in (len(_ROWS), len(_ROWS) + 5):
            table.add_section()
        table.add_row(*row)
    console().print(table)


@contextmanager
def _progress_bar(total: float) -> Iterator[Progress]:
    """Show a bar on stderr while it lasts, if stderr is a terminal."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda what, over: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=screen
    ) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda what, over: bar.update(task, description=what, completed=over)
