"""Waits of commands: for messages, for a signal that ends the command, and for the end of the reader of stdout."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import ceil, inf

import zmq

from oz.cli.stop_signals import stop_on_signals
from oz.system import POLLIN, make_poll
from oz.transport.bell import Bell

_LONGEST = 1e6
"""Seconds of one wait at most."""


class Waiting:
    """Wait of a command that prints messages.

    News of a descriptor, a signal, or the end of the reader of stdout ends the wait. Without the last, `oz sub … |
    head -1` would run until the next message.
    """

    def __init__(self, bell: Bell) -> None:
        """Wait for a bell only.

        Args:
            bell: rung by signals, and by subscriptions of nodes.
        """
        self.bell = bell
        self._poller = zmq.Poller()
        self._poller.register(bell, zmq.POLLIN)
        self._stdout = _pipe_of_stdout()
        if self._stdout is not None:
            # Errors alone, of which the end of the reader is one.
            self._poller.register(self._stdout, zmq.POLLERR)

    def add(self, descriptor: int) -> None:
        """Wait for a descriptor too."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, until: float) -> None:
        """Wait for news.

        Args:
            until: `time.monotonic()` at which to return at the latest; infinite for never.

        Raises:
            BrokenPipeError: the reader of stdout has closed its end.
        """
        left = until - time.monotonic()
        events = dict(self._poller.poll(None if left == inf else ceil(1000 * min(max(0.0, left), _LONGEST))))
        self.bell.hear()
        if self._stdout in events:
            raise BrokenPipeError


@contextmanager
def listening() -> Iterator[Waiting]:
    """Make a `Waiting` for a `with` block in the main thread."""
    with closing(Bell()) as bell, bell.rung_by_signals():
        yield Waiting(bell)


@contextmanager
def await_signal() -> Iterator[Callable[[], None]]:
    """End a command at the first SIGINT or SIGTERM; yield the function that waits for the signal.

    For a `with` block in the main thread. A lock or queue does not work: the system may deliver the signal to
    another thread, or right before the wait begins, and then the wait of this thread does not end.
    """
    has_come = False

    def note() -> None:
        nonlocal has_come
        has_come = True

    with closing(Bell()) as bell, stop_on_signals(note):
        poll = make_poll()
        poll.register(bell, POLLIN)

        def wait() -> None:
            with bell.rung_by_signals():
                while not has_come:
                    poll.poll()
                    bell.hear()

        yield wait


def _pipe_of_stdout() -> int | None:
    """Return the descriptor of stdout, if it is a pipe or socket whose reader may go away."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # a test's stdout is no file
        return None
    # Elsewhere nothing but writing tells.
    has_poll = hasattr(select, "poll")
    return descriptor if has_poll and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) else None
