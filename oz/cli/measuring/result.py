"""The results of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
