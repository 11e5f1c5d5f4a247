"""The waiting of commands: for what comes, for the signal that ends them, and for the end of their reader.

Where nothing comes from where a command connects to, it says why.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from math import ceil, inf
from threading import Thread, Timer
from typing import Any

import zmq

from oz.cli.stop_signals import stop_on_signals
from oz.sync.waiting import Bell
from oz.system import POLLIN, make_poll
from oz.transport.endpoints import addresses_of
from oz.transport.mechanisms import NULL, mechanism_at

_LONGEST = 1e6
"""Seconds of one wait at most."""


class Waiting:
    """Waits on behalf of a command that prints what comes, until something has come.

    A signal ends the wait too, and so does the end of whoever reads stdout, where that is a pipe: `oz sub … |
    head -1` would otherwise stay until the next message.
    """

    def __init__(self, bell: Bell) -> None:
        """Listen to nothing but a bell.

        Args:
            bell: rung by signals, and by whatever is no socket.
        """
        self.bell = bell
        self._poller = zmq.Poller()
        self._poller.register(bell, zmq.POLLIN)
        self._stdout = _pipe_of_stdout()
        if self._stdout is not None:
            # Errors alone, of which the end of the reader is one.
            self._poller.register(self._stdout, zmq.POLLERR)

    def add(self, socket: zmq.Socket[Any]) -> None:
        """Wait for a socket too."""
        self._poller.register(socket, zmq.POLLIN)

    def wait(self, until: float) -> None:
        """Wait until something has come.

        Args:
            until: `time.monotonic()` at which to return at the latest; infinite for never.

        Raises:
            BrokenPipeError: nobody reads stdout any more.
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
    """Take the first SIGINT or SIGTERM for the end of a command; gives what waits for it.

    For a `with` block in the main thread. No lock or queue will do: the system may give the signal to another
    thread, or right before the wait begins, and neither ends the wait of this one.
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


_ASKED = ("tcp", "ipc")


def trouble_at(endpoint: str, *, has_keys: bool) -> str | None:
    """Return why nobody can be heard at an endpoint, in words; None where somebody may be.

    It takes a second at most, and connects for a moment: ZeroMQ itself says nothing and tries for ever.

    Args:
        endpoint: where a command connects to.
        has_keys: whether it has keys to show.
    """
    if endpoint.partition("://")[0] not in _ASKED:
        return None
    if not addresses_of(endpoint):
        return f"{endpoint}: no such host is known; trying again"
    mechanism = mechanism_at(endpoint)
    if mechanism is None:
        return f"nobody answers at {endpoint} yet; trying again"
    if mechanism != NULL and not has_keys:
        return f"{endpoint} demands keys ({mechanism}) and hears nobody without: give --security FILE"
    return None


@contextmanager
def reporting_trouble(
    endpoints: Iterable[str], seconds: float, say: Callable[[str], object], *, has_keys: bool
) -> Iterator[Callable[[], None]]:
    """Say after so many seconds at which endpoints nobody is; gives what says that somebody was heard.

    Args:
        endpoints: where the command connects to.
        seconds: for which something may take.
        say: is told each in words, by another thread.
        has_keys: whether the command has keys to show.
    """

    def ask(endpoint: str) -> None:
        why = trouble_at(endpoint, has_keys=has_keys)
        if why is not None and not timer.finished.is_set():
            say(why)

    def ask_all() -> None:
        # Each takes its time where nobody says no.
        for one in endpoints:
            Thread(target=ask, args=(one,), daemon=True).start()

    timer = _Asking(seconds, ask_all)
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


class _Asking(Timer):
    """A timer that counts as finished when somebody says so, and not as it goes off."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        super().__init__(seconds, do)
        self.daemon = True

    def run(self) -> None:
        if not self.finished.wait(self.interval):
            self.function()
