"""The waiting of services: for sockets, until something is due, or until somebody rings."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil, inf
from typing import Protocol

LOOK_SECONDS = 0.1
"""Seconds between two calls of a `look` that does not say when it wants the next."""


class Pollable(Protocol):
    """The poller that a service waits with: `zmq.Poller`, or `oz.Poller`."""

    def poll(self, timeout: int) -> object:
        """Wait so many milliseconds at most; -1 is for ever."""


class Bell:
    """Wakes a service that waits; any thread or signal handler may ring it."""

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


def wait(poller: Pollable, until: float) -> None:
    """Wait until something can be read, or a time of the monotonic clock; `inf` is for ever."""
    left = until - time.monotonic()
    poller.poll(-1 if left == inf else ceil(min(max(0.0, left * 1000), 2**31 - 1)))


def look_again(look: Callable[[], object] | None) -> float:
    """Call what is to be called after each turn, if there is anything; return when it is next, at the latest.

    If it returns a float, that is the time of the monotonic clock at which it is to be called again; if not,
    it is called ten times a second.
    """
    if look is None:
        return inf
    wanted = look()
    return wanted if type(wanted) is float else time.monotonic() + LOOK_SECONDS
