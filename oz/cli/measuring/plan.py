"""The plan of a measurement: sizes, subjects, and which of them match."""

from __future__ import annotations

import struct
import time
from dataclasses import asdict, dataclass
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
class Plan:
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
    def read(given: Any) -> Plan:
        """Make a plan of what came over the network.

        Raises:
            BenchFailed: it is none, or out of bounds.
        """
        try:
            plan = Plan(**given)
            kinds = {name: type(value) for name, value in asdict(Plan("prefix")).items()}
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
