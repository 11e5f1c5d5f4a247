"""The signals that end a command, which runs until then."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import CodeType, FrameType

_AGAIN = 0.01  # seconds after which a signal that came at a bad moment is sent again
_SAME = 1.0  # seconds within which a second Ctrl-C is taken for the first: `timeout` sends each signal twice

_deaf: set[CodeType] = set()
"""Functions in which what a handler raises is dropped."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C raise `KeyboardInterrupt` for certain, unless the program has a handler of its own.

    One that comes within a second of another is the same one: what is open is being closed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    # SIG_DFL: it is being loaded; see the module oz.starting.
    if not is_main or before not in (signal.default_int_handler, signal.SIG_DFL):
        yield
        return

    came = -inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if time.monotonic() - came < _SAME or _put_off(number, frame):
            return
        came = time.monotonic()
        raise KeyboardInterrupt

    def forget() -> None:
        nonlocal came
        came = -inf

    with _sent_again_if_lost(KeyboardInterrupt, signal.SIGINT, forget):
        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            # What `ended_by_signals` leaves behind stays: the end goes on.
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, before)


@contextmanager
def _sent_again_if_lost(
    kind: type[BaseException], number: int, rearm: Callable[[], object]
) -> Iterator[None]:
    """Send a signal again a moment later, where what its handler raised did not reach the program.

    Python drops what is raised in `__del__`, in the callbacks of weak references and in those of the garbage
    collector, and goes on: a line "Exception ignored in" was all that came of that Ctrl-C. Importing calls
    such callbacks too.

    Args:
        kind: what the handler raises.
        number: the signal.
        rearm: makes the handler ready for another one.
    """
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is kind and threading.current_thread() is threading.main_thread():
            rearm()
            _send_later(number)
        else:
            before(unraisable)

    # What the handler raises in the hook itself would be dropped too.
    _deaf.add(hook.__code__)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


def _put_off(number: int, frame: FrameType | None) -> bool:
    """Send a signal again a moment later, if what its handler raises now would be lost; tell whether it is.

    The wheels of pyzmq for Python 3.12 and later are made by Cython for the limited API. It makes the frame
    of a traceback, such as that of each `zmq.Again`, by evaluating `_getframe()`, and drops whatever is
    raised meanwhile. Source: `__Pyx_AddTraceback` in Cython's Utility/Exceptions.c.
    """
    # Also further out: when it comes again too soon, this very function may still be at work there, or the
    # hook of what was dropped.
    while frame is not None and frame.f_code.co_names != ("_getframe",) and frame.f_code not in _deaf:
        frame = frame.f_back
    if frame is None:
        return False
    _send_later(number)
    return True


def _send_later(number: int) -> None:
    main = threading.main_thread().ident
    send = getattr(signal, "pthread_kill", lambda _main, one: signal.raise_signal(one))
    again = threading.Timer(_AGAIN, send, (main, number))
    again.daemon = True
    again.start()


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
    """Make SIGTERM raise `SystemExit`, so that open things are closed, also when it comes again meanwhile."""

    def end(number: int, frame: FrameType | None) -> None:
        if _put_off(number, frame):
            return
        signal.signal(number, signal.SIG_IGN)
        # What a shell says of a program that a signal ended.
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with _sent_again_if_lost(SystemExit, signal.SIGTERM, lambda: signal.signal(signal.SIGTERM, end)):
            yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)
