"""A poller that knows what a subscriber's patterns refuse."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from math import ceil, inf
from typing import Any

import zmq

from oz.dropin import poller
from oz.dropin.poller import FilteredSocket
from oz.numbers import check_number
from oz.sync.publisher import Publisher
from oz.sync.subscriber import Subscriber
from oz.sync.waiting import Bell
from oz.transport.subscriber.receiver import LONGEST
from oz.transport.subscriber.socket import SubscriberSocket


class Poller(poller.Poller):
    """A `zmq.Poller` that reports a subscriber, or an `oz.SubSocket`, readable only for a wanted message.

    ZeroMQ reports a socket readable for a message that the pattern refuses, and knows nothing of
    messages already taken. All other sockets and file descriptors are polled as ever. Handlers run
    while it polls.
    """

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """Wait for events, as `zmq.Poller.poll`.

        Args:
            timeout: milliseconds, as in pyzmq; None waits for ever.

        Raises:
            OwnershipError: another thread uses one of the subscribers, or a socket was made before a fork.
            zmq.ZMQError: one of the sockets is closed.
        """
        if timeout is not None:
            check_number("timeout", timeout, "a number of milliseconds, or None for ever")
        for socket, _ in self.sockets:
            if isinstance(socket, (SubscriberSocket, Publisher)):
                socket.check_owner()
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        waiting = self._waiting()
        while True:
            events = self._confirmed(self._look(0 if waiting else self._left(deadline)), waiting)
            self._do_what_is_due(dict(events))
            if not events:
                # Reading tells what was found out just now.
                events = [(socket, int(zmq.POLLIN)) for socket in self._waiting()]
            if events or (deadline is not None and time.monotonic() >= deadline):
                return events

    def _look(self, timeout: int) -> list[tuple[Any, int]]:
        """Wait so many milliseconds for what ZeroMQ tells, -1 for ever.

        No socket may be closed meanwhile: libzmq would go on with freed memory. Subscribers are held, as by
        whoever receives. Publishers are not: any thread may use and close them at any time. So they are left
        out, since what becomes of them is known: as any PUB, they can always be written to, and never read.
        A bell ends the wait when one of them is closed.
        """
        publishers = [one for one in self.sockets if isinstance(one[0], Publisher)]
        others = [one for one in self.sockets if not isinstance(one[0], Publisher)]
        known = [(socket, int(zmq.POLLOUT)) for socket, mask in publishers if mask & zmq.POLLOUT]
        rung = None
        with ExitStack() as held:
            if publishers and timeout and not known:
                bell = held.enter_context(closing(Bell()))
                rung = bell.fileno()
                others.append((rung, int(zmq.POLLIN)))
                for socket, _ in publishers:
                    held.callback(socket._engine.when_closed(bell.ring))
            # Behind that: who closes one of them from now on rings.
            if any(socket.closed for socket, _ in publishers):
                raise zmq.ZMQError(zmq.ENOTSOCK)
            for socket, _ in others:
                if isinstance(socket, Subscriber):
                    held.enter_context(socket._guard)
            found = zmq.zmq_poll(others, 0 if known else timeout)
        return known + [one for one in found if one[0] != rung]

    def _left(self, deadline: float | None) -> int:
        """Return the milliseconds of one wait: until the caller's time is over, or something is due."""
        subscribers = [socket for socket, _ in self.sockets if isinstance(socket, Subscriber)]
        left = min((one._engine.declarer.seconds_left() for one in subscribers), default=inf)
        if deadline is not None:
            left = min(left, max(0.0, deadline - time.monotonic()))
        return -1 if left == inf else ceil(1000 * min(left, LONGEST))

    def _do_what_is_due(self, events: dict[Any, int]) -> None:
        """Look after the subscribers that nothing came for: nobody reads from them meanwhile."""
        now = time.monotonic()
        for socket, _ in self.sockets:
            if isinstance(socket, Subscriber) and socket not in events:
                socket._engine.declarer.look(now, is_idle=True)

    def _waiting(self) -> set[Any]:
        """Find the subscribers that hold a message already."""
        return {
            socket
            for socket, mask in self.sockets
            if mask & zmq.POLLIN
            and (
                (isinstance(socket, FilteredSocket) and socket._has_message())
                or (
                    isinstance(socket, Subscriber)
                    and socket._engine.has_news
                    and (socket._engine.prefetch() or socket._engine.is_refused)
                )
            )
        }

    def _confirmed(self, events: list[tuple[Any, int]], waiting: set[Any]) -> list[tuple[Any, int]]:
        confirmed = dict(events)
        for socket, mask in events:
            if not mask & zmq.POLLIN:
                continue
            if (isinstance(socket, Subscriber) and not socket._engine.prefetch()) or (
                isinstance(socket, FilteredSocket) and not socket._has_message()
            ):
                confirmed[socket] = mask & ~int(zmq.POLLIN)
        for socket in waiting:
            confirmed[socket] = confirmed.get(socket, 0) | int(zmq.POLLIN)
        return [(socket, mask) for socket, mask in confirmed.items() if mask]
