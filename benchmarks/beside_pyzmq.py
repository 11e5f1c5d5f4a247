"""Sockets beside pyzmq: throughput, asyncio throughput and round trip, as ratios of interleaved runs.

Settings lose nothing on either side: no high-water mark, and a publisher that would rather wait. One
publisher process, one subscriber process, tcp on the loopback, 100-byte payloads, 1,000 three-token
subjects, all of which the pattern `md.*.*` matches. The asyncio subscribers are measured twice: emptying a
queue that is full already, which is their own speed, and fed by `oz.Publisher` at the same time, where the
publisher and ZeroMQ's threads want the same two cores.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import machine
import sides

_spawn = multiprocessing.get_context("spawn")


def throughput(
    publisher: Callable[..., None], subscriber: Callable[..., Any], count: int, *, waiting: bool = False
) -> float:
    """Run one pair of programs; give the messages delivered a second.

    Args:
        publisher: one of `sides`.
        subscriber: one of `sides`.
        count: messages to send.
        waiting: the subscriber begins when all messages wait in its queue, so that only its own speed
            counts; otherwise both run at once.
    """
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=publisher, args=(theirs, count))
    process.start()
    got, seconds = subscriber(ours.recv(), ours.recv if waiting else time.time)
    process.join()
    if got != count:
        raise SystemExit(f"{subscriber.__name__} got {got} of {count} messages: the comparison is void")
    return got / seconds


def round_trip(echo: Callable[..., None], ping: Callable[..., list[float]], count: int) -> float:
    """Run one pair of programs; give the median round trip in seconds."""
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=echo, args=(theirs, count))
    process.start()
    times = ping(ours.recv(), count)
    process.join()
    return statistics.median(times)


def compare(name: str, unit: str, plain: Callable[[], float], ours: Callable[[], float], runs: int) -> None:
    """Measure two programs in turn, and print both and the ratio run by run."""
    pairs = [(plain(), ours()) for _ in range(runs)]
    ratios = [mine / theirs for theirs, mine in pairs]
    print(
        f"{name:34} plain {statistics.median(p for p, _ in pairs):12,.0f} {unit}   "
        f"oz {statistics.median(o for _, o in pairs):12,.0f} {unit}   ratio {machine.spread(ratios)}",
        flush=True,
    )


def main(runs: int = 7, count: int = 400_000) -> None:
    """Run all comparisons.

    Args:
        runs: interleaved runs of each.
        count: messages in a run.
    """
    print(machine.describe())
    compare(
        "1 to 1, delivered",
        "/s",
        lambda: throughput(sides.plain_publisher, sides.plain_subscriber, count),
        lambda: throughput(sides.oz_publisher, sides.oz_subscriber, count),
        runs,
    )
    compare(
        "1 to 1, one frame for oz",
        "/s",
        lambda: throughput(sides.plain_publisher, sides.plain_subscriber, count),
        lambda: throughput(sides.oz_one_frame_publisher, sides.oz_one_frame_subscriber, count),
        runs,
    )
    compare(
        "asyncio subscriber, from its queue",
        "/s",
        lambda: throughput(sides.plain_publisher, sides.plain_async_subscriber, count // 8, waiting=True),
        lambda: throughput(sides.plain_publisher, sides.oz_async_subscriber, count, waiting=True),
        runs,
    )
    compare(
        "asyncio subscriber, both at once",
        "/s",
        lambda: throughput(sides.oz_publisher, sides.plain_async_subscriber, count // 8),
        lambda: throughput(sides.oz_publisher, sides.oz_async_subscriber, count),
        runs,
    )
    compare(
        "round trip, median",
        "ns",
        lambda: 1e9 * round_trip(sides.plain_echo, sides.plain_ping, count // 40),
        lambda: 1e9 * round_trip(sides.oz_echo, sides.oz_ping, count // 40),
        runs,
    )
    print(machine.describe())


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
