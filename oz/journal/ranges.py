"""Ranges of offsets: what there is to plan with, how one is read, and how much of it is still there.

For readers that share a journal out among themselves. What such a range holds never changes: it ends where
the journal was acknowledged. To read one takes no look at the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal import files, own
from oz.journal.manifest import Entry, Manifest, load
from oz.journal.record import Kind
from oz.journal.schema import COLUMNS, whole_number
from oz.journal.segment import OpenSegment, damage, open_segment
from oz.journal.stamp import Stamp
from oz.journal.walk import Frame, Hole


class Span(NamedTuple):
    """The part of a range that one segment holds.

    Attributes:
        first: the first offset of the part.
        end: the offset after its last.
        bytes: the size of its share of the segment's file.
        entry: what the manifest says of the segment; None when it says nothing.
    """

    first: int
    end: int
    bytes: float
    entry: Entry | None

    @property
    def rows(self) -> int:
        """The number of its records."""
        return self.end - self.first


class RangeGone(JournalError):
    """The beginning of a range has been removed by retention.

    Attributes:
        first: the offset that was asked for.
        there: the first offset that is there, or the end of the range when nothing of it is.
    """

    def __init__(self, directory: Path, first: int, there: int) -> None:
        super().__init__(directory, first, there)
        self.directory = directory
        self.first = first
        self.there = there

    def __str__(self) -> str:
        return (
            f"{self.directory}: the records from offset {self.first} to {self.there - 1} are no longer "
            "there: retention has removed them"
        )


def identity_of(directory: Path) -> str:
    """Read the id of a journal: 32 hexadecimal digits, made when the journal was.

    Raises:
        JournalError: there is no journal, its head is damaged, or it is of another version.
    """
    while directory.is_dir() and (found := own.sorted_files(directory)).segments:
        opened = open_segment(directory, found.segments[-1], found.journal)
        if opened is not None:
            with opened:
                return opened.journal
    if files.is_journal(directory):
        raise JournalError(f"{directory}: all segments of this journal are gone; see `oz journal repair`")
    raise JournalError(f"{directory}: there is no journal here")


def spans_of(directory: Path, known: Manifest | None, first: int, end: int) -> list[Span]:
    """Say which segments hold a range, in order; what is missing between them has no entry.

    Args:
        directory: the journal.
        known: its manifest, which may have been read earlier.
        first: the first offset.
        end: the offset after the last, at most the end of the journal.
    """
    present = own.segments(directory, known)
    ends = [segment.base for segment in present[1:]] + [max(end, present[-1].base)] if present else []
    found = []
    for segment, after in zip(present, ends, strict=True):
        entry = known.entry_of(directory, segment) if known else None
        size = entry.bytes if entry else _size(directory / segment.name)
        reached = min(after, entry.end_offset) if entry else after
        # What should follow and is not there is wanted whatever it was: reading it is an error that says so.
        for low, high, what in ((segment.base, reached, entry), (reached, after, None)):
            if low < end and high > first and low < high:
                rows = min(end, high) - max(first, low)
                part = size * rows / (after - segment.base)
                found.append(Span(max(first, low), min(end, high), part, what))
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # sealed or removed just now
        return 0


def read_range(
    directory: Path,
    first: int,
    end: int,
    columns: Sequence[str] = COLUMNS,
    wants: Callable[[Stamp], bool] = lambda _: True,
    journal: str | None = None,
) -> Iterator[pa.Table]:
    """Read all records of a range, those that are no messages too, in the order of their offsets.

    While it goes on, retention removes nothing from where it is on.

    Args:
        directory: the journal.
        first: the first offset.
        end: the offset after the last; the journal was acknowledged up to it.
        columns: what to read.
        wants: whether a batch is wanted; the records of others are left out.
        journal: the id that the journal must have; None for any.

    Yields:
        Tables of bounded size, none of them empty, in chunks as they were written.

    Raises:
        RangeGone: before anything else: retention was there first.
        JournalError: something is damaged or missing, or it is another journal.
    """
    found = own.sorted_files(directory)
    if found.journal and journal not in (None, found.journal):
        raise JournalError(f"{directory}: journal {found.journal} is here, and not journal {journal}")
    known = found.known or (Manifest(found.journal) if found.journal else None)
    at, current = first, _enter(directory, first, end, known)
    try:
        while True:
            frames = _Frames(current, at, end, wants)
            for run in current.runs(frames):
                table = current.decode(run, columns)
                low = run.first.first
                skip = max(0, first - low)
                yield table.slice(skip, max(0, end - low - skip))
            at = frames.at
            if at >= end:
                return
            following = _following(directory, current, at, known)
            current.close()
            current = following
    finally:
        current.close()


class _Frames:
    """Goes through the wanted batches of a segment, and knows how far it came."""

    def __init__(self, current: OpenSegment, at: int, end: int, wants: Callable[[Stamp], bool]) -> None:
        self._current = current
        self._first = at
        self._end = end
        self._wants = wants
        self.at = current.segment.base

    def __iter__(self) -> Iterator[Frame]:
        for piece in self._current.frames(self._current.first_batch, self.at):
            if isinstance(piece, Hole):
                raise damage(self._current.path, piece.position, piece.reason, self.at)
            self.at = piece.stamp.end
            if self.at > self._first and self._wants(piece.stamp):
                yield piece
            if self.at >= self._end:  # what follows may be in the making
                return


def _enter(directory: Path, first: int, end: int, known: Manifest | None) -> OpenSegment:
    while True:
        present = own.segments(directory, known)
        if not present and not files.is_journal(directory):
            raise JournalError(f"{directory}: there is no journal here")
        if not present:
            raise gone(directory, first, end)
        segment = max((one for one in present if one.base <= first), default=None)
        if segment is None:
            raise RangeGone(directory, first, min(end, present[0].base))
        opened = open_segment(directory, segment, known.journal if known else None)
        if opened is not None:
            return opened


def _following(directory: Path, current: OpenSegment, at: int, known: Manifest | None) -> OpenSegment:
    """Open the segment that begins at an offset; one after the current one, which is held."""
    for _ in range(2):  # between two looks it may have been sealed
        segment = own.segment_at(directory, at, known) if known and at > current.segment.base else None
        opened = open_segment(directory, segment, current.journal) if segment else None
        if opened is not None:
            return opened
    raise gone(directory, at)


def gone(directory: Path, first: int, end: int | None = None) -> JournalError:
    """Make the error for records that were acknowledged and are not there."""
    which = f"from offset {first} on" if end is None else f"from offset {first} to {end - 1}"
    return JournalError(
        f"{directory}: the records {which} are missing, though they were acknowledged; "
        "`oz journal repair` puts records in their place that say so"
    )


def messages_there(directory: Path, journal: str, first: int, end: int) -> int:
    """Count the messages of a range that are intact where readers look for them.

    Args:
        directory: the journal, or what is left of it.
        journal: its id; files of another count nothing.
        first: the first offset.
        end: the offset after the last.
    """
    total = 0
    known = load(directory)
    known = known if known is not None and known.journal == journal else Manifest(journal)
    for segment in own.segments(directory, known):
        entry = known.entry_of(directory, segment)
        if entry is not None and (entry.end_offset <= first or entry.first_offset >= end):
            continue
        if entry is not None and first <= entry.first_offset and entry.end_offset <= end:
            total += entry.end_offset - entry.first_offset - entry.gaps
            continue
        try:
            opened = open_segment(directory, segment, journal)
        except JournalError:
            continue
        if opened is not None:
            with opened:
                total += _messages_in(opened, first, end)
    return total


def _messages_in(opened: OpenSegment, first: int, end: int) -> int:
    total = 0
    intact = (piece for piece in opened.survey() if isinstance(piece, Frame))
    for run in opened.runs(one for one in intact if one.stamp.end > first and one.stamp.first < end):
        table = opened.decode_checked(run)
        offsets = table.column("offset")
        wanted = pc.and_(
            pc.and_(
                pc.greater_equal(offsets, whole_number(first, pa.int64())),
                pc.less(offsets, whole_number(end, pa.int64())),
            ),
            pc.equal(table.column("kind"), whole_number(int(Kind.MESSAGE), pa.int8())),
        )
        total += pc.sum(wanted).as_py() or 0
    return total
