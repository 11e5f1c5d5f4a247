"""The questions of a subscriber to publishers, their answers, and the end of asking."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import zmq

from oz.errors import ClosedError, ProtocolError, Timeout
from oz.message import Message
from oz.protocol.subscriber.declarations import SubscriptionChanges
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.receiver import Receiver
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscription
from oz.transport.multicast.receiver import Listening
from oz.transport.socket import BaseSocket, some

GOODBYE_SECONDS = 0.5
"""How long closing waits at most for the goodbye to be sent."""


class Asking(BaseSocket):
    """The part of a subscriber that speaks with publishers, by its subscriptions."""

    _receiver: Receiver
    _streams: Streams | None
    _listening: Listening | None = None
    _is_drained: bool = False
    _ready: deque[Message]
    _rest: deque[bytes]

    def _ask(self, changes: SubscriptionChanges) -> None:
        """Tell ZeroMQ what to ask for, and what no longer."""
        if self.closed:
            return
        if self._listening is not None:
            if changes.wanted:
                self._listening.begin(self)
            return
        for key in changes.wanted:
            super().set(zmq.SUBSCRIBE, key)
        for key in changes.dropped:
            super().set(zmq.UNSUBSCRIBE, key)

    def _declare_collected(self) -> None:
        if self._streams is not None and self._streams.is_collecting:
            with self._guard:
                self._ask(self._streams.flush())

    def _declare_overdue(self, *, is_idle: bool = False) -> None:
        """Declare what was collected, and again what nobody answered; look after multicast publishers."""
        if self._listening is not None:
            with self._guard:
                self._listening.look(self, is_idle=is_idle)
        if self._streams is not None:
            self._declare_collected()
            with self._guard:
                self._ask(self._streams.renew(time.monotonic()))

    def _endpoints_changed(self) -> None:
        super()._endpoints_changed()
        if self._listening is not None:
            self._listening.joined()

    # readiness -------------------------------------------------------------------------------------------

    def _check_routed(self) -> None:
        """Refuse a subscriber that no publisher filters for.

        Raises:
            ValueError: only publishers that filter answer.
            ClosedError: the subscriber is closed.
        """
        self._check_open()
        if self._streams is None:
            raise ValueError('only publishers that filter answer: Subscriber(…, filtering="publisher")')

    def _is_ready(self) -> bool:
        """Tell whether every publisher has answered everything; see `wait_ready`.

        Raises:
            ProtocolError: a publisher refuses a pattern.
        """
        assert self._streams is not None
        refusals = self._streams.refusals()
        if refusals:
            raise ProtocolError(f"a publisher refuses to serve this subscriber: {refusals[0]}")
        return self._streams.is_ready(self._connections, time.time_ns())

    def _not_ready(self, timeout: float | None) -> Timeout:
        assert self._streams is not None
        state = self._streams.unready()
        if not state["publishers"]:
            missing = (
                f"no oz publisher answered at {', '.join(some(self._endpoints))}. Is one running there? "
                "A plain PUB never answers: use filtering='prefix' for one"
                if self._endpoints
                else "this subscriber is neither connected nor bound; connect it first"
            )
        else:
            missing = (
                f"{state['publishers']} publishers were heard over {self._connections} connections, "
                f"{state['unanswered']} declarations are unanswered; a plain PUB never answers, nor does an "
                "endpoint where nobody is"
            )
        return Timeout(f"not ready within {timeout or 0:g} s: {missing}")

    # draining --------------------------------------------------------------------------------------------

    def _begin_drain(self) -> None:
        """Stop asking publishers that filter. A plain one goes on until what is here has been taken."""
        if self._streams is not None:
            with self._guard:
                self._ask(self._streams.leave())

    def _has_left(self, among: Collection[bytes] | None = None) -> bool:
        """Tell whether nothing more can be on its way from publishers that filter: all, or those given."""
        return self._streams is None or self._streams.has_left(among)

    def _end_drain(self) -> None:
        with self._guard:
            if self._streams is not None:
                self._ask(SubscriptionChanges(dropped=list(self._streams.by_key)))
            else:
                for subscription in self._receiver.table:
                    self._ask(SubscriptionChanges(dropped=self._receiver.table.remove(subscription)))
        self._is_drained = True

    def _begin_part(self, subscription: Subscription) -> None:
        """Ask publishers that filter for nothing more for one subscription."""
        if self._streams is not None:
            with self._guard:
                for changes in self._streams.part(subscription):
                    self._ask(changes)

    def _has_drained(self, subscription: Subscription, among: Collection[bytes] | None = None) -> bool:
        """Tell whether nothing more can be on its way for it from publishers that filter; see `_has_left`."""
        return self._streams is None or self._streams.has_drained(subscription, among)

    def _cancel(self, subscription: Subscription) -> None:
        """End a subscription."""
        raise NotImplementedError

    def _drain_one(self, subscription: Subscription, timeout: float) -> Any:
        """End a subscription when it has had what is on its way; see `Subscription.drain`."""
        raise NotImplementedError

    def _end_part(self, subscription: Subscription) -> None:
        """End a subscription; what it has been given and waits in line is still to be received."""
        if subscription.active:
            subscription.left = 0
            self._cancel(subscription)

    def _rest_of(self, subscription: Subscription) -> Iterator[Message]:
        """Return what publishers that filter have sent and nobody has been given, for it among others."""
        if self._streams is not None and (stream := self._streams.stream(subscription)) is not None:
            assert isinstance(self._receiver, BatchDecoder)
            yield from self._receiver.rest(stream)

    def _check_drained(self) -> None:
        if self._is_drained and not self._has_some:
            raise ClosedError("this subscriber was drained: it has stopped asking, and nothing is left")

    @property
    def _has_some(self) -> bool:
        """Whether a message is here already, taken from the socket."""
        if self._ready or self._rest:
            return True
        decoder = self._receiver
        return isinstance(decoder, BatchDecoder) and (
            bool(decoder.waiting) or any(stream.receive_buffer for stream in decoder.streams.buffered)
        )

    # closing ---------------------------------------------------------------------------------------------

    def _close_socket(self, linger: int | None, timeout: float | None) -> bool:
        if self._streams is not None and not self.closed and not self._guard.is_foreign:
            with self._guard:
                goodbye = self._streams.leave()
                if goodbye.wanted:
                    # What stands is not taken back: that goes by itself when the connection does. A context
                    # that was ended under the socket allows nothing but closing.
                    with suppress(zmq.ZMQError):
                        self._ask(SubscriptionChanges(goodbye.wanted))
                    if not linger and timeout is None:
                        linger = round(1000 * GOODBYE_SECONDS)
        return super()._close_socket(linger, timeout)
