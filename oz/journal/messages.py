"""Arrow batches as stamped messages: the one way in which anything is written to a segment."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.schema import SCHEMA, VERSION
from oz.journal.stamp import KEY, Stamp, stamp_message

IDENTITY = re.compile(rb"oz\.journal/(\d{1,9}) id=([0-9a-f]{32})")
"""Version and journal, as they stand in the head of each segment."""

FILE_MAGIC = b"ARROW1\0\0"
_BLANK = Stamp(0, 0, 0, 0)


def salt_of(journal: str) -> int:
    """What the checksums of a journal's batches start from.

    A payload may itself hold pieces of a journal; when damage is searched for what is intact, they must not
    pass for this journal's own.
    """
    return crc32(journal.encode())


def schema_of(journal: str, stamp: Stamp = _BLANK) -> pa.Schema:
    """The schema as it stands at the head of a segment of a journal."""
    identity = f"oz.journal/{VERSION} id={journal}"
    return SCHEMA.with_metadata({b"oz.journal": identity.encode(), KEY: stamp.text()})


def header(journal: str, base: int) -> bytearray:
    """Make the message that begins a segment.

    Args:
        journal: the journal's id, 32 hexadecimal digits.
        base: the offset of the segment's first record.
    """
    message = bytearray(schema_of(journal).serialize())
    stamp_message(message, Stamp(base, 0, 0, 0), salt=0)
    return message


class _Sink:
    """Takes what Arrow writes, to be had message by message."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._pieces.append(bytes(piece))

    def flush(self) -> None:
        pass

    def take(self) -> bytearray:
        pieces, self._pieces = self._pieces, []
        return bytearray().join(pieces)


class Messages:
    """Turns batches into the messages of one segment, in either of its forms."""

    def __init__(self, journal: str, base: int, *, sealed: bool) -> None:
        """Begin a segment.

        Args:
            journal: the journal's id.
            base: the offset of the segment's first record.
            sealed: make an Arrow file, compressed; otherwise a stream, which is not.
        """
        self._salt = salt_of(journal)
        self._sink = _Sink()
        codec = pa.Codec("zstd", compression_level=1) if sealed else None
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        make: Any = pa.ipc.new_file if sealed else pa.ipc.new_stream
        self._writer = make(pa.PythonFile(self._sink, mode="w"), schema_of(journal), options=options)
        self.head = (FILE_MAGIC if sealed else b"") + header(journal, base)
        """What the segment begins with."""
        # Arrow writes a head of its own, not stamped and just as long, before the first batch.
        self._unwanted = len(self.head)

    def of(self, batch: pa.RecordBatch) -> bytearray:
        """Make the message of one batch, whose offsets must be dense."""
        times = pc.min_max(batch.column("time_ns"))
        stamp = Stamp(
            batch.column("offset")[0].as_py(), batch.num_rows, times["min"].as_py(), times["max"].as_py()
        )
        self._writer.write_batch(batch, custom_metadata={KEY: stamp.text()})
        message = self._taken()
        stamp_message(message, stamp, self._salt)
        return message

    def tail(self) -> bytearray:
        """End the segment; a file gets its footer."""
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytearray:
        data = self._sink.take()
        unwanted, self._unwanted = self._unwanted, 0
        return data[unwanted:]
