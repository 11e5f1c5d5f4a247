"""The declarations of a subscriber, told to ZeroMQ, and what is due while no message comes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import zmq

from oz.errors import ClosedError, PermissionDenied, ProtocolError
from oz.protocol.messages import Message
from oz.protocol.subscriber.declarations import SubscriptionChanges
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.receiver import Receiver
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.backend import backend_of
from oz.transport.calls import Calls
from oz.transport.guard import Guard
from oz.transport.subscriber.links import PublisherLinks
from oz.wire.denials import Denial
from oz.wire.keys import DeliveryOptions

LOOK_EVERY = 0.1
"""Seconds between two looks at least."""

_SUBSCRIBE, _UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)


class Declarer:
    """Declares the subscriptions of one subscriber.

    Attributes:
        guard: the guard of its socket.
        receiver: what takes frames in.
        streams: the streams of publisher-side filtering; None without it.
        links: what looks after connections; None where nothing does.
        calls: what looks after those of a socket with keys; None without.
        failures: why connections are refused, for the next call that would wait.
        due_at: when to look at the latest, in monotonic seconds; infinite for never.
        is_settled: nothing has changed since the last look.
        when_hastened: called when `due_at` has become earlier, for whoever waits meanwhile.
    """

    # The compiled part reads these where they lie.
    __slots__ = ("__dict__", "__weakref__", "due_at", "is_settled")

    def __init__(
        self,
        socket: zmq.Socket[Any],
        guard: Guard,
        receiver: Receiver,
        *,
        streams: Streams | None = None,
        links: PublisherLinks | None = None,
    ) -> None:
        """Start without subscriptions.

        Args:
            socket: the SUB, which is not kept: it ends with whoever holds it.
            guard: its guard.
            receiver: what takes its frames in.
            streams: for publisher-side filtering.
            links: for publisher-side filtering, unless others look after connections.
        """
        self._socket = weakref.ref(socket)
        self.backend = backend_of(socket)
        self.guard = guard
        self.receiver = receiver
        self.streams = streams
        self.links = links
        self.calls: Calls | None = None
        self.failures: deque[PermissionDenied] = deque()
        self.due_at = inf
        self.is_settled = not self.has_duties
        self.when_hastened: Callable[[], None] | None = None
        self._look_at = -inf
        self.hasten()

    @property
    def socket(self) -> zmq.Socket[Any]:
        """The socket.

        Raises:
            ClosedError: nobody holds it any more.
        """
        socket = self._socket()
        if socket is None:
            raise ClosedError("this subscriber is gone: nothing can be had of it any more")
        return socket

    @property
    def has_duties(self) -> bool:
        """Whether something may be due while no message comes."""
        return any(one is not None for one in (self.streams, self.calls))

    def ask(self, changes: SubscriptionChanges) -> None:
        """Tell ZeroMQ what to ask for, and what no longer."""
        socket = self._socket()
        if socket is None or socket.closed:
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
            if self.streams is None:
                self.ask(SubscriptionChanges(self.receiver.table.add(subscription)))
            else:
                self.ask(self.streams.add(subscription, delivery, last_value=last_value))
                self.hasten()

    def end(self, subscription: Subscribed) -> None:
        """Ask no longer for what a subscription wants."""
        with self.guard:
            if self.streams is None:
                self.ask(SubscriptionChanges(dropped=self.receiver.table.remove(subscription)))
            else:
                self.ask(self.streams.remove(subscription))
                self.hasten()

    def standing(self) -> list[Subscribed]:
        """Return the subscriptions that stand, the oldest first."""
        if self.streams is None:
            return list(self.receiver.table)
        streams = self.streams.by_key.values()
        return [one for stream in streams if not stream.is_shared for one in stream.table]

    def flush(self) -> None:
        """Declare what was collected."""
        if self.streams is not None and self.streams.is_collecting:
            with self.guard:
                self.ask(self.streams.flush())

    # what is due -----------------------------------------------------------------------------------------

    def look(self, now: float, *, is_idle: bool = False) -> None:
        """Do what is due: declare again what nobody answered, look after links.

        Args:
            now: monotonic seconds.
            is_idle: whether all that has come was read.
        """
        self.flush()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        self.is_settled = True
        if self.streams is not None:
            with self.guard:
                self.ask(self.streams.renew(now))
        if self.links is not None:
            self.links.look(now, is_idle=is_idle)
        if self.calls is not None:
            self.calls.look(self.socket, now)
        self._plan()

    def settle(self) -> None:
        """Do what is due now that every publisher has answered: the next message finds nothing left."""
        if self.streams is not None:
            with self.guard:
                self.ask(self.streams.settle(self.backend.monotonic()))
        if self.links is not None:
            self.links.settle()
        self.is_settled = True
        self._plan()

    def hasten(self, seconds: float = 0.0) -> None:
        """Look soon: something has come or changed, which a look may have something to do about.

        Args:
            seconds: after the earliest time at which it may look.
        """
        if self.has_duties:
            self.is_settled = False
            if self._look_at + seconds < self.due_at:
                self.due_at = self._look_at + seconds
                if self.when_hastened is not None:
                    self.when_hastened()

    def _plan(self) -> None:
        """Find out when to look next."""
        deadlines = [
            part.next_deadline() for part in (self.streams, self.links, self.calls) if part is not None
        ]
        earliest = min((one for one in deadlines if one is not None), default=inf)
        self.due_at = max(self._look_at, earliest if self.is_settled else -inf)

    def next_deadline(self) -> float | None:
        """Return when to `look` at the latest, in monotonic seconds; None when nothing becomes due.

        Whatever is read or changed before may make it earlier: ask again then.
        """
        return None if self.due_at == inf else self.due_at

    def seconds_left(self) -> float:
        """Return how long to wait at most until `look` is due; infinite when it never is."""
        return max(0.0, self.due_at - self.backend.monotonic())

    def joined(self) -> None:
        """Record that the socket has another endpoint from now on."""
        if self.calls is not None:
            self.hasten()

    def forgive(self) -> None:
        """Have the end of a connection not count that the subscriber is about to end itself."""
        if self.links is not None:
            self.links.forgive()

    # readiness -------------------------------------------------------------------------------------------

    def is_ready(self, connections: int) -> bool:
        """Tell whether every publisher has answered everything.

        Args:
            connections: over which publishers are expected.

        Raises:
            PermissionDenied: a publisher refuses a pattern, as this key may not have it.
            ProtocolError: a publisher refuses a pattern.
        """
        assert self.streams is not None
        refusals = self.streams.publishers.refusals()
        denial = next((one for one in refusals if isinstance(one, Denial)), None)
        if denial is not None:
            raise denial.error()
        if refusals:
            raise ProtocolError(f"a publisher refuses to serve this subscriber: {refusals[0]}")
        return self.streams.is_ready(connections, self.backend.time_ns())

    # the end of asking -----------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Stop asking publishers that filter. A plain one goes on until what is here has been taken."""
        if self.streams is not None:
            with self.guard:
                self.ask(self.streams.leave())

    def has_left(self, among: Collection[bytes] | None = None) -> bool:
        """Tell whether nothing more can be on its way from publishers that filter: all, or those given."""
        return self.streams is None or self.streams.has_left(among)

    def end_drain(self) -> None:
        """Ask for nothing more."""
        with self.guard:
            if self.streams is not None:
                self.ask(SubscriptionChanges(dropped=list(self.streams.by_key)))
            else:
                for subscription in self.receiver.table:
                    self.ask(SubscriptionChanges(dropped=self.receiver.table.remove(subscription)))

    def begin_part(self, *subscriptions: Subscribed) -> None:
        """Ask publishers that filter for nothing more for some subscriptions."""
        if self.streams is not None:
            with self.guard:
                for changes in self.streams.part(*subscriptions):
                    self.ask(changes)
                self.hasten()

    def has_drained(self, subscription: Subscribed, among: Collection[bytes] | None = None) -> bool:
        """Tell whether nothing more can be on its way for it from publishers that filter; see `has_left`."""
        return self.streams is None or self.streams.has_drained(subscription, among)

    def rest_of(self, subscription: Subscribed) -> Iterator[Message]:
        """Return what publishers that filter have sent and nobody has been given, for it among others."""
        if self.streams is not None and (stream := self.streams.stream(subscription)) is not None:
            assert isinstance(self.receiver, BatchDecoder)
            yield from self.receiver.rest(stream)

    def say_goodbye(self) -> bool:
        """Tell publishers that filter that the subscriber closes; tell whether that is to be waited for."""
        if self.streams is None:
            return False
        goodbye = self.streams.leave()
        if goodbye.wanted:
            # What stands is not taken back: that goes by itself when the connection does. A context that was
            # ended under the socket allows nothing but closing.
            with suppress(zmq.ZMQError):
                self.ask(SubscriptionChanges(goodbye.wanted))
        # To nobody it is never sent.
        return bool(goodbye.wanted) and not (self.links is not None and self.links.is_alone())
