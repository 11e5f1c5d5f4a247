"""The source of `format("oz")`: readers of journals, for `spark.read` and `spark.readStream`.

Theory of operation. The records of a journal are numbered by offsets, and the records in a range of offsets never
change. The driver divides the offsets into ranges. Tasks read the ranges from the files of the journal, which must have
the same path on all machines.

The position of a stream in a journal is an offset, together with the id of the segment that has the previous record.
Spark keeps the positions in the checkpoint. If a journal was restored or replaced, the segment has another id, and the
query fails. A repeated micro-batch reads the same range, and its partitions depend only on the range. Therefore the
sink of `format("oz")` makes the same message ids again.

Records are missing if retention or damage has removed them. With `failOnDataLoss`, missing records are an error.
Otherwise the stream counts them, and the count is a part of its position.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oz.errors import JournalError
from oz.journal import Journal, JournalGap, ranges
from oz.journal.ranges import Checkpoint
from oz.logs import logger
from oz.spark.options import option_error
from oz.spark.rows import RowConverter
from oz.spark.source_options import LATEST, SourceOptions

MIN_PARTITION_ROWS = 16_384  # a task reads fewer rows in less time than its start takes
MAX_PARTITION_ROWS = 1_000_000  # a failed task repeats at most this number of rows

_log = logger("oz.spark.source")


class Range(NamedTuple):
    """Range of offsets: `first` is the first offset, and `end` is the offset after the last."""

    first: int
    end: int


class Slice(InputPartition):  # type: ignore[misc]
    """A partition of a query: ranges of offsets in one journal."""

    def __init__(self, journal: str, ranges: Sequence[Range]) -> None:
        """Create a partition.

        Args:
            journal: the directory or the URI of the journal.
            ranges: the ranges of offsets to read.
        """
        self.journal = journal
        self.ranges = tuple(ranges)


class SliceReader:
    """Reader of slices. Spark sends a pickled copy to each task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Prepare the columns.

        Raises:
            ConfigurationError: a column is unknown or has another type.
        """
        self._options = options
        self._converter = RowConverter(options.rows, schema)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """Read the rows of a slice, in the order of offsets.

        Raises:
            JournalError: a file is damaged, or the directory is missing on this machine; or records were removed after
                the query was planned, and `failOnDataLoss` is set.
        """
        options, columns = self._options, list(self._converter.columns)
        if part.ranges and "://" not in part.journal and not os.path.isdir(part.journal):
            raise JournalError(
                f"{part.journal}: no such directory on this machine; executors must see the journal under "
                "the same path as the driver"
            )
        for first, end in part.ranges:
            batches = ranges.read_range(
                part.journal,
                first,
                end,
                pattern=options.patterns or None,
                columns=columns,
                gaps=options.gaps,
                start_time=options.start_time,
                end_time=options.end_time,
                removed="raise" if options.fail_on_loss else "skip",
            )
            for batch in batches:
                rows = self._converter.convert(batch, part.journal)
                if rows.num_rows:
                    yield rows


_REMEDY = (
    "keep records longer with retain_bytes or retain_seconds, or read on without them: failOnDataLoss=false"
)


def check_loss(journal: str, missing: Sequence[JournalGap], *, fails: bool) -> int:
    """Return the number of missing offsets.

    Args:
        journal: the directory of the journal.
        missing: gaps, each with a range of missing offsets.
        fails: whether missing offsets are an error.

    Raises:
        JournalError: offsets are missing, and `fails` is set.
    """
    count = sum(gap.end - gap.first for gap in missing)
    if count:
        gaps = ", ".join(f"{gap.first} to {gap.end - 1} ({gap.reason})" for gap in missing[:3])
        text = f"{journal}: {count} records are not in the journal any more, offsets {gaps}"
        if fails:
            raise JournalError(f"{text}; {_REMEDY}")
        _log.warning("%s", text)
    return count


def partition_count(rows: int, options: SourceOptions) -> int:
    """Return the number of partitions into which a read of `rows` rows is divided."""
    if options.partitions is not None:
        return options.partitions
    tasks = options.parallelism
    by_size = math.ceil(rows / MAX_PARTITION_ROWS / tasks) * tasks
    return max(1, min(by_size, rows // MIN_PARTITION_ROWS))


def cut(parts: Sequence[Range], count: int) -> list[list[Range]]:
    """Divide ranges into at most `count` lists. The lists have about the same number of offsets, and none is empty."""
    total = sum(end - first for first, end in parts)
    if not total:
        return []
    share = math.ceil(total / min(count, total))
    found: list[list[Range]] = [[]]
    room = share
    for first, end in parts:
        while first < end:
            if not room:
                found.append([])
                room = share
            stop = min(end, first + room)
            found[-1].append(Range(first, stop))
            room -= stop - first
            first = stop
    return found


class JournalReader(DataSourceReader):  # type: ignore[misc]
    """Reader for `spark.read`. It reads each journal up to the end that the journal has when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Check the options.

        Raises:
            ConfigurationError: an option or a column is not allowed in a batch.
        """
        if options.start == LATEST:
            raise option_error("startingOffset", LATEST, "a batch would be empty; it is for readStream")
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
            if name in options.given:
                raise option_error(name, options.given[name], "it is for readStream")
        self._options = options
        self._reader = SliceReader(options, schema)

    def partitions(self) -> Sequence[Slice]:
        """Plan the partitions.

        Raises:
            JournalError: records are missing, and `failOnDataLoss` is set.
            ConfigurationError: an offset is beyond the end of the journal.
        """
        slices = [part for each in self._options.journals for part in self._slices(each)]
        return slices or [Slice("", ())]

    def _slices(self, journal: str) -> list[Slice]:
        options = self._options
        first, end = offset_range(journal, options)
        plan = ranges.plan(
            journal,
            first,
            end,
            options.patterns or None,
            start_time=options.start_time,
            end_time=options.end_time,
            gaps=options.gaps,
        )
        check_loss(journal, plan.missing, fails=options.fail_on_loss)
        parts = [Range(part.first, part.end) for part in plan.sealed]
        if plan.active is not None:
            parts.append(Range(*plan.active))
        rows = sum(end - first for first, end in parts)
        return [Slice(journal, part) for part in cut(parts, partition_count(rows, options))]

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:
        """Read one partition in a task. The errors are those of `SliceReader.read`."""
        return self._reader.read(partition)


def offset_range(journal: str, options: SourceOptions) -> Range:
    """Return the range of offsets of a journal that `spark.read` reads.

    Raises:
        ConfigurationError: an offset is beyond the end of the journal.
    """
    opened = Journal(journal)
    kept, available = opened.first_offset, opened.end_offset
    first = options.start if isinstance(options.start, int) else kept
    end = available if options.end is None else options.end
    for name, offset in (("startingOffset", first), ("endingOffset", end)):
        if offset > available:
            raise option_error(name, offset, f"{journal} ends at offset {available}")
    return Range(first, max(first, end))


class Positions(NamedTuple):
    """The positions of a stream, as Spark keeps them in the checkpoint.

    Attributes:
        journals: dict from the directory or URI of each journal to the position in the journal.
        lost: the number of missing records since the query began.
    """

    journals: dict[str, Checkpoint]
    lost: int

    def to_json(self) -> dict[str, Any]:
        """Return the positions as a JSON object."""
        journals = {name: each._asdict() for name, each in self.journals.items()}
        return {"journals": journals, "lost": self.lost}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Positions:
        """Parse the result of `to_json`.

        Raises:
            JournalError: the checkpoint belongs to another source.
        """
        try:
            journals = {
                str(name): Checkpoint(int(each["offset"]), str(each["segment"]))
                for name, each in data["journals"].items()
            }
            return cls(journals, int(data["lost"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise JournalError(
                f"this is the checkpoint of another source: {data!r}; give a new checkpointLocation"
            ) from None


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader for `spark.readStream`.

    While the query runs, one reader in a process of the driver plans the micro-batches. Tasks read records with copies
    of this reader.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Check the options.

        Raises:
            ConfigurationError: an option or a column is not allowed in a stream.
        """
        for name in ("endingOffset", "endingTime"):
            if name in options.given:
                raise option_error(
                    name, options.given[name], "it is for spark.read; a stream ends with a trigger"
                )
        self._options = options
        # `startingTime` only sets the position of a new query, and filters no records. Otherwise a query that continues
        # later with a relative time, such as "-1h", would skip records.
        self._reader = SliceReader(replace(options, start_time=None), schema)
        self._ends: dict[str, Checkpoint] | None = None
        self._last: Positions | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the position at which a new query begins.

        Raises:
            JournalError: a directory contains no journal; or records from `startingOffset` on were removed, and
                `failOnDataLoss` is set.
            ConfigurationError: the offset is beyond the end of the journal.
        """
        return Positions({each: self._beginning(each) for each in self._options.journals}, 0).to_json()

    def _beginning(self, journal: str) -> Checkpoint:
        options = self._options
        if options.start == LATEST:
            return ranges.checkpoint(journal)
        if options.start_time is not None:
            return ranges.checkpoint(journal, offset_at(journal, options.start_time))
        opened = Journal(journal)
        first = opened.first_offset
        if isinstance(options.start, int) and options.start != first:
            available = opened.end_offset
            if options.start > available:
                raise option_error("startingOffset", options.start, f"{journal} ends at offset {available}")
            if options.start > first:
                return ranges.checkpoint(journal, options.start)
            missing = ranges.plan(journal, options.start, first).missing
            check_loss(journal, missing, fails=options.fail_on_loss)
        return ranges.checkpoint(journal, first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit in rows if it is set, otherwise the limit in bytes. `latestOffset` applies both limits."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the present ends of the journals, at which the query stops."""
        self._ends = {each: ranges.checkpoint(each) for each in self._options.journals}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the position at which the next micro-batch ends.

        Raises:
            JournalError: records are missing, and `failOnDataLoss` is set; or a journal was replaced or restored.
        """
        begin = self._positions(start)
        backlogs = {name: self._backlog(name, each) for name, each in begin.journals.items()}
        ends = self._limit(backlogs, limit)
        lost = 0
        journals = {}
        for name, end in ends.items():
            first = begin.journals[name].offset
            if end <= first:
                journals[name] = begin.journals[name]
                continue
            missing = ranges.plan(name, first, end).missing
            lost += check_loss(name, missing, fails=self._options.fail_on_loss)
            journals[name] = ranges.checkpoint(name, end)
        self._last = Positions(journals, begin.lost + lost)
        return self._last.to_json()

    def _backlog(self, journal: str, begin: Checkpoint) -> Range:
        """Return the range of offsets that were not read yet and that retention has not removed."""
        gap = ranges.resume(journal, begin)
        first = begin.offset if gap is None else gap.end
        end = ranges.checkpoint(journal) if self._ends is None else self._ends.get(journal, begin)
        return Range(first, max(first, end.offset))

    def _limit(self, backlogs: Mapping[str, Range], limit: ReadLimit) -> dict[str, int]:
        """Return a dict from each journal to the offset at which the micro-batch ends."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return {name: each.end for name, each in backlogs.items()}
        rows_left = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_rows
        waiting = sum(end > first for first, end in backlogs.values())
        size = None if options.max_bytes is None else max(1, options.max_bytes // max(1, waiting))
        ends = {}
        # The limit is divided equally among the journals. If a journal has fewer rows to read than its part of the
        # limit, the other journals get the remainder.
        order = sorted(backlogs, key=lambda name: backlogs[name].end - backlogs[name].first)
        for left, name in zip(range(len(order), 0, -1), order, strict=True):
            first, end = backlogs[name]
            rows = None if rows_left is None else rows_left // left
            if first < end and rows != 0:
                end = ranges.range_end(name, first, end, max_records=rows, max_bytes=size)
            else:
                end = first
            if rows_left is not None:
                rows_left -= min(end - first, rows_left)
            ends[name] = end
        return ends

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the journals, the number of missing records, and the number of records not read yet."""
        if self._last is None:
            return None
        ends = {name: ranges.checkpoint(name).offset for name in self._last.journals}
        lag = sum(max(0, end - self._last.journals[name].offset) for name, end in ends.items())
        return {"journals": ends, "lag": lag, "lost": self._last.lost}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Slice]:
        """Plan the partitions of a micro-batch.

        Raises:
            JournalError: records are missing, and `failOnDataLoss` is set; or a journal was replaced or restored.
        """
        begin, stop = self._positions(start).journals, self._positions(end).journals
        found = []
        for name, last in stop.items():
            first = begin[name].offset
            if first >= last.offset:
                continue
            # `latestOffset` has not checked the positions if Spark repeats a batch of the checkpoint after a restart.
            ranges.resume(name, begin[name])
            ranges.resume(name, last)
            whole = Range(first, last.offset)
            missing = ranges.plan(name, *whole).missing
            check_loss(name, missing, fails=self._options.fail_on_loss)
            count = partition_count(whole.end - whole.first, self._options)
            found += [Slice(name, part) for part in cut([whole], count)]
        return found

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because the retention of a journal does not depend on queries."""

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:
        """Read one partition in a task. The errors are those of `SliceReader.read`."""
        return self._reader.read(partition)

    def _positions(self, data: Mapping[str, Any]) -> Positions:
        """Parse positions, and assign them to the journals of the query.

        A journal without a position is read from its first record. If the query reads a single journal, the path of the
        journal may have changed, because the segment id identifies the journal.
        """
        known = Positions.from_json(data)
        names = self._options.journals
        if len(names) == 1 and len(known.journals) == 1:
            [position] = known.journals.values()
            return Positions({names[0]: position}, known.lost)
        if absent := known.journals.keys() - set(names):
            text = f"the checkpoint has a position in {min(absent)}, which is none of the query's journals"
            if self._options.fail_on_loss:
                raise JournalError(f"{text}; add it, or set failOnDataLoss=false to read on without it")
            _log.warning("%s", text)
        journals = {
            name: known.journals[name] if name in known.journals else self._first(name) for name in names
        }
        return Positions(journals, known.lost)

    @staticmethod
    def _first(journal: str) -> Checkpoint:
        return ranges.checkpoint(journal, Journal(journal).first_offset)


def offset_at(journal: str, moment: datetime) -> int:
    """Return the offset of the first record that was received at a time or later; the end offset without a record."""
    opened = Journal(journal)
    end = opened.end_offset
    for batch in opened.batches(start=moment, end=end, columns=["offset"], gaps=True):
        first: int = pc.min(batch.column("offset")).as_py()
        return first
    return end
