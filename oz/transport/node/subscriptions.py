"""The subscriptions of a node: each has a queue of its own, for its handler or for `receive`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.handler_queue import HandlerQueue
from oz.protocol.node.subscription import NodeSubscription, Pending
from oz.protocol.subscriber.receive_buffer import LIMIT
from oz.protocol.subscriber.subscriptions import Subscription
from oz.subjects.pattern import Pattern
from oz.transport.admission import EVERYTHING, compile_asked
from oz.transport.node.replies import Replying
from oz.transport.option_checks import MOST_PENDING, check_count, delivery_options
from oz.wire.keys import DeliveryOptions

_log = logging.getLogger("oz.node")

OnDropped = Callable[[int, Message], None]


def _ignore(count: int, message: Message) -> None:
    """Record nothing."""


class Interested(Replying):
    """The part of a node that subscribes."""

    _subscription_class: type[NodeSubscription]

    # what the shells do ----------------------------------------------------------------------------------

    def _call(self, work: Callable[[], Any]) -> Any:
        """Run something on the I/O side; return its result."""
        raise NotImplementedError

    def _make_queue(
        self, handler: Callable[[Any], Any], handler_queue: HandlerQueue, dropped: OnDropped
    ) -> Any:
        """Make what messages wait in for a handler."""
        raise NotImplementedError

    def _make_mailbox(
        self, handler_queue: HandlerQueue, dropped: OnDropped
    ) -> tuple[Any, type[NodeSubscription]]:
        """Make what messages wait in to be received, and say of what kind their subscription is."""
        raise NotImplementedError

    def _on_dropped(self, count: int, message: Any) -> None:
        raise NotImplementedError

    # subscribing -----------------------------------------------------------------------------------------

    def _prepare(self, pattern: Any, dialect: str | None) -> tuple[list[Pattern], bool]:
        """Compile what is asked for; tell whether it is advisories.

        Raises:
            PatternError: the dialect does not allow it, or applications may not have it.
            ValueError: it is no pattern at all, or advisories together with others.
        """
        patterns = _patterns(pattern, dialect or self.configuration.dialect)
        if not patterns:
            raise ValueError("no pattern at all: a subscription to an empty list would never get a message")
        for one in patterns:
            reserved_subjects.check_subscribed(one)
        kinds = {reserved_subjects.is_advisory(one) for one in patterns}
        if len(kinds) > 1:
            raise ValueError("advisories need a subscription of their own")
        return patterns, kinds.pop()

    def _subscribe(
        self,
        wanted: tuple[list[Pattern], bool],
        handler: Callable[[Message], Any] | None,
        delivery: DeliveryOptions,
        handler_queue: HandlerQueue,
        *,
        last_value: bool,
        max_messages: int | None,
    ) -> NodeSubscription:
        """Make a subscription and have it begin.

        Raises:
            TypeError: the handler cannot be called, or is `async` and the node is not.
            ValueError: an argument makes no sense.
            ClosedError: the node is closed.
        """
        patterns, is_advisory = wanted
        if max_messages is not None:
            check_count("max_messages", max_messages, 1, 2**63)
        # With `"conflate"` it is what was asked for.
        dropped = _ignore if delivery.overflow == "conflate" else self._on_dropped
        queue: Pending
        if handler is None:
            if len(handler_queue.partitions) > 1:
                raise ValueError(
                    "concurrency is for handlers; without one, call receive in as many threads as you like"
                )
            queue, kind = self._make_mailbox(handler_queue, dropped)
        else:
            self._check_handler(handler)
            queue, kind = self._make_queue(handler, handler_queue, dropped), self._subscription_class
        subscription = kind(
            patterns, queue, self._cancel, max_messages, delivery.group, self._answer, self._drain_one
        )
        self._call(
            lambda: self._begin(subscription, delivery, last_value=last_value, is_advisory=is_advisory)
        )
        return subscription

    def _check_handler(self, handler: Any) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with each message; {handler!r} cannot be called")

    def _cancel(self, subscription: Subscription) -> None:
        with suppress(ClosedError):
            self._call(lambda: self._end(subscription))

    def _drain_one(self, subscription: NodeSubscription, timeout: float) -> Any:
        """End a subscription when it has handled what is on its way; see `Subscription.drain`."""
        raise NotImplementedError

    def _end_drained(self, subscription: NodeSubscription) -> None:
        """End a subscription that has had what came; on the I/O side."""
        subscription.queue.end()
        self._end(subscription)

    def _close_queues(self) -> None:
        """End all requests and subscriptions: what is in a mailbox can be received, the rest is dropped."""
        self._requests.close()
        for subscription in list(self._subscriptions):
            subscription.active = False
        dropped = sum(queue.abandon() for queue in self._queues())
        if dropped:
            _log.warning("%s closed before its handlers had handled %d messages", self.name, dropped)

    def _begin(
        self,
        subscription: NodeSubscription,
        delivery: DeliveryOptions,
        *,
        last_value: bool,
        is_advisory: bool,
    ) -> None:
        """Have a subscription begin; on the I/O side."""
        if is_advisory:
            for pattern in subscription.patterns:
                self._advised.add(pattern, subscription)
        else:
            self._sub.begin(subscription, delivery, last_value=last_value)
            self._is_unheard = self._echo
        self._subscriptions[subscription] = None

    def _end(self, subscription: Subscription) -> None:
        """Have a subscription end; on the I/O side."""
        assert isinstance(subscription, NodeSubscription)
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            self._ended[subscription] = None
        for pattern in subscription.patterns:
            self._advised.discard(pattern, subscription)
        subscription.active = False
        self._sub.cancel(subscription)
        if subscription.left != 0:
            # One that has had its last message is still to handle it.
            subscription.queue.close()

    def _settle_ended(self) -> None:
        """Forget subscriptions that have ended and handled all; what they did is counted on."""
        for subscription in [one for one in self._ended if one.queue.is_idle]:
            del self._ended[subscription]
            self._stats.handled += subscription.queue.handled
            self._stats.failed += subscription.queue.failed
            self._stats.dropped += subscription.queue.dropped

    def _queues(self) -> list[Pending]:
        """Return the queues that messages wait in, of subscriptions that have ended too."""
        return [one.queue for one in [*self._subscriptions, *self._ended]]

    @staticmethod
    def _delivery_options(
        group: str | None, policy: Any, overflow: Any, max_pending: int | None
    ) -> DeliveryOptions:
        check_count("max_pending", LIMIT if max_pending is None else max_pending, 1, MOST_PENDING)
        return delivery_options(
            group, policy, overflow, None if overflow is None else max_pending, shared=False
        )


def _patterns(pattern: Any, dialect: str) -> list[Pattern]:
    """Compile what is asked for. Bytes are a pattern too; with sockets they are the prefix of pyzmq."""
    if isinstance(pattern, (str, bytes, Pattern)) or not isinstance(pattern, Iterable):
        return [EVERYTHING if pattern in ("", b"") else compile_asked(pattern, dialect)]
    return [one for part in pattern for one in _patterns(part, dialect)]
