"""The engine of subscribers: all but the waiting. Sockets and nodes hold one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.receiver import Receiver
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.routed import RoutedReceivePath

_log = peer_logger("oz.subscriber")

_NOBLOCK = int(zmq.NOBLOCK)


class SubscriberEngine:
    """Receives for one subscriber, and runs plain handlers.

    Attributes:
        declarer: what asks publishers for messages.
        receive_path: what takes messages from the socket.
        take: its `take`, by the shortest way.
        ready: messages whose handlers have run, for the next call that receives.
        rest: the frames that `recv` has left of a message.
        waiting: messages that were unpacked and are still to be given.
        monotonic: the clock that its deadlines are of.
        is_drained: it has stopped asking; what is here is the last.
        must_check: `check` is to be called before it is waited for a message.
    """

    __slots__ = (
        "__weakref__",
        "_denials",
        "_failures",
        "declarer",
        "is_drained",
        "monotonic",
        "must_check",
        "ready",
        "receive_path",
        "receiver",
        "rest",
        "take",
        "waiting",
    )

    def __init__(self, declarer: Declarer, receive_path: RoutedReceivePath) -> None:
        """Put together what a subscriber has.

        Args:
            declarer: what asks publishers for messages.
            receive_path: what takes messages from its socket.
        """
        self.declarer = declarer
        self.monotonic = declarer.backend.monotonic
        self.receive_path = receive_path
        self.take = receive_path.shortest()
        self.receiver: Receiver = declarer.receiver
        self.ready: deque[Message] = deque()
        self.rest: deque[bytes] = deque()
        # Nothing is unpacked without batches.
        receiver = self.receiver
        self.waiting = receiver.waiting if isinstance(receiver, BatchDecoder) else deque()
        self._failures = declarer.failures
        self._denials = receiver.answers.denials if isinstance(receiver, BatchDecoder) else deque()
        self.is_drained = self.must_check = False

    @property
    def socket(self) -> zmq.Socket[Any]:
        """The socket that it works on.

        Raises:
            ClosedError: nobody holds it any more.
        """
        return self.declarer.socket

    # what is here ----------------------------------------------------------------------------------------

    @property
    def has_some(self) -> bool:
        """Whether a message is here already, taken from the socket."""
        if self.ready or self.rest:
            return True
        decoder = self.receiver
        return isinstance(decoder, BatchDecoder) and (
            bool(decoder.waiting) or any(stream.receive_buffer for stream in decoder.streams.buffered)
        )

    def check_open(self) -> None:
        """Refuse a subscriber that is closed.

        Raises:
            ClosedError: it is.
        """
        if self.socket._closed:
            raise ClosedError("this Subscriber is closed")

    @property
    def is_refused(self) -> bool:
        """Whether `check` has a refusal to raise, behind all that is here already."""
        return bool(self._denials or self._failures)

    def _denied(self) -> None:
        self.must_check = True

    def check(self) -> None:
        """Refuse to wait for what does not come, or not any more.

        Raises:
            PermissionDenied: a publisher denies what a subscription asks for, or does not trust this side's
                key; once for each.
            ClosedError: it was drained, and nothing is left.
        """
        if self.is_refused and not self.has_some:
            error = self._failures.popleft() if self._failures else self._denials.popleft().error()
            self._find_out_what_to_check()
            raise error
        if self.is_drained and not self.has_some:
            raise ClosedError("this subscriber was drained: it has stopped asking, and nothing is left")
        self._find_out_what_to_check()

    def _find_out_what_to_check(self) -> None:
        self.must_check = self.is_drained or self.is_refused

    def end_connections(self, end: Callable[[], object]) -> None:
        """End connections; what ZeroMQ has announced is taken first: see `ReceivePath.take_announced`.

        Args:
            end: ends them.

        Raises:
            zmq.ZMQError: the socket is closed, or what `end` raises.
        """
        message = None
        try:
            # Nobody may poll in between.
            with self.declarer.guard:
                message = self.receive_path.take_announced(self.socket)
                end()
        finally:
            if message is not None and self.dispatch(message):
                self.ready.append(message)

    # handlers --------------------------------------------------------------------------------------------

    def dispatch(self, message: Message) -> bool:
        """Run the handlers, which are plain functions; tell whether the message is also for `receive`."""
        route = message.route
        if route.is_counted:
            count(message)
        for subscription in route.handled:
            # A handler before this one may have ended this subscription.
            if subscription.active or subscription.wants(message):
                try:
                    subscription.handler(message)
                except Exception:
                    self.log_failure(subscription)
        return route.is_listed and is_wanted(message)

    def log_failure(self, subscription: Subscribed) -> None:
        """Report that a handler raised; the message still goes to everybody else."""
        self.receiver.stats.failed += 1
        _log.exception("the handler of %r raised", subscription)

    # the end of subscriptions ----------------------------------------------------------------------------

    def cancel(self, subscription: Subscribed) -> None:
        """End a subscription, and drop what is here for nobody else."""
        self.declarer.end(subscription)
        kept = [message for message in self.ready if is_kept(message)]
        self.ready.clear()
        self.ready.extend(kept)
        if isinstance(self.receiver, BatchDecoder):
            self.receiver.retain(lambda message: any(one.active for one in message.subscriptions))

    def end_part(self, subscription: Subscribed) -> None:
        """End a subscription; what it has been given and waits in line is still to be received."""
        if subscription.active:
            subscription.left = 0
            self.cancel(subscription)

    def end_with_rest(self, subscription: Subscribed) -> None:
        """Deliver what has come for a subscription, and what stands before that; then end it."""
        for message in self.declarer.rest_of(subscription):
            if self.dispatch(message):
                self.ready.append(message)
        self.end_part(subscription)


def is_kept(message: Message) -> bool:
    """Tell whether a message that was dispatched and waits in line is still to be given."""
    return any(one.handler is None and one.keeps for one in message.subscriptions)


def is_wanted(message: Message) -> bool:
    """Tell whether a message is for `receive`."""
    return any(one.handler is None and one.wants(message) for one in message.subscriptions)


def count(message: Message) -> None:
    """Count a message for subscriptions that end after so many."""
    for subscription in message.subscriptions:
        if subscription.left is not None and subscription.active:
            subscription.count(message)
