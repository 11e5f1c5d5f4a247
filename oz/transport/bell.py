"""Wait for sockets and descriptors, and a bell: a descriptor by which another thread ends the wait."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil, inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zmq


_MAX_POLL = 2**31 - 1  # milliseconds


def poll_until(poller: zmq.Poller, until: float) -> dict[Any, int]:
    """Wait until a socket or descriptor is ready, or until a time.

    The result is a dict from each ready socket or descriptor to its events.

    Args:
        poller: poller of pyzmq with the sockets and descriptors.
        until: end of the wait, in seconds of `time.monotonic`; `inf` waits for ever.
    """
    left = until - time.monotonic()
    return dict(poller.poll(-1 if left == inf else ceil(min(max(0.0, left * 1000), _MAX_POLL))))


class Bell:
    """Pair of sockets that wakes a thread from a wait for descriptors. Any thread or signal handler may call `ring`."""

    __slots__ = ("_bell", "_ringer")

    def __init__(self) -> None:
        """Create the sockets; `close` releases their descriptors."""
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that `ring` makes readable."""
        return self._bell.fileno()

    def ring(self) -> None:
        """Make the descriptor readable. After `close` it has no effect."""
        # OSError: the buffer is full, and the descriptor is readable already. Or `close` was called.
        with suppress(OSError):
            self._ringer.send(b"!")

    def clear(self) -> bool:
        """Return whether `ring` was called since the last call."""
        was_rung = False
        with suppress(OSError):
            while self._bell.recv(4096):
                was_rung = True
        return was_rung

    @contextmanager
    def rung_by_signals(self) -> Iterator[None]:
        """Make each signal ring the bell while a `with` block runs. Do nothing in threads other than the main thread.

        Python runs the handler of a signal only between two instructions. If a signal arrives right before a wait, its
        handler would run only after the wait, which may never end. Therefore Python writes a byte at each signal, which
        ends the wait.
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
        """Close the sockets. A second call has no effect."""
        self._bell.close()
        self._ringer.close()
