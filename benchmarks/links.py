"""Links beside the old core and beside a plain pyzmq loop, interleaved in one run.

    python benchmarks/links.py [--rounds 3] [--scale 1] [--python] [ROW ...]

Each side of a row runs once in each round, so that all sides meet the same machine. Publisher and subscribers are
processes of their own, as in `table`. A line shows messages per second, processor time for each message in all
processes, and the ratio to pyzmq: the median of the ratios of each round. A lone message is a round trip: its
rate is the inverse of the median time.

- `W1`: one to one, everything matches. `W2`: a leading wildcard, 1 of 100 messages matches; messages published.
- `W4`: one to four. `W50`: one to fifty.
- `prefix`: a plain PUB/SUB connection with pattern. `W5`: 10,000 patterns with a handler each.
- `trip`: round trip of a lone message.

`--python` measures without the compiled part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import plain_sides
import sides
import zmq
from running import SHOWN, Figures, Void, flow, round_trip
from sides import ALL, LOOPBACK, MANY, MANY_MATCHES, ONE_IN_100, PAYLOAD, Span, Tally, Work

sys.path.insert(0, str(Path(__file__).parent.parent))

import oz
from oz.compiled import COMPILED
from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber

_HANDLED = Work(ALL.subjects, ALL.patterns, "end")
TIMEOUT = 80
"""Seconds for the start of 50 processes on a machine that is loaded."""
Side = Callable[[], Figures]


def publisher(pipe: Connection, count: int, work: Work, subscribers: int = 1) -> None:
    """Publish on links, and to plain subscribers."""
    subjects, turn = work.subjects, len(work.subjects)
    with Publisher(LOOPBACK, on_full="block") as pub:
        pipe.send(pub.endpoint)
        pub.wait_for_subscribers(count=subscribers, timeout=TIMEOUT)
        pipe.recv()
        for number in range(count):
            pub.publish(subjects[number % turn], work.payload)
        pub.publish(work.end)
        pipe.recv()


def subscriber(
    endpoint: str, begin: Callable[[], object], patterns: list[str], end: str, filtering: str = "publisher"
) -> tuple[int, float, float]:
    """Receive by iteration."""
    with Subscriber(endpoint, filtering=filtering) as sub:
        for pattern in patterns:
            sub.subscribe(pattern)
        sub.wait_ready(timeout=TIMEOUT)
        begin()
        sub.receive()
        span, count = Span(), 1
        for message in sub:
            if message.subject == end:
                break
            count += 1
        return span.stop(count)


def handlers(endpoint: str, begin: Callable[[], object], work: Work) -> tuple[int, float, float]:
    """Receive by a handler for each pattern."""
    with Subscriber(endpoint, filtering="publisher") as sub:
        tally = Tally()
        for pattern in work.patterns:
            sub.subscribe(pattern, tally.count)
        sub.subscribe(work.end)
        sub.wait_ready(timeout=TIMEOUT)
        begin()
        sub.receive()
        return tally.stop()


def echo(pipe: Connection, count: int) -> None:
    """Send every message back on a link."""
    context = zmq.Context.instance()
    with Publisher(LOOPBACK, context=context) as out:
        pipe.send(out.endpoint)
        with Subscriber(pipe.recv(), filtering="publisher", context=context) as back:
            back.subscribe("ping.*")
            pipe.recv()
            for message in back:
                if message.payload == b"end":
                    return
                out.publish("pong." + message.subject[5:], message.payload)


def echo_old(pipe: Connection, count: int) -> None:
    """Send every message back with the old core, between the same sockets."""
    context = zmq.Context.instance()
    with oz.Publisher(LOOPBACK, context=context) as out:
        pipe.send(out.endpoint)
        with oz.Subscriber(pipe.recv(), filtering="publisher", context=context) as back:
            back.subscribe("ping.*")
            back.wait_ready(timeout=TIMEOUT)
            pipe.recv()
            for message in back:
                if message.payload == b"end":
                    return
                out.publish("pong." + message.subject[5:], message.payload)


def trips(kind: str, count: int) -> Figures:
    """Time round trips of one pair of processes; kind is "links" or "old"."""
    ours, theirs = multiprocessing.Pipe()
    links = kind == "links"
    process = multiprocessing.Process(target=echo if links else echo_old, args=(theirs, count), daemon=True)
    process.start()
    endpoint = ours.recv()
    result, answer = multiprocessing.Pipe()
    asker = multiprocessing.Process(target=_ask, args=(ours, answer, endpoint, links, count), daemon=True)
    asker.start()
    times = result.recv()
    process.join(10)
    asker.join(10)
    process.kill()
    return Figures(1 / statistics.median(times), 1e6 * statistics.median(times), [])


def _ask(pipe: Connection, answer: Connection, endpoint: str, links: bool, count: int) -> None:
    # One context for both sockets, as in the loop of pyzmq.
    context, publish = zmq.Context.instance(), Publisher if links else oz.Publisher
    make: Any = Subscriber if links else oz.Subscriber
    with publish(LOOPBACK, context=context) as out:
        pipe.send(out.endpoint)
        with make(endpoint, filtering="publisher", context=context) as back:
            back.subscribe("pong.*")
            back.wait_ready(timeout=TIMEOUT)
            out.wait_for_subscribers(timeout=TIMEOUT)
            pipe.send("go")
            times = []
            for _ in range(count):
                started = time.perf_counter()
                out.publish("ping.a", PAYLOAD)
                back.receive()
                times.append(time.perf_counter() - started)
            out.publish("ping.a", b"end")
            answer.send(times)


def _plain_trips(count: int) -> Figures:
    median = round_trip(plain_sides.echo, plain_sides.ping, count).times[SHOWN.index(50)]
    return Figures(1e6 / median, median, [])


def rows(count: int) -> dict[str, dict[str, Side]]:
    """Return the sides of each row.

    Args:
        count: messages of pyzmq in a run.
    """

    def one(
        work: Work, times: float, ours: Any, old: Any, plain: Side | None, n: int = 1, **options: Any
    ) -> dict[str, Side]:
        size = max(1, round(times * count / 1000)) * 1000
        found = {
            "links": partial(flow, partial(publisher, work=work, subscribers=n), [ours] * n, size, **options),
            "old": partial(
                flow, partial(sides.publisher, work=work, subscribers=n), [old] * n, size, **options
            ),
        }
        return found if plain is None else found | {"pyzmq": plain}

    def plain(n: int, times: float) -> Side:
        size = max(1, round(times * count / 1000)) * 1000
        source = partial(plain_sides.publisher, work=ALL, subscribers=n)
        return partial(flow, source, [plain_sides.subscriber] * n, size)

    iteration = partial(subscriber, patterns=ALL.patterns, end=ALL.end)
    old = partial(sides.subscriber, patterns=ALL.patterns, end=ALL.end)
    rare = {"patterns": ONE_IN_100.patterns, "end": ONE_IN_100.end}
    return {
        "W1": one(ALL, 4, iteration, old, plain(1, 1)),
        "W1h": one(
            _HANDLED, 4, partial(handlers, work=_HANDLED), partial(sides.handlers, work=_HANDLED), plain(1, 1)
        ),
        "W2": one(
            ONE_IN_100, 12, partial(subscriber, **rare), partial(sides.subscriber, **rare),
            partial(
                flow, partial(plain_sides.publisher, work=ONE_IN_100),
                [partial(plain_sides.filter, suffix=b".s7", end=ONE_IN_100.end)], count // 1000 * 1000,
                matches=1 / 100, published=True,
            ),
            matches=1 / 100, published=True,
        ),
        "W4": one(ALL, 1.2, iteration, old, plain(4, 0.5), 4),
        "W50": one(ALL, 0.4, iteration, old, plain(50, 0.05), 50),
        "prefix": one(
            ALL, 1.5, partial(iteration, filtering="prefix"), partial(old, filtering="prefix"), plain(1, 1)
        ),
        "W5": one(
            MANY, 1, partial(handlers, work=MANY), partial(sides.handlers, work=MANY), None,
            matches=MANY_MATCHES / len(MANY.subjects),
        ),
        "trip": {
            "links": partial(trips, "links", count // 50),
            "old": partial(trips, "old", count // 50),
            "pyzmq": partial(_plain_trips, count // 12),
        },
    }  # fmt: skip


def main() -> None:
    """Measure the rows that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--only", help="one side only: links, old or pyzmq")
    parser.add_argument("row", nargs="*")
    arguments = parser.parse_args()
    if arguments.python:
        os.environ[COMPILED] = "0"
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload(["links", "sides", "plain_sides", "oz"])
    found = rows(round(150_000 * arguments.scale))
    print(f"load {os.getloadavg()[0]:.1f}, compiled {not arguments.python and oz.__compiled__}")
    for name in arguments.row or found:
        results: dict[str, list[Figures]] = {}
        for _ in range(arguments.rounds):
            for side, run in found[name].items():
                if arguments.only and side != arguments.only:
                    continue
                try:
                    results.setdefault(side, []).append(run())
                except Void as error:
                    print(f"{name} {side}: {error}")
        for side, figures in results.items():
            line = f"{name:7}{side:7}{statistics.median(one.rate for one in figures):12,.0f}/s"
            line += f"{statistics.median(one.processor for one in figures):9.2f} µs"
            for other in ("pyzmq", "old"):
                if side != other and len(results.get(other, ())) == len(figures):
                    ratios = [a.rate / b.rate for a, b in zip(figures, results[other], strict=True)]
                    line += f"   {statistics.median(ratios):6.2f} of {other}"
            print(line, flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
