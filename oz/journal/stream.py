"""The segment that grows: an Arrow stream, one batch at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from oz.journal import files
from oz.journal.files import STREAM, Segment
from oz.journal.messages import StreamMessages
from oz.journal.tail import Tail
from oz.logs import logger

_log = logger("oz.journal")


class FileGone(OSError):
    """The file that is written is no longer where readers look for it, or is not as it was written."""


class ActiveStream:
    """The end of the journal.

    Attributes:
        base: the offset of its first record.
        size: its size in bytes.
        end_offset: the offset after its last record.
        started: when its first record was written, on the monotonic clock; None while it has none. For a
            stream that another process began it is when this one went on with it.
    """

    def __init__(self, directory: Path, journal: str, base: int, tail: Tail | None = None) -> None:
        """Begin a stream, durably, or go on with one.

        Args:
            directory: the journal's.
            journal: the journal's id.
            base: the offset of the stream's first record.
            tail: the stream as recovery left it, to go on with.

        Raises:
            OSError: no room, or another fault of the system; there is no new stream then.
        """
        path = directory / Segment(base, STREAM).name
        self._messages = StreamMessages(journal, base)
        if tail is None:
            tail = self._begin(path, base)
        self.base = base
        self.size, self.end_offset = tail.size, tail.end_offset
        self.started: float | None = time.monotonic() if self.end_offset > base else None
        self._path = os.fspath(path)
        self._descriptor = files.open_to_write(path, os.O_WRONLY | os.O_APPEND)
        status = os.fstat(self._descriptor)
        self._identity = status.st_ino, status.st_dev

    def _begin(self, path: Path, base: int) -> Tail:
        if (kept := files.set_aside(path)) is not None:
            _log.warning(
                "%s: what was there is no segment that can be gone on with; it is %s now", path, kept
            )
        try:
            with files.replacing(path) as descriptor:
                files.write_all(descriptor, self._messages.head)
        except BaseException:
            # It may be there, only not durably. The stream before it may go on, and must be the last one.
            path.unlink(missing_ok=True)
            raise
        return Tail(Segment(base, STREAM), len(self._messages.head), base)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; not yet durably.

        Raises:
            OSError: the system did not take all of it.
        """
        message = self._messages.of(batch)
        files.write_all(self._descriptor, message)
        self.size += len(message)
        self.end_offset += batch.num_rows
        if self.started is None:
            self.started = time.monotonic()

    def check(self) -> None:
        """See that the file is where readers look for it, and has what was written to it.

        Raises:
            FileGone: somebody has removed it, put another in its place, or changed its size.
        """
        try:
            found = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise FileGone(f"{self._path} was removed while it was written, {self._what}") from None
        if (found.st_ino, found.st_dev) != self._identity:
            raise FileGone(f"{self._path} was replaced by another file while it was written, {self._what}")
        if found.st_size != self.size:
            raise FileGone(
                f"{self._path} has {found.st_size} bytes, and {self.size} were written: "
                "somebody else changed it"
            )

    @property
    def _what(self) -> str:
        """The contents, for errors."""
        return f"with what was in it from offset {self.base} to {self.end_offset}"

    def cut(self, size: int, end_offset: int) -> None:
        """Go back to how it was, taking back what was written since."""
        os.ftruncate(self._descriptor, size)
        self.size, self.end_offset = size, end_offset
        if end_offset == self.base:
            self.started = None

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
