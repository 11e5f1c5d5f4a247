"""The span of a record, and steps of a round length that divide it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
_DAY = 24 * HOUR
_MOST = 120


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps of time, numbered from 0, that span a record.

    Attributes:
        start_ns: where the first begins, nanoseconds since 1970, a multiple of the length.
        length_ns: how long each is.
        count: how many there are.
    """

    start_ns: int
    length_ns: int
    count: int

    @classmethod
    def spanning(cls, first_ns: int, last_ns: int, length_ns: int | None = None) -> Steps:
        """Divide a span, into at most 120 steps unless their length is given."""
        length = length_ns or next(each for each in _lengths() if (last_ns - first_ns) // each + 2 <= _MOST)
        start = first_ns // length * length
        return cls(start, length, (last_ns - start) // length + 1)

    def number(self, time_ns: str = "time_ns") -> Column:
        """Return the number of the step that a time is in; exact, as doubles would not be."""
        return F.expr(f"cast(({time_ns} - {self.start_ns}L) div {self.length_ns}L as bigint)")

    def begin(self, number: int) -> int:
        """Say when a step begins, in nanoseconds since 1970."""
        return self.start_ns + number * self.length_ns


def _lengths() -> Iterator[int]:
    for power in range(9):
        yield from (10**power, 2 * 10**power, 5 * 10**power)
    for length in (SECOND, 60 * SECOND):
        yield from (times * length for times in (1, 2, 5, 10, 15, 30))
    yield from (times * HOUR for times in (1, 2, 3, 6, 12))
    days = 1
    while True:
        yield from (days * _DAY, 2 * days * _DAY, 7 * days * _DAY)
        days *= 14 if days == 1 else 2
