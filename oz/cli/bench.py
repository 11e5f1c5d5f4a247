"""`oz bench`: rates and latency on this machine."""

from __future__ import annotations

import platform
from typing import Any

import click
import zmq

from oz.cli.exits import FAILED
from oz.cli.options import Number, Whole
from oz.cli.output import (
    json_option,
    plain_table,
    print_status,
    print_stderr,
    quiet_option,
    write_json,
    write_line,
)

_HELP = """Measure rates of publishing and delivery, and latency.

A publisher and a subscriber process exchange messages over tcp on this machine. The command measures twice, in about
five seconds: once with filtering by prefix in ZeroMQ, and once with filtering by the publisher.

The subscription is 'bench.*.hit'. All subjects begin with 'bench.', so that all messages pass the filter by prefix. A
publisher that filters sends only the matching messages. --match is the fraction of subjects that match.

In the first half of the time, the publisher sends single messages, one each millisecond ("lone"). In the second half
it publishes as fast as possible ("loaded"). Then a message waits in queues of up to 16 MiB on both sides, which causes
most of its latency. The publisher waits for a slow subscriber. If messages are lost nevertheless, the exit code is 1.

\b
Examples:
  oz bench
  oz bench --match 0.01 --size 10000 --json
"""


@click.command(help=_HELP, short_help="Measure rates and latency.")
@click.option("--size", type=Whole(0, 64 * 1024 * 1024), default=100, metavar="BYTES",
              help="Size of each payload.  [default: 100]")  # fmt: skip
@click.option("--match", type=Number(0.001, 1), default=1.0, metavar="FRACTION",
              help="Fraction of the subjects that match, such as 0.01.  [default: 1]")  # fmt: skip
@click.option("--seconds", type=Number(0.1, 3600), default=2.0, metavar="SECONDS",
              help="Duration of each of the two measurements.  [default: 2]")  # fmt: skip
@json_option()
@quiet_option
@click.pass_context
def bench(ctx: click.Context, size: int, match: float, seconds: float, as_json: bool) -> None:
    """Measure rates and latencies; `_HELP` is the text of `--help`."""
    from oz.cli.bench_run import measure

    print_status(
        ctx, f"ready, on this machine: {size:,} bytes, {match:g} match; {2 * seconds:g} s of measuring"
    )
    results = [measure(filtering, size, match, seconds) for filtering in ("prefix", "publisher")]
    if as_json:
        versions = {"python": platform.python_version(), "libzmq": zmq.zmq_version()}
        write_json({"size": size, "match": match, "seconds": seconds, **versions, "results": results})
    else:
        write_line(plain_table(_rows(results)))
    if lost := sum(result["lost"] for result in results):
        print_stderr(
            ctx,
            f"{lost:,} messages were lost, although the publisher waits for its subscriber: report it as a fault of oz",
        )
        ctx.exit(FAILED)


_ROWS = {
    "filtering": "filtering",
    "published, messages/s": "published_per_second",
    "delivered, messages/s": "delivered_per_second",
    "published": "published",
    "crossed the wire": "received",
    "delivered": "delivered",
    "lost": "lost",
}


def _rows(results: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = [(heading, *(_cell(result[name]) for result in results)) for heading, name in _ROWS.items()]
    for phase in ("lone", "loaded"):
        for name in ("p50", "p90", "p99", "max"):
            cells = (_cell(result[f"latency_{phase}"].get(f"{name}_us", "-")) for result in results)
            rows.append((f"latency, {phase}, {name}, µs", *cells))
    return rows


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}"
