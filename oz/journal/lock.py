"""One writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from pathlib import Path

from oz.errors import JournalError
from oz.journal import files


class WriterLock:
    """The right to write a journal; the system takes it back when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        """Take it.

        Raises:
            JournalError: someone else has it.
        """
        self._descriptor: int | None = os.open(directory / files.LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            self.release()
            raise JournalError(
                f"{directory}: a writer is at work on this journal (process {holder or 'unknown'}); "
                "there can be only one"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the number is for people only
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _leave_it_to_the_parent() -> None:
    # A forked child has a copy of the descriptor, and the lock would outlive the writer in it.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_it_to_the_parent)
