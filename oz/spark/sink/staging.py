"""Rows of one task that wait to be published: in its message to the driver when few, or in a file."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from oz.errors import SinkError
from oz.spark.sink.columns import STAGED, RowReader

SMALL = 256 << 10
"""Bytes of a task's rows up to which they travel in the message to the driver."""

_SUFFIX = ".arrow"
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The rows that one task has staged.

    Attributes:
        query: the id of the query or run.
        partition: the number of the task's partition.
        rows: rows to publish.
        skipped: rows left out, since they cannot be published.
        example: what was wrong with one of those.
        crc: CRC-32 of the Arrow stream of the rows.
        name: the file that holds it, below the batch's directory; None when it is here.
        data: the stream itself, when it is small.
    """

    query: str
    partition: int
    rows: int
    skipped: int = 0
    example: str | None = None
    crc: int = 0
    name: str | None = None
    data: bytes = b""

    def batches(self, directory: str) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Args:
            directory: that of the batch.

        Raises:
            SinkError: they are not there, or not as they were staged.
        """
        if not self.rows:
            return
        if self.name is None:
            yield from self._checked(pa.BufferReader(self.data), "the message of a task")
            return
        path = os.path.join(directory, self.name)
        try:
            source = pa.memory_map(path)
        except OSError as error:
            raise SinkError(
                f"{self.rows} staged rows cannot be read: {error}; give the sink's option staging a "
                "directory that the driver and all executors share"
            ) from None
        with source:
            yield from self._checked(source, path)

    def _checked(self, source: pa.NativeFile, where: str) -> Iterator[pa.RecordBatch]:
        found = 0
        while piece := source.read_buffer(_CHUNK):
            found = crc32(piece, found)
        if found != self.crc:
            raise SinkError(f"{where}: staged rows are damaged: the checksum is {found}, not {self.crc}")
        source.seek(0)
        yield from pa.ipc.open_stream(source)


class _Spill:
    """A file to Arrow: keeps what is written in memory while it is little, and then in a file."""

    closed = False

    def __init__(self, directory: str, partition: int) -> None:
        self.name: str | None = None
        self.crc = 0
        self._directory = directory
        self._partition = partition
        self._kept: list[bytes] = []
        self._size = 0
        self._file: BinaryIO | None = None

    def write(self, piece: bytes) -> int:
        self.crc = crc32(piece, self.crc)
        self._size += len(piece)
        if self._file is None and self._size > SMALL:
            self._file = self._opened()
        if self._file is None:
            self._kept.append(bytes(piece))
        else:
            self._file.write(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: what counts is that it is synced in the end."""

    def _opened(self) -> BinaryIO:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        # A name of its own for each attempt: a killed or speculative task leaves a file that nobody names.
        self.name = f"{self._partition:05d}-{uuid.uuid4().hex}{_SUFFIX}"
        file = open(os.path.join(self._directory, self.name), "xb", 1 << 20)  # noqa: SIM115 (see `finish`)
        file.writelines(self._kept)
        self._kept.clear()
        return file

    def finish(self) -> bytes:
        """Make a file durable, or give what is in memory."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync_directory(self._directory)
        return b"".join(self._kept)

    def remove(self) -> None:
        """Leave nothing behind."""
        if self._file is not None and self.name is not None:
            self._file.close()
            remove_file(os.path.join(self._directory, self.name))


def stage(reader: RowReader, batches: Iterator[pa.RecordBatch], directory: str, query: str) -> Staged:
    """Stage the rows of one task.

    Args:
        reader: makes them ready.
        batches: the rows as they come from Spark.
        directory: that of the batch, made when it is needed.
        query: the id of the query or run.

    Raises:
        SinkError: a row cannot be published, unless such rows are skipped.
        OSError: the file system does not take them.
    """
    spill, rows = _Spill(directory, reader.partition), 0
    try:
        with pa.ipc.new_stream(pa.PythonFile(spill, mode="w"), STAGED) as writer:
            for batch in reader.ready(batches):
                writer.write_batch(batch)
                rows += batch.num_rows
        data = spill.finish()
    except BaseException:
        spill.remove()
        raise
    return Staged(
        query,
        reader.partition,
        rows,
        reader.skipped,
        reader.example,
        spill.crc,
        spill.name,
        data if rows else b"",
    )


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.remove(path)
