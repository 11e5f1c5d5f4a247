"""The declarations of a subscriber, told to ZeroMQ, and what is due while no message comes."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Any

import zmq

from oz.protocol.subscriber.declarations import SubscriptionChanges
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.backend import backend_of
from oz.transport.guard import Guard
from oz.wire.keys import DeliveryOptions

LOOK_EVERY = 0.1
"""Seconds between two looks at least."""

_SUBSCRIBE, _UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)


class Declarer:
    """Declares the subscriptions of one subscriber.

    Attributes:
        guard: the guard of its socket.
        streams: what is subscribed to.
        due_at: when to look at the latest, in monotonic seconds; infinite for never.
        is_settled: nothing has changed since the last look.
    """

    # The compiled part reads `is_settled` where it lies.
    __slots__ = ("__dict__", "is_settled")

    def __init__(self, socket: zmq.Socket[Any], guard: Guard, streams: Streams) -> None:
        """Start without subscriptions.

        Args:
            socket: the SUB.
            guard: its guard.
            streams: what is subscribed to.
        """
        self._socket = socket
        self.backend = backend_of(socket)
        self.guard = guard
        self.streams = streams
        self.due_at = inf
        self.is_settled = False
        self._look_at = -inf
        self.hasten()

    def ask(self, changes: SubscriptionChanges) -> None:
        """Tell ZeroMQ what to ask for, and what no longer."""
        socket = self._socket
        if socket.closed:
            return
        set_option = self.backend.set
        for key in changes.wanted:
            set_option(socket, _SUBSCRIBE, key)
        for key in changes.dropped:
            set_option(socket, _UNSUBSCRIBE, key)

    def begin(self, subscription: Subscribed, delivery: DeliveryOptions, *, last_value: bool) -> None:
        """Ask for what a subscription wants.

        Raises:
            PatternError: a pattern cannot be sent to publishers.
        """
        with self.guard:
            self.ask(self.streams.add(subscription, delivery, last_value=last_value))
            self.hasten()

    def end(self, subscription: Subscribed) -> None:
        """Ask no longer for what a subscription wants."""
        with self.guard:
            self.ask(self.streams.remove(subscription))
            self.hasten()

    def flush(self) -> None:
        """Declare what was collected."""
        if self.streams.is_collecting:
            with self.guard:
                self.ask(self.streams.flush())

    # what is due -----------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Declare again what nobody answered.

        Args:
            now: monotonic seconds.
        """
        self.flush()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        self.is_settled = True
        with self.guard:
            self.ask(self.streams.renew(now))
        deadline = self.streams.next_deadline()
        self.due_at = max(
            self._look_at, -inf if not self.is_settled else inf if deadline is None else deadline
        )

    def hasten(self, seconds: float = 0.0) -> None:
        """Look soon: something has come or changed, which a look may have something to do about.

        Args:
            seconds: after the earliest time at which it may look.
        """
        self.is_settled = False
        self.due_at = min(self.due_at, self._look_at + seconds)

    def next_deadline(self) -> float | None:
        """Return when to `look` at the latest, in monotonic seconds; None when nothing becomes due.

        Whatever is read or changed before may make it earlier: ask again then.
        """
        return None if self.due_at == inf else self.due_at

    # the end of asking -----------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Stop asking publishers."""
        with self.guard:
            self.ask(self.streams.leave())

    def begin_part(self, *subscriptions: Subscribed) -> None:
        """Ask publishers for nothing more for some subscriptions."""
        with self.guard:
            for changes in self.streams.part(*subscriptions):
                self.ask(changes)
            self.hasten()

    def say_goodbye(self) -> bool:
        """Tell publishers that the subscriber closes; tell whether that is to be waited for."""
        goodbye = self.streams.leave()
        # What stands is not taken back: that goes by itself when the connection does. A context that was ended
        # under the socket allows nothing but closing.
        with suppress(zmq.ZMQError):
            self.ask(SubscriptionChanges(goodbye.wanted))
        return bool(goodbye.wanted)
