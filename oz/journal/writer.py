"""Writer of a journal: `append`, segments, and durability.

Theory of operation. A journal has one active segment, a file in the format of an Arrow stream, and sealed
segments, which are Parquet files. The acknowledged mark, a file of 44 bytes, has the id of the active segment, its
acknowledged size in bytes, and the offset after its last record. Readers read the stream only up to this size.

An append has these steps, during which it holds a lock, the *guard*:

1. Encode the batches and write them after the accepted bytes of the stream.
2. With `sync="batch"`, sync the stream. After a failed sync the state of the file is unknown, so the writer
   refuses all further calls.
3. Check that the file was not removed. Records in a removed file would be lost.
4. Write the mark with one `pwrite`. This step makes the records visible. The mark is not synced. After a power cut,
   recovery also accepts complete batches that the mark does not cover.
5. Record in memory that the bytes are accepted.

If a step fails, the bytes after the accepted size are truncated, and the append has no effect. KeyboardInterrupt
may be raised between any two steps. Therefore each use of the stream begins with `_resolve_interrupted`, which reads
the mark. If step 4 was executed, it accepts the bytes; otherwise it truncates the stream.

A segment ends when it reaches a size or an age, when the program calls `roll`, and at `close`. The writer appends an
end mark, syncs, and writes into the acknowledged mark that no segment is active. The housekeeper, a thread, then seals
the stream as a Parquet file, and removes the segments that retention does not keep. The next append creates a new
stream, so that no segment is empty. A writer never continues the stream of another writer: it ends that stream and
seals it.

A full disk is the only error after which a program can continue. The append is undone and raises `JournalFull`. It also
wakes the housekeeper, which may free space by retention.
"""

from __future__ import annotations

import atexit
import errno
import itertools
import numbers
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakMethod, WeakSet

import pyarrow as pa

from oz.errors import ClosedError, JournalError, JournalFull, OwnershipError, Timeout
from oz.journal.format import (
    FULL,
    MARK,
    MARK_SIZE,
    TEMPORARY,
    Head,
    Mark,
    SegmentFile,
    new_id,
    stream_name,
    sync_data,
    sync_directory,
)
from oz.journal.housekeeper import Housekeeper
from oz.journal.lock import WriterLock
from oz.journal.records import make_batches
from oz.journal.recovery import recover
from oz.journal.report import Finding
from oz.journal.store import is_uri
from oz.journal.stream import END, BatchEncoder
from oz.logs import logger
from oz.message import Message
from oz.program_end import close_all, end_daemon

_RETRY_SECONDS = 1.0
"""Seconds until the housekeeper calls `tick` again, if an append holds the guard or the disk is full."""
_MIN_WAIT = 0.001  # seconds

_log = logger("oz.journal")

Appendable = tuple[str | bytes, bytes] | Mapping[str, Any] | Message
"""A record for `Writer.append`: a pair of subject and payload, a mapping of columns, or a message."""


class Writer:
    """Writer that appends records to a journal. A journal has one writer at a time, which several threads may share.

    The constructor repairs the files of a killed writer.

    Attributes:
        findings: faults that the constructor found and repaired. Each fault is also logged as a warning.
    """

    findings: tuple[Finding, ...]
    _is_closed = _is_released = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        sync: Literal["batch", "none"] | float = "batch",
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 3600.0,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
    ) -> None:
        """Open a journal, or create one.

        Args:
            directory: the directory of the journal. A missing directory is created.
            sync: time at which records are written to the disk. "batch": before `append` returns. A number: within this
                number of seconds. "none": when the operating system chooses. A power cut may lose appended records that
                are not on the disk. A kill of the process loses no appended record.
            segment_bytes: size in bytes at which the active segment is sealed.
            segment_seconds: age in seconds at which the active segment is sealed.
            retain_bytes: maximum size of all segments in bytes. Above this size, the oldest sealed segments are
                removed. None keeps all segments. The newest sealed segment and the active segment are never removed.
            retain_seconds: maximum age of records in seconds. A sealed segment is removed when its last record is
                older. None keeps all segments. The newest sealed segment and the active segment are never removed.

        Raises:
            JournalError: another writer has opened the journal, and the message names its process id; or the
                directory cannot be read or written.
            JournalFull: the disk is full.
            TypeError, ValueError: an argument has a wrong type or value.
        """
        _check_sync(sync)
        check_positive(segment_bytes=segment_bytes, segment_seconds=segment_seconds)
        limits = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
        check_positive(**{name: value for name, value in limits.items() if value is not None})
        if is_uri(directory):
            raise ValueError(f"a writer needs a local directory, not {directory}; copy sealed files there")
        self._directory = Path(directory)
        self._sync = sync
        self._sync_seconds = float(sync) if isinstance(sync, (int, float)) else None
        self._segment_bytes, self._segment_seconds = segment_bytes, segment_seconds
        self._guard = threading.RLock()
        self._owner = os.getpid()
        self._stream: _OpenStream | None = None
        self._fault: OSError | None = None
        self._end = 0
        try:
            self._open()
        except OSError as error:
            if error.errno in FULL:
                raise JournalFull(str(self._directory), self._end, str(error)) from error
            raise JournalError(f"{self._directory}: the journal cannot be opened: {error}") from error
        self._housekeeper = Housekeeper(
            self._directory,
            _weak_call(self._tick),
            retain_bytes=retain_bytes,
            retain_seconds=retain_seconds,
            sync=sync != "none",
        )
        self._housekeeper.wake(*self._recovered.pending)
        self._is_closed = self._is_released = False
        _open_writers.add(self)

    def _open(self) -> None:
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, parents=True)
            sync_directory(self._directory.parent)
        with ExitStack() as opened:
            self._lock = WriterLock(self._directory)
            opened.callback(self._lock.release)
            self._recovered = recover(self._directory)
            self._end, self._previous = self._recovered.end, self._recovered.previous
            self.findings = tuple(self._recovered.findings)
            for finding in self.findings:
                _log.warning("%s: %s", self._directory, finding)
            self._mark: int | None = os.open(
                self._directory / MARK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
            opened.callback(self._close_mark)
            os.ftruncate(self._mark, MARK_SIZE)
            self._acknowledge(Mark("", self._recovered.reached, 0, self._end), is_durable=True)
            opened.pop_all()

    def _acknowledge(self, mark: Mark, *, is_durable: bool = False) -> None:
        assert self._mark is not None
        os.pwrite(self._mark, mark.to_bytes(), 0)
        if is_durable and self._sync != "none":
            os.fsync(self._mark)

    def _close_mark(self) -> None:
        descriptor, self._mark = self._mark, None
        if descriptor is not None:
            os.close(descriptor)

    def append(self, records: Iterable[Appendable] | Mapping[str, Any] | pa.Table | pa.RecordBatch) -> int:
        """Append records. If the method raises an error, no record is appended.

        Args:
            records: one of

                - an iterable of records. A record is a pair (subject, payload), a mapping of column names to
                  values, or an `oz.Message`, such as a `Record` of another journal.
                - a mapping of column names to columns. A column is a list, a range, an Arrow array, or one
                  value (text, bytes, a number or None) for all records. At least one column is a list or an Arrow
                  array.
                - a `pyarrow.Table` or `pyarrow.RecordBatch`.

                The columns `subject` (text or bytes) and `payload` are required. The other columns of
                `oz.journal.SCHEMA` are optional, and `offset` is ignored. The time of receipt is `time` (a `datetime`
                or an Arrow timestamp) or `time_ns` (integer nanoseconds since 1970). Its default is now.

        Returns:
            The offset after the last record. With `sync="batch"`, the records are on the disk.

        Raises:
            JournalFull: the disk is full. No record of this call is in the journal. Free space, and append again.
            JournalError: the operating system failed, or the files were removed. Close the writer and open
                the journal again.
            TypeError, ValueError: a value has a wrong type, or does not fit the column.
            ClosedError: the writer is closed.
            OwnershipError: another process has created the writer, before a fork.
        """
        self._check()
        with self._guard:
            self._check()
            try:
                self._append(make_batches(records, self._end, time.time_ns()))
            except OSError as error:
                raise self._error_of(error) from error
            return self._end

    @property
    def end_offset(self) -> int:
        """The offset after the last record. The next record gets this offset."""
        return self._end

    def roll(self) -> None:
        """End the active segment now, and seal it in the background.

        Raises:
            JournalFull, JournalError, ClosedError, OwnershipError: for the same reasons as in `append`.
        """
        self._check()
        with self._guard:
            self._check()
            if self._stream is not None:
                try:
                    self._resolve_interrupted()
                    self._end_segment()
                except OSError as error:
                    raise self._error_of(error) from error

    def wait_sealed(self, *, timeout: float | None = 60.0) -> None:
        """Wait until all ended segments are sealed, and old segments are removed.

        Args:
            timeout: longest wait in seconds; None waits for ever.

        Raises:
            Timeout: `timeout` seconds have passed.
        """
        if not self._housekeeper.wait_sealed(timeout):
            raise Timeout(
                f"{self._directory}: segments were not sealed within {timeout} seconds; check the log, and "
                "the free space of the disk"
            )

    def close(self) -> None:
        """Seal the active segment, and release the lock. A second call does nothing, unless the first was interrupted.

        Raises:
            JournalError: the operating system failed to write. The writer is closed nevertheless.
        """
        self._close(None)

    def _close(self, timeout: float | None) -> None:
        if self._is_released or self._owner != os.getpid():
            return
        if sys.is_finalizing():
            # All other threads are stopped, and one of them may hold the guard for ever. The next writer seals the
            # stream.
            self._is_closed = self._is_released = True
            return
        with self._guard:
            if self._is_released:
                return
            try:
                if self._stream is not None and self._fault is None:
                    self._resolve_interrupted()
                    self._stream.check_name()
                    self._end_segment()
            except OSError as error:
                self._fault = error
            self._is_closed = True
        self._housekeeper.stop(timeout)
        if self._stream is not None:
            self._stream.close()
        self._close_mark()
        self._lock.release()
        self._is_released = True
        if self._fault is not None:
            raise self._broken_error(self._fault)

    def _close_at_exit(self, timeout: float) -> None:
        self._close(timeout)

    def _close_copies(self) -> None:
        """Close the descriptors in a child process after a fork. Otherwise the child would keep the parent's lock."""
        for close in (self._close_mark, self._lock.release):
            close()
        if self._stream is not None:
            self._stream.close()

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise OwnershipError(
                f"{self._directory}: the writer belongs to process {self._owner}, and this process is a "
                "fork of it; open a journal of its own"
            )
        if self._is_closed:
            end_daemon()
            raise ClosedError(f"{self._directory}: the writer is closed; create another one")
        if self._fault is not None:
            raise self._broken_error(self._fault)

    def _broken_error(self, fault: OSError) -> JournalError:
        return JournalError(
            f"{self._directory}: {fault}; close this writer and open the journal again, which keeps all "
            "acknowledged records"
        )

    def _append(self, batches: Iterator[tuple[pa.RecordBatch, int]]) -> None:
        """Write batches, and acknowledge them. The caller holds the guard."""
        self._resolve_interrupted()
        stream = self._stream
        if stream is not None and self._is_finished(stream):
            self._end_segment()
            stream = None
        first = next(batches, None)
        if first is None:
            return
        if stream is None:
            stream = self._begin_segment()
        try:
            mark = stream.write(itertools.chain([first], batches))
            if self._sync == "batch":
                stream.sync()
            stream.check_name()
            self._acknowledge(mark)
            stream.accept(mark)
            self._end = mark.end
        except BaseException:
            self._undo_append()
            raise
        if not stream.is_scheduled or (stream.dirty_since is None and self._sync_seconds is not None):
            stream.is_scheduled, stream.dirty_since = True, time.monotonic()
            self._housekeeper.wake()

    def _resolve_interrupted(self) -> None:
        """Accept the bytes of an interrupted append if they are acknowledged; otherwise truncate the stream."""
        stream = self._stream
        if stream is None or not stream.has_unaccepted:
            return
        assert self._mark is not None
        mark = Mark.from_bytes(os.pread(self._mark, MARK_SIZE, 0))
        if mark is not None and mark.segment == stream.head.segment and mark.size > stream.size:
            stream.accept(mark)
            self._end = mark.end
        else:
            stream.cut()

    def _undo_append(self) -> None:
        try:
            self._resolve_interrupted()
            if self._stream is not None and self._stream.is_empty:
                self._stream.remove()
                self._stream = None
        except OSError as error:
            self._fault = error

    def _is_finished(self, stream: _OpenStream) -> bool:
        is_large = stream.size >= self._segment_bytes
        return stream.is_ending or is_large or time.monotonic() - stream.begun >= self._segment_seconds

    def _begin_segment(self) -> _OpenStream:
        head = Head(self._recovered.journal, new_id(), self._previous, self._end)
        try:
            self._stream = stream = _OpenStream(self._directory, head, is_durable=self._sync != "none")
        except BaseException:
            # A signal handler may raise when the file exists already. A second file must not begin at its offset.
            if self._stream is None:
                (self._directory / stream_name(head.first, head.segment)).unlink(missing_ok=True)
            raise
        return stream

    def _end_segment(self) -> None:
        """End the active segment, and leave its sealing to the housekeeper.

        A call after an interrupted call repeats the steps, which have the same effect again.
        """
        stream = self._stream
        assert stream is not None
        stream.end(is_durable=self._sync != "none")
        self._acknowledge(Mark("", self._end, 0, self._end), is_durable=True)
        self._housekeeper.wake(SegmentFile(stream.path.name, stream.head.first, None, stream.head.segment))
        self._previous = stream.head.segment
        self._stream = None

    def _error_of(self, error: OSError) -> JournalError:
        if self._fault is None and error.errno in FULL:
            self._housekeeper.wake()  # retention may free space
            return JournalFull(str(self._directory), self._end, str(error))
        # After a failed fsync, the state of the file is unknown.
        self._fault = self._fault or error
        return self._broken_error(self._fault)

    def _tick(self) -> float | None:
        """End an old segment or sync the stream, if it is due; return the seconds until the next call, or None."""
        if not self._guard.acquire(blocking=False):
            return _RETRY_SECONDS
        try:
            stream = self._stream
            if stream is None or self._is_closed or self._fault is not None or self._owner != os.getpid():
                return None
            self._resolve_interrupted()
            if self._is_finished(stream):
                self._end_segment()
                return None
            now = time.monotonic()
            delays = [stream.begun + self._segment_seconds - now]
            if self._sync_seconds is not None and stream.dirty_since is not None:
                due = stream.dirty_since + self._sync_seconds - now
                if due <= 0:
                    stream.sync()
                    stream.dirty_since = None
                else:
                    delays.append(due)
            return max(_MIN_WAIT, min(delays))
        except OSError as error:
            if error.errno not in FULL:
                self._fault = error
            return _RETRY_SECONDS
        finally:
            self._guard.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """Close a writer that the program did not close."""
        if not self._is_released and self._owner == os.getpid():
            warnings.warn(f"a writer of {self._directory} was not closed", ResourceWarning, 2, self)
            with suppress(JournalError):
                self.close()


class _OpenStream:
    """The file of the active segment, to which records are appended.

    Attributes:
        path: the path of the file.
        head: the identity of the segment.
        size: the number of accepted bytes, which are acknowledged.
        begun: the time at which the file was created, in seconds of `time.monotonic`.
        is_empty: whether the file has no accepted record.
        is_ending: whether the end of the segment has begun. No record is appended after it.
        is_scheduled: whether the housekeeper was woken since the file was created, so that it knows the age limit.
        dirty_since: the time of the first append after the last timed sync, in seconds of `time.monotonic`; None if
            nothing was appended since this sync.
    """

    def __init__(self, directory: Path, head: Head, *, is_durable: bool) -> None:
        """Create the file. If `is_durable`, wait until the name of the file is on the disk."""
        self.head = head
        self.path = directory / stream_name(head.first, head.segment)
        self.begun = time.monotonic()
        self.is_scheduled = False
        self.is_empty = True
        self.is_ending = False
        self.dirty_since: float | None = None
        self._encoder = BatchEncoder(head)
        temporary = directory / (self.path.name + TEMPORARY)
        self._descriptor: int | None = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
        )
        try:
            os.pwrite(self._descriptor, self._encoder.head, 0)
            os.rename(temporary, self.path)
            if is_durable:
                sync_directory(directory)
        except BaseException:
            self.close()
            with suppress(FileNotFoundError):
                temporary.unlink()
            with suppress(FileNotFoundError):
                self.path.unlink()
            raise
        self.size = self._written = len(self._encoder.head)

    @property
    def _open_descriptor(self) -> int:
        assert self._descriptor is not None
        return self._descriptor

    def write(self, batches: Iterable[tuple[pa.RecordBatch, int]]) -> Mark:
        """Write batches after the accepted bytes, and return the mark that acknowledges them."""
        end = self.head.first
        for batch, first in batches:
            parts, size = self._encoder.encode(batch, first)
            written, self._written = self._written, self._written + size
            done = os.pwritev(self._open_descriptor, parts, written)
            if done < size:
                _write_all(self._open_descriptor, b"".join(map(bytes, parts))[done:], written + done)
            end = first + batch.num_rows
        return Mark(self.head.segment, self.head.first, self._written, end)

    def sync(self) -> None:
        sync_data(self._open_descriptor)

    def check_name(self) -> None:
        """Raise FileNotFoundError if the file was removed from the directory. Its records would be lost."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the active segment was removed", str(self.path))

    @property
    def has_unaccepted(self) -> bool:
        return self._written != self.size

    def accept(self, mark: Mark) -> None:
        self.size = self._written = mark.size
        self.is_empty = False

    def cut(self) -> None:
        os.ftruncate(self._open_descriptor, self.size)
        self._written = self.size

    def end(self, *, is_durable: bool) -> None:
        """Write the end mark, and close the file. The call may be repeated."""
        self.is_ending = True
        if self._descriptor is None:
            return
        _write_all(self._open_descriptor, END, self.size)
        if is_durable:
            sync_data(self._open_descriptor)
        self.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes, place: int) -> None:
    while data:
        done = os.pwrite(descriptor, data, place)
        data, place = data[done:], place + done


_open_writers: WeakSet[Writer] = WeakSet()


@atexit.register
def _close_all() -> None:
    close_all(_open_writers)


def _after_fork() -> None:
    for writer in list(_open_writers):
        writer._close_copies()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _weak_call(method: Callable[[], float | None]) -> Callable[[], float | None]:
    """Return a function that calls a method, and has only a weak reference to the object of the method."""
    found = WeakMethod(method)
    return lambda: call() if (call := found()) else None


def _check_sync(sync: Any) -> None:
    if isinstance(sync, (int, float)) and not isinstance(sync, bool):
        check_positive(sync=sync)
    elif sync not in ("batch", "none"):
        raise ValueError(f"sync is 'batch', 'none' or a number of seconds, not {sync!r}")


def check_positive(**values: Any) -> None:
    """Check that all values are numbers greater than 0. An error names the argument that is wrong.

    Raises:
        TypeError: a value is not a number.
        ValueError: a value is not greater than 0.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a number, not {type(value).__name__}: {value!r}")
        if not float(value) > 0:  # also for NaN
            raise ValueError(f"{name} is greater than 0, not {value}")
