"""Messages a second by subscribers, by bytes of a payload and by patterns, for `table`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial

import pattern_index
import plain_sides
import sides
from running import flow
from sides import ALL, Work

MAX_ROUNDS = 3

SUBSCRIBERS = (1, 2, 4, 8, 16)
PAYLOADS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
PATTERNS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

MAX_BYTES = 200_000_000
"""Bytes that are published in a run. A subscriber may have all of them in its queue."""

Points = dict[str, list[float]]
"""Places on the axis and measured values, for each side."""

Run = Callable[[], float]
Curves = dict[str, dict[int, Run]]


def points(scale: float, places: Iterable[int], at: Callable[[int], tuple[Work, int]]) -> Curves:
    """Return the runs that deliver everything, for oz and for pyzmq.

    `at` returns the messages and the number of subscribers at a place of the axis.
    """

    def run(
        place: int, publisher: Callable[..., None], subscriber: Callable[..., object], count: float
    ) -> Run:
        work, subscribers = at(place)
        publish = partial(publisher, work=work, subscribers=subscribers)
        maximum = min(count / subscribers, MAX_BYTES / len(work.payload))
        number = max(1, round(scale * maximum / 100)) * 100
        return lambda: flow(publish, [subscriber] * subscribers, number).rate

    iteration = partial(sides.subscriber, patterns=ALL.patterns, end=ALL.end)
    return {
        "oz": {n: run(n, sides.publisher, iteration, 1_000_000) for n in places},
        "pyzmq": {n: run(n, plain_sides.publisher, plain_sides.subscriber, 250_000) for n in places},
    }


def in_turn(curves: Curves, rounds: int) -> dict[str, Points]:
    """Run all points of all sides in each round; give the medians."""
    found: dict[str, dict[int, list[float]]] = {}
    for _ in range(rounds):
        for place in next(iter(curves.values())):
            for name, points in curves.items():
                found.setdefault(name, {}).setdefault(place, []).append(points[place]())
    return {
        name: {"at": list(points), "rate": [round(statistics.median(rates)) for rates in points.values()]}
        for name, points in found.items()
    }


def by_patterns(scale: float) -> dict[str, Points]:
    """Find the patterns that match a subject; subjects a second."""
    found: dict[str, Points] = {}
    for count in PATTERNS:
        if count <= PATTERNS[-1] * scale:
            for name, rate in pattern_index.rates(count).items():
                points = found.setdefault(name, {"at": [], "rate": []})
                points["at"].append(count)
                points["rate"].append(round(rate))
    return found


def measure(scale: float, rounds: int) -> dict[str, dict[str, Points]]:
    """Measure all curves, in at most `MAX_ROUNDS` rounds."""
    print("curves", file=sys.stderr, flush=True)
    rounds = min(rounds, MAX_ROUNDS)
    by_subscribers = points(scale, SUBSCRIBERS, lambda subscribers: (ALL, subscribers))
    by_payload = points(scale, PAYLOADS, lambda size: (ALL._replace(payload=b"x" * size), 1))
    return {
        "subscribers": in_turn(by_subscribers, rounds),
        "payload": in_turn(by_payload, rounds),
        "patterns": by_patterns(scale),
    }
