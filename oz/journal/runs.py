"""Runs: batches that follow one another in a file, read into memory once, then checked and decoded there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.layout import MOST_DECODED, Layout, layout_of, refuse_a_bomb
from oz.journal.schema import COLUMNS, SCHEMA
from oz.journal.stamp import Stamp
from oz.journal.walk import Frame

_RUN_BYTES = 1 << 20
_SCHEMA_MESSAGE = SCHEMA.serialize().to_pybytes()
_NEVER_NULL = [field.name for field in SCHEMA if not field.nullable]
_Check = Callable[[pa.RecordBatch, Stamp], pa.RecordBatch]
_NOT_ARROW = (pa.ArrowException, OSError, MemoryError, ValueError)
"""What pyarrow raises where a message's head and body do not fit each other."""


class BadBatch(ValueError):
    """A batch is no good.

    Attributes:
        frame: which one.
    """

    def __init__(self, frame: Frame, reason: str) -> None:
        super().__init__(reason)
        self.frame = frame


class EncodedBatch:
    """One batch as it is in memory.

    Attributes:
        frame: where it is in its file, and what its stamp says.
        message: its bytes; fewer than the frame says where the file has become shorter.
    """

    def __init__(self, frame: Frame, message: memoryview) -> None:
        """Hold it; nothing is looked at yet."""
        self.frame = frame
        self.message = message

    @cached_property
    def layout(self) -> Layout:
        """The layout that its head tells.

        Raises:
            ValueError: it is no batch, or reaches beyond its bytes.
        """
        return layout_of(self.message, self.frame.head)

    @property
    def weight(self) -> int:
        """The bytes that it takes once it is decoded; 0 of one that is refused then."""
        try:
            return self.layout.decoded
        except ValueError:
            return 0

    def compare(self) -> None:
        """See that its body is the one that was written.

        Raises:
            BadBatch: it is not.
        """
        if crc32(self.message[self.frame.head :]) != self.frame.stamp.body_crc:
            raise BadBatch(self.frame, "the checksum of a message's body differs")


class Run:
    """Batches that follow one another, to be decoded together in bounded memory."""

    def __init__(self, batches: Sequence[EncodedBatch]) -> None:
        """Of some batches, at least one."""
        self._batches = batches

    @property
    def frames(self) -> list[Frame]:
        """The places of its batches."""
        return [one.frame for one in self._batches]

    @property
    def first(self) -> Stamp:
        """The stamp of its first batch."""
        return self._batches[0].frame.stamp

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self._batches[-1].frame.stamp.end

    def decode(self, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Decode what may be anything.

        Args:
            columns: what to decode; others are not even decompressed.

        Raises:
            BadBatch: a checksum differs, or a batch is no good though its checksum is right.
        """
        for one in self._batches:
            one.compare()
        try:
            return _decoded(self._batches, columns, _checked)
        except _NOT_ARROW as error:
            for one in self._batches:
                _decode_alone(one, columns)
            raise BadBatch(self._batches[0].frame, _said(error)) from error

    def decode_checked(self) -> pa.Table:
        """Decode what `fault_in` has just found intact, all columns.

        Raises:
            BadBatch: it was changed since.
        """
        try:
            return _decoded(self._batches, COLUMNS, lambda batch, _: batch)
        except _NOT_ARROW as error:
            raise BadBatch(self._batches[0].frame, _said(error)) from error


def grouped(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Group frames that follow one another in the file."""
    group: list[Frame] = []
    for frame in frames:
        if group and (group[-1].end != frame.position or frame.end - group[0].position > _RUN_BYTES):
            yield group
            group = []
        group.append(frame)
    if group:
        yield group


def runs_in(group: Sequence[Frame], data: bytes) -> Iterator[Run]:
    """Split what was read so that each run takes bounded memory once it is decoded.

    Args:
        group: frames that follow one another.
        data: the bytes from the first to the last of them.
    """
    run: list[EncodedBatch] = []
    decoded, start, view = 0, group[0].position, memoryview(data)
    for frame in group:
        one = EncodedBatch(frame, view[frame.position - start : frame.end - start])
        if run and decoded + one.weight > MOST_DECODED:
            yield Run(run)
            run, decoded = [], 0
        run.append(one)
        decoded += one.weight
    yield Run(run)


def fault_in(frame: Frame, data: bytes) -> str | None:
    """Say in words why a batch whose checksum is right cannot be read; None when it can."""
    try:
        _decode_alone(EncodedBatch(frame, memoryview(data)), COLUMNS)
    except BadBatch as error:
        return str(error)
    return None


def _decode_alone(one: EncodedBatch, columns: Sequence[str]) -> None:
    try:
        _decoded([one], columns, _checked)
    except _NOT_ARROW as error:
        raise BadBatch(one.frame, _said(error)) from error


def _decoded(batches: Sequence[EncodedBatch], columns: Sequence[str], check: _Check) -> pa.Table:
    _check_layouts(batches)
    # Arrow takes no fields at all for all of them.
    places = sorted(map(COLUMNS.index, columns)) or [0]
    # Without threads of Arrow's: one that still holds these bytes, which are Python's, while the interpreter
    # ends aborts the process.
    options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
    stream = _Pieces([memoryview(_SCHEMA_MESSAGE), *(one.message for one in batches)])
    with pa.ipc.open_stream(pa.PythonFile(stream, mode="r"), options=options) as reader:
        found = [check(reader.read_next_batch(), one.frame.stamp) for one in batches]
        return pa.Table.from_batches(found, reader.schema).select(columns)


class _Pieces:
    """Bytes in pieces, as a file that Arrow reads; they are not copied, as putting them together would."""

    closed = False

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def read(self, most: int) -> memoryview:
        """Return bytes, no more than a piece has left: Arrow reads none of its messages beyond its end."""
        if not self._left:
            self._left = next(self._pieces, self._left)
        found, self._left = self._left[:most], self._left[most:]
        return found

    def close(self) -> None:
        """There is nothing to close."""


def _check_layouts(batches: Sequence[EncodedBatch]) -> None:
    """Check the number of columns and the decoded size of each batch.

    Raises:
        ValueError: a batch has other columns, or needs far more memory than it has bytes.
    """
    for one in batches:
        refuse_a_bomb(one.layout.decoded, one.frame.stamp.body)
        if one.layout.columns != len(COLUMNS):
            raise ValueError(f"it has {one.layout.columns} columns")


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
    names = batch.schema.names
    for name in _NEVER_NULL:
        if name in names and batch.column(name).null_count:
            raise ValueError(f"it has records without {name}")
    if "offset" in names and not _is_dense(batch.column("offset"), stamp):
        raise ValueError(f"its offsets are not those from {stamp.first} to {stamp.end - 1}")
    return batch


def _is_dense(offsets: pa.Array, stamp: Stamp) -> bool:
    """Whether offsets are those of a stamp, which has as many: they ascend from its first to its last."""
    if not stamp.rows:
        return True
    ends = offsets[0].as_py(), offsets[-1].as_py()
    return ends == (stamp.first, stamp.end - 1) and pc.less(offsets[:-1], offsets[1:]).false_count == 0


def _said(error: BaseException) -> str:
    return f"a batch cannot be read ({' '.join(str(error).split())})"
