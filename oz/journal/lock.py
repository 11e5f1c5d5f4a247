"""Lock by which a journal has at most one writer: flock on `writer.lock`, which holds the process id of the writer."""

from __future__ import annotations

import os
from pathlib import Path

from oz.errors import JournalError
from oz.journal.format import FULL, LOCK

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class WriterLock:
    """The lock that a writer or a repair holds. The operating system releases the lock when the process ends."""

    def __init__(self, directory: Path) -> None:
        """Acquire the lock.

        Raises:
            JournalError: another writer holds the lock; the message names its process id.
            OSError: the lock file cannot be created or opened.
        """
        if fcntl is None:
            raise JournalError(f"{directory}: this operating system has no flock, which a writer needs")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor: int | None = os.open(directory / LOCK, flags, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            self.release()
            who = "this process" if holder == str(os.getpid()) else f"process {holder}"
            raise JournalError(
                f"{directory}: {who} writes to this journal; close that writer first"
            ) from None
        except OSError as error:
            # On a full disk, only the process id could not be written, and the lock is held.
            if error.errno not in FULL:
                self.release()
                raise

    def release(self) -> None:
        """Release the lock. In a child process after a fork, only close this process's copy of the descriptor."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
