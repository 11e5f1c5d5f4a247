"""Signals that end a command: Ctrl-C (SIGINT) and SIGTERM.

The first signal ends the command in order. Its handler calls the function that the command gave to `stop_on_signals`.
If there is no such function, it raises an exception in the main thread. A second Ctrl-C ends the process at once. A
second SIGTERM is ignored.
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
# `timeout` sends a signal to its child and then to the process group of the child, microseconds later.
_REPEAT_SECONDS = 0.1


class StopSignals:
    """Handler of SIGINT and SIGTERM for one run of a command."""

    def __init__(self) -> None:
        """Create a handler that raises an exception at the first signal."""
        self.stop: Callable[[], object] | None = None
        self._first: float | None = None
        self._number: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        """Handle a signal, as the module describes."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._number = now, number
            # SIGTERM is ignored from now on. Python restores the default of a handled signal before the process ends.
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

        If a signal has come, the handler stays installed, so that a repeated SIGTERM does not interrupt the end.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, action in before.items():
            # A shell without job control starts background commands with SIGINT ignored.
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
    """Call `stop` at the first SIGINT or SIGTERM, in place of an exception; yield the handler.

    Only the main thread may call this function.
    """
    found = [item for item in map(signal.getsignal, _SIGNALS) if isinstance(item, StopSignals)]
    handler = found[0] if found else StopSignals()
    before, handler.stop = handler.stop, stop
    if handler._first is not None:
        # The signal came in an outer block, or Python has dropped its exception, as in a callback of a weak reference.
        stop()
    # A service handles SIGINT even if the shell ignores it, so that a script can end the service with `kill -INT`.
    for number in _SIGNALS:
        signal.signal(number, handler)
    try:
        yield handler
    finally:
        handler.stop = before


def hold_signals() -> AbstractContextManager[object]:
    """Defer a first signal that comes in a `with` block until `stop_on_signals`.

    Without the block, the signal could raise an exception in a constructor, and sockets would stay open.
    """
    return stop_on_signals(lambda: None)
