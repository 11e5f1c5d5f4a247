"""The plan of a measurement, the answers of its processes on stdout, and the results.

The plan has the sizes, the subjects and which of them match. A child answers with a JSON object a line, and
ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any

from oz.errors import OzError

VERSION = 2
"""Of what the two sides say to each other."""

FILTERINGS = ("prefix", "publisher")
PATTERN = "bench.*.hit"
CONTROLS = "control.*"
BEGIN, PROBE, PING, END = "control.begin", "control.probe", "control.ping", "control.end"

QUEUE_BYTES = 16 * 1024 * 1024
"""What may wait in the queue of either side, about: it bounds memory, and with it the latency under load."""

MAX_SIZE = 64 * 1024 * 1024
MAX_SUBJECTS = 1_000_000
MAX_SUBSCRIBERS = 64
MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0

_BATCH = 64 * 1024
_STAMP = struct.Struct("<QHH")


class BenchFailed(OzError):
    """A measurement that could not be made, and why."""


@dataclass(frozen=True)
class BenchPlan:
    """The load that the publisher sends, and its subscribers.

    Attributes:
        filtering: who filters: `prefix` or `publisher`.
        size: bytes of a payload.
        subjects: how many there are.
        match: which fraction of them the pattern matches.
        subscribers: how many there are.
        seconds: how long to measure; half of it lone messages, half as fast as possible.
        is_echoed: whether latency is that of a round trip, because the clocks may differ.
    """

    filtering: str
    size: int = 100
    subjects: int = 1000
    match: float = 1.0
    subscribers: int = 1
    seconds: float = 2.0
    is_echoed: bool = False

    @staticmethod
    def read(given: Any) -> BenchPlan:
        """Make a plan of what came over the network.

        Raises:
            BenchFailed: it is none, or out of bounds.
        """
        try:
            plan = BenchPlan(**given)
            kinds = {name: type(value) for name, value in asdict(BenchPlan("prefix")).items()}
            for name, value in asdict(plan).items():
                if type(value) is not kinds[name] and not (kinds[name] is float and type(value) is int):
                    raise TypeError(f"{name} is {value!r}")
            plan.check()
        except TypeError as error:
            raise BenchFailed(f"the other side asks for something unknown here: {error}") from None
        return plan

    def check(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            BenchFailed: a number is out of bounds, or too few subjects for the fraction.
        """
        bounds = (
            self.filtering in FILTERINGS
            and 0 <= self.size <= MAX_SIZE
            and 1 <= self.subjects <= MAX_SUBJECTS
            and 0 < self.match <= 1
            and 1 <= self.subscribers <= MAX_SUBSCRIBERS
            and MIN_SECONDS <= self.seconds <= MAX_SECONDS
        )
        if not bounds:
            raise BenchFailed(f"out of bounds: {self}")
        if self.matching_subjects < 1:
            least = round(0.5 + 1 / self.match)
            raise BenchFailed(
                f"{self.match:g} of {self.subjects} subjects is not even one; take at least {least} subjects"
            )

    @property
    def matching_subjects(self) -> int:
        """The number of subjects that the pattern matches."""
        return round(self.subjects * self.match)

    @property
    def high_water_mark(self) -> int:
        """The number of messages, or of batches, that may wait on either side."""
        unit = max(self.size + 64, _BATCH if self.filtering == "publisher" else 0)
        return max(4, QUEUE_BYTES // unit)

    def make_subjects(self) -> tuple[list[str], list[int]]:
        """Make the subjects, those that match evenly among them.

        Returns:
            The subjects; and for each number of them how many of those that come first match.
        """
        hits, total = self.matching_subjects, self.subjects
        is_hit = [(place + 1) * hits // total > place * hits // total for place in range(total)]
        names = [f"bench.{place}.{'hit' if hit else 'miss'}" for place, hit in enumerate(is_hit)]
        return names, [0, *accumulate(map(int, is_hit))]


def stamp(size: int, phase: int, number: int = 0) -> bytes:
    """Make a payload that says when it was sent, in which phase and by which subscriber."""
    return _STAMP.pack(time.monotonic_ns(), phase, number).ljust(size, b"\0")


def age(payload: bytes, phase: int, number: int = 0) -> int | None:
    """Return the nanoseconds since a payload was stamped; None when it is another's, or of another phase."""
    sent, in_phase, by = _STAMP.unpack_from(payload)
    return time.monotonic_ns() - sent if (in_phase, by) == (phase, number) else None


PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Latency:
    """The latencies of messages in microseconds: the samples, sorted."""

    samples: Sequence[float]

    @staticmethod
    def of(nanoseconds: Sequence[int]) -> Latency:
        """Take samples in nanoseconds, in any order."""
        return Latency([value / 1000 for value in sorted(nanoseconds)])

    def percentile(self, percent: float) -> float:
        """Return the least sample that so many percent of all do not exceed."""
        rank = -int(-len(self.samples) * percent // 100)
        return self.samples[max(0, rank - 1)]

    def figures(self) -> dict[str, float]:
        """Return the percentiles and the maximum by name; nothing without samples."""
        if not self.samples:
            return {}
        named = {f"p{percent:g}": self.percentile(percent) for percent in PERCENTILES}
        return {**named, "max": self.samples[-1]}

    def as_data(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        figures = {f"{name}_us": round(value, 1) for name, value in self.figures().items()}
        return {"samples": len(self.samples), **figures}


@dataclass
class Result:
    """The counts of messages with one kind of filtering.

    Attributes:
        filtering: who filtered.
        size: bytes of a payload.
        published: messages given to `publish` as fast as possible.
        published_per_second: how fast that was.
        matching: how many of them the pattern matches: each subscriber must get so many.
        delivered: how many all subscribers got together.
        delivered_per_second: how fast that was, all together.
        received: how many crossed the wire to get there.
        lost: those that should have been delivered and were not.
        latency: of lone messages (`lone`) and among the others (`loaded`).
    """

    filtering: str
    size: int
    published: int = 0
    published_per_second: float = 0.0
    matching: int = 0
    delivered: int = 0
    delivered_per_second: float = 0.0
    received: int = 0
    lost: int = 0
    latency: dict[str, Latency] = field(default_factory=dict)

    def take_load(self, load: dict[str, Any], reports: Sequence[dict[str, Any]]) -> None:
        """Take in what the publisher and the subscribers counted while it published as fast as possible."""
        self.published, self.matching = load["published"], load["matching"]
        self.published_per_second = self.published / load["seconds"] if load["seconds"] else 0.0
        self.delivered = sum(report["delivered"] for report in reports)
        self.delivered_per_second = sum(
            report["delivered"] / report["seconds"] for report in reports if report["seconds"]
        )
        self.received = sum(report["received"] for report in reports)
        self.lost = self.matching * len(reports) - self.delivered

    def as_data(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        megabyte = self.size / 1e6
        return {
            "filtering": self.filtering,
            "published": self.published,
            "published_per_second": round(self.published_per_second, 1),
            "published_mb_per_second": round(self.published_per_second * megabyte, 3),
            "matching": self.matching,
            "delivered": self.delivered,
            "delivered_per_second": round(self.delivered_per_second, 1),
            "delivered_mb_per_second": round(self.delivered_per_second * megabyte, 3),
            "received": self.received,
            "lost": self.lost,
            "latency_lone": self.latency.get("lone", Latency(())).as_data(),
            "latency_loaded": self.latency.get("loaded", Latency(())).as_data(),
        }


def answer(value: dict[str, Any]) -> None:
    """Write one line to the parent, which may be gone."""
    line = memoryview(json.dumps(value).encode() + b"\n")
    while line:
        line = line[os.write(1, line) :]


def end_with_parent(report: Callable[[], dict[str, Any]] | None = None) -> None:
    """End this process when its parent has gone, or has no more use for it.

    Args:
        report: is asked for a last answer, whatever else goes on.
    """

    def wait() -> None:
        # Not by sys.stdin: an interpreter that ends meanwhile waits for its lock, and aborts.
        while os.read(0, 4096):
            pass
        with suppress(OSError):
            if report is not None:
                answer(report())
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
