"""Services that run in one thread: the thread that calls `run` attends to the engine of the service."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from math import inf
from typing import Any, Protocol, Self

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.numbers import check_number, check_wait
from oz.program_end import close_all
from oz.publisher.thread import Attendance, Attended
from oz.services.waiting import Bell, call_on_poll
from oz.transport.steps import Steps, run

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` waits for peers that acknowledge."""
_FAILURE_PAUSE = 0.1  # Seconds after a round that failed.

_log = peer_logger("oz.services")


class ServiceEngine(Attended, Protocol):
    """Engine of a service: that of a node, or of several nodes."""

    @property
    def is_foreign(self) -> bool:
        """Whether this is the child of a fork."""

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Wait for peers that acknowledge; return the end of the timeout."""

    def finish(self, end: float) -> int:
        """Say BYE and close the sockets."""

    def end_context(self) -> None:
        """Terminate the contexts."""


class Service:
    """Service of one engine. `run` attends to the engine until `stop`."""

    def __init__(self, engine: ServiceEngine) -> None:
        """Start without attention.

        Args:
            engine: of the service.
        """
        self._service_engine = engine
        self._attendance = Attendance(engine)
        self._is_stopping = self._is_closed = False
        self._idle = threading.Event()
        self._idle.set()
        _open.add(self)

    def run(self, look: Callable[[], object] | None = None) -> None:
        """Serve until `stop` or `close` is called.

        Args:
            look: called after each round in this thread, and ten times a second, or at the time of the monotonic
                clock that it returns as a float.
        """
        self._idle.clear()
        again: float = 0.0
        try:
            with closing(Bell()) as bell, bell.rung_by_signals():
                self._attendance.more_descriptors = (bell.fileno(),)
                while not self._is_stopping:
                    try:
                        self._round(again)
                    except ClosedError:
                        return
                    except Exception:
                        _log.exception("a round of %r failed; it goes on", self)
                        time.sleep(_FAILURE_PAUSE)
                    bell.clear()
                    again = call_on_poll(look)
        finally:
            self._attendance.more_descriptors = ()
            self._idle.set()

    def turn(self, seconds: float = 0.0) -> None:
        """Do what is due.

        Args:
            seconds: to wait at most if nothing is due.
        """
        check_number("seconds", seconds)
        self._round(time.monotonic() + seconds)

    def _round(self, until: float) -> None:
        self._attendance.turn(None if until == inf else until)

    def stop(self) -> None:
        """End `run`. Any thread or signal handler may call this."""
        self._is_stopping = True
        self._attendance.wake()

    def close(self, *, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """End `run`, send what waits, and leave. A second call does nothing.

        Args:
            timeout: seconds to wait for peers that acknowledge; None waits as long as they do.
        """
        check_wait("timeout", timeout)
        engine = self._service_engine
        # At the end of the interpreter a thread in `run` is stopped, and never becomes idle.
        if self._is_closed or engine.is_foreign or sys.is_finalizing():
            return
        self.stop()
        self._idle.wait()
        self._is_closed = True
        _open.discard(self)
        engine.finish(run(engine.acknowledgements(timeout), self._attendance.turn))
        engine.end_context()

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`."""
        self.stop()
        if self._idle.wait(timeout):
            self.close(timeout=timeout)

    def __enter__(self) -> Self:
        """Return the service; the `with` block closes it."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Close."""
        self.close()


_open: weakref.WeakSet[Service] = weakref.WeakSet()
"""Services that are not closed, so that the end of the program closes them."""


@atexit.register
def _close_all() -> None:
    close_all(_open)
