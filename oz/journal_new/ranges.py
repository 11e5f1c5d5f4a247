"""Ranges of offsets, for readers that share a journal and remember their place, such as Spark.

A planner asks `checkpoint` for the end, `resume` whether its old checkpoint is still valid, and `plan` for
the files of a range. Sealed files are for any reader of Parquet. Workers read the active part, or any range,
by `read_range`, which needs nothing but its arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from oz.journal_new.records import JournalGap
from oz.subjects.pattern import Pattern

Directory = str | os.PathLike[str]
PatternArgument = str | bytes | Pattern | Sequence[str | bytes | Pattern] | None


class Checkpoint(NamedTuple):
    """A place in a journal, which is valid until the journal is restored from a copy.

    Attributes:
        offset: the offset of the next record to read.
        segment: the id of the segment that holds the record before it; empty if there is none.
    """

    offset: int
    segment: str


class SealedPart(NamedTuple):
    """A sealed file with records of a range. Rows outside of the range need a filter on `offset`.

    Attributes:
        path: the path, or the URI, of the Parquet file.
        first: the first offset of the range that the file holds.
        end: the offset after the last that it holds.
        is_whole: whether the range contains the whole file, so that no filter is needed.
        bytes: the size of the file.
        gaps: the number of gap records in the file.
    """

    path: str
    first: int
    end: int
    is_whole: bool
    bytes: int
    gaps: int


class Plan(NamedTuple):
    """The places of the records of a range.

    Attributes:
        sealed: the sealed files, by offset.
        active: first and end offset of the part that is not sealed, for `read_range`; None if there is none.
        missing: the offsets of the range that are not in the journal.
        bytes: the size of all parts in bytes, as far as the range covers them.
    """

    sealed: tuple[SealedPart, ...]
    active: tuple[int, int] | None
    missing: tuple[JournalGap, ...]
    bytes: int


def checkpoint(directory: Directory, offset: int | None = None) -> Checkpoint:
    """Return the checkpoint of an offset; None: of the acknowledged end.

    Raises:
        JournalError: the directory is no journal, or the offset is beyond its end.
    """
    raise NotImplementedError


def resume(directory: Directory, saved: Checkpoint) -> JournalGap | None:
    """Check a saved checkpoint.

    Returns:
        None if reading goes on at its offset; the gap if retention removed records after it.

    Raises:
        JournalError: the offset names another record, because the journal was restored or replaced.
    """
    raise NotImplementedError


def plan(directory: Directory, first: int, end: int, pattern: PatternArgument = None) -> Plan:
    """Return the files of a range of offsets. Sealed files without a matching subject are left out.

    Raises:
        JournalError: a footer is damaged.
    """
    raise NotImplementedError


def range_end(
    directory: Directory,
    first: int,
    end: int,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> int:
    """Return the end of the longest range from `first` that keeps the limits; at least one record, at most `end`.

    Args:
        directory: the journal.
        first: the first offset.
        end: the offset after the last.
        max_records: the number of records.
        max_bytes: the size in files, in bytes; estimated from the sizes of segments.
    """
    raise NotImplementedError


def read_range(
    directory: Directory,
    first: int,
    end: int,
    *,
    pattern: PatternArgument = None,
    columns: Sequence[str] | None = None,
    gaps: bool = True,
    segment: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a range of offsets in a worker process.

    Args:
        directory: the journal.
        first: the first offset.
        end: the offset after the last, which was acknowledged when the range was planned.
        pattern: as in `Journal.read`.
        columns: as in `Journal.batches`.
        gaps: yield gap records too, with kind 1.
        segment: the id of the segment before `first`, from a `Checkpoint`; None does not check it.

    Yields:
        Batches in the order of offsets, none of them empty. Removed and missing records are left out.

    Raises:
        JournalError: a file is damaged, or the checkpoint is no longer valid.
    """
    raise NotImplementedError
