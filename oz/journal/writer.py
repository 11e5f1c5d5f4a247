"""Appending to a journal."""

from __future__ import annotations

import atexit
import numbers
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from weakref import WeakMethod, WeakSet

import pyarrow as pa

from oz.errors import ClosedError, JournalError, JournalFull, OwnershipError
from oz.journal import recovery
from oz.journal.columns import batch_of_columns, pieces
from oz.journal.files import FULL, LOCK, MARK, NotRegular, SystemFault, sync_directory, system
from oz.journal.lock import WriterLock
from oz.journal.mark import AcknowledgedMark
from oz.journal.report import Finding
from oz.journal.retention import Retention
from oz.journal.rotation import IntervalThread, Segments
from oz.journal.schema import Appendable, batch_of, chunks
from oz.journal.stream import FileGone
from oz.logs import logger
from oz.program_end import close_all, end_daemon

T = TypeVar("T")

Sync = Literal["batch", "interval", "never"]
SYNCS: tuple[Sync, ...] = ("batch", "interval", "never")

_LATER = 1.0
"""Seconds after which a segment that is too old is looked at again, if it could not be ended."""

_log = logger("oz.journal")


class Writer:
    """Appends records to a journal; the only writer that it has. Threads may share one.

    Opening it puts in order what a crash left: see `findings`.

    Attributes:
        findings: what opening it cut, filled or made again; each was logged as a warning too.
    """

    findings: tuple[Finding, ...]
    _is_closed = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        sync: Sync = "batch",
        sync_seconds: float = 1.0,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 3600.0,
        seal_on_close: bool = True,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
    ) -> None:
        """Open a journal, or make one.

        Args:
            directory: where it is; made if it is not there.
            sync: when records are durable: `"batch"`, before `append` returns; `"interval"`, within
                `sync_seconds`; `"never"`, when the system sees fit.
            sync_seconds: the interval, in seconds.
            segment_bytes: begin a new segment when the present one has this many bytes, uncompressed.
            segment_seconds: begin a new segment when the present one is this many seconds old.
            seal_on_close: end the segment in `close`, so that other programs see all records. False leaves it
                to the next writer to go on with, which is for who opens and closes many times.
            retain_bytes: remove the oldest segments when all together have more bytes than this; None keeps
                them all. The present segment counts and is never removed.
            retain_seconds: remove segments whose latest record is older than this; None keeps them all.

        Raises:
            JournalError: another writer has it; or it is of another version; or the system does not let it be
                made or opened.
            JournalFull: there is no room for the first bytes of a journal.
            ValueError: an argument makes no sense.
        """
        if sync not in SYNCS:
            raise ValueError(f"sync is one of {', '.join(SYNCS)}, not {sync!r}")
        _check_sizes(sync_seconds=sync_seconds, segment_bytes=segment_bytes, segment_seconds=segment_seconds)
        kept = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
        _check_sizes(**{name: value for name, value in kept.items() if value is not None})
        self._directory = Path(directory)
        self._sync_mode = sync
        self._guard = threading.Lock()
        self._owner = os.getpid()
        self._fault: OSError | None = None
        self._is_dirty = False
        self._seals_on_close = seal_on_close
        self._open(segment_bytes, segment_seconds, Retention(retain_bytes, retain_seconds))
        self._ticker = IntervalThread(sync_seconds, _weakly(self._tick)) if sync == "interval" else None
        self._is_closed = False
        _open.add(self)

    def _open(self, most_bytes: int, most_seconds: float, retention: Retention) -> None:
        end_offset = 0
        try:
            if not self._directory.is_dir():
                self._directory.mkdir(mode=0o700, parents=True)
                sync_directory(self._directory.parent)
            with ExitStack() as opened:
                self._lock = WriterLock(self._directory)
                opened.callback(self._lock.release)
                state = recovery.recover(self._directory)
                end_offset = state.end_offset
                self.findings = tuple(state.findings)
                self._segments = Segments(
                    self._directory, state, most_bytes, most_seconds, retention, _weakly(self._end_old)
                )
                opened.callback(self._segments.close)
                self._mark = AcknowledgedMark(self._directory)
                opened.callback(self._mark.close)
                self._mark.set(end_offset, self._segments.growing)
                opened.pop_all()
        except (OSError, SystemFault) as fault:
            error = fault.error if isinstance(fault, SystemFault) else fault
            if error.errno in FULL:
                raise JournalFull(str(self._directory), end_offset, str(error)) from error
            raise JournalError(f"{self._directory}: a journal cannot be opened here: {error}") from error

    def append(self, records: Iterable[Appendable]) -> int:
        """Append records, all of them or, when it raises, none.

        Args:
            records: each a `Record`, whose offset is ignored, or a pair of subject and payload. They become
                one group: one wait for the disk, however many.

        Returns:
            The offset after the last of them. With `sync="batch"` they are durable by then.

        Raises:
            JournalFull: there is no room. Make some, and append again.
            JournalError: the system failed to write, or somebody has taken the file away; open the journal
                again to go on.
            TypeError: something is no record, or has a field of the wrong type.
            ValueError: a record cannot be stored, as with a payload of more than 1 GiB.
            ClosedError: the writer is closed.
            OwnershipError: it belongs to the process that this one was forked from.
        """
        with self._guard:
            self._check()
            return self._append(batch_of(chunk, self.end_offset, time.time_ns()) for chunk in chunks(records))

    def append_columns(self, *columns: Mapping[str, Any]) -> int:
        """Append records that are laid out in columns already, as `append` does, but several times as fast.

        Args:
            columns: by name, as in `oz.journal.COLUMNS`: `"subject"` and `"payload"` at least. Each is a
                list, a range, an Arrow array of the column's type, or one value that all records have.
                Subjects are text or bytes, or an Arrow array of text. Without `"time_ns"` they are received
                now; offsets are given by the writer. Several sets of columns become one group.

        Returns:
            The offset after the last of them. With `sync="batch"` they are durable by then.

        Raises:
            TypeError: a value has the wrong type.
            ValueError: there is no such column, one is missing, or they have different lengths; or a value
                cannot be stored.
            JournalFull, JournalError, ClosedError, OwnershipError: as `append`.
        """
        with self._guard:
            self._check()
            return self._append(
                batch_of_columns(piece, self.end_offset, time.time_ns())
                for one in columns
                for piece in pieces(one)
            )

    def _append(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Write batches that are made as they are asked for, each for the offset that is reached by then."""
        try:
            with system():
                self._segments.look()
                if self._segments.is_finished:
                    self._begin_segment(is_appending=True)
            self._write(batches)
        except SystemFault as fault:
            raise self._failure(fault) from fault.error
        self._segments.watch()
        return self._segments.stream.end_offset

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        stream = self._segments.stream
        size, end_offset = stream.size, stream.end_offset
        try:
            for batch in batches:
                with system():
                    self._segments.begin_epoch()
                    stream.write(batch)
            with system():
                if self._sync_mode == "batch":
                    stream.sync()
                self._check_place()
                self._mark.set(stream.end_offset, self._segments.growing)
            self._is_dirty = True
        except BaseException:
            self._take_back(size, end_offset)
            raise

    def _check_place(self) -> None:
        try:
            self._segments.stream.check()
        except FileGone as fault:
            self._give_up(fault)
            raise

    def _give_up(self, fault: OSError) -> None:
        self._fault = fault
        self._segments.abandon()

    def _take_back(self, size: int, end_offset: int) -> None:
        if self._fault is not None:
            return  # the file is not ours any more
        if self._mark.end is not None and self._mark.end > end_offset:
            self._segments.end_epoch()  # readers may have seen it
        try:
            self._segments.stream.cut(size, end_offset)
            self._mark.set(end_offset, self._segments.growing)
        except OSError as fault:
            self._fault = fault

    def _failure(self, fault: SystemFault) -> JournalError:
        if self._fault is None and fault.is_full:
            self._segments.make_room()
            return JournalFull(str(self._directory), self._segments.stream.end_offset, str(fault.error))
        # What the system still holds, and what it has thrown away, cannot be known after this.
        self._fault = self._fault or fault.error
        return self._broken(self._fault)

    def _broken(self, fault: OSError) -> JournalError:
        return JournalError(
            f"{self._directory}: {fault}; nothing more is written: close this writer and open the journal "
            "again, which keeps all that is intact"
        )

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise OwnershipError("this writer belongs to the process that this one was forked from")
        if self._is_closed:
            end_daemon()
            raise ClosedError("the writer is closed")
        if self._fault is not None:
            raise self._broken(self._fault)

    def _begin_segment(self, *, is_appending: bool) -> None:
        self._sync()
        if self._fault is not None:
            raise SystemFault(self._fault)
        with system():
            self._segments.begin(is_appending=is_appending)

    def _end_old(self) -> float | None:
        """End the segment that nothing is appended to, at its age; see `Housekeeper`."""
        # Who holds it appends, and looks after the segments too, or closes and waits for this thread.
        if not self._guard.acquire(blocking=False):
            return _LATER
        try:
            if self._is_closed or self._fault is not None:
                return None
            if self._segments.is_finished:
                self._begin_segment(is_appending=False)
            return self._segments.seconds_left
        except SystemFault as fault:
            _log.warning("%s: the segment goes on for now: %s", self._directory, fault.error)
            return _LATER
        finally:
            self._guard.release()

    def check_files(self) -> None:
        """See that what was appended is still where readers look for it.

        Each append sees to the file that grows. Who appends seldom calls this now and then, as recorders do;
        it costs a look at the directory, and nothing while another thread appends.

        Raises:
            JournalError: somebody has removed, replaced or changed a file of the journal, or its directory;
                nothing more is written.
            ClosedError, OwnershipError: as `append`.
        """
        if not self._guard.acquire(blocking=False):
            return
        try:
            self._check()
            try:
                self._look_at_files()
            except (FileGone, NotRegular) as fault:
                self._give_up(fault)
                raise self._broken(fault) from fault
        finally:
            self._guard.release()

    def _look_at_files(self) -> None:
        self._segments.stream.check()
        if not self._lock.is_in_place():
            raise FileGone(
                f"{self._directory / LOCK} was removed or replaced: another writer may be at work here"
            )
        for entry in self._segments.missing():
            raise FileGone(
                f"{self._directory}: the segment with the records from offset {entry.first_offset} to "
                f"{entry.end_offset - 1} was removed"
            )
        if self._mark.keep(self.end_offset, self._segments.growing):
            _log.warning("%s: the file %s was gone, and is made again", self._directory, MARK)

    def sync(self) -> None:
        """Make durable what was appended so far, whatever `sync` is.

        Raises:
            JournalError, ClosedError, OwnershipError: as `append`.
        """
        with self._guard:
            self._check()
            self._sync()
            self._check()

    def _sync(self) -> None:
        try:
            self._segments.stream.sync()
            self._is_dirty = False
        except OSError as error:
            self._fault = error
            _log.error("%s: %s", self._directory, error)

    def _tick(self) -> None:
        with self._guard:
            if self._is_dirty and not self._is_closed and self._fault is None:
                self._sync()

    @property
    def journal(self) -> str:
        """The id of the journal: 32 hexadecimal digits, made when it was."""
        return self._segments.growing.journal

    @property
    def end_offset(self) -> int:
        """The offset after the last record: that of the next one."""
        return self._segments.stream.end_offset

    def close(self) -> None:
        """Make everything durable, unless `sync` is `"never"`, and let others write. Again does nothing.

        Raises:
            JournalError: the system failed to make it durable, or somebody has taken the file away; the
                writer is closed all the same.
        """
        if self._is_closed or self._owner != os.getpid():
            return
        if sys.is_finalizing():
            # The other threads are stopped, perhaps with a lock. The next writer seals the segment.
            self._is_closed = True
            if self._sync_mode != "never" and self._fault is None:
                self._sync()
            return
        if self._ticker is not None:
            self._ticker.stop()
        with self._guard:
            self._is_closed = True
            if self._sync_mode != "never" and self._fault is None:
                self._sync()
            if self._fault is None:
                with suppress(FileGone):
                    self._check_place()
            if self._fault is None and self._seals_on_close and self._segments.stream.started is not None:
                self._seal_the_last()
            self._segments.close()
            self._mark.close()
            self._lock.release()
        if self._fault is not None:
            raise self._broken(self._fault)

    def _seal_the_last(self) -> None:
        try:
            self._begin_segment(is_appending=False)
        except SystemFault as fault:
            if self._fault is None:
                _log.warning("%s: the last segment stays a stream: %s", self._directory, fault.error)

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """Let others write, should nobody have closed it."""
        if not self._is_closed and self._owner == os.getpid():
            warnings.warn(f"a writer of {self._directory} was not closed", ResourceWarning, 2, self)
            self.close()


_open: WeakSet[Writer] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the writers that the program did not close."""
    close_all(_open)


def _weakly(method: Callable[[], T]) -> Callable[[], T | None]:
    """Return a function for a thread: it calls a method, and does not keep the object of the method."""
    found = WeakMethod(method)
    return lambda: call() if (call := found()) else None


def _check_sizes(**sizes: float) -> None:
    for name, value in sizes.items():
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a number, not {type(value).__name__}")
        if not value > 0:  # so that NaN is refused too
            raise ValueError(f"{name} is greater than 0, not {value}")
