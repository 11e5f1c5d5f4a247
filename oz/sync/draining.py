"""Draining: a blocking subscriber stops asking, for one subscription or for all, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from math import ceil

import zmq

from oz.message import Message
from oz.protocol.subscriber import subscriptions
from oz.transport.subscriber.engine import SubscriberBase
from oz.transport.subscriber.receiver import RoutedReceivePath

PATIENCE = 0.05
"""Seconds that a call which must not wait may look through messages that are not for its caller."""

_NOBLOCK = int(zmq.NOBLOCK)
_SLICE = 0.05
"""Seconds of waiting at a time."""


Handler = Callable[[Message], None]


def refuse_async(handler: object, instead: str) -> None:
    """Refuse what nobody would await, be it a function or an object that is called like one.

    Raises:
        TypeError: it is async; names what to use instead.
    """
    if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
        raise TypeError(f"{handler!r} is async, and nobody awaits it here; use {instead}")


class Subscription(subscriptions.Subscription):
    """One call of `subscribe`: its patterns and its handler, until it is undone.

    Attributes:
        patterns: the compiled patterns.
        handler: what is called with each message, or None when messages are received.
        active: False once it has been undone; nothing is delivered for it any more.
        left: messages after which it ends, or None; 0 once it has had its last.
    """

    __slots__ = ()

    def drain(self, timeout: float = 1.0) -> bool:
        """End it, and lose nothing: ask for no more, and deliver what was on its way.

        Publishers that filter answer that they send no more for it. A plain one does not answer: what is
        here counts. Handlers are called; what is to be received still is. Of a queue group the other members
        get what is published from then on.

        Args:
            timeout: seconds for all of it; what has come by then is still handled.

        Returns:
            Whether nothing is missing: every publisher has answered, and a node's handlers have returned.
            True also for one that has ended before.

        Raises:
            ClosedError, OwnershipError: as `oz.Subscriber.receive`.
        """
        return bool(super().drain(timeout))


class Draining(SubscriberBase[Handler, Subscription]):
    """The part of a subscriber that waits for the answers of publishers."""

    _subscription_class = Subscription

    def _next(self, flags: int, until: float | None = None) -> Message:
        """Take messages until one is for the caller; run the handlers of each."""
        raise NotImplementedError

    def _dispatch(self, message: Message) -> bool:
        """Run the handlers; tell whether the message is also for `receive`."""
        raise NotImplementedError

    def drain(self, timeout: float = 1.0) -> None:
        """Stop asking, and deliver what is there: handlers are called, the rest is still to be received.

        Iteration ends after the last message, and `receive` raises `ClosedError`.

        Args:
            timeout: seconds for which publishers that filter are waited for, so that nothing on its way
                is lost. A plain one does not answer: what is here counts.

        Raises:
            ClosedError: the subscriber is closed.
            OwnershipError: another thread is using it.
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        self._begin_drain()
        self._unpack_until(self._has_left, deadline)
        self._take_what_is_here(deadline)
        self._end_drain()

    def _drain_one(self, subscription: subscriptions.Subscription, timeout: float) -> bool:
        self._check_open()
        if not subscription.active:
            return True
        deadline = time.monotonic() + timeout
        self._begin_part(subscription)
        has_drained = self._unpack_until(lambda: self._has_drained(subscription), deadline)
        if self._streams is None:
            self._take_what_is_here(deadline)
        self._end_with_rest(subscription)
        return has_drained

    def _unpack_until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._unpack_some(min(left, _SLICE))
        return True

    def _take_what_is_here(self, deadline: float) -> None:
        # A plain publisher may be faster than this, so that there is always one more.
        ends = max(deadline, time.monotonic() + PATIENCE)
        with suppress(zmq.Again):
            while time.monotonic() < ends:
                self._ready.append(self._next(_NOBLOCK, ends))

    def _end_with_rest(self, subscription: subscriptions.Subscription) -> None:
        """Deliver what has come for a subscription, and what stands before that; then end it."""
        for message in self._rest_of(subscription):
            if self._dispatch(message):
                self._ready.append(message)
        self._end_part(subscription)

    def _unpack_some(self, seconds: float) -> None:
        """Wait so long at most for batches and answers, and take in those that are there."""
        assert isinstance(self._receive_path, RoutedReceivePath)
        self._wait_for_news(seconds)
        try:
            self._receive_path.unpack(self)
        except zmq.ZMQError:
            self._check_open()
            raise

    def _wait_for_news(self, seconds: float) -> None:
        """Wait so long at most until something can be read."""
        self._check_open()
        try:
            with self._guard:
                zmq.Socket.poll(self, ceil(seconds * 1000))
        except zmq.ZMQError:
            # A signal handler may have closed it meanwhile.
            self._check_open()
            raise
