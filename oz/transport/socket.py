"""The common part of all sockets: keepalive, marks, how they are shown, and the end of their context."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from math import inf
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.transport.authenticator import is_authenticated
from oz.transport.backend import backend_of
from oz.transport.backoff import growing

_log = peer_logger("oz.socket")

MOST_WAITING = 2**31 - 1
"""The highest mark that ZeroMQ takes."""

HIGH_WATER_MARK = 100_000
"""Messages that may wait on each side for one peer, unless said otherwise; ZeroMQ's own is 1,000."""

_SHOWN = 5
"""Endpoints and patterns that a `repr` shows at most."""

CONNECT_TIMEOUT = (zmq.CONNECT_TIMEOUT, 5_000)
"""Milliseconds for an attempt to connect. Within the system's own two minutes it asks less and less often, so
that a host that is back is called up to a minute later. docs/libzmq.md"""

KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 30),
    (zmq.TCP_KEEPALIVE_INTVL, 5),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    CONNECT_TIMEOUT,
)
"""Have the system notice within 45 s that the other end of a quiet TCP connection is gone.
docs/libzmq.md"""

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` waits at most for what was published to be sent."""

_PATIENCE = 10.0
"""Seconds that libzmq's threads have at least to end, on a machine with much else to do."""
_LONGEST_JOIN = 1e6
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5

LINK_KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 1),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    # What was sent and is not acknowledged in so many milliseconds.
    (zmq.TCP_MAXRT, 5_000),
    CONNECT_TIMEOUT,
)
"""Have the system notice within 5 s that a host is gone. Not ZMTP's heartbeats: with a receive queue that is
full they end the process (libzmq issues 3937, 4364 and 4767, open in 2026)."""

RECONNECT_MS = 100
LONGEST_RECONNECT_MS = 5_000
"""Milliseconds before a link is tried anew, and the most that this grows to; libzmq adds jitter."""


def limit_peers(socket: zmq.Socket[Any], limits: Limits = DEFAULT_LIMITS, most: float | None = None) -> None:
    """Bound what peers may send, and how long they take to begin, unless the socket's context says otherwise.

    libzmq cuts a peer off that sends a larger frame or does not finish ZeroMQ's handshake. It does not
    connect again to whoever has sent too much: docs/limits.md.

    Args:
        socket: one without endpoints: it counts for those that come later.
        limits: what holds for it.
        most: bytes of a frame, where the protocol has fewer than `limits`, whatever the context says.
    """
    chosen, backend = socket.context.sockopts, backend_of(socket)
    size, seconds = min(limits.message_size, most or inf), limits.handshake
    bytes_of_frame = -1 if size == inf else int(size)
    # None at all is 0 for libzmq.
    milliseconds = 0 if seconds == inf else max(1, round(seconds * 1000))
    if most is None:
        bytes_of_frame = chosen.get(zmq.MAXMSGSIZE, bytes_of_frame)
    backend.set(socket, zmq.MAXMSGSIZE, bytes_of_frame)
    backend.set(socket, zmq.HANDSHAKE_IVL, chosen.get(zmq.HANDSHAKE_IVL, milliseconds))


def keep_link_alive(socket: Any) -> None:
    """Notice a link of a node that is cut without a word, and try it anew soon."""
    for option, value in LINK_KEEPALIVE:
        socket.set(option, value)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, LONGEST_RECONNECT_MS)


_ending: weakref.WeakKeyDictionary[zmq.Context[Any], threading.Lock] = weakref.WeakKeyDictionary()
"""What one thread at a time has that ends a context."""


def end_context(
    context: zmq.Context[Any],
    timeout: float,
    closed_at: float | None = None,
) -> None:
    """Wait until all is sent or the linger is over: ending the context is the only way to know.

    Args:
        context: its sockets are closed, or it closes them.
        timeout: seconds of linger that are left; infinite for as long as it takes.
        closed_at: when closing began, by the monotonic clock; None is now.
    """
    started = time.monotonic() if closed_at is None else closed_at
    if not isinstance(context, zmq.Context):
        # A model's: it keeps no thread, and lets time pass by itself.
        context.destroy()
        return
    if sys.is_finalizing():
        # Python 3.11 would wait for ever for a thread to start, and later ones start none.
        _end_at_last(context)
        return
    # In a thread: term() takes no timeout, and whatever libzmq waits for, closing has an end. It also closes
    # a monitor that was left open, for which term() would wait for ever.
    over, alone = threading.Event(), _ending.setdefault(context, threading.Lock())

    def end() -> None:
        try:
            # Whoever closes again, after Ctrl-C, may come while this goes on: libzmq would free it twice.
            with alone:
                context.destroy()
        finally:
            over.set()

    ending = threading.Thread(target=end, name="oz-ending", daemon=True)
    try:
        ending.start()
    except RuntimeError:
        # From 3.12 on that begins before `is_finalizing` tells.
        _end_at_last(context)
        return
    if timeout < _LONGEST_JOIN:
        ending.join(timeout + _PATIENCE)
    else:
        # Not for ever: that would not end by a signal that the system gives to another thread.
        for pause in growing(_FIRST_PAUSE, _LONGEST_PAUSE):
            if over.wait(pause):
                return
    if ending.is_alive():
        text = "closed, but ZeroMQ has not ended its context %g s after its time; messages may be unsent"
        _log.warning(text, _PATIENCE)
    elif 0 < timeout <= time.monotonic() - started:
        _log.warning("closed after %g s with messages still unsent", timeout)


def _end_at_last(context: zmq.Context[Any]) -> None:
    """End a context while the interpreter ends: no thread of Python's goes on that could close its socket."""
    if not is_authenticated(context):
        context.destroy()
