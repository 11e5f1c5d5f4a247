"""The compiled part beside Python alone: processor time of all processes for each message, interleaved.

The workloads of `routing`: a publisher and its subscribers, free on the same cores, tcp on the loopback,
100-byte payloads, settings that lose nothing. Each process counts its own processor time, ZeroMQ's threads
included, but for the time in which Python starts. A loop of `send_multipart` and `recv_multipart` with pyzmq
alone is measured with them. The time is that of a published message: four deliveries in W4.

Run it as `python benchmarks/compiled.py --runs 5 --count 600000`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import resource
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import machine
import routed_sides
import sides
from routed_sides import ALL, MANY, MANY_MATCHES, ONE_IN_100, TIMEOUT, Work

import oz
from oz.compiled import WHY_NOT
from routing import _Process

PURE, COMPILED = "0", "require"
"""Values of `OZ_COMPILED`."""


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _publish(pipe: Connection, publisher: Callable[..., None], count: int) -> None:
    since = _processor_seconds()
    publisher(pipe, count)
    pipe.send(_processor_seconds() - since)


def _subscribe(pipe: Connection, subscriber: Callable[..., int], endpoint: str) -> None:
    since = 0.0

    def begin() -> None:
        nonlocal since
        pipe.send("ready")
        since = _processor_seconds()

    count = subscriber(endpoint, begin)
    pipe.send((count, _processor_seconds() - since))


def _iterate(endpoint: str, begin: Callable[[], object], work: Work) -> int:
    return routed_sides.subscriber(endpoint, begin, work.patterns, work.end)[0]


def _handle(endpoint: str, begin: Callable[[], object], work: Work) -> int:
    return routed_sides.handlers(endpoint, begin, work)[0]


def _take_batches(endpoint: str, begin: Callable[[], object], work: Work) -> int:
    with oz.Subscriber(endpoint, filtering="publisher", high_water_mark=0) as sub:
        for pattern in work.patterns:
            sub.subscribe(pattern)
        sub.wait_ready(timeout=TIMEOUT)
        begin()
        count, end = 0, work.end.encode()
        while True:
            for one in sub.receive_batches():
                is_message = isinstance(one, oz.Message)
                count += 1 if is_message else len(one)
                if (one.subject_bytes if is_message else one.subjects[-1]) == end:
                    return count - 1


def _plainly(endpoint: str, begin: Callable[[], object]) -> int:
    return sides.plain_subscriber(endpoint, begin)[0]


def _take_plain(endpoint: str, begin: Callable[[], object]) -> int:
    return sides.oz_subscriber(endpoint, begin)[0]


class Row(NamedTuple):
    """A workload."""

    publisher: Callable[..., None]
    subscriber: Callable[..., int]
    subscribers: int = 1
    matches: float = 1
    """How often each subscriber gets a message, on average."""


# Its pattern does not match the last message, which another subscription is for.
_HANDLED = Work(ALL.subjects, ["md.*.*"], "end")

PLAIN = Row(sides.plain_publisher, _plainly)

ROWS = {
    "W1, a handler for each message": Row(
        partial(routed_sides.publisher, work=_HANDLED), partial(_handle, work=_HANDLED)
    ),
    "W1, for message in subscriber": Row(
        partial(routed_sides.publisher, work=ALL), partial(_iterate, work=ALL)
    ),
    "W1, receive_batches": Row(partial(routed_sides.publisher, work=ALL), partial(_take_batches, work=ALL)),
    "W2, one in a hundred matches": Row(
        partial(routed_sides.publisher, work=ONE_IN_100), partial(_iterate, work=ONE_IN_100), matches=1 / 100
    ),
    "W4, one to four": Row(
        partial(routed_sides.publisher, work=ALL, subscribers=4), partial(_iterate, work=ALL), subscribers=4
    ),
    "prefixes, for message in subscriber": Row(sides.oz_publisher, _take_plain),
    "W5, 10,000 handlers": Row(
        partial(routed_sides.publisher, work=MANY),
        partial(_handle, work=MANY),
        matches=MANY_MATCHES / len(MANY.subjects),
    ),
}


def measure(row: Row, count: int, mode: str) -> float:
    """Run a publisher and its subscribers; give the microseconds of processor that a published message took.

    Args:
        row: the workload.
        count: messages to publish; a multiple of 1,000.
        mode: `OZ_COMPILED` of all of them.
    """
    os.environ["OZ_COMPILED"] = mode
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_Process(_publish, row.publisher, count))
        endpoint = source.take()
        sinks = [
            stack.enter_context(_Process(_subscribe, row.subscriber, endpoint))
            for _ in range(row.subscribers)
        ]
        for sink in sinks:
            sink.take()
        source.tell("go")
        results = [sink.take() for sink in sinks]
        source.tell("done")
        spent = source.take()
        while not isinstance(spent, float):
            spent = source.take()
    for got, seconds in results:
        if got != round(count * row.matches):
            raise SystemExit(f"a subscriber got {got:,} messages of {count:,}: the comparison is void")
        spent += seconds
    return 1e6 * spent / count


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all rows in turn, and print them.

    Args:
        arguments: what would stand on the command line.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of each")
    parser.add_argument("--count", type=int, default=600_000, help="messages in a run")
    options = parser.parse_args(arguments)
    if not oz.__compiled__:
        print(f"the compiled part is {WHY_NOT}: nothing to compare")
        return
    print(machine.describe(), flush=True)
    plain: list[float] = []
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.runs):
        plain.append(measure(PLAIN, options.count // 4, PURE))
        for (name, row), mode in itertools.product(ROWS.items(), (PURE, COMPILED)):
            found.setdefault((name, mode), []).append(measure(row, options.count, mode))
    print(f"{'pyzmq, a loop of multipart messages':36} {machine.spread(plain)} µs")
    for name in ROWS:
        pure, fast = found[name, PURE], found[name, COMPILED]
        gain = statistics.median(pure) / statistics.median(fast)
        spreads = f"Python {machine.spread(pure)} µs, compiled {machine.spread(fast)} µs"
        print(f"{name:36} {spreads}: {gain:.2f} times less", flush=True)
    print(machine.describe())


if __name__ == "__main__":
    main()
