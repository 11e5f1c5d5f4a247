"""Closing of open objects at the end of a program.

Python ends a program in four steps. First, it joins all threads except daemons. Second, it calls the functions of
`atexit`. Third, it stops the daemons at any instruction. Last, it destroys the remaining objects. If a `close` waits
for a thread in the last step, it never returns. Therefore `close_all` closes objects with threads in the second step. A
`close` in the last step checks `sys.is_finalizing`, and does not wait for a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from math import inf
from typing import Protocol

from oz.errors import ClosedError
from oz.logs import logger

CLOSE_TIMEOUT = 3.0  # seconds, for all objects together
MIN_TIMEOUT = 0.05  # seconds, for each object

_log = logger("oz")

_ends_at = inf


class Closable(Protocol):
    """Object that `close_all` closes at the end of a program."""

    def _close_at_exit(self, timeout: float) -> None:
        """Close within `timeout` seconds."""


def close_all(open_objects: Iterable[Closable]) -> None:
    """Close objects that a program has not closed. Functions of `atexit` call this function."""
    global _ends_at
    _ends_at = min(_ends_at, time.monotonic() + CLOSE_TIMEOUT)
    for owner in list(open_objects):
        try:
            owner._close_at_exit(max(MIN_TIMEOUT, _ends_at - time.monotonic()))
        except Exception as error:
            _log.warning(
                "an object that the program did not close failed to close at its end: %s. Use `with`, or call close()",
                error,
            )


def check_running(kind: str) -> None:
    """Raise ClosedError after a call of `close_all`, because no code would close a new object."""
    if _ends_at < inf:
        raise ClosedError(
            f"the program ends, and a new {kind} would never be closed; an atexit function that needs one must "
            "be registered after the import of oz, so that Python calls it earlier"
        )


def end_daemon() -> None:
    """End the calling thread if it is a daemon and the program ends. Methods of closed objects call this function.

    If a method raised ClosedError instead, each daemon that still publishes at the end of the program would print a
    traceback.

    Raises:
        SystemExit: `close_all` was called, and the thread is a daemon. Python prints nothing for this exception.
    """
    if _ends_at < inf and threading.current_thread().daemon:
        raise SystemExit
