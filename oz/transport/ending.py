"""The end of a context, which has to wait for what its sockets have still to send."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any

import zmq

_log = logging.getLogger("oz.socket")

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` waits at most for what was published to be sent."""

_PATIENCE = 3.0
"""Seconds that libzmq's threads have at least to end, on a machine with much else to do."""
_LONGEST_JOIN = 1e6
_SLICE = 0.1


def end_context(
    context: zmq.Context[Any],
    timeout: float,
    closed_at: float | None = None,
    given_up: threading.Event | None = None,
) -> None:
    """Wait until all is sent or the linger is over: ending the context is the only way to know.

    Args:
        context: its sockets are closed, or it closes them.
        timeout: seconds of linger that are left; infinite for as long as it takes.
        closed_at: when closing began, by the monotonic clock; None is now.
        given_up: ends the waiting when it is set, where that has no end of its own.
    """
    started = time.monotonic() if closed_at is None else closed_at
    if sys.is_finalizing():
        # Python 3.11 would wait for ever for a thread to start, and later ones start none.
        context.destroy()
        return
    # In a thread: term() takes no timeout, and whatever libzmq waits for, closing has an end. It also closes
    # a monitor that was left open, for which term() would wait for ever.
    ending = threading.Thread(target=context.destroy, name="oz-ending", daemon=True)
    try:
        ending.start()
    except RuntimeError:
        # From 3.12 on that begins before `is_finalizing` tells.
        context.destroy()
        return
    if timeout < _LONGEST_JOIN:
        ending.join(timeout + _PATIENCE)
    else:
        while ending.is_alive() and not (given_up is not None and given_up.is_set()):
            ending.join(_SLICE)
        return
    if ending.is_alive():
        text = "closed, but ZeroMQ has not ended its context %g s after its time; messages may be unsent"
        _log.warning(text, _PATIENCE)
    elif 0 < timeout <= time.monotonic() - started:
        _log.warning("closed after %g s with messages still unsent", timeout)
