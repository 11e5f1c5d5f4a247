"""A poller that knows what a subscriber's patterns refuse."""

from __future__ import annotations

import time
from math import ceil
from typing import Any

import zmq

from oz.sync.publisher import Publisher
from oz.sync.subscriber import Subscriber
from oz.transport.inlet import PATIENCE_MS
from oz.transport.socket import BaseSocket


class Poller(zmq.Poller):
    """A `zmq.Poller` that reports a subscriber readable only when a wanted message is there.

    ZeroMQ reports a socket readable for a message that the pattern refuses, and knows nothing of
    messages already taken. All other sockets and file descriptors are polled as ever. Handlers run
    while it polls.
    """

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """Wait for events, as `zmq.Poller.poll`.

        Args:
            timeout: milliseconds, as in pyzmq; None waits for ever.

        Raises:
            OwnershipError: one of the sockets was made before a fork.
        """
        for socket, _ in self.sockets:
            if isinstance(socket, (BaseSocket, Publisher)):
                socket.check_owner()
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        waiting = self._waiting()
        while True:
            events = self._confirmed(super().poll(0 if waiting else self._left(deadline)), waiting)
            self._do_what_is_due(dict(events))
            if events or (deadline is not None and time.monotonic() >= deadline):
                return events

    def _left(self, deadline: float | None) -> int:
        """Give the milliseconds of one wait: slices where something may be due meanwhile."""
        left = -1 if deadline is None else max(0, ceil((deadline - time.monotonic()) * 1000))
        if any(isinstance(socket, Subscriber) and socket._has_duties for socket, _ in self.sockets):
            return PATIENCE_MS if left < 0 else min(left, PATIENCE_MS)
        return left

    def _do_what_is_due(self, events: dict[Any, int]) -> None:
        """Look after the subscribers that nothing came for: nobody reads from them meanwhile."""
        for socket, _ in self.sockets:
            if isinstance(socket, Subscriber) and socket._has_duties and socket not in events:
                socket._declare_overdue(is_idle=True)

    def _waiting(self) -> set[Any]:
        """Find the subscribers that hold a message already."""
        return {
            socket
            for socket, mask in self.sockets
            if isinstance(socket, Subscriber)
            and mask & zmq.POLLIN
            and socket._has_some
            and socket._prefetch()
        }

    def _confirmed(self, events: list[tuple[Any, int]], waiting: set[Any]) -> list[tuple[Any, int]]:
        confirmed = dict(events)
        for socket, mask in events:
            if isinstance(socket, Subscriber) and mask & zmq.POLLIN and not socket._prefetch():
                confirmed[socket] = mask & ~int(zmq.POLLIN)
        for socket in waiting:
            confirmed[socket] = confirmed.get(socket, 0) | int(zmq.POLLIN)
        return [(socket, mask) for socket, mask in confirmed.items() if mask]
