"""Waits of commands: for messages, for a signal, and for the end of the process that reads stdout."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import zmq

from oz.cli.stop_signals import stop_on_signals
from oz.system import POLLIN, make_poll
from oz.transport.bell import Bell, poll_until


class Waiting:
    """Wait of a command that prints messages.

    Three events end the wait: a readable descriptor, a signal, and the end of the process that reads stdout. Without
    the last event, `oz sub … | head -1` would run until the next message.
    """

    def __init__(self, bell: Bell) -> None:
        """Create a wait that ends when the bell rings. Signals and new messages of nodes ring the bell."""
        self.bell = bell
        self._poller = zmq.Poller()
        self._poller.register(bell, zmq.POLLIN)
        self._stdout = _pipe_of_stdout()
        if self._stdout is not None:
            # POLLERR reports that the reader of stdout has ended.
            self._poller.register(self._stdout, zmq.POLLERR)

    def add(self, descriptor: int) -> None:
        """Add a descriptor. While it is readable, waits end."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, until: float) -> None:
        """Wait for one of the events, or for a time.

        Args:
            until: end of the wait, in seconds of `time.monotonic`; infinity waits for ever.

        Raises:
            BrokenPipeError: the reader of stdout has closed its end.
        """
        events = poll_until(self._poller, until)
        self.bell.clear()
        if self._stdout in events:
            raise BrokenPipeError


@contextmanager
def listening() -> Iterator[Waiting]:
    """Yield a `Waiting` for a `with` block. Only the main thread may enter the block."""
    with closing(Bell()) as bell, bell.rung_by_signals():
        yield Waiting(bell)


@contextmanager
def await_signal() -> Iterator[Callable[[], None]]:
    """Yield a function that waits for the first SIGINT or SIGTERM. Only the main thread may enter the `with` block.

    The function waits for a descriptor, and not for a lock or a queue. The system may deliver the signal to another
    thread, or directly before the wait. A wait for a lock would then not end.
    """
    was_received = False

    def set_flag() -> None:
        nonlocal was_received
        was_received = True

    with closing(Bell()) as bell, stop_on_signals(set_flag):
        poll = make_poll()
        poll.register(bell, POLLIN)

        def wait() -> None:
            with bell.rung_by_signals():
                while not was_received:
                    poll.poll()
                    bell.clear()

        yield wait


def _pipe_of_stdout() -> int | None:
    """Return the descriptor of stdout if it is a pipe or a socket, whose reader may end; None otherwise."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # In tests stdout is not a file.
        return None
    # On a system without `poll`, only a write can detect that the reader has ended.
    has_poll = hasattr(select, "poll")
    return descriptor if has_poll and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) else None
