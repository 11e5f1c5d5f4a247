"""Waits that a signal handler interrupts, and that runs for longer than was left of their time."""

import signal
import threading
import time

from support.waiting import DEADLINE, Thread, wait_until_stuck


class NeverEndedError(AssertionError):
    """The wait went on though its time was over."""


def outlast(wait, seconds):
    """Wait in the main thread, and interrupt that by a handler that returns when the time is over.

    Args:
        wait: is called with `seconds`, and waits as long.
        seconds: enough that the handler begins in the middle.

    Returns:
        What `wait` gives or raises. `NeverEndedError` where it goes on for ever.
    """
    assert threading.current_thread() is threading.main_thread()
    is_last = threading.Event()

    def handler(*_):
        if is_last.is_set():
            raise NeverEndedError
        time.sleep(max(0.0, began + seconds + 0.05 - time.monotonic()))

    def interrupt():
        begun.wait(DEADLINE)
        wait_until_stuck(threading.main_thread())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        if not over.wait(seconds + DEADLINE / 4):
            is_last.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before, begun, over = signal.signal(signal.SIGUSR1, handler), threading.Event(), threading.Event()
    other = Thread(interrupt)
    try:
        began = time.monotonic()
        begun.set()
        return wait(seconds)
    finally:
        over.set()
        other.outcome()
        signal.signal(signal.SIGUSR1, before)
