"""Descriptor by which one thread wakes another thread that waits in `poll`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_ONE = (1).to_bytes(8, sys.byteorder)


class WakeUp:
    """Descriptor that `wake` makes readable and `clear` makes unreadable. Any thread may call `wake`."""

    _read = _write = -1

    def __init__(self) -> None:
        """Create an eventfd, or a pipe if the system has no eventfd."""
        if hasattr(os, "eventfd"):
            self._read = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)
        self._may_be_readable = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Make the descriptor readable. After `close` it has no effect."""
        # An eventfd takes a number of eight bytes. OSError: the pipe is full, which means that it is readable already.
        with suppress(OSError):
            os.write(self._write, _ONE)
        # Set the flag after the write, so that `clear` never misses a written byte.
        self._may_be_readable = True

    def clear(self) -> None:
        """Make the descriptor unreadable."""
        if not self._may_be_readable:
            return
        self._may_be_readable = False
        try:
            with suppress(OSError):
                while os.read(self._read, 1024) and self._read != self._write:
                    pass
        except BaseException:
            # A signal handler has raised an exception, so that the descriptor may still be readable.
            self._may_be_readable = True
            raise

    def close(self) -> None:
        """Close the descriptor. A second call has no effect."""
        descriptors = {self._read, self._write} - {-1}
        self._read = self._write = -1
        for descriptor in descriptors:
            os.close(descriptor)

    def __del__(self) -> None:
        """Close the descriptor."""
        self.close()
