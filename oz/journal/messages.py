"""Arrow batches as stamped messages: the one way in which anything is written to a segment."""

from __future__ import annotations

import re
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.schema import SCHEMA, VERSION
from oz.journal.stamp import KEY, Stamp, stamp_message

IDENTITY = re.compile(rb"oz\.journal/(\d{1,9}) id=([0-9a-f]{32})")
"""Version and journal, as they stand in the head of each segment."""

FILE_MAGIC = b"ARROW1\0\0"
_BLANK = Stamp(0, 0, 0, 0)
_ROOM = 6 << 20
_BUFFERED = 2 << 20
_STAMP_ROOM = 4096  # more than the metadata of a stamp and what Arrow aligns take


def salt_of(journal: str) -> int:
    """The start value of the checksums of a journal's batches.

    A payload may itself hold pieces of a journal; when damage is searched for what is intact, they must not
    pass for this journal's own.
    """
    return crc32(journal.encode())


def schema_of(journal: str) -> pa.Schema:
    """Return the schema in the head of a segment, with a blank stamp."""
    identity = f"oz.journal/{VERSION} id={journal}"
    return SCHEMA.with_metadata({b"oz.journal": identity.encode(), KEY: _BLANK.text()})


def header(journal: str, base: int) -> bytearray:
    """Make the message that begins a segment.

    Args:
        journal: the journal's id, 32 hexadecimal digits.
        base: the offset of the segment's first record.
    """
    message = bytearray(schema_of(journal).serialize())
    stamp_message(message, Stamp(base, 0, 0, 0), salt=0)
    return message


def stamp_of(batch: pa.RecordBatch) -> Stamp:
    """Make the stamp of a batch, but for what only its message can tell."""
    times = pc.min_max(batch.column("time_ns"))
    return Stamp(
        batch.column("offset")[0].as_py(), batch.num_rows, times["min"].as_py(), times["max"].as_py()
    )


class _Sink:
    """Takes what Arrow writes, to be had message by message."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._pieces.append(bytes(piece))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytearray:
        pieces, self._pieces = self._pieces, []
        return bytearray().join(pieces)


class StreamMessages:
    """Turns batches into the messages of a segment that grows; they are not compressed.

    They are made in a piece of memory that is used again: fresh memory for each costs more than the rest.
    """

    def __init__(self, journal: str, base: int) -> None:
        """Begin a segment.

        Args:
            journal: the journal's id.
            base: the offset of the segment's first record.
        """
        self._salt = salt_of(journal)
        self._schema = schema_of(journal)
        self._options = pa.ipc.IpcWriteOptions(use_threads=False)
        self._room = pa.py_buffer(bytearray(_ROOM))
        self.head = header(journal, base)
        """What the segment begins with."""

    def of(self, batch: pa.RecordBatch) -> memoryview:
        """Make the message of one batch, whose offsets must be dense; it is good until the next."""
        size = len(self.head) + pa.ipc.get_record_batch_size(batch) + _STAMP_ROOM
        # A large one gets memory of its own, which is not kept.
        room = self._room if size <= _ROOM else pa.py_buffer(bytearray(size))
        stamp = stamp_of(batch)
        with pa.FixedSizeBufferWriter(room) as sink:
            writer = pa.ipc.new_stream(sink, self._schema, options=self._options)
            writer.write_batch(batch, custom_metadata={KEY: stamp.text()})
            # What it begins with is just as long as the head that the segment has.
            message = memoryview(room).cast("B")[len(self.head) : sink.tell()]
        stamp_message(message, stamp, self._salt)
        return message


class Messages:
    """Turns batches into the messages of a sealed segment, compressed as a rule."""

    def __init__(self, journal: str, base: int, *, compressed: bool = True) -> None:
        """Begin a segment.

        Args:
            journal: the journal's id.
            base: the offset of the segment's first record.
            compressed: whether its batches are to be.
        """
        self._salt = salt_of(journal)
        self._sink = _Sink()
        # Arrow writes each column's buffers by themselves, and each write to Python waits for its lock.
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFERED)
        codec = pa.Codec("zstd", compression_level=1) if compressed else None
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._writer = pa.ipc.new_file(self._buffer, schema_of(journal), options=options)
        self.head = FILE_MAGIC + header(journal, base)
        """What the segment begins with."""
        # Arrow writes a head of its own, not stamped and just as long, before the first batch.
        self._unwanted = len(self.head)

    def of(self, batch: pa.RecordBatch) -> bytearray:
        """Make the message of one batch, whose offsets must be dense."""
        stamp = stamp_of(batch)
        self._writer.write_batch(batch, custom_metadata={KEY: stamp.text()})
        message = self._taken()
        stamp_message(message, stamp, self._salt)
        return message

    def tail(self) -> bytearray:
        """End the segment; a file gets its footer."""
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytearray:
        self._buffer.flush()
        data = self._sink.take()
        del data[: self._unwanted]
        self._unwanted = 0
        return data
