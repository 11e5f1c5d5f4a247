"""One archiver at a time."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from oz.errors import LakeError


class LakeLock:
    """The right to change a lake; the system takes it back when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Take it.

        Raises:
            LakeError: another archiver has it.
        """
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            self.release()
            raise LakeError(
                f"{path.parent.parent}: another archiver is at work on this lake (process "
                f"{holder or 'unknown'}); wait for its end"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.release()


_held: weakref.WeakSet[LakeLock] = weakref.WeakSet()


def _leave_it_to_the_parent() -> None:
    # A forked child has a copy of the descriptor, and the lock would outlive the archiver in it.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_it_to_the_parent)
