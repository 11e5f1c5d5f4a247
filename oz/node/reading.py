"""Reads of links by a thread that waits for a reply.

Theory of operation
-------------------
The thread of a node reads the replies, and wakes the threads that wait for them. For a lone request this costs two
changes of threads: the process is woken for the frame, and the waiting thread for its reply. So a thread that waits
may read the links itself, for `READING` seconds. The thread of the node does not poll the descriptor of the links
meanwhile, and still does everything else. This saves a sixth of the time of a lone request, and a quarter of the
processor time of its process.

The waiting thread only reads. Replies to other requests, handlers, gaps and events of links stay with the thread of
the node, which is woken for them. So inline handlers are still called in order, by one thread, and an exception of a
signal handler in the waiting thread loses no reply to another thread.

A thread that reads names its request in `_request`. An exception of a signal handler may leave it there. Then the
request has ended, or ends at its deadline, and other threads read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from oz.node.requests import Request
from oz.subscriber.connections import CLOSED, FOREIGN
from oz.system import POLLIN, make_poll
from oz.transport.runtime import REAL
from oz.transport.wakeups import WakeUp

if TYPE_CHECKING:
    from oz.node.exchange import Exchange
    from oz.node.parts import NodeSubscriber

READING = 0.02
"""Seconds for which a waiting thread reads. The thread of the node sends acknowledgements later by this time."""


class ReplyReader:
    """Place of the one thread that reads in place of the thread of the node."""

    def __init__(
        self,
        subscriber: NodeSubscriber,
        exchange: Exchange,
        has_work: Callable[[], bool],
        wake: Callable[[], object],
    ) -> None:
        """Start with the thread of the node as the reader.

        Args:
            subscriber: of the node.
            exchange: of the node.
            has_work: returns whether replies, calls or events wait for the thread of the node.
            wake: wakes the thread of the node.
        """
        self._subscriber, self._exchange = subscriber, exchange
        self._has_work, self._wake = has_work, wake
        self._wake_up: WakeUp | None = None
        self._request: Request | None = None
        self._masked = self._thread = -1

    def is_reading(self) -> bool:
        """Return whether a waiting thread reads; else see that the thread of the node does."""
        request = self._request
        if request is None:
            return False
        if not request.has_ended:
            return True
        self.ring(request)
        self._leave(request)
        return False

    def ring(self, request: Request) -> None:
        """Wake the thread that reads for a request, because the request has ended."""
        if self._request is request and self._thread != threading.get_ident() and self._wake_up is not None:
            self._wake_up.wake()

    def ring_any(self) -> None:
        """Wake the thread that reads, because a frame may wait that the descriptor does not signal."""
        if self._wake_up is not None:
            self._wake_up.wake()

    def read_for(self, request: Request) -> None:
        """Read until a request has ended, `READING` seconds at most, unless another thread reads.

        Args:
            request: that the calling thread waits for.
        """
        subscriber = self._subscriber
        if self.is_reading() or subscriber.runtime is not REAL or not subscriber.poll.can_mask:
            return
        if self._wake_up is None:
            self._wake_up = WakeUp()
        # A poll object of its own, because two threads cannot use one, and a thread whose request was just ended may
        # still be in `poll`.
        poll = make_poll()
        poll.register(self._wake_up.fileno(), POLLIN)
        try:
            if not self._enter(request):
                return
            poll.register(self._masked, POLLIN)
            end = min(request.deadline, subscriber.clock() + READING)
            while not request.has_ended and subscriber.state not in (CLOSED, FOREIGN):
                left = end - subscriber.clock()
                if left <= 0:
                    break
                poll.poll(left * 1000)
                self._wake_up.clear()
                subscriber.read()
                if self._exchange.is_lone:
                    self._exchange.pass_replies()
                if self._has_work():
                    self._wake()
        finally:
            self._leave(request)
            if not request.has_ended:
                # The thread of the node sleeps, perhaps for longer than the links allow.
                self._wake()

    def _enter(self, request: Request) -> bool:
        """Take the descriptor of the links from the thread of the node; return False if another one has it."""
        subscriber = self._subscriber
        with subscriber.lock:
            if (
                self._request is not None
                or subscriber.state in (CLOSED, FOREIGN)
                or subscriber.link_descriptor < 0
            ):
                return False
            self._thread, self._masked = threading.get_ident(), subscriber.link_descriptor
            self._request = request
            subscriber.poll.mask(self._masked, is_masked=True)
        return True

    def _leave(self, request: Request) -> None:
        """Let the thread of the node poll the descriptor again, unless it does."""
        subscriber = self._subscriber
        with subscriber.lock:
            if self._request is request:
                if subscriber.state not in (CLOSED, FOREIGN):
                    subscriber.poll.mask(self._masked, is_masked=False)
                self._request = None
