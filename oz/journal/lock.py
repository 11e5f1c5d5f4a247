"""One process at a time: of the writers of a journal, and of others who say who they are."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from oz.errors import JournalError, OzError
from oz.journal import files
from oz.system import LOCK_EX, LOCK_NB, LOCK_UN, after_fork, flock


class ProcessLock:
    """A lock on a file; the system takes it back when the process ends, however it ends."""

    def __init__(self, path: Path, refusal: Callable[[str], OzError]) -> None:
        """Take it.

        Args:
            path: the file; made if it is not there. It has the number of the process that took it last.
            refusal: makes the error from the number of the process that has it, or `unknown`.

        Raises:
            OzError: someone else has it: what `refusal` made.
            OSError: no regular file is in its place, or another fault of the system.
        """
        self._path = path
        self._descriptor: int | None = files.open_to_write(path, mode=0o600)
        try:
            flock(self._descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            self.abandon()
            raise refusal(holder or "unknown") from None
        with contextlib.suppress(OSError):  # a full disk: the number is for people only
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def is_in_place(self) -> bool:
        """Whether the file is the one that has its name, still: otherwise somebody else may lock another."""
        if self._descriptor is None:
            return False
        try:
            found = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self._descriptor)
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

    def release(self) -> None:
        """Release it; a second time does nothing."""
        if self._descriptor is not None:
            # Closing is not enough: what another thread starts has a copy until it runs its program.
            flock(self._descriptor, LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Close its file, without a word: in the child of a fork the lock stays the parent's."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.release()


class WriterLock(ProcessLock):
    """The right to write a journal."""

    def __init__(self, directory: Path) -> None:
        """Take it.

        Raises:
            JournalError: someone else has it, or something that is no file is in its place.
        """
        path = directory / files.LOCK
        try:
            super().__init__(
                path,
                lambda holder: JournalError(
                    f"{directory}: a writer is at work on this journal (process {holder}); "
                    "there can be only one"
                ),
            )
        except files.NotRegular as error:
            raise JournalError(str(error)) from None


_held: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _leave_it_to_the_parent() -> None:
    # A forked child has a copy of the descriptor, and the lock would outlive its holder in it.
    for lock in list(_held):
        lock.abandon()


after_fork(_leave_it_to_the_parent)
