"""Ranges of offsets, for programs such as Spark that store their position and divide the reading among workers.

A planner calls `checkpoint` to find the end of the journal, `resume` to check a stored checkpoint, and `plan` to find
the files of a range. Any reader of Parquet can read the sealed files. Workers call `read_range` to read the active part
or any other range. `read_range` needs only its arguments, so that a worker can run in another process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import pyarrow as pa

from oz.errors import JournalError
from oz.journal.format import SegmentFile
from oz.journal.reading import Reading, end_offset
from oz.journal.records import JournalGap, missing_gap
from oz.journal.sealed import plain_batches, read_footer
from oz.journal.selection import Patterns, Selection, microseconds, parse_bound
from oz.journal.store import Store, open_store

__all__ = [
    "Checkpoint",
    "Plan",
    "SealedPart",
    "checkpoint",
    "parse_bound",
    "plan",
    "range_end",
    "read_range",
    "resume",
]

Directory = str | os.PathLike[str]


class Checkpoint(NamedTuple):
    """A position in a journal. `resume` detects whether the journal was replaced since the position was stored.

    Attributes:
        offset: the offset of the next record to read.
        segment: the id of the segment with the record before this offset; empty if this is the first record.
    """

    offset: int
    segment: str


class SealedPart(NamedTuple):
    """A sealed file with records of a range. The file may also have records outside of the range.

    Attributes:
        path: the absolute path or the URI of the Parquet file.
        first: the first offset that is in both the file and the range.
        end: the offset after the last record that is in both the file and the range.
        is_whole: whether the range contains the whole file. Otherwise the reader must filter the rows by `offset`.
        gaps: the number of gap records in the file.
    """

    path: str
    first: int
    end: int
    is_whole: bool
    gaps: int


class Plan(NamedTuple):
    """The files that hold the records of a range.

    Attributes:
        sealed: the sealed files, sorted by offset.
        active: the part of the range that `read_range` must read, as a pair: its first offset, and the offset after its
            last record. None if sealed files hold the whole range.
        missing: the offsets of the range that are not in the journal.
    """

    sealed: tuple[SealedPart, ...]
    active: tuple[int, int] | None
    missing: tuple[JournalGap, ...]


def checkpoint(directory: Directory, offset: int | None = None) -> Checkpoint:
    """Return the checkpoint at an offset.

    Args:
        directory: the directory or the URI of the journal.
        offset: the offset of the next record to read; None for the end of the acknowledged records.

    Raises:
        JournalError: the directory contains no journal, or the offset is beyond the end of the journal.
    """
    store = open_store(directory)
    end = end_offset(store)
    offset = end if offset is None else offset
    if offset > end:
        raise JournalError(f"{directory}: the journal ends at offset {end}, before offset {offset}")
    while True:
        file = _before(store.segments(), offset)
        try:
            return Checkpoint(offset, _segment_id(store, file) if file is not None else "")
        except FileNotFoundError:  # the file was sealed or removed after it was listed
            continue


def resume(directory: Directory, saved: Checkpoint) -> JournalGap | None:
    """Check that a saved checkpoint still belongs to the journal.

    Returns:
        None if a reader can continue at the offset of the checkpoint. If retention removed records from this offset
        on, the gap of these records.

    Raises:
        JournalError: the journal was restored or replaced, so that the offset names another record.
    """
    store = open_store(directory)
    while True:
        end, files = end_offset(store), store.segments()
        if saved.offset > end:
            raise _replaced(directory, saved, f"the journal ends at offset {end}")
        file = _before(files, saved.offset)
        if file is None:
            first = files[0].first if files else end
            return missing_gap(saved.offset, first, "retention") if first > saved.offset else None
        try:
            segment = _segment_id(store, file)
        except FileNotFoundError:
            continue
        # If the segment of the previous record was damaged and renamed, `file` is an older segment with another id.
        is_lost = file.end is not None and file.end < saved.offset
        if segment != saved.segment and not is_lost:
            raise _replaced(directory, saved, f"the record before it is in segment {segment}")
        return None


def _replaced(directory: Directory, saved: Checkpoint, fact: str) -> JournalError:
    return JournalError(
        f"{directory}: the checkpoint at offset {saved.offset} is of segment "
        f"{saved.segment or 'none'}, and {fact}: "
        "the journal was replaced or restored from a copy; start anew, without the checkpoint"
    )


def _before(files: Sequence[SegmentFile], offset: int) -> SegmentFile | None:
    return next((file for file in reversed(files) if file.first < offset), None)


def _segment_id(store: Store, file: SegmentFile) -> str:
    return read_footer(store, file).head.segment if file.is_sealed else file.segment


def plan(
    directory: Directory,
    first: int,
    end: int,
    pattern: Patterns = None,
    *,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    gaps: bool = True,
) -> Plan:
    """Return the files of a range of offsets.

    Args:
        directory: the directory or the URI of the journal.
        first: the first offset of the range.
        end: the offset after the range. It is at most the end of the acknowledged records.
        pattern: pattern of the subjects, as in `Journal.read`. Sealed files without a matching subject are left out.
        start_time: the earliest time of receipt. Sealed files that have only earlier records are left out.
        end_time: the time of receipt before which to stop. Sealed files that have only later records are left out.
        gaps: whether to keep a sealed file that has a gap record, even if none of its subjects matches.

    Raises:
        JournalError: a footer is damaged.
    """
    store = open_store(directory)
    selection = _selection(pattern, first, end, None, start_time, end_time, gaps)
    while True:
        try:
            found = _plan(store, first, end, selection)
            # A list of the directory may miss a segment that was sealed during the listing. A second list has it.
            return _plan(store, first, end, selection) if found.missing else found
        except FileNotFoundError:  # the file was sealed or removed after it was listed
            continue


def _plan(store: Store, first: int, end: int, selection: Selection) -> Plan:
    sealed: list[SealedPart] = []
    missing: list[JournalGap] = []
    active: tuple[int, int] | None = None
    reached = first
    reason = "retention"
    for file in store.segments():
        is_after = file.first >= end
        if file.first < first:
            reason = "missing"
        if active is None and min(file.first, end) > reached:
            missing.append(missing_gap(reached, min(file.first, end), reason))
        reason = "missing"
        if is_after:
            reached = end
            break
        if file.end is None:
            active = (max(file.first, first) if active is None else active[0], end)
            continue
        if file.end <= first or active is not None:
            continue  # sealed files after a stream belong to the active part, which `read_range` reads
        reached = file.end
        footer = read_footer(store, file)
        for low, high in footer.missing:
            if max(low, first) < min(high, end):
                missing.append(missing_gap(max(low, first), min(high, end), "missing"))
        if not selection.wants_file(footer):
            continue
        low, high = max(first, file.first), min(end, file.end)
        is_whole = (low, high) == (file.first, file.end)
        sealed.append(SealedPart(store.path(file.name), low, high, is_whole, footer.gaps))
    if active is None and reached < end:
        missing.append(missing_gap(reached, end, reason))
    if active is not None and active[0] >= active[1]:
        active = None
    return Plan(tuple(sealed), active, tuple(missing))


def range_end(
    directory: Directory,
    first: int,
    end: int,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> int:
    """Return the end of the longest range of records that begins at `first` and does not exceed the limits.

    The range has at least one record, even if the record exceeds `max_bytes`.

    Args:
        directory: the directory or the URI of the journal.
        first: the first offset of the range.
        end: the greatest offset that the function may return.
        max_records: the maximum number of records; None for no limit.
        max_bytes: the maximum size of the records in memory, in bytes; None for no limit. The size of a record is
            estimated as the mean size in its row group or stream.
    """
    if max_records is not None:
        end = min(end, first + max(1, max_records))
    if max_bytes is None:
        return end
    store, left = open_store(directory), float(max_bytes)
    at = first
    for low, high, size in _sizes(store, first, end):
        at = max(at, low)
        cost = size / (high - low)  # bytes of one record
        if (min(high, end) - at) * cost > left:
            return min(end, max(first + 1, at + int(left / cost)))
        left -= (min(high, end) - at) * cost
        at = min(high, end)
    return end


def _sizes(store: Store, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the first offset, the end and the size in bytes of each row group and stream of a range."""
    files = store.segments()
    for at, file in enumerate(files):
        following = files[at + 1].first if at + 1 < len(files) else max(end, file.first + 1)
        if (file.end or following) <= first or file.first >= end:
            continue
        try:
            if file.end is None:
                yield file.first, following, store.size(file.name)
            else:
                yield from (
                    (group.first, group.end, group.bytes)
                    for group in read_footer(store, file).groups
                    if group.end > first
                )
        except FileNotFoundError:
            # The file was sealed or removed. It is left out, because the sizes are only estimates.
            continue


def read_range(
    directory: Directory,
    first: int,
    end: int,
    *,
    pattern: Patterns = None,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    columns: Sequence[str] | None = None,
    gaps: bool = True,
    removed: Literal["skip", "raise"] = "skip",
) -> Iterator[pa.RecordBatch]:
    """Read a range of offsets in a worker process.

    Args:
        directory: the directory or the URI of the journal.
        first: the first offset of the range.
        end: the offset after the range. All records before it must be acknowledged.
        pattern: pattern of the subjects, as in `Journal.read`.
        start_time: the earliest time of receipt.
        end_time: the time of receipt before which to stop.
        columns: names of the columns to read, as in `Journal.batches`.
        gaps: whether to yield gap records too, in which the column `kind` is 1.
        removed: effect if retention removed records of the range: "raise" raises an error, "skip" leaves them out.

    Yields:
        Batches in the order of offsets. No batch is empty. Lost records are left out.

    Raises:
        JournalError: a file is damaged; the journal ends before `end`; or retention removed records, and `removed` is
            "raise".
    """
    selection = _selection(pattern, first, end, columns, start_time, end_time, gaps)
    store = open_store(directory)
    if (reached := end_offset(store)) < end:
        raise JournalError(
            f"{directory}: the journal ends at offset {reached}, before offset {end} of the range: it was "
            "replaced or restored from a copy"
        )
    for part in Reading(store, selection, follow=False).parts():
        if isinstance(part, pa.Table):
            yield from plain_batches(part)
        elif removed == "raise" and part.reason == "retention":
            raise JournalError(
                f"{directory}: retention removed the records from offset {part.first} to {part.end - 1} "
                "before they were read; keep more with retain_bytes or retain_seconds"
            )


def _selection(
    pattern: Patterns,
    first: int,
    end: int,
    columns: Sequence[str] | None,
    start_time: datetime | None,
    end_time: datetime | None,
    gaps: bool,
) -> Selection:
    selection = Selection(pattern, first, end, columns, gaps=gaps)
    selection.since = None if start_time is None else microseconds(start_time)
    selection.until = None if end_time is None else microseconds(end_time)
    return selection
