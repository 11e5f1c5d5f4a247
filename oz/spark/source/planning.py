"""Sharing out a range of offsets among partitions, with what holds nothing wanted left out before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from oz.journal.ranges import Span

ROW_BYTES = 100
"""What a record costs beside its share of the file."""

PARTITION_BYTES = 128 << 20
"""What a partition costs at most, unless told otherwise."""

LEAST_BYTES = 8 << 20
"""What it costs at least, if it is one of several: less is not worth a task."""


class Range(NamedTuple):
    """Offsets, from the first to the one to stop before."""

    first: int
    end: int


class Share(InputPartition):  # type: ignore[misc]
    """The share of one partition: ranges in order, which never change.

    Attributes:
        journal: the id of the journal.
        ranges: what to read of it.
        epoch: that in which the last record of them was written.
        directory: where the journal is.
    """

    def __init__(self, journal: str, ranges: Sequence[Range], epoch: str, directory: Path) -> None:
        """Say what."""
        self.directory = directory
        self.journal = journal
        self.epoch = epoch
        self.ranges = tuple(ranges)


def share_out(
    spans: Sequence[Span], count: int | None, rows: int | None, tasks: int = 1
) -> list[list[Range]]:
    """Share out spans evenly; no share is empty.

    Args:
        spans: what is to be read, in order.
        count: how many to make, if there are as many records; or None.
        rows: how many records each is to have at most; or None. Without either, each costs at most
            `PARTITION_BYTES`.
        tasks: how many run at once; there are as many partitions, or a multiple, if they are not too small.
    """
    total_rows = sum(span.rows for span in spans)
    if not total_rows:
        return []
    by_rows = count is not None or rows is not None
    sizes = [float(span.rows) if by_rows else span.bytes + ROW_BYTES * span.rows for span in spans]
    if count is None:
        count = math.ceil(total_rows / rows) if rows is not None else _count(sum(sizes), tasks)
    return _cut(spans, sizes, min(count, total_rows))


def _count(cost: float, tasks: int) -> int:
    """Choose how many shares to make: no turn of tasks is to leave processors without work."""
    turns = math.ceil(cost / (PARTITION_BYTES * tasks))
    return max(1, min(turns * tasks, int(cost / LEAST_BYTES)))


def _cut(spans: Sequence[Span], sizes: Sequence[float], count: int) -> list[list[Range]]:
    """Cut at equal parts of the whole size; where that falls within a record, behind it."""
    total, passed, shares = sum(sizes), 0.0, 0
    found: list[list[Range]] = []
    ranges: list[Range] = []
    for span, size in zip(spans, sizes, strict=True):
        first = span.first
        while shares + 1 < count and (mark := total * (shares + 1) / count) < passed + size:
            end = span.first + math.ceil((mark - passed) * span.rows / size)
            shares += 1
            if end > first:
                ranges.append(Range(first, end))
                first = end
            if ranges:
                found.append(_joined(ranges))
                ranges = []
        if first < span.end:
            ranges.append(Range(first, span.end))
        passed += size
    return [*found, _joined(ranges)] if ranges else found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Make one of ranges that follow one another."""
    joined: list[Range] = []
    for each in ranges:
        if joined and joined[-1].end == each.first:
            joined[-1] = Range(joined[-1].first, each.end)
        else:
            joined.append(each)
    return joined


def shared_among(waiting: Mapping[str, int], most: int | None) -> dict[str, float]:
    """Share a number of records evenly among journals; what one has not goes to those that have more.

    Args:
        waiting: the records that wait in each.
        most: how many there may be in all; None for no limit.

    Returns:
        How many of each at most; infinity where all that wait are among them.
    """
    if most is None:
        return dict.fromkeys(waiting, math.inf)
    shares: dict[str, float] = {}
    for left, name in zip(range(len(waiting), 0, -1), sorted(waiting, key=waiting.__getitem__), strict=True):
        fits = waiting[name] <= most // left
        shares[name] = math.inf if fits else most // left
        most -= waiting[name] if fits else most // left
    return shares
