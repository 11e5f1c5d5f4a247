"""The poller that knows which messages a pattern refuses."""

from __future__ import annotations

import time
from math import ceil
from typing import Any

import zmq

_POLLIN = int(zmq.POLLIN)


class FilteredSocket:
    """Base of sockets that refuse some of the messages that libzmq has for them."""

    def _has_message(self) -> bool:
        """Skip refused messages, and return whether a receive would return at once."""
        raise NotImplementedError


class Poller(zmq.Poller):
    """A `zmq.Poller` that reports an `oz.SubSocket` readable only for a message that matches.

    Other sockets and file descriptors are polled as `zmq.Poller` polls them.
    """

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """Wait for events, as `zmq.Poller.poll`.

        A message that was reported is kept for the next receive of its socket. Receive it before another
        poller than `oz.Poller` waits for the socket.

        Args:
            timeout: milliseconds; None or a negative number waits for ever.

        Returns:
            Pairs of socket and mask of events.

        Raises:
            zmq.ZMQError: a socket is closed, or its context has ended.
        """
        filtered = [
            socket for socket, flags in self.sockets if isinstance(socket, FilteredSocket) and flags & _POLLIN
        ]
        if not filtered:
            return super().poll(timeout if timeout is None else int(timeout))
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        while True:
            ready = [socket for socket in filtered if socket._has_message()]
            left = -1 if deadline is None else max(0, ceil(1000 * (deadline - time.monotonic())))
            events = dict(super().poll(0 if ready else left))
            for socket in filtered:
                mask = events.pop(socket, 0) & ~_POLLIN
                if socket._has_message():
                    mask |= _POLLIN
                if mask:
                    events[socket] = mask
            if events or (deadline is not None and time.monotonic() >= deadline):
                return list(events.items())
