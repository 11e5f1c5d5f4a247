"""One segment, opened: its head checked, its batches decoded."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal import messages
from oz.journal.files import Segment, open_held
from oz.journal.layout import MOST_DECODED, columns_in, decoded_size, refuse_a_bomb
from oz.journal.schema import COLUMNS, FIRST_SCHEMA, SCHEMA, VERSION, completed
from oz.journal.stamp import MAX_HEAD, PREFIX, Stamp, read_stamp
from oz.journal.walk import Frame, Hole, ReadAhead, head_at, survey

_RUN_BYTES = 1 << 20
_SCHEMA_MESSAGES = {len(one): one.serialize().to_pybytes() for one in (FIRST_SCHEMA, SCHEMA)}
_SCHEMAS = {len(one): one for one in (FIRST_SCHEMA, SCHEMA)}
_NOT_ARROW = (pa.ArrowException, OSError, MemoryError, ValueError)
"""What pyarrow raises where a message's head and body do not fit each other."""


class SegmentHead(NamedTuple):
    """The head of a segment.

    Attributes:
        version: of the format.
        journal: the id of its journal.
        first: the offset of its first record; None when the head is of a newer version, or damaged but for
            version and journal.
        end: where the first batch begins.
    """

    version: int
    journal: str
    first: int | None
    end: int


class Known(NamedTuple):
    """The name and size of a segment, known before it is opened.

    Attributes:
        journal: the id that it must have; None for any.
        takes_damaged: whether it is opened even when its head is damaged.
    """

    journal: str | None = None
    takes_damaged: bool = False


def read_head(source: ReadAhead, segment: Segment) -> SegmentHead | None:
    """Read the head of a segment in its form; None when it is damaged."""
    start = len(messages.FILE_MAGIC) if segment.is_sealed else 0
    found = head_at(source, start, salt=0)
    if isinstance(found, Frame):
        said = messages.IDENTITY.search(source.at(start, found.head))
        return (
            None
            if said is None
            else SegmentHead(int(said[1]), said[2].decode(), found.stamp.first, found.end)
        )
    said = messages.IDENTITY.search(source.at(start, MAX_HEAD))
    # A newer version may have other heads; a flipped bit makes none.
    if said is not None and int(said[1]) > VERSION and not _is_flipped(source, start):
        return SegmentHead(int(said[1]), said[2].decode(), None, 0)
    return None


def _is_flipped(source: ReadAhead, start: int) -> bool:
    """Whether a head is right again with the version that this oz writes."""
    prefix = source.at(start, PREFIX.size)
    head = source.at(start, min(PREFIX.size + PREFIX.unpack(prefix)[1], MAX_HEAD))
    mended = (re.sub(rb"(oz\.journal/)\d+", rb"\g<1>%d" % known, head) for known in range(1, VERSION + 1))
    return any(read_stamp(one, salt=0) is not None for one in mended)


class OpenSegment:
    """A segment that is read. It is held against retention until it is closed.

    Attributes:
        segment: which one it is.
        path: where it is.
        source: its bytes.
        first_batch: where its first batch begins.
        journal: the id of its journal.
        salt: what its checksums start from.
    """

    def __init__(self, path: Path, segment: Segment, descriptor: int, known: Known) -> None:
        """For `open_segment`."""
        self.path = path
        self.segment = segment
        self.source = ReadAhead(descriptor)
        head = read_head(self.source, segment)
        if head is not None and known.journal in (None, head.journal):
            self._refuse_a_newer(head)
        if head is not None and known.journal not in (None, head.journal):
            raise DamagedHead(
                f"{path}: a file of another journal, {head.journal}, is in its place; see `oz journal repair`"
            )
        if head is not None and head.first == segment.base:
            self.first_batch, self.journal = head.end, head.journal
        elif known.takes_damaged and known.journal is not None:
            # Found to mean nothing when it is surveyed, as far as the first batch.
            self.first_batch, self.journal = 0, known.journal
        else:
            is_copy = head is not None and head.first is not None
            what = (
                f"it is a copy of the one of offset {head.first}"
                if head and is_copy
                else "its head is damaged"
            )
            raise DamagedHead(
                f"{path}: {what}, of the records from offset {segment.base} on; see `oz journal repair`"
            )
        self.salt = messages.salt_of(self.journal)

    def _refuse_a_newer(self, head: SegmentHead) -> None:
        if head.version > VERSION:
            raise JournalError(
                f"{self.path}: format version {head.version}, and this oz reads no later one than "
                f"{VERSION}: it was written by a newer oz"
            )

    def is_in_place(self) -> bool:
        """Whether it is the file that has its name, still."""
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self.source.descriptor)
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

    def frames(self, position: int, offset: int) -> Iterator[Frame | Hole]:
        """Go through the heads of the batches from a position on, without looking at their bodies.

        Args:
            position: where to begin, at the start of a batch.
            offset: the offset that comes next there.

        Yields:
            Each batch; and a `Hole`, last, where what follows is none, or not the one that comes next.
        """
        while (found := head_at(self.source, position, self.salt)) is not None:
            if isinstance(found, Frame) and found.stamp.first != offset:
                found = Hole(position, position, f"offset {found.stamp.first} where {offset} should be")
            yield found
            if isinstance(found, Hole):
                return
            position, offset = found.end, found.stamp.end

    def survey(self) -> Iterator[Frame | Hole]:
        """Check every byte as `walk.survey` does, and that what the bytes say can be read."""
        for piece in survey(self.source, self.first_batch, self.salt, self.segment.base):
            fault = self._fault(piece) if isinstance(piece, Frame) else None
            yield piece if fault is None else Hole(piece.position, piece.end, fault)

    def runs(self, frames: Iterable[Frame]) -> Iterator[list[Frame]]:
        """Group frames that follow one another in the file, to be decoded together in bounded memory."""
        run: list[Frame] = []
        decoded = 0
        for frame in frames:
            weight = self._weight(frame)
            is_next = run and run[-1].end == frame.position and frame.end - run[0].position <= _RUN_BYTES
            if run and not (is_next and decoded + weight <= MOST_DECODED):
                yield run
                run, decoded = [], 0
            run.append(frame)
            decoded += weight
        if run:
            yield run

    def _weight(self, frame: Frame) -> int:
        """Count the bytes that a batch takes once it is decoded; 0 of one that is refused then."""
        body = frame.position + frame.head
        head = self.source.at(frame.position, frame.head)
        try:
            return decoded_size(
                head, frame.stamp.body, lambda at, length: self.source.fresh(body + at, length)
            )
        except (ValueError, struct.error):
            return 0

    def _fault(self, frame: Frame) -> str | None:
        try:
            self._decoded([frame], self._read([frame]), COLUMNS)
        except _NOT_ARROW as error:
            return _said(error)
        return None

    def decode(self, run: Sequence[Frame], columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Read batches that follow one another in the file.

        Args:
            run: their frames.
            columns: what to read of them.

        Raises:
            JournalError: a checksum differs, or a batch is no good though its checksum is right.
        """
        data = self._read(run)
        with memoryview(data) as view:
            for frame, start, end in _places(run):
                if crc32(view[start + frame.head : end]) != frame.stamp.body_crc:
                    raise self._damage(frame, "the checksum of a message's body differs")
        try:
            return self._decoded(run, data, columns)
        except _NOT_ARROW as error:
            for frame, start, end in _places(run):
                try:
                    self._decoded([frame], data[start:end], columns)
                except _NOT_ARROW as cause:
                    raise self._damage(frame, _said(cause)) from cause
            raise self._damage(run[0], _said(error)) from error

    def decode_checked(self, run: Sequence[Frame]) -> pa.Table:
        """Read batches as `decode` does, all columns, that `survey` has just found intact."""
        data = self._read(run)
        try:
            _refuse_bombs(run, data)
            schema = _SCHEMAS[_width(run, data)]
        except ValueError as error:  # it was changed since
            raise self._damage(run[0], _said(error)) from error
        whole = pa.py_buffer(data)
        batches = [
            pa.ipc.read_record_batch(whole.slice(start, end - start), schema)
            for _, start, end in _places(run)
        ]
        return completed(pa.Table.from_batches(batches), COLUMNS)

    def _decoded(self, run: Sequence[Frame], data: bytes, columns: Sequence[str]) -> pa.Table:
        _refuse_bombs(run, data)
        width = _width(run, data)
        # Arrow takes no fields at all for all of them.
        places = sorted(at for at in map(COLUMNS.index, columns) if at < width) or [0]
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with pa.ipc.open_stream(pa.py_buffer(_SCHEMA_MESSAGES[width] + data), options=options) as reader:
            batches = [_checked(reader.read_next_batch(), frame.stamp) for frame in run]
            return completed(pa.Table.from_batches(batches, reader.schema), columns)

    def _damage(self, frame: Frame, reason: str) -> JournalError:
        return damage(self.path, frame.position, reason, frame.stamp.first, frame.stamp.end)

    def _read(self, run: Sequence[Frame]) -> bytes:
        return self.source.fresh(run[0].position, run[-1].end - run[0].position)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.source.descriptor)

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _places(run: Sequence[Frame]) -> Iterator[tuple[Frame, int, int]]:
    """Return each frame with its start and end from the first one's start."""
    first = run[0].position
    return ((frame, frame.position - first, frame.end - first) for frame in run)


def _width(run: Sequence[Frame], data: bytes) -> int:
    """Count the columns of batches, which tells the version: the head of their segment may be damaged."""
    widths = {columns_in(data[start : start + frame.head]) for frame, start, _ in _places(run)}
    if len(widths) != 1 or not widths <= _SCHEMAS.keys():
        raise ValueError(f"it has {max(widths)} columns")
    return widths.pop()


def _refuse_bombs(run: Sequence[Frame], data: bytes) -> None:
    """Refuse batches that would take far more memory than they have bytes, before any is decoded."""
    for frame, start, end in _places(run):
        body = start + frame.head
        size = decoded_size(data[start:body], end - body, _from(data, body))
        refuse_a_bomb(size, end - body)


def _from(data: bytes, start: int) -> Callable[[int, int], bytes]:
    return lambda at, length: data[start + at : start + at + length]


def _checked(batch: pa.RecordBatch, stamp: Stamp) -> pa.RecordBatch:
    """Refuse a batch whose columns reach beyond their bytes, hold no text, or are not those of its stamp.

    A checksum only says that the bytes are those that somebody wrote. Arrow takes the lengths and places that
    they hold on trust: what is read by them may be any memory of this process.

    Raises:
        ValueError: it is such a batch.
    """
    batch.validate(full=True)
    if batch.num_rows != stamp.rows:
        raise ValueError(f"it has {batch.num_rows} records, and its head says {stamp.rows}")
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not SCHEMA.field(field.name).nullable:
            raise ValueError(f"it has records without {field.name}")
        if field.name == "offset" and not _is_dense(column, stamp.first):
            raise ValueError(f"its offsets are not those from {stamp.first} to {stamp.end - 1}")
    return batch


def _is_dense(offsets: pa.Array, first: int) -> bool:
    if not len(offsets) or offsets[0].as_py() != first:
        return not len(offsets)
    steps = pc.min_max(pc.pairwise_diff(offsets)).as_py()
    return {steps["min"], steps["max"]} <= {1, None}


def _said(error: BaseException) -> str:
    return f"a batch cannot be read ({' '.join(str(error).split())})"


class DamagedHead(JournalError):
    """The head of a segment cannot be read."""


def damage(path: Path, position: int, reason: str, first: int, end: int | None = None) -> JournalError:
    """Make the error for damage that a reader came upon.

    Args:
        path: the segment.
        position: the byte at which it begins.
        reason: what is wrong, in words.
        first: the first offset that it costs.
        end: the offset after the last that it costs; None when that is not known.
    """
    which = f"from offset {first} on" if end is None else f"from offset {first} to {end - 1}"
    return JournalError(
        f"{path}, byte {position}: {reason}, of the records {which}; `oz journal repair` keeps what is intact"
    )


def open_segment(
    directory: Path, segment: Segment, journal: str | None, *, takes_damaged: bool = False
) -> OpenSegment | None:
    """Open a segment and hold it.

    Args:
        directory: the journal.
        segment: which one, in which form.
        journal: the journal's id; None for any.
        takes_damaged: open the segment even when its head is damaged, if the id is known.

    Returns:
        The segment, or None when it is no longer there in this form.

    Raises:
        JournalError: its head is damaged, or of another journal, or of a newer version.
    """
    path = directory / segment.name
    descriptor = open_held(path)
    if descriptor is None:
        return None
    try:
        return OpenSegment(path, segment, descriptor, Known(journal, takes_damaged))
    except BaseException:
        os.close(descriptor)
        raise
