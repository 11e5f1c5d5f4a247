"""Publisher-side routing beside plain pyzmq, nats-py, zenoh and prefix mode: ratios of interleaved runs.

One publisher process and one process for each subscriber, free on the same cores, tcp on the loopback,
100-byte payloads, 1,000 subjects. Settings lose nothing on any side (`rivals` says how), the publisher
begins when all subscribers are ready, and a run in which a message is missing ends the comparison. The
faster a side, the more messages it gets, so that all run for a second or more.

- `W1`: one to one, everything matches, a plain loop that publishes: messages delivered a second; also
  beside C.
- `W2`: a leading wildcard, 1 of 100 messages matches: messages published a second, and how many of them
  cost the subscriber a second of processor time.
- `W3`: ping-pong: median and 99th percentile of the round trip.
- `W4`: one to four: messages delivered a second, together.
- `W5`: 10,000 patterns with a handler each, 1 to 3 of which match a message: handlers called a second.
- `asyncio`: `W1` with asyncio on both sides.
- `broadcast`: several subscribers whose different patterns all match everything, and one with 100 such
  patterns: the time for each message published, beside prefix mode.

Run it as `python benchmarks/routing.py W1 W2 --runs 3 --count 200000`; without names it measures all.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import machine
import rivals
import routed_sides
import sides
from routed_sides import ALL, MANY, MANY_MATCHES, ONE_IN_100, OVERLAPPING, Work

_spawn = multiprocessing.get_context("spawn")

PATIENCE = 90
"""Seconds after which a message that is waited for is lost."""

Figures = dict[str, float]
Side = Callable[[], Figures]


# running -------------------------------------------------------------------------------------------------


class _Process:
    """A program in a process of its own, and the pipe to it."""

    def __init__(self, program: Callable[..., Any], *arguments: Any) -> None:
        self._ours, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=program, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def take(self) -> Any:
        """Wait for what it tells."""
        with contextlib.suppress(EOFError):
            if self._ours.poll(PATIENCE):
                return self._ours.recv()
        raise SystemExit("a program died, or a message that it waits for is lost: the comparison is void")

    def tell(self, word: str) -> None:
        """Tell it something, if it still listens."""
        with contextlib.suppress(OSError):
            self._ours.send(word)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()


def _subscribe(pipe: Connection, subscriber: Callable[..., Any], endpoint: Any) -> None:
    pipe.send(subscriber(endpoint, lambda: pipe.send("ready")))


def together(
    publisher: Callable[..., None], subscribers: Sequence[Callable[..., Any]], count: int
) -> list[Any]:
    """Run a publisher and its subscribers; give what each of these gives.

    Args:
        publisher: one of `routed_sides`, `sides` or `rivals`.
        subscribers: likewise.
        count: messages to send.
    """
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_Process(publisher, count))
        endpoint = source.take()
        sinks = [stack.enter_context(_Process(_subscribe, each, endpoint)) for each in subscribers]
        for sink in sinks:
            sink.take()
        source.tell("go")
        results = [sink.take() for sink in sinks]
        source.tell("done")
        return results


def flow(
    publisher: Callable[..., None], subscribers: Sequence[Callable[..., Any]], count: int, matches: float = 1
) -> Figures:
    """Run a publisher and its subscribers; give the rates.

    Args:
        publisher: as in `together`.
        subscribers: likewise.
        count: messages to send.
        matches: how often each subscriber gets a message, on average.
    """
    results, expected = together(publisher, subscribers, count), round(count * matches)
    for got, *_ in results:
        if got != expected:
            raise SystemExit(f"a subscriber got {got:,} of {expected:,} messages: the comparison is void")
    longest = max(seconds for _, seconds, *_ in results)
    cpu = sum(sum(rest) for _, _, *rest in results)
    return {
        "delivered": expected * len(results) / longest,
        "published": count / longest,
        "published for a CPU second": count / cpu if cpu else math.nan,
        "time": 1e9 * longest / count,
    }


def round_trip(echo: Callable[..., None], ping: Callable[..., list[float]], count: int) -> Figures:
    """Run a pair of programs; give percentiles in nanoseconds."""
    (times,) = together(echo, [partial(ping, count=count)], count)
    percentiles = statistics.quantiles(times, n=100)
    return {"median": 1e9 * percentiles[49], "99th": 1e9 * percentiles[98]}


class Comparison(NamedTuple):
    """Sides to measure in turn."""

    lines: list[tuple[str, str, str]]
    """What to print: a name, the figure that each side gives, and its unit."""
    ours: Side
    others: dict[str, Side]
    goals: dict[tuple[str, str], str]
    """What a ratio should be, by figure and rival."""


def compare(comparison: Comparison, runs: int, left_out: dict[str, str]) -> None:
    """Measure all sides in turn, and print each rival, oz and the ratio run by run."""
    others = {label: side for label, side in comparison.others.items() if label not in left_out}
    rounds = [({label: side() for label, side in others.items()}, comparison.ours()) for _ in range(runs)]
    for name, figure, unit in comparison.lines:
        for label in others:
            theirs = [figures[label][figure] for figures, _ in rounds]
            ours = [figures[figure] for _, figures in rounds]
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            goal = comparison.goals.get((figure, label))
            print(
                f"{name:34} {label:9} {statistics.median(theirs):12,.0f} {unit}   "
                f"oz {statistics.median(ours):12,.0f} {unit}   ratio {machine.spread(ratios)}"
                + (f"   goal {goal}" if goal else ""),
                flush=True,
            )


# sides ---------------------------------------------------------------------------------------------------


def _turns(count: float) -> int:
    """Give a number of messages near this in which each subject is sent equally often."""
    return max(1, round(count / 1000)) * 1000


def routed(
    count: float,
    work: Work,
    patterns: Sequence[list[str]] = (),
    *,
    filtering: str = "publisher",
    matches: float = 1,
) -> Figures:
    """Measure oz, with the patterns of each subscriber."""
    each = patterns or [work.patterns]
    receive = partial(routed_sides.subscriber, end=work.end, filtering=filtering)
    return flow(
        partial(routed_sides.publisher, work=work, subscribers=len(each)),
        [partial(receive, patterns=one) for one in each],
        _turns(count),
        matches,
    )


def nats(count: float, work: Work, address: str, *, subscribers: int = 1, matches: float = 1) -> Figures:
    """Measure nats-py."""
    expected = round(_turns(count) * matches)
    return flow(
        partial(rivals.nats_publisher, work=work, address=address),
        [partial(rivals.nats_subscriber, work=work, expected=expected)] * subscribers,
        _turns(count),
        matches,
    )


def zenoh(count: float, work: Work, *, subscribers: int = 1, matches: float = 1) -> Figures:
    """Measure zenoh."""
    return flow(
        partial(rivals.zenoh_publisher, work=work, subscribers=subscribers),
        [partial(rivals.zenoh_subscriber, work=work)] * subscribers,
        _turns(count),
        matches,
    )


# workloads -----------------------------------------------------------------------------------------------


def w1(count: int, address: str, program: str) -> Iterator[Comparison]:
    """One to one."""
    yield Comparison(
        [("W1 delivered", "delivered", "/s")],
        partial(routed, 4 * count, ALL),
        {
            "pyzmq": partial(flow, sides.plain_publisher, [sides.plain_subscriber], _turns(count)),
            "C": partial(
                flow,
                partial(rivals.c_publisher, program=program),
                [partial(rivals.c_subscriber, program=program)],
                _turns(8 * count),
            ),
            "nats": partial(nats, count / 3, ALL, address),
            "zenoh": partial(zenoh, count, ALL),
        },
        {("delivered", "pyzmq"): "6 or more"},
    )


def w2(count: int, address: str, program: str) -> Iterator[Comparison]:
    """A leading wildcard."""
    rare = {"matches": 1 / 100}
    yield Comparison(
        [
            ("W2 published", "published", "/s"),
            ("W2 published a subscriber's CPU s", "published for a CPU second", "/s"),
        ],
        partial(routed, 10 * count, ONE_IN_100, **rare),
        {
            "pyzmq": partial(
                flow,
                partial(routed_sides.plain_publisher, work=ONE_IN_100),
                [partial(routed_sides.plain_filter, suffix=b".s7", end=ONE_IN_100.end)],
                _turns(count),
                **rare,
            ),
            "oz prefix": partial(routed, count, ONE_IN_100, filtering="prefix", **rare),
            "nats": partial(nats, 1.5 * count, ONE_IN_100, address, **rare),
            "zenoh": partial(zenoh, 4 * count, ONE_IN_100, **rare),
        },
        {("published", "pyzmq"): "20 or more", ("published for a CPU second", "oz prefix"): "20 or more"},
    )


def w3(count: int, address: str, program: str) -> Iterator[Comparison]:
    """Ping-pong."""
    times = count // 40
    yield Comparison(
        [("W3 round trip, median", "median", "ns"), ("W3 round trip, 99th percentile", "99th", "ns")],
        partial(round_trip, routed_sides.echo, routed_sides.ping, times),
        {
            "pyzmq": partial(round_trip, sides.plain_echo, routed_sides.plain_ping, times),
            "nats": partial(
                round_trip, partial(rivals.nats_echo, address=address), rivals.nats_ping, times // 4
            ),
            "zenoh": partial(round_trip, rivals.zenoh_echo, rivals.zenoh_ping, times),
        },
        {("median", "pyzmq"): "1 or less"},
    )


def w4(count: int, address: str, program: str) -> Iterator[Comparison]:
    """One to four."""
    yield Comparison(
        [("W4 one to four, delivered", "delivered", "/s")],
        partial(routed, count, ALL, [ALL.patterns] * 4),
        {
            "pyzmq": partial(
                flow,
                partial(routed_sides.plain_publisher, work=ALL, subscribers=4),
                [sides.plain_subscriber] * 4,
                _turns(count / 3),
            ),
            "nats": partial(nats, count / 5, ALL, address, subscribers=4),
            "zenoh": partial(zenoh, count / 3, ALL, subscribers=4),
        },
        {("delivered", "pyzmq"): "6 or more"},
    )


def w5(count: int, address: str, program: str) -> Iterator[Comparison]:
    """Ten thousand handlers."""
    matches = MANY_MATCHES / len(MANY.subjects)
    yield Comparison(
        [("W5 10,000 handlers, calls", "delivered", "/s")],
        partial(
            flow,
            partial(routed_sides.publisher, work=MANY),
            [partial(routed_sides.handlers, work=MANY)],
            _turns(count / 2),
            matches,
        ),
        {"nats": partial(nats, count / 7, MANY, address, matches=matches)},
        {("delivered", "nats"): "25 or more"},
    )


def asyncio(count: int, address: str, program: str) -> Iterator[Comparison]:
    """One to one, awaited."""
    yield Comparison(
        [("asyncio to asyncio, delivered", "delivered", "/s")],
        partial(
            flow,
            partial(routed_sides.async_publisher, work=ALL),
            [partial(routed_sides.async_subscriber, work=ALL)],
            _turns(2 * count),
        ),
        {
            "pyzmq": partial(
                flow,
                partial(routed_sides.plain_async_publisher, work=ALL),
                [sides.plain_async_subscriber],
                _turns(count / 6),
            )
        },
        {("delivered", "pyzmq"): "20 or more"},
    )


def broadcast(count: int, address: str, program: str) -> Iterator[Comparison]:
    """Everybody wants everything, each in words of his own."""
    cases = {f"{n} subscribers": [[text] for text in OVERLAPPING.patterns[:n]] for n in (1, 4, 10)}
    for name, patterns in {**cases, "100 patterns in one": [OVERLAPPING.patterns]}.items():
        few = count / len(patterns)
        yield Comparison(
            [(f"broadcast, {name}, each", "time", "ns")],
            partial(routed, 2 * few, OVERLAPPING, patterns),
            {"oz prefix": partial(routed, few, OVERLAPPING, patterns, filtering="prefix")},
            {("time", "oz prefix"): "1.5 or less"},
        )


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "asyncio": asyncio, "broadcast": broadcast}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparisons.

    Args:
        arguments: what would stand on the command line.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; default all")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of each")
    parser.add_argument("--count", type=int, default=400_000, help="messages in a run of plain pyzmq")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in WORKLOADS]:
        parser.error(f"no such workload: {', '.join(unknown)}")
    left_out = rivals.missing()
    print(machine.describe())
    print(rivals.describe(), flush=True)
    with contextlib.ExitStack() as stack:
        address = "" if "nats" in left_out else stack.enter_context(rivals.nats_server())
        program = "" if "C" in left_out else stack.enter_context(rivals.c_program())
        for name in options.names or WORKLOADS:
            for comparison in WORKLOADS[name](options.count, address, program):
                compare(comparison, options.runs, left_out)
    print(machine.describe())


if __name__ == "__main__":
    main()
