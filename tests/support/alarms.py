"""SIGALRM at an interval."""

import signal
from contextlib import contextmanager


@contextmanager
def alarms(handler, interval):
    """Call a signal handler every `interval` seconds.

    A handler that does nothing stays in place. The default action would end the process if a last signal were
    still on its way.
    """
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, lambda *_: None)
