"""Signals that end a command: Ctrl-C (SIGINT) and SIGTERM.

At the first signal, the handler calls the function that the command has passed to `stop_on_signals`. Without this
function, it raises an exception in the main thread. A second Ctrl-C ends the process at once. A second SIGTERM is
ignored.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

INTERRUPTED = 130
TERMINATED = 143

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A second SIGINT within this time is ignored: `timeout` sends a signal to its child, and microseconds later to the
# process group of the child.
_REPEAT_SECONDS = 0.1


class StopSignals:
    """Handler of SIGINT and SIGTERM for one run of a command."""

    def __init__(self) -> None:
        """Create a handler that raises an exception at the first signal."""
        self.stop: Callable[[], object] | None = None
        self._first: float | None = None
        self._number: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        """Handle a signal; see the docstring of the module."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._number = now, number
            # SIGTERM is ignored from now on. With a handler, Python would restore the default before the process ends,
            # and a second SIGTERM would kill the process.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if self.stop is not None:
                self.stop()
            elif number == signal.SIGINT:
                raise KeyboardInterrupt
            else:
                raise SystemExit(TERMINATED)
        elif number == signal.SIGINT and now - self._first >= _REPEAT_SECONDS:
            os._exit(INTERRUPTED)

    @property
    def exit_code(self) -> int:
        """Exit code of a command that a signal has ended before its work was done."""
        return TERMINATED if self._number == signal.SIGTERM else INTERRUPTED

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the handler for a `with` block.

        If a signal has come, the handler stays installed after the block. A second signal then does not interrupt the
        end of the command.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, action in before.items():
            # An ignored SIGINT stays ignored: a shell without job control starts background commands in this way.
            if action is not signal.SIG_IGN:
                signal.signal(number, self)
        try:
            yield
        finally:
            if self._first is None:
                for number, action in before.items():
                    signal.signal(number, action)


@contextmanager
def stop_on_signals(stop: Callable[[], object]) -> Iterator[StopSignals]:
    """In a `with` block, call `stop` at the first SIGINT or SIGTERM in place of an exception; yield the handler.

    Only the main thread may call this function.
    """
    found = [item for item in map(signal.getsignal, _SIGNALS) if isinstance(item, StopSignals)]
    handler = found[0] if found else StopSignals()
    before, handler.stop = handler.stop, stop
    if handler._first is not None:
        # A signal came before this block. An outer block has deferred it, or Python has dropped its exception, for
        # example in a callback of a weak reference.
        stop()
    # A service handles SIGINT even if the shell ignores it, so that a script can end the service with `kill -INT`.
    for number in _SIGNALS:
        signal.signal(number, handler)
    try:
        yield handler
    finally:
        handler.stop = before


def hold_signals() -> AbstractContextManager[object]:
    """Defer a signal that comes in a `with` block until `stop_on_signals` is called.

    The block protects a constructor: if a signal raised an exception there, sockets would stay open.
    """
    return stop_on_signals(lambda: None)
