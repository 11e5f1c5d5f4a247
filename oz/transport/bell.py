"""Bell that wakes a thread out of a wait for descriptors."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Bell:
    """Wakes a thread that waits for descriptors; any thread or signal handler may ring it."""

    __slots__ = ("_bell", "_ringer")

    def __init__(self) -> None:
        """Make it; `close` releases its two descriptors."""
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when it was rung."""
        return self._bell.fileno()

    def ring(self) -> None:
        """Ring it; does nothing when it is closed."""
        # Full: then it was rung, and nobody has come yet.
        with suppress(OSError):
            self._ringer.send(b"!")

    def hear(self) -> bool:
        """Tell whether it was rung since the last call."""
        was_rung = False
        with suppress(OSError):
            while self._bell.recv(4096):
                was_rung = True
        return was_rung

    @contextmanager
    def rung_by_signals(self) -> Iterator[None]:
        """Let signals ring it as well, in the main thread.

        A handler runs between two steps of Python only: a signal that comes right before a wait begins would
        be seen when that ends, which may be never. What the system writes to a descriptor ends it at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def close(self) -> None:
        """Close it. A second call does nothing."""
        self._bell.close()
        self._ringer.close()
