"""Messages a second by subscribers, by bytes of a payload and by patterns, for `table`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial

import pattern_index
import plain_sides
import sides
from running import flow
from sides import ALL, Work

MOST_ROUNDS = 3

SUBSCRIBERS = (1, 2, 4, 8, 16)
PAYLOADS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
PATTERNS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

MOST_BYTES = 200_000_000
"""Of what is published in a run, all of which a subscriber may have waiting."""

Points = dict[str, list[float]]
"""Of each side: the places on the axis, and what it gave at each of them."""

Run = Callable[[], float]


def by_subscribers(scale: float) -> dict[str, dict[int, Run]]:
    """Deliver everything to several subscribers; messages a second in all."""

    def run(
        subscribers: int, publisher: Callable[..., None], subscriber: Callable[..., object], count: float
    ):
        publish = partial(publisher, work=ALL, subscribers=subscribers)
        number = max(1, round(scale * count / subscribers / 1000)) * 1000
        return lambda: flow(publish, [subscriber] * subscribers, number).rate

    iteration = partial(sides.subscriber, patterns=ALL.patterns, end=ALL.end)
    return {
        "oz": {n: run(n, sides.publisher, iteration, 1_000_000) for n in SUBSCRIBERS},
        "pyzmq": {n: run(n, plain_sides.publisher, plain_sides.subscriber, 250_000) for n in SUBSCRIBERS},
    }


def by_payload(scale: float) -> dict[str, dict[int, Run]]:
    """Deliver everything to one subscriber; messages a second."""

    def run(
        size: int, publisher: Callable[..., None], subscriber: Callable[..., object], count: float
    ) -> Callable[[], float]:
        publish = partial(publisher, work=Work(ALL.subjects, ALL.patterns, ALL.end, b"x" * size))
        number = max(1, round(scale * min(count, MOST_BYTES / size) / 100)) * 100
        return lambda: flow(publish, [subscriber], number).rate

    iteration = partial(sides.subscriber, patterns=ALL.patterns, end=ALL.end)
    return {
        "oz": {size: run(size, sides.publisher, iteration, 1_000_000) for size in PAYLOADS},
        "pyzmq": {
            size: run(size, plain_sides.publisher, plain_sides.subscriber, 250_000) for size in PAYLOADS
        },
    }


def in_turn(curves: dict[str, dict[int, Run]], rounds: int) -> dict[str, Points]:
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
    """Measure all curves, in so many rounds, or `MOST_ROUNDS`."""
    print("curves", file=sys.stderr, flush=True)
    rounds = min(rounds, MOST_ROUNDS)
    return {
        "subscribers": in_turn(by_subscribers(scale), rounds),
        "payload": in_turn(by_payload(scale), rounds),
        "patterns": by_patterns(scale),
    }
