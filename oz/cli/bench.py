"""`oz bench`: rates and latency on this machine, or the rate of a running publisher."""

from __future__ import annotations

import platform
import time
from typing import Any, Literal

import click
import zmq
from click.core import ParameterSource

import oz
from oz.cli.exits import FAILED
from oz.cli.options import Number, Whole, one_endpoint_option, parse_all, security_option
from oz.cli.output import (
    console,
    is_terminal,
    json_option,
    plain_table,
    print_status,
    print_stderr,
    quiet_option,
    write_json,
    write_line,
)

_HELP = """Measure rates of publishing and delivery, and latency.

Without options it measures on this machine, over tcp on the loopback, in about five seconds: once with
filtering by prefix, in ZeroMQ, and once with filtering by the publisher. Each subscriber is a process.

The subscription is 'bench.*.hit'. Because all subjects begin with 'bench.', all of them pass the prefix. A
publisher that filters sends only the matching messages. --match is the share of matching subjects.

The publisher waits for a slow subscriber, so that nothing should be lost. A loss is shown, and the exit code is
then 1. Half the time is for lone messages, one a millisecond, and half for publishing at the full rate. At the
full rate a message waits in queues of up to 16 MiB on either side, which is most of its latency.

With --connect it subscribes to a running publisher for --seconds, and shows the rate of the messages that
match --pattern. An oz publisher reports losses; the losses of other publishers are unknown.

\b
Examples:
  oz bench
  oz bench --match 0.01 --subscribers 4
  oz bench --size 10000 --filtering publisher --json
  oz bench --connect tcp://192.0.2.7:5750 --pattern 'md.>' --seconds 10
"""

_LOOPBACK_ONLY = ("size", "subjects", "match", "subscribers")


@click.command(help=_HELP, short_help="Measure rates and latency.")
@one_endpoint_option("--connect", "Measure the messages of the publisher at this endpoint.")
@click.option(
    "--pattern", metavar="PATTERN", help="With --connect: the pattern to subscribe to.  [default: >]"
)
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
    "--subscribers", type=Whole(1, 64), default=1, metavar="N", help="Subscriber processes.  [default: 1]"
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
    type=click.Choice(["auto", "prefix", "publisher", "both"]),
    help="The side that filters: ZeroMQ by prefix, the oz publisher, or both in turn.  "
    "[default: both; with --connect auto]",
)
@json_option()
@security_option
@quiet_option
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    connect: str | None,
    pattern: str | None,
    seconds: float,
    filtering: Literal["auto", "prefix", "publisher", "both"] | None,
    as_json: bool,
    security: oz.Security | None,
    **load: Any,
) -> None:
    """Measure; the text of the help is `_HELP`."""
    if connect is None:
        if pattern is not None:
            raise click.UsageError("--pattern needs --connect: without it, the pattern is bench.*.hit")
        if filtering == "auto":
            raise click.UsageError("--filtering auto needs --connect: give prefix, publisher or both")
        return _on_loopback(ctx, filtering or "both", as_json, seconds=seconds, **load)
    for name in _LOOPBACK_ONLY:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{name} is only for this machine: with --connect, the publisher sets the load"
            )
    if filtering == "both":
        raise click.UsageError(
            "--filtering both is only for this machine: with --connect give auto, prefix or publisher"
        )
    [compiled] = parse_all([pattern or ">"], oz.DIALECTS[0])
    _at_publisher(ctx, connect, compiled, seconds, filtering or "auto", as_json, security)


def _on_loopback(
    ctx: click.Context, filtering: Literal["prefix", "publisher", "both"], as_json: bool, **load: Any
) -> None:
    from oz.cli.bench_run import BenchPlan, measure

    kinds: tuple[Literal["prefix", "publisher"], ...]
    kinds = ("prefix", "publisher") if filtering == "both" else (filtering,)
    plans = [BenchPlan(kind, **load) for kind in kinds]
    plan = plans[0]
    if plan.matching_subjects < 1:
        minimum = round(0.5 + 1 / plan.match)
        raise click.UsageError(
            f"{plan.match:g} of {plan.subjects} subjects is less than one; give --subjects {minimum} or more"
        )
    what = (
        f"{plan.size:,} bytes, {plan.subjects:,} subjects of which {plan.matching_subjects:,} match, "
        f"{plan.subscribers} subscriber{'s' if plan.subscribers > 1 else ''}"
    )
    print_status(ctx, f"ready, on this machine: {what}; {plan.seconds * len(plans):g} s of measuring")
    results = [measure(plan) for plan in plans]
    if as_json:
        write_json(
            {
                **{name: load[name] for name in ("size", "subjects", "subscribers", "seconds")},
                "matching_subjects": plan.matching_subjects,
                "python": platform.python_version(),
                "libzmq": zmq.zmq_version(),
                "results": results,
            }
        )
    else:
        _show(what, _rows(results))
    if lost := sum(result["lost"] for result in results):
        print_stderr(ctx, f"{lost:,} messages were lost")
        ctx.exit(FAILED)


def _at_publisher(
    ctx: click.Context,
    endpoint: str,
    pattern: oz.Pattern,
    seconds: float,
    filtering: Literal["auto", "prefix", "publisher"],
    as_json: bool,
    security: oz.Security | None,
) -> None:
    """Count the messages of a running publisher, from the first one on."""
    gaps: list[int | None] = []
    messages = size = 0
    with oz.Subscriber(
        endpoint, filtering=filtering, security=security, on_gap=lambda gap: gaps.append(gap.count)
    ) as subscriber:
        subscriber.subscribe(pattern)
        print_status(ctx, f"ready, connecting to {endpoint}; {seconds:g} s of measuring")
        began = now = time.monotonic()
        while now - began < seconds:
            try:
                message = subscriber.receive(timeout=seconds - (now - began))
            except oz.Timeout:
                break
            now = time.monotonic()
            if not messages:
                began = now  # The time to connect does not count.
            messages += 1
            size += sum(map(len, message.frames[1:]))
        is_counted = subscriber.publishers[0].mode == "link"
    if not messages:
        hint = "; for a publisher that is not oz, give --filtering prefix" if filtering == "publisher" else ""
        print_stderr(ctx, f"no message from {endpoint} within {seconds:g} s{hint}")
        ctx.exit(FAILED)
    # Plain publishers number no messages, so that their losses are unknown.
    lost = None if not is_counted or None in gaps else sum(count or 0 for count in gaps)
    result = {
        "endpoint": endpoint,
        "pattern": str(pattern.text),
        "filtering": filtering,
        "seconds": seconds,
        "messages": messages,
        "bytes": size,
        "messages_per_second": round(messages / seconds, 1),
        "mb_per_second": round(size / seconds / 1e6, 3),
        "lost": lost,
    }
    if as_json:
        write_json(result)
    else:
        names = {"messages_per_second": "messages/s", "mb_per_second": "MB/s"}
        _show(endpoint, [(names.get(name, name), _cell(value)) for name, value in result.items()])
    if gaps:
        print_stderr(ctx, "messages were lost" if lost is None else f"{lost:,} messages were lost")
        ctx.exit(FAILED)


def _cell(value: Any) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:,}"


_ROWS = {
    "filtering": "filtering",
    "published, messages/s": "published_per_second",
    "published, MB/s": "published_mb_per_second",
    "delivered, messages/s": "delivered_per_second",
    "delivered, MB/s": "delivered_mb_per_second",
    "published": "published",
    "crossed the wire": "received",
    "delivered": "delivered",
    "lost": "lost",
}


def _rows(results: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each number, with a cell for each filtering."""
    rows = [(heading, *(_cell(result[name]) for result in results)) for heading, name in _ROWS.items()]
    for phase in ("lone", "loaded"):
        for name in ("p50", "p90", "p99", "p99.9", "max"):
            figures = (result[f"latency_{phase}"].get(f"{name}_us") for result in results)
            cells = ("-" if figure is None else f"{figure:,.0f}" for figure in figures)
            rows.append((f"latency, {phase}, {name}, µs", *cells))
    return rows


def _show(title: str, rows: list[tuple[str, ...]]) -> None:
    if not is_terminal():
        return write_line(plain_table(rows))
    from rich import box
    from rich.table import Table

    (heading, *columns), *others = rows
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column(heading)
    for name in columns:
        table.add_column(name, justify="right")
    for row in others:
        table.add_row(*row)
    console().print(table)
