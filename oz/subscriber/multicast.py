"""Multicast endpoint of a subscriber. A `Listener` reads the socket. Its messages and gaps go to queues.

Multicast cannot filter at the publisher. A subscriber reads all messages of the endpoint, and delivers the messages
that match its patterns. Therefore `received` plus `lost` is the number of messages that were sent since the subscriber
joined. The lost messages that a gap reports may belong to any subscription.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

import zmq

from oz.errors import ConfigurationError
from oz.message import Extras, Gap
from oz.multicast.listening import Listener
from oz.multicast.receiver import Effect, Loss, Messages
from oz.options import Multicast
from oz.subscriber.message import Arrival, Message
from oz.subscriber.queue import Dispatcher, Inbox, Route
from oz.wire.extras import decode_extras

HIGH_WATER_MARK = 10_000
"""Maximum number of frames that wait in the socket. Further frames are lost, and reported as a gap."""


def needs_link(endpoint: str) -> ConfigurationError:
    """Return the error for a subscription whose options need a link, which multicast does not have."""
    rule = (
        f'{endpoint!r} has no links, which group, last_value, overflow and ack="handled" need: leave them out, or '
        "use another Subscriber"
    )
    return ConfigurationError("multicast", endpoint, "argument", rule)


class MulticastSource:
    """Reads one multicast endpoint and delivers its messages.

    Attributes:
        listener: object that reads the multicast socket and detects losses.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        options: Multicast,
        dispatcher: Dispatcher,
        match: Callable[[bytes], tuple[Inbox, ...]],
    ) -> None:
        """Join the multicast group.

        Args:
            context: context of the socket.
            endpoint: multicast endpoint to read.
            options: options of the endpoint.
            dispatcher: dispatcher that puts the messages into the queues of the subscriber.
            match: function that returns the inboxes whose patterns match a subject.

        Raises:
            EndpointError: the endpoint cannot be used; see `Listener`.
        """
        self.listener = Listener(context, endpoint, options, high_water_mark=HIGH_WATER_MARK)
        self._dispatcher, self._match = dispatcher, match
        self._gaps: dict[bytes, int] = {}
        self._counted = (0, 0)

    @property
    def is_heard(self) -> bool:
        """Whether frames arrive from at least one publisher that has not closed."""
        return any(not sender.has_left for sender in self.listener.receiver.senders.values())

    @property
    def origin(self) -> bytes | None:
        """Id of the publisher that sent the last frame; None before the first frame."""
        senders = self.listener.receiver.senders
        return max(senders, key=lambda origin: senders[origin].heard_at, default=None)

    def missing(self) -> str | None:
        """Return the reason why the endpoint is not ready; None if frames of a publisher arrive."""
        if self.is_heard:
            return None
        return (
            f"no publisher is heard at {self.listener.endpoint}: start it, or check group, port, rate and the "
            "firewall"
        )

    def read(self, limit: int, now: float) -> bool:
        """Read frames, deliver their messages, and run the steps that are due; return whether a frame arrived.

        Args:
            limit: maximum number of frames.
            now: time in monotonic seconds.
        """
        receiver = self.listener.receiver
        before = receiver.last_heard_at
        time_ns = time.time_ns()
        for effect in self.listener.read(limit):
            self._apply(effect, time_ns)
        for effect in self.listener.check(now):
            self._apply(effect, time_ns)
        stats, (malformed, repeated) = self._dispatcher.stats, self._counted
        self._counted = receiver.malformed, receiver.repeated
        stats.malformed += receiver.malformed - malformed
        stats.repeated += receiver.repeated - repeated
        return receiver.last_heard_at != before

    def _apply(self, effect: Effect, time_ns: int) -> None:
        if isinstance(effect, Messages):
            self._deliver(effect, time_ns)
            return
        if effect.count is not None:
            self._gaps[effect.origin] = self._gaps.get(effect.origin, 0) + effect.count
        self._report(effect)

    def _report(self, loss: Loss) -> None:
        self._dispatcher.put_gap(Gap(loss.origin, loss.count, 0, loss.reason), None)

    def _deliver(self, messages: Messages, time_ns: int) -> None:
        """Deliver the messages that a pattern matches; count the other messages as filtered."""
        dispatcher, flat = self._dispatcher, messages.flat
        sequences = range(messages.sequence, messages.sequence + len(flat) // 3)
        arrival = Arrival(messages.origin, time_ns, sequence=messages.sequence, positions=sequences)
        for offset in range(len(sequences)):
            subject, payload, found = flat[3 * offset : 3 * offset + 3]
            dispatcher.stats.received += 1
            route = dispatcher.plain_route(subject, self._match)
            if not route.inboxes:
                dispatcher.stats.filtered += 1
                continue
            message = self._message(route, payload, found, offset, arrival)
            if message is not None:
                dispatcher.put(message)

    def _message(
        self, route: Route, payload: bytes, found: Any, offset: int, arrival: Arrival
    ) -> Message | None:
        """Return a message object; None if the message cannot be decoded, or if it is a repeat."""
        dispatcher, decode = self._dispatcher, self._dispatcher.decode
        extras: Extras | None = None
        value: Any = payload
        try:
            if found is not None:
                extras = decode_extras(found)
            if decode is not None:
                value = decode(payload)
        except Exception:
            # A codec of the program may raise any exception.
            dispatcher.stats.malformed += 1
            self._report(Loss(arrival.origin or b"", arrival.positions[offset], 1, "malformed"))
            return None
        if extras is not None and dispatcher.is_repeat(0, extras, is_redelivered=False):
            dispatcher.stats.repeated += 1
            return None
        if gap := self._gaps.pop(arrival.origin or b"", 0):
            arrival.gap, arrival.gap_offset = gap, offset
        body = None if decode is None else payload
        return tuple.__new__(Message, (route.subject, value, route, arrival, offset, extras, body))

    def next_deadline(self) -> float:
        """Return the time in monotonic seconds at which `read` must run even if no frame has arrived."""
        due = self.listener.next_deadline()
        return inf if due is None else due

    def close(self) -> None:
        """Leave the multicast group."""
        self.listener.close()
