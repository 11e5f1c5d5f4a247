"""The active segment: batches in an Arrow IPC stream that grows.

The *head* of a stream is its schema message. Each further message holds one batch. `BatchEncoder` makes the messages,
and `ActiveStream` reads them. Each batch has a *stamp*, which consists of two entries of custom metadata:

    oz.batch <crc> <first> <rows> <length>      8 hexadecimal digits; 20, 10 and 20 decimal digits
    oz.head <crc>                               CRC-32 of the head of the stream

The value of <first> is the offset of the first record. The value of <length> is the size of the message in bytes, with
which a reader finds the next message before it decodes this message. The value of <crc> is the CRC-32 of the whole
message with eight zeros in place of <crc>. Its seed is the CRC-32 of the segment id. When the writer ends the segment,
it appends the end mark of Arrow.

In the active segment, a reader reads only up to the acknowledged size. The bytes after this size may be a partial batch
of a killed writer, which the next writer removes. Damage before this size raises an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from oz.journal.format import SCHEMA, DamageError, Head, open_regular

END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end mark of an Arrow stream."""

_CONTINUATION = b"\xff\xff\xff\xff"
_STAMP = b"oz.batch %08x %020d %010d %020d"
_FOUND = re.compile(rb"oz\.batch ([0-9a-f]{8}) (\d{20}) (\d{10}) (\d{20})")
_HEAD = re.compile(rb"oz\.head ([0-9a-f]{8})")
_ZEROS = b"00000000"
_HEADER_READ = 4096  # number of bytes that are read to find the stamp; a message header has about 900 bytes
_MAX_HEADER = 1 << 16  # bytes
_MAX_ROWS = 1 << 20
_HEADER_PART = 2
"""Index of the header among the parts of a message, after the continuation mark and the length."""
_CHUNK = 1 << 20  # number of bytes of one read in the search for an intact batch
_EMPTY = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)


class _Parts:
    """Output of Arrow's stream writer. It keeps the parts of a message as buffers, and does not copy the columns."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self.parts.append(part)
        return len(part)


class BatchEncoder:
    """Encoder of the batches of one segment as messages of an Arrow stream, with checksums.

    Attributes:
        head: the schema message, with which the stream begins.
    """

    head: bytes

    def __init__(self, head: Head) -> None:
        schema = SCHEMA.with_metadata(head.metadata())
        self.head = schema.serialize().to_pybytes()
        self._seed = crc32(head.segment.encode())
        self._head_stamp = b"oz.head %08x" % crc32(self.head)
        self._sink = _Parts()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        # Arrow's writer writes the schema before the first batch. The parts of both are discarded here.
        self._writer.write_batch(_EMPTY)
        self._sink.parts.clear()

    def encode(self, batch: pa.RecordBatch, first: int) -> tuple[list[Any], int]:
        """Encode a batch.

        Args:
            batch: the records, with the columns of `SCHEMA`.
            first: the offset of the first record.

        Returns:
            The parts of the message as buffers, and the size of the message in bytes.
        """
        parts = self._sink.parts = []
        stamp = _STAMP % (0, first, batch.num_rows, 0)
        self._writer.write_batch(batch, custom_metadata={"oz.batch": stamp, "oz.head": self._head_stamp})
        size = sum(map(len, parts))
        header = parts[_HEADER_PART] = bytearray(parts[_HEADER_PART])
        begin = header.index(stamp)
        header[begin : begin + len(stamp)] = _STAMP % (0, first, batch.num_rows, size)
        crc = self._seed
        for part in parts:
            crc = crc32(part, crc)
        header[begin + 9 : begin + 17] = b"%08x" % crc
        return parts, size


class Frame(NamedTuple):
    """The values in the stamp of a batch, and the position of the batch in the stream.

    Attributes:
        place: the position of the first byte of the message.
        size: the size of the message in bytes.
        first: the offset of the first record.
        rows: the number of records.
        has_head: whether the head of the stream is intact.
    """

    place: int
    size: int
    first: int
    rows: int
    has_head: bool

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + self.rows


class ActiveStream:
    """An open stream, to which a writer may append at the same time. The writer may also seal it and remove the file.

    Attributes:
        path: the path of the file.
        head: the identity of the segment.
        begin: the position of the first batch.
    """

    def __init__(self, path: Path, segment: str) -> None:
        """Open a stream and read its head.

        Args:
            path: the path of the file.
            segment: the id of the segment in the file name.

        Raises:
            FileNotFoundError: the segment was sealed or removed.
            DamageError: the head is damaged.
        """
        self.path = path
        self._descriptor = open_regular(path)
        try:
            self.head, self.begin, self._head_crc = self._read_head()
            if self.head.segment != segment:
                raise DamageError(path, f"it is a copy of segment {self.head.segment}")
        except BaseException:
            self.close()
            raise
        self._seed = crc32(segment.encode())

    def _read_head(self) -> tuple[Head, int, int]:
        data = os.pread(self._descriptor, _HEADER_READ, 0)
        length = 8 + int.from_bytes(data[4:8], "little")
        if data[:4] != _CONTINUATION or not 8 < length <= len(data):
            raise DamageError(self.path, "the head of the stream is damaged", position=0)
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(data[:length]))
            head = Head.from_metadata(schema.metadata)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamageError(self.path, f"the head of the stream is damaged: {error}", position=0) from None
        if not schema.equals(SCHEMA, check_metadata=False):
            raise DamageError(self.path, "the stream has other columns than a journal", position=0)
        return head, length, crc32(data[:length])

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @property
    def size(self) -> int:
        """The present size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    @property
    def is_removed(self) -> bool:
        """Whether the file was removed from the directory, because the segment was sealed or removed."""
        return os.fstat(self._descriptor).st_nlink == 0

    def frame(self, place: int, limit: int) -> Frame | bytes | None:
        """Read the stamp of the batch at a position.

        Args:
            place: a position in the file.
            limit: the position up to which the batch must be complete.

        Returns:
            The stamp as a `Frame`; `END` if the end mark is at the position; None if no complete batch begins there.
        """
        header = os.pread(self._descriptor, max(0, min(_HEADER_READ, limit - place)), place)
        if header[:8] == END:
            return END
        length = 8 + int.from_bytes(header[4:8], "little")
        if header[:4] != _CONTINUATION or length > _MAX_HEADER or len(header) < 8:
            return None
        found = _FOUND.search(header, 8, length)
        if found is None:
            return None
        first, rows, size = int(found[2]), int(found[3]), int(found[4])
        is_whole = length <= size <= limit - place and 0 < rows <= _MAX_ROWS
        head = _HEAD.search(header, 8, length)
        has_head = head is None or int(head[1], 16) == self._head_crc
        return Frame(place, size, first, rows, has_head) if is_whole else None

    def read(self, frame: Frame) -> pa.RecordBatch | None:
        """Read a batch; return None if the batch is damaged."""
        # `pread` fills the bytes without the GIL. For `preadv`, Python would first clear a bytearray under the GIL.
        data = os.pread(self._descriptor, frame.size, frame.place)
        found = _FOUND.search(data, 8, 8 + int.from_bytes(data[4:8], "little"))
        if len(data) < frame.size or found is None:
            return None
        with memoryview(data) as view:
            crc = crc32(_ZEROS, crc32(view[: found.start(1)], self._seed))
            if crc32(view[found.end(1) :], crc) != int(found[1], 16):
                return None
        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), SCHEMA)
            # A crafted batch may have a right checksum, and buffers that would crash the process.
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError):
            return None
        # A writer does not compress, so a batch with more bytes than its message in the file is crafted.
        return batch if batch.nbytes <= frame.size else None

    def find_intact(self, place: int, limit: int) -> Frame | None:
        """Return the stamp of the first intact batch at or after a position; None without an intact batch."""
        at = place
        while at < limit:
            # A stamp is in the first 4 KiB of a message, so chunks overlap by 4 KiB.
            chunk = os.pread(self._descriptor, min(_CHUNK, limit - at), at)
            for stamp in _FOUND.finditer(chunk):
                begin = stamp.start()
                while (begin := chunk.rfind(_CONTINUATION, max(0, stamp.start() - _HEADER_READ), begin)) >= 0:
                    frame = self.frame(at + begin, limit)
                    if isinstance(frame, Frame) and self.read(frame) is not None:
                        return frame
            if len(chunk) < _CHUNK:
                return None
            at += _CHUNK - _HEADER_READ
        return None


class Hole(NamedTuple):
    """A damaged part of a stream before an intact batch.

    Attributes:
        place: the position of the first damaged byte.
        first: the first missing offset.
        end: the offset of the next intact record.
    """

    place: int
    first: int
    end: int


class Scan:
    """Iterable over all intact batches of a stream. Damaged parts are skipped.

    Attributes:
        place: the position after the last batch so far.
        reached: the offset after the last record so far.
        holes: the damaged parts so far. Damage at the end of the stream is not included.
        has_head: whether the head of the stream is intact.
    """

    def __init__(self, stream: ActiveStream, limit: int) -> None:
        """Begin at the first batch. Batches that end after the position `limit` are not read."""
        self._stream, self._limit = stream, limit
        self.place = stream.begin
        self.reached = stream.head.first
        self.holes: list[Hole] = []
        self.has_head = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self.place < self._limit:
            frame = self._stream.frame(self.place, self._limit)
            if frame == END:
                return
            batch = self._stream.read(frame) if isinstance(frame, Frame) else None
            if batch is None:
                frame, batch = self._search()
            if batch is None or not isinstance(frame, Frame):
                return
            if frame.place != self.place or frame.first != self.reached:
                self.holes.append(Hole(self.place, self.reached, frame.first))
            self.place, self.reached = frame.place + frame.size, frame.end
            self.has_head &= frame.has_head
            yield batch

    def _search(self) -> tuple[Frame | None, pa.RecordBatch | None]:
        place = self.place + 1
        while (frame := self._stream.find_intact(place, self._limit)) is not None:
            # A payload may contain the bytes of an earlier batch of this stream, whose offsets are too low.
            if frame.first >= self.reached:
                return frame, self._stream.read(frame)
            place = frame.place + frame.size
        return None, None
