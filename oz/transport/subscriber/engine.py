"""The engine of subscribers: all but the waiting. Sockets and nodes hold one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from oz.compiled import HOT
from oz.errors import ClosedError, PermissionDenied
from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.receiver import Receiver
from oz.protocol.subscriber.subscriptions import Route, Subscribed
from oz.transport.attachments import Attachments
from oz.transport.calls import Calls
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.receiver import PATIENCE, ReceivePath, first_of
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

    def __init__(self, declarer: Declarer, receive_path: ReceivePath) -> None:
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

    def raise_denials(self) -> None:
        """Have the next call that would wait raise what a publisher denies; otherwise only readiness asks."""
        if isinstance(self.receiver, BatchDecoder):
            self.receiver.answers.on_denial = self._denied

    def look_after_calls(self, attachments: Attachments) -> None:
        """Look after the endpoints that are connected to, as the socket has keys."""
        self.declarer.calls = Calls(attachments, self.fail, self.end_connections)

    @property
    def is_refused(self) -> bool:
        """Whether `check` has a refusal to raise, behind all that is here already."""
        return bool(self._denials or self._failures)

    @property
    def has_news(self) -> bool:
        """Whether a read gives something at once: a message, or why nothing comes."""
        return self.is_refused or self.has_some

    def _denied(self) -> None:
        self.must_check = True

    def fail(self, error: PermissionDenied) -> None:
        """Have the next call that would wait raise that a connection is refused."""
        self._failures.append(error)
        self.must_check = True

    def tend(self) -> None:
        """Do what is due between two waits, and refuse to wait for what does not come; see `check`."""
        self.look()
        if self.must_check:
            self.check()

    def look(self) -> None:
        """Do what is due."""
        if self.declarer.due_at <= self.monotonic():
            self.declarer.look(self.monotonic())

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

    def next(self, flags: int, until: float | None = None, message: Message | None = None) -> Message:
        """Take messages until one is for the caller; run the handlers of each.

        Args:
            flags: 0 or `zmq.NOBLOCK`.
            until: the monotonic time at which to give up, though messages for others keep coming.
            message: one that was taken already.

        Raises:
            zmq.Again: there is none.
            zmq.ZMQError: the socket is closed.
            ClosedError: a handler has drained it, and this was the last.
        """
        take, dispatch, waiting, socket = self.take, self.dispatch, self.waiting, self.socket
        hand_out, popleft = _hand_out if until is None else None, waiting.popleft
        while True:
            if message is None:
                if not waiting:
                    message = take(socket, flags, until)
                elif hand_out is None or waiting[0].route.is_only_listed:
                    message = first_of(waiting)
                else:
                    message = hand_out(self, waiting, popleft)
            if message is not None and (message.route.is_only_listed or dispatch(message)):
                return message
            message = None
            if self.must_check and self.is_refused and not self.is_drained:
                # What is behind it comes first: nobody is refused before he would wait.
                flags |= _NOBLOCK
            elif self.must_check:
                # By a handler, just now.
                self.check()
            if until is not None and self.monotonic() >= until:
                raise zmq.Again

    def take_one(self, until: float) -> Message | None:
        """Take one message that is there, and call no handler.

        Args:
            until: the monotonic time at which to give up, and give None, when all that comes is unwanted.

        Raises:
            zmq.Again: there is none.
        """
        if self.waiting:
            return first_of(self.waiting)
        return self.take(self.socket, _NOBLOCK, until)

    def prefetch(self) -> bool:
        """Take what is there until a message is for the caller; tell whether there is one.

        Raises:
            zmq.ZMQError, ClosedError: as `next`.
        """
        if not self.ready and not self.rest:
            try:
                self.ready.append(self.next(_NOBLOCK, self.monotonic() + PATIENCE))
            except zmq.Again:
                return False
        return True

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

    def unpack(self) -> None:
        """Take in the batches and answers that are there; messages wait in line."""
        assert isinstance(self.receive_path, RoutedReceivePath)
        self.receive_path.unpack(self.socket)

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

    def end_drain(self) -> None:
        """Ask for nothing more."""
        self.declarer.end_drain()
        self.is_drained = self.must_check = True


if HOT is not None:
    HOT.know_dispatch(Message, Route, Subscribed, SubscriberEngine)
_hand_out = None if HOT is None else HOT.hand_out


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
