"""The housekeeper: a background thread of a writer that seals ended streams and applies retention.

The housekeeper has no reference to the writer, so that a writer that was not closed can be garbage-collected. It calls
a `tick` function, which has a weak reference to the writer. `tick` ends a segment that is too old. If the option `sync`
is a number of seconds, `tick` also syncs the stream.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from oz.errors import JournalError
from oz.journal.format import SegmentFile
from oz.journal.recovery import seal
from oz.journal.sealed import read_footer
from oz.journal.store import LocalStore
from oz.logs import logger

_RETRY = 2.0  # seconds until the next attempt after sealing or retention has failed
_LONGEST_WAIT = 3600.0  # seconds

_log = logger("oz.journal")


class Housekeeper:
    """Thread that seals streams and removes old segments."""

    def __init__(
        self,
        directory: Path,
        tick: Callable[[], float | None],
        *,
        retain_bytes: int | None,
        retain_seconds: float | None,
        sync: bool,
    ) -> None:
        """Start the thread.

        Args:
            directory: the directory of the journal.
            tick: function that does the timed work of the writer. It returns the seconds until its next call; or None
                if it need not be called before the next `wake`.
            retain_bytes: maximum size of the journal in bytes, as in `Writer`.
            retain_seconds: maximum age of records in seconds, as in `Writer`.
            sync: whether to wait until a sealed file is on the disk.
        """
        self._directory, self._tick, self._sync = directory, tick, sync
        self._retain_bytes, self._retain_seconds = retain_bytes, retain_seconds
        # `with` on this lock cannot be interrupted between its acquisition and its block, as on a condition.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pending: deque[SegmentFile] = deque()
        self._requested = self._completed = 0  # numbers of requested and completed passes
        self._is_stopping = self._is_failing = self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="oz-journal", daemon=True)
        self._thread.start()

    def wake(self, *ended: SegmentFile) -> int:
        """Request a pass. A pass seals the waiting streams, removes old segments, and calls `tick`.

        Args:
            ended: ended streams to seal.

        Returns:
            The number of the requested pass, which counts from 1.
        """
        with self._lock:
            self._pending.extend(ended)
            self._requested += 1
            self._changed.notify_all()
            return self._requested

    def wait_sealed(self, timeout: float | None) -> bool:
        """Wait until all streams are sealed and old segments are removed; return False after `timeout` seconds."""
        request = self.wake()
        with self._lock:
            return self._changed.wait_for(lambda: not self._pending and self._completed >= request, timeout)

    def stop(self, timeout: float | None = None) -> None:
        """Request a last pass, and end the thread. Wait at most `timeout` seconds."""
        with self._lock:
            self._is_stopping = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            # After an interrupted `join`, a second `join` of CPython 3.11 returns although the thread runs.
            with self._lock:
                self._changed.wait_for(lambda: self._has_ended, timeout)

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with self._lock:
                self._has_ended = True
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                request, is_last = self._requested, self._is_stopping
            self._retain()  # before sealing, because sealing needs space
            self._seal_pending()
            expiry = self._retain()
            deadline = self._tick()
            with self._lock:
                self._completed = request
                self._changed.notify_all()
                if is_last:
                    return
                delays = [expiry, deadline, _RETRY if self._is_failing else None]
                delay = min((delay for delay in delays if delay is not None), default=_LONGEST_WAIT)
                self._changed.wait_for(
                    lambda: self._requested != self._completed or self._is_stopping, min(delay, _LONGEST_WAIT)
                )

    def _seal_pending(self) -> None:
        for _ in range(len(self._pending)):
            file = self._pending[0]
            try:
                seal(self._directory, file, sync=self._sync)
            except FileNotFoundError:
                pass  # the directory was removed
            except OSError as error:
                if not self._is_failing:
                    _log.warning(
                        "%s is not sealed, and sealing is tried again: %s", self._directory / file.name, error
                    )
                self._is_failing = True
                return
            except (JournalError, pa.ArrowException) as error:
                _log.warning(
                    "%s cannot be sealed: %s; run `oz journal verify`", self._directory / file.name, error
                )
            self._is_failing = False
            with self._lock:
                self._pending.popleft()

    def _retain(self) -> float | None:
        if self._retain_bytes is None and self._retain_seconds is None:
            return None
        with suppress(OSError, JournalError):
            return remove_old(self._directory, self._retain_bytes, self._retain_seconds, time.time())
        return _RETRY


def remove_old(
    directory: Path, retain_bytes: int | None, retain_seconds: float | None, now: float
) -> float | None:
    """Remove the oldest sealed segments, while the journal is too large or their records are too old.

    The newest sealed segment is never removed.

    Args:
        directory: the directory of the journal.
        retain_bytes: maximum size of the journal in bytes, as in `Writer`.
        retain_seconds: maximum age of records in seconds, as in `Writer`.
        now: the current time, in seconds since 1970.

    Returns:
        The seconds until the next segment is too old; None if no segment can become too old.
    """
    store = LocalStore(directory)
    files = store.segments()
    sizes = {file: os.stat(directory / file.name).st_size for file in files}
    total = sum(sizes.values())
    for file in [file for file in files if file.is_sealed][:-1]:
        is_removed = retain_bytes is not None and total > retain_bytes
        if not is_removed and retain_seconds is not None:
            try:
                age = now - read_footer(store, file).times[1] / 1e6
            except JournalError:  # the footer is damaged, so the time of the last write is used
                age = now - os.stat(directory / file.name).st_mtime
            if age <= retain_seconds:
                return retain_seconds - age
            is_removed = True
        if not is_removed:
            break
        os.unlink(directory / file.name)
        total -= sizes[file]
    return None
