"""How a signal ends a command that runs until then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.01  # seconds after which a signal that came at a bad moment is sent again


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
    """Call `stop` at the first SIGINT or SIGTERM; the second does what it otherwise does."""

    def end(_number: int, _frame: object) -> None:
        stop()
        for number, action in before.items():
            signal.signal(number, action)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise `SystemExit`, so that what is open is closed; a second one ends it at once."""

    def end(number: int, frame: FrameType | None) -> None:
        if _put_off(number, frame):
            return
        signal.signal(number, before)
        # What a shell says of a program that a signal ended.
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
