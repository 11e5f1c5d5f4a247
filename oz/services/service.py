"""Base classes of services. They have the loop that `run` executes until `stop`, and release resources in `close`.

`oz.cli.serving` runs services as commands.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from math import inf
from typing import Protocol, Self

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.numbers import check_wait
from oz.program_end import close_all
from oz.publisher.thread import Attendance, Attended
from oz.transport.bell import Bell
from oz.transport.steps import Steps, run

CLOSE_TIMEOUT = 5.0
"""Default maximum seconds that `close` waits for acknowledgements of peers."""
POLL_INTERVAL = 0.1
"""Maximum seconds between two calls of `on_poll`, if `on_poll` does not return the time of the next call."""
_FAILURE_PAUSE = 0.1  # Seconds to wait after an exception in `NodeService._turn`.

OnPoll = Callable[[], object]
"""Function that `run` calls in its thread, at least ten times a second.

If the function returns a float, the float is the latest time of the next call, by the monotonic clock.
"""

_log = peer_logger("oz.services")


class Service:
    """Base class of services. `run` serves in the calling thread until `stop`.

    Subclasses implement `_turn` and `_release`.
    """

    def __init__(self) -> None:
        self._bell = Bell()
        self._is_stopping = self._is_closed = False
        self._owner = os.getpid()
        self._idle = threading.Event()
        self._idle.set()
        _open.add(self)

    def _turn(self, until: float) -> None:
        """Wait for a change, for the bell, or until a time of the monotonic clock. Then run the steps that are due.

        The bell (`oz.transport.bell`) rings when `stop` is called.
        """
        raise NotImplementedError

    def _release(self, timeout: float | None) -> None:
        """Close sockets, files and processes. The service calls this when `run` has ended.

        Args:
            timeout: seconds to wait for peers and processes; None sets no limit.
        """
        raise NotImplementedError

    def run(self, on_poll: OnPoll | None = None) -> None:
        """Serve until `stop` or `close` is called.

        Args:
            on_poll: function that this thread calls at least every 0.1 seconds. If the function returns a float, the
                float is the latest time of the next call, by the monotonic clock.
        """
        self._idle.clear()
        try:
            self._serve(on_poll)
        finally:
            self._idle.set()

    def _serve(self, on_poll: OnPoll | None) -> None:
        again = 0.0
        with self._bell.rung_by_signals():
            while not self._is_stopping:
                self._turn(again)
                self._bell.clear()
                if on_poll is None:
                    again = inf
                else:
                    wanted = on_poll()
                    again = wanted if type(wanted) is float else time.monotonic() + POLL_INTERVAL

    def stop(self) -> None:
        """End `run`. Any thread or signal handler may call this method."""
        self._is_stopping = True
        self._bell.ring()

    def close(self) -> None:
        """End `run`, and close the service. A second call has no effect."""
        self._close(CLOSE_TIMEOUT)

    def _close(self, timeout: float | None) -> None:
        # While the interpreter shuts down, a thread in `run` is frozen. Then `_idle` is never set.
        if self._is_closed or self._owner != os.getpid() or sys.is_finalizing():
            return
        self.stop()
        self._idle.wait()
        self._is_closed = True
        _open.discard(self)
        try:
            self._release(timeout)
        finally:
            self._bell.close()

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`. In the child of a fork, do nothing."""
        if self._owner != os.getpid():
            return
        end = time.monotonic() + timeout
        self.stop()
        if self._idle.wait(timeout):
            self._close(max(0.0, end - time.monotonic()))

    def __enter__(self) -> Self:
        """Return the service; the `with` block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServiceEngine(Attended, Protocol):
    """Engine of a `NodeService`. It runs one or more nodes."""

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Wait for acknowledgements of peers; return the time at which the wait must end."""

    def finish(self, end: float) -> int:
        """Send BYE and close the sockets."""

    def end_context(self) -> None:
        """Terminate the libzmq contexts."""


class NodeService(Service):
    """Service that runs one or more nodes in the thread that calls `run`."""

    def __init__(self, engine: ServiceEngine) -> None:
        super().__init__()
        self._service_engine = engine
        self._attendance = Attendance(engine)
        self._attendance.more_descriptors = (self._bell.fileno(),)

    def _turn(self, until: float) -> None:
        try:
            self._attendance.turn(None if until == inf else until)
        except ClosedError:
            self.stop()
        except Exception:
            _log.exception(
                "a step of %r failed, and the service continues: report this error as a fault of oz", self
            )
            time.sleep(_FAILURE_PAUSE)

    def close(self, *, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """End `run`, send the waiting messages, and leave the bus. A second call has no effect.

        Args:
            timeout: seconds to wait for acknowledgements; None waits as long as acknowledgements arrive.
        """
        check_wait("timeout", timeout)
        self._close(timeout)

    def _release(self, timeout: float | None) -> None:
        # The bell is readable after `stop`, because `run` no longer clears it. It would end each later wait at once.
        self._attendance.more_descriptors = ()
        engine = self._service_engine
        engine.finish(run(engine.acknowledgements(timeout), self._attendance.turn))
        engine.end_context()


_open: weakref.WeakSet[Service] = weakref.WeakSet()
"""Services that are not closed. They are closed when the program ends."""


@atexit.register
def _close_all() -> None:
    close_all(_open)
