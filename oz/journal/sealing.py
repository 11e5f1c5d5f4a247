"""Making an Arrow file of a segment, and knowing what is in it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal import files
from oz.journal.layout import MOST_DECODED, Block, blocks_in
from oz.journal.manifest import Entry, summarise
from oz.journal.messages import FILE_MAGIC, Messages
from oz.journal.record import Kind
from oz.journal.schema import BATCH_ROWS, SCHEMA, bytes_array, damaged, whole_number
from oz.journal.segment import OpenSegment
from oz.journal.subjects import has_subjects, subjects_in, with_subjects
from oz.journal.walk import Frame, Hole

_MESSAGE = whole_number(int(Kind.MESSAGE), pa.int8())
_ROWS = 16384
_LEAST_ROWS = 4096  # a batch of so many is as good as a larger one, and need not be copied
_BYTES = 8 << 20
_GATHERED = 16384
MOST_LOST = 10_000_000
"""So many lost records in one place become records that say so; a file that claims more is not believed."""


@dataclass
class Condition:
    """In what condition a segment was.

    Attributes:
        holes: what means nothing in its file.
        lost: the ranges of offsets, each with the one after it, whose records are lost.
        intact: the batches that are intact.
    """

    holes: list[Hole] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    intact: list[Frame] = field(default_factory=list)


def seal(
    directory: Path, source: OpenSegment, end: int | None = None, time_ns: int = 0
) -> tuple[Entry, Condition]:
    """Write a segment as an Arrow file, which takes the place of one that is there.

    Args:
        directory: the journal.
        source: the segment in whatever form and state; what is intact of it is kept.
        end: the offset after its last record, if it is known. What is missing is filled with records that
            say so, and what exceeds it is left out.
        time_ns: the time to give those where nothing in the segment is intact, in nanoseconds since 1970; 0
            is now.

    Returns:
        What the file holds, and in what condition the source was.

    Raises:
        JournalError: more is missing than is to be believed; see `believable`.
    """
    try:
        return _sealed(directory, source, end, time_ns, compressed=True)
    except _TooLarge:
        return _sealed(directory, source, end, time_ns, compressed=False)


def _sealed(
    directory: Path, source: OpenSegment, end: int | None, time_ns: int, *, compressed: bool
) -> tuple[Entry, Condition]:
    found = Condition()
    tables = _tables(source, end, found, time_ns)
    entry = _write(directory, source.journal, source.segment.base, tables, compressed=compressed)
    return entry, found


def fill(directory: Path, journal: str, base: int, end: int, time_ns: int = 0) -> Entry:
    """Write a segment of records that say that what was there is lost.

    Args:
        directory: the journal.
        journal: its id.
        base: the first offset.
        end: the offset after the last.
        time_ns: the time to give them, in nanoseconds since 1970; 0 is now.

    Returns:
        What the file holds.

    Raises:
        JournalError: that is more than is to be believed; see `believable`.
    """
    return _write(directory, journal, base, _filling(directory, base, end, time_ns or time.time_ns()))


def believable(directory: Path, base: int, end: int) -> int:
    """Count the records of a gap, and refuse one that is absurd.

    A name or a note costs nothing, and the records that are to stand for those that it claims do.

    Args:
        directory: the journal.
        base: the first offset of which there is no record.
        end: the offset after the last.

    Raises:
        JournalError: it is.
    """
    if end - base <= MOST_LOST:
        return end - base
    forms = (files.Segment(end, suffix).name for suffix in (files.SEALED, files.STREAM) if end <= files.MOST)
    named = [name for name in forms if files.is_regular(directory / name)]
    claims = " or ".join(named) or f"a batch, {files.MARK}, {files.MANIFEST} or {files.EPOCHS}"
    raise JournalError(
        f"{directory}: there is no record from offset {base} to {end - 1}. That is more than {MOST_LOST}, "
        f"and only {claims} claims that there were; put that file elsewhere if it does not belong here"
    )


class _TooLarge(Exception):
    """A batch is larger than readers take one to be that is compressed."""


def _write(
    directory: Path, journal: str, base: int, tables: Iterable[pa.Table], *, compressed: bool = True
) -> Entry:
    made = Messages(journal, base, compressed=compressed)
    tally = Tally(base)
    with files.replacing(directory / files.Segment(base, files.SEALED).name) as descriptor:
        files.write_all(descriptor, made.head)
        size = len(made.head)
        for batch in _regrouped(tables):
            if compressed and batch.nbytes > MOST_DECODED:
                raise _TooLarge
            tally.add(batch)
            message = made.of(batch)
            files.write_all(descriptor, message)
            size += len(message)
        tail, entry = made.tail(), tally.entry(size)
        if not entry.subjects.complete:
            tail = with_subjects(tail, tally.subjects)
        files.write_all(descriptor, tail)
    return replace(entry, bytes=size + len(tail), tail_crc=crc32(tail))


def describe(source: OpenSegment) -> tuple[Entry, Condition]:
    """Read a sealed segment for what the manifest says of it; as `seal` does, but writing nothing."""
    found = Condition()
    tally = Tally(source.segment.base)
    for table in _tables(source, None, found):
        tally.add(table)
    entry = tally.entry(source.source.size)
    if footer_fault(source, found.intact) is None:
        entry = replace(entry, tail_crc=tail_crc(source, found.intact))
    return entry, found


def tail_crc(source: OpenSegment, frames: list[Frame]) -> int:
    """The checksum of what follows the last batch of a sealed segment."""
    return crc32(_tail(source, frames))


def _tail(source: OpenSegment, frames: list[Frame]) -> bytes:
    end = frames[-1].end if frames else source.first_batch
    return source.source.fresh(end, source.source.size - end)


def footer_fault(source: OpenSegment, frames: list[Frame]) -> str | None:
    """Open a sealed segment as other programs do; say in words why they would not find its batches."""
    tail = _tail(source, frames)
    try:
        # Bytes and not the file: Arrow reads a file of Python's in a thread of its own, which aborts the
        # process if it still holds what it read while the interpreter ends.
        with pa.ipc.open_file(pa.py_buffer(FILE_MAGIC + tail)) as reader:
            schema = reader.schema
        # Not its batches: it may name others than those that have been looked at.
        named = blocks_in(tail)
    except (OSError, ValueError, LookupError, MemoryError, pa.ArrowException) as error:
        return " ".join(str(error).split())
    if not schema.equals(SCHEMA):
        return "its footer names other columns"
    if named != [Block(frame.position, frame.head, frame.stamp.body) for frame in frames]:
        return f"its footer names {len(named)} batches, and not the {len(frames)} that are intact"
    return None


def subjects_fault(source: OpenSegment, frames: list[Frame]) -> str | None:
    """Compare the summary of subjects in a sealed segment with its messages; say in words what is wrong."""
    if not has_subjects(source.source):
        return None
    said = subjects_in(source.source)
    if said is None:
        return "the summary of its subjects is damaged"
    tally = Distinct()
    for run in source.runs(frames):
        table = source.decode(run, ["kind", "subject", "subject_raw"])
        tally.add(subject_bytes(table.filter(pc.equal(table["kind"], _MESSAGE))))
    missing = set(tally.all()) - set(said.to_pylist())
    return f"the summary of its subjects lacks {len(missing)} of them" if missing else None


class Distinct:
    """Gathers distinct values, in Arrow as long as possible: there may be as many as records."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: pa.Array = bytes_array([])
        self._more: list[pa.Array] = []
        self._rows = 0

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Take in bytes."""
        some = pc.unique(values)
        self._more.append(some)
        self._rows += len(some)
        # Only once there are as many as are known, so that each value is looked at few times.
        if self._rows > max(len(self._known), _GATHERED):
            self._merge()

    def _merge(self) -> None:
        self._known = pc.unique(pa.chunked_array([self._known, *self._more]))
        self._more, self._rows = [], 0

    def all(self) -> list[bytes]:
        """Return them."""
        self._merge()
        values: list[bytes] = self._known.to_pylist()
        return values


class Tally:
    """Adds up what the manifest says of a segment."""

    def __init__(self, base: int) -> None:
        """Begin with the offset of its first record."""
        self._base = self._end = base
        self._times: list[int] = []
        self._gaps = self._lost = 0
        self._subjects = Distinct()

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Count in a batch, which must have all columns."""
        self._end += batch.num_rows
        times = pc.min_max(batch.column("time_ns")).as_py()
        self._times = [min([*self._times, times["min"]]), max([*self._times, times["max"]])]
        is_message = pc.equal(batch.column("kind"), _MESSAGE)
        others = batch.num_rows - (pc.sum(is_message).as_py() or 0)
        if others:
            self._gaps += others
            self._lost += pc.sum(batch.column("lost")).as_py() or 0
            batch = batch.filter(is_message)
        self._subjects.add(subject_bytes(batch))

    def entry(self, size: int) -> Entry:
        """Make the entry, for a file of `size` bytes."""
        low, high = self._times or (0, 0)
        subjects = summarise(self.subjects)
        return Entry(self._base, self._end, size, low, high, self._gaps, self._lost, subjects)

    @property
    def subjects(self) -> list[bytes]:
        """The distinct subjects of the messages."""
        return self._subjects.all()


def subject_bytes(batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    """The exact subjects of a batch, as bytes."""
    text = batch.column("subject").cast(pa.binary())
    raw = batch.column("subject_raw")
    return text if raw.null_count == len(raw) else pc.coalesce(raw, text)


def _tables(
    source: OpenSegment, end: int | None, found: Condition, otherwise_ns: int = 0
) -> Iterator[pa.Table]:
    """Decode what is intact, in order, and fill what is missing; note what that is."""
    offset, time_ns = source.segment.base, 0
    for is_hole, pieces in itertools.groupby(source.survey(), lambda piece: isinstance(piece, Hole)):
        if is_hole:
            found.holes.extend(piece for piece in pieces if isinstance(piece, Hole))
            continue
        frames = (piece for piece in pieces if isinstance(piece, Frame))
        for run in source.runs(frames):
            first = run.first
            if offset < first.first:
                found.lost.append((offset, first.first))
                yield from _filling(source.path.parent, offset, first.first, time_ns or first.min_ns)
            yield source.decode_checked(run)
            found.intact += run.frames
            offset, time_ns = run.end, run.frames[-1].stamp.max_ns
    if end is not None and offset < end:
        found.lost.append((offset, end))
        yield from _filling(source.path.parent, offset, end, time_ns or otherwise_ns or time.time_ns())


def _filling(directory: Path, offset: int, end: int, time_ns: int) -> Iterator[pa.Table]:
    believable(directory, offset, end)
    for first in range(offset, end, BATCH_ROWS):
        yield pa.Table.from_batches([damaged(first, min(BATCH_ROWS, end - first), time_ns)])


def _regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Make batches of a good size, large enough to compress well and small enough to hold."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in itertools.chain.from_iterable(table.to_batches() for table in tables):
        if not kept and _LEAST_ROWS <= batch.num_rows <= _ROWS:
            yield batch
            continue
        for at in range(0, batch.num_rows, _ROWS):
            part = batch.slice(at, _ROWS)
            kept.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows >= _ROWS or size >= _BYTES:
                yield from _joined(kept)
                kept, rows, size = [], 0, 0
    if kept:
        yield from _joined(kept)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
