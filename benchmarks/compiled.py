"""The compiled part beside Python alone: processor time of all processes for each message, interleaved.

`W1` and `W2` as in `routing`: one publisher and one subscriber, free on the same cores, tcp on the loopback,
100-byte payloads, settings that lose nothing. Each process counts its own processor time, ZeroMQ's threads
included, but for the time in which Python starts. The same is measured of a loop of
`send_multipart` and `recv_multipart` with pyzmq alone, and divided by oz's.

Run it as `python benchmarks/compiled.py --runs 5 --count 600000`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

import machine
import routed_sides
import sides
from routed_sides import ALL, ONE_IN_100, TIMEOUT, Work

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


def measure(publisher: Callable[..., None], subscriber: Callable[..., int], count: int, mode: str) -> float:
    """Run both; give the microseconds of processor that a published message took.

    Args:
        publisher: called with a pipe and the number of messages.
        subscriber: called with the endpoint and what to call when it is ready; gives what it got.
        count: messages to publish.
        mode: `OZ_COMPILED` of both.
    """
    os.environ["OZ_COMPILED"] = mode
    with _Process(_publish, publisher, count) as source:
        endpoint = source.take()
        with _Process(_subscribe, subscriber, endpoint) as sink:
            sink.take()
            source.tell("go")
            got, theirs = sink.take()
            source.tell("done")
            ours = source.take()
            while not isinstance(ours, float):
                ours = source.take()
    if got != count and publisher is not PUBLISHERS["W2"]:
        raise SystemExit(f"a subscriber got {got:,} of {count:,} messages: the comparison is void")
    return 1e6 * (ours + theirs) / count


PUBLISHERS: dict[str, Callable[..., None]] = {
    "W1": partial(routed_sides.publisher, work=ALL),
    "W2": partial(routed_sides.publisher, work=ONE_IN_100),
}
# Its pattern goes past the last message, which another subscription is for.
_HANDLED = Work(ALL.subjects, ["md.*.*"], "end")

ROWS: dict[str, tuple[Callable[..., None], Callable[..., int]]] = {
    "W1, a handler for each message": (
        partial(routed_sides.publisher, work=_HANDLED),
        partial(_handle, work=_HANDLED),
    ),
    "W1, for message in subscriber": (PUBLISHERS["W1"], partial(_iterate, work=ALL)),
    "W1, receive_batches": (PUBLISHERS["W1"], partial(_take_batches, work=ALL)),
    "W2, one in a hundred matches": (PUBLISHERS["W2"], partial(_iterate, work=ONE_IN_100)),
}


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
        plain.append(measure(sides.plain_publisher, _plainly, options.count // 4, PURE))
        for (name, (publisher, subscriber)), mode in itertools.product(ROWS.items(), (PURE, COMPILED)):
            spent = measure(publisher, subscriber, options.count, mode)
            found.setdefault((name, mode), []).append(spent)
    print(f"{'pyzmq, a loop of multipart messages':32} {machine.spread(plain)} µs")
    for (name, mode), spent in found.items():
        ratio = statistics.median(plain) / statistics.median(spent)
        label = "Python" if mode == PURE else "compiled"
        print(f"{name:32} {label:9} {machine.spread(spent)} µs   {ratio:.1f} times pyzmq's", flush=True)
    print(machine.describe())


if __name__ == "__main__":
    main()
