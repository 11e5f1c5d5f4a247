"""How a signal ends a command that runs until then."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.01  # seconds after which a signal that came at a bad moment is sent again
_SAME = 1.0  # seconds within which a second Ctrl-C is taken for the first: `timeout` sends each signal twice


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt` for certain, where Python's own handler is in place."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _put_off(number, frame):
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _put_off(number: int, frame: FrameType | None) -> bool:
    """Send a signal again a moment later, if what its handler raises now would be lost; tell whether it is.

    The wheels of pyzmq for Python 3.12 and later are made by Cython for the limited API. It makes the frame
    of a traceback, such as that of each `zmq.Again`, by evaluating `_getframe()`, and drops whatever is
    raised meanwhile. Source: `__Pyx_AddTraceback` in Cython's Utility/Exceptions.c.
    """
    # Also further out: when it comes again too soon, this very function may still be at work there.
    while frame is not None and frame.f_code.co_names != ("_getframe",):
        frame = frame.f_back
    if frame is None:
        return False
    main = threading.main_thread().ident
    send = getattr(signal, "pthread_kill", lambda _main, one: signal.raise_signal(one))
    again = threading.Timer(_AGAIN, send, (main, number))
    again.daemon = True
    again.start()
    return True


@contextmanager
def ended_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM; what comes after it lets the command end in order.

    Only a Ctrl-C that comes a second later or more does what it otherwise does.
    """
    came: float | None = None

    def end(number: int, _frame: object) -> None:
        nonlocal came
        if came is None:
            came = time.monotonic()
            stop()
        elif number == signal.SIGINT and time.monotonic() - came >= _SAME:
            signal.signal(number, before[signal.SIGINT])
            signal.raise_signal(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if came is None:
            for number, action in before.items():
                signal.signal(number, action)
        else:
            # What is open is closed from here on, up to the end of the process.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise `SystemExit`, so that what is open is closed, also when it comes again meanwhile."""

    def end(number: int, frame: FrameType | None) -> None:
        if _put_off(number, frame):
            return
        signal.signal(number, signal.SIG_IGN)
        # What a shell says of a program that a signal ended.
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)
