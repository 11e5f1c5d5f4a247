"""The sockets of a node, which differ from others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import zmq

from oz.message import Extras, Message
from oz.protocol.bridge.bridge import Ledger
from oz.protocol.node.presence import Presence
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.publisher.batching import rich
from oz.protocol.publisher.last_value_cache import NodeLastValueCache
from oz.protocol.publisher.recipients import PLAIN, ROUTED, Recipients
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats, SubscriberStats
from oz.protocol.subscriber.decoder import BatchDecoder, OnGap
from oz.protocol.subscriber.receive_buffer import DropOldestBuffer
from oz.protocol.subscriber.streams import Stream, Streams
from oz.protocol.subscriber.subscriptions import Subscription
from oz.subjects.pattern import Pattern
from oz.transport.attachments import Attachments
from oz.transport.guard import StrictGuard
from oz.transport.option_checks import Policy, delivery_options
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import PublisherOptions, Role
from oz.transport.publisher.sink import as_item, as_sendable
from oz.transport.subscriber.options import make_routed_engine
from oz.transport.subscriber.socket import GOODBYE_SECONDS
from oz.wire.codec import Codec
from oz.wire.discovery import Announcement
from oz.wire.keys import DeliveryOptions

KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 1),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    # What was sent and is not acknowledged in so many milliseconds.
    (zmq.TCP_MAXRT, 5_000),
)
"""Have the system notice within 5 s that a host is gone. Not ZMTP's heartbeats: with a receive queue that is
full they end the process (libzmq issues 3937, 4364 and 4767, open in 2026)."""

RECONNECT_MS = 100
LONGEST_RECONNECT_MS = 5_000
"""Milliseconds before a link is tried anew, and the most that this grows to; libzmq adds jitter."""

INTRODUCTION = DeliveryOptions(policy="failover")
"""Delivery options of the presence announcement's stream: spelt as `DeliveryOptions()` are.

It is declared last on every connection, so that where a presence announcement stands, everything that its
node had asked for stands too.
"""

GREETING = 60.0
"""Seconds between two greetings; see `Streams`. Nothing stands between nodes that may drop a key, and whoever
connects anew is told all: it is for what nobody has thought of."""

ONCE, FOR_EVER = zmq.RECONNECT_STOP_CONN_REFUSED, 0
"""Values of RECONNECT_STOP: an ephemeral port that refuses is not tried again."""


def make_uuid() -> bytes:
    """Name a node: 16 random bytes, of which the last is even, so that both its publishers have names."""
    drawn = os.urandom(16)
    return drawn[:-1] + bytes((drawn[-1] & 0xFE,))


def keep_alive(socket: Any) -> None:
    """Have a link noticed that is cut without a word."""
    for option, value in KEEPALIVE:
        socket.set(option, value)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, LONGEST_RECONNECT_MS)


class NodePublisher:
    """A publisher of a node: an engine, and what the node has to know of who is connected to it.

    Attributes:
        engine: the engine.
    """

    __slots__ = ("_on_interest", "_presence", "_router", "_scoped", "engine")

    def __init__(
        self,
        make_engine: Callable[[PublisherOptions, Role], PublisherEngine],
        options: PublisherOptions,
        *,
        origin: bytes,
        bus: str,
        on_interest: Callable[[], None],
    ) -> None:
        """Make one that is not bound yet.

        Args:
            make_engine: makes the engine; one for threads, or for a loop.
            options: as `oz.Publisher` has them, without endpoints.
            origin: its name.
            bus: that of the node.
            on_interest: called, by any thread, when an interest has come or gone.
        """
        self._scoped: dict[tuple[Recipients, str], Recipients] = {}
        self._on_interest = on_interest
        stats = PublisherStats()
        self._presence = presence = Presence(stats, bus)
        self._router = router = Router(origin, stats, index=ReservedIndex(cache_size=0), watcher=presence)
        last_values = NodeLastValueCache() if options.last_value else None
        role = Role(router=router, last_values=last_values, interest_changed=self._interest_changed)
        self.engine = make_engine(options, role)
        keep_alive(self.engine)

    def _interest_changed(self) -> None:
        self._scoped.clear()
        self._on_interest()

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether anybody has asked for what a subject begins with; see `oz.Publisher.interest`."""
        return self.engine.interest(subject)

    def standing(self) -> tuple[list[Announcement], set[bytes]]:
        """Return the nodes that are connected, and those whose connection was cut; see `Presence`."""
        with self.engine.guard:
            return self._presence.standing()

    def streams(self) -> list[OutStream]:
        """Return the streams that there are."""
        with self.engine.guard:
            return list(self._router.streams.values())

    def forwarders(self) -> set[bytes]:
        """Return the uuids of the nodes that are connected and pass messages on from other buses."""
        with self.engine.guard:
            return self._presence.forwarders()

    def enter_into(self, ledger: Ledger, silent: Container[bytes]) -> None:
        """Bring a ledger up to date, which is the only one; `on_interest` tells when to do it again.

        Args:
            ledger: what is asked for here.
            silent: the uuids of nodes that say nothing any more.
        """
        with self.engine.guard:
            names = self._presence.names_of(silent) if silent else ()
            ledger.update(self._router.streams.values(), self._presence.take_changes(), names)

    def has_learned(self, chunks: Mapping[bytes, int]) -> bool:
        """Tell whether all that a subscriber asks for has arrived; see `Router.has_learned`."""
        self.engine.listen()
        with self.engine.guard:
            return self._router.has_learned(chunks)

    def own_up(self, streams: Iterable[OutStream]) -> None:
        """Tell streams that they may have missed something, as nobody counted for them meanwhile."""
        with self.engine.guard:
            self.engine.sender.accumulator.flush(self.engine.socket)
            for stream in streams:
                if not stream.is_gone:
                    self._router.renumber(stream)
            self.engine.records.answer()

    def pass_on(self, subject: Any, content: Any, extras: Extras, group: str) -> bool:
        """Publish what came from another bus.

        Args:
            subject: as it came.
            content: the bytes of its payload, or a list of those of several frames.
            extras: what goes with it, as it came.
            group: the queue group that it came for, of which one gets it; "" is all who are in none.

        Returns:
            Whether anybody wants it.

        Raises:
            SubjectError, ProtocolError: it may not be published.
            ClosedError: the publisher is closed.
        """
        sender, socket = self.engine.sender, self.engine.socket
        with self.engine.guard:
            sender.look(socket)
            recipients, wire, raw = sender.routes.find(subject)
            scoped = self._scope(recipients, group)
            payload = as_sendable(content)
            if scoped.kind & PLAIN:
                # Dropped for whoever has no room: a node that passes on does not wait.
                sender.hand_over(socket, wire, payload, zmq.NOBLOCK)
            if scoped.kind & ROUTED:
                sender.accumulator.begin_rare(socket, scoped, raw, rich(as_item(payload), extras))
            elif scoped.kind:
                sender.stats.sent += 1
            else:
                sender.stats.unwanted += 1
            return bool(scoped.kind)

    def _scope(self, recipients: Recipients, group: str) -> Recipients:
        """Leave of the recipients one queue group, or those who are in none."""
        if not (group or recipients.choices):
            return recipients
        scoped = self._scoped.get((recipients, group))
        if scoped is None:
            choices = tuple(one for one in recipients.choices if one.members[0].delivery.group == group)
            scoped = Recipients(
                is_plain=not group and bool(recipients.kind & PLAIN),
                streams=() if group else recipients.streams,
                choices=choices if group else (),
            )
            self._scoped[recipients, group] = scoped
        return scoped

    def send_request(
        self, subject: Any, payload: Any, headers: dict[str, Any] | None, key: Any, reply_to: str
    ) -> Iterator[float]:
        """Publish a message that is to be answered; yields the seconds to pause before it is tried again."""
        extras = Extras(headers, reply_to, None, key)
        refused = self.engine.sender.publish(self.engine.socket, subject, payload, extras)
        if refused is not None:
            yield from self.engine.try_again(subject, refused)


class NodeSubscriber:
    """A node's subscriber: an engine on a plain socket, which knows whom it hears.

    Only the I/O side of the node touches it. All its handlers are plain functions.

    Attributes:
        socket: the SUB, to be waited for; of asyncio where the context is.
        engine: what receives.
        streams: what is asked for.
    """

    __slots__ = ("_attachments", "_decoder", "_introduced", "engine", "socket", "streams")

    def __init__(self, context: zmq.Context[Any], codec: Codec | None, on_gap: OnGap | None) -> None:
        """Make one that is not connected yet.

        Args:
            context: the node's.
            codec: decodes payloads.
            on_gap: called with each `oz.Gap`.
        """
        self.socket: Any = context.socket(zmq.SUB)
        self.streams = Streams(os.urandom, index=ReservedIndex, ends_with_first=True, greet_every=GREETING)
        # The mesh knows who is gone.
        guard = StrictGuard()
        self._attachments = Attachments(guard, None, own_context=False)
        self.engine = make_routed_engine(self.socket, guard, codec, self.streams, on_gap, watches_links=False)
        self._decoder = self.engine.receiver
        self._introduced: Stream | None = None
        # A SUB forwards only so many subscriptions in a burst, and silently drops the rest.
        self.socket.set(zmq.SNDHWM, 0)
        keep_alive(self.socket)
        # Whom it hangs up on may read no more; closing gives its own time.
        self.socket.set(zmq.LINGER, 0)

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that it is connected to."""
        return self._attachments.endpoints

    @property
    def stats(self) -> SubscriberStats:
        """The counts so far."""
        return self._decoder.stats

    # subscribing -----------------------------------------------------------------------------------------

    def subscribe(
        self,
        pattern: Pattern,
        handler: Callable[[Message], Any],
        *,
        group: str | None = None,
        policy: Policy = "round_robin",
    ) -> Subscription:
        """Ask for the messages whose subject matches.

        Args:
            pattern: which.
            handler: a plain function.
            group: a queue group.
            policy: which member of the group gets a message.

        Raises:
            PatternError: it cannot be sent to publishers.
            ValueError: the group or policy is none.
        """
        subscription = Subscription([pattern], handler, self.engine.cancel)
        delivery = delivery_options(group, policy, None, None, shared=False)
        self.begin(subscription, delivery, last_value=False)
        return subscription

    def introduce(self, pattern: Pattern, handler: Callable[[Message], Any]) -> None:
        """Subscribe to what nodes say to each other: the first to do, see `INTRODUCTION`."""
        subscription = Subscription([pattern], handler, lambda _: None, None)
        self.begin(subscription, INTRODUCTION, last_value=False)
        self._introduced = self.streams.stream(subscription)

    def begin(self, subscription: Subscription, delivery: DeliveryOptions, *, last_value: bool) -> None:
        """Ask for what a subscription wants; see `Declarer.begin`."""
        self.engine.declarer.begin(subscription, delivery, last_value=last_value)

    def cancel(self, subscription: Subscription) -> None:
        """End a subscription."""
        self.engine.cancel(subscription)

    def begin_part(self, subscription: Subscription) -> None:
        """Ask publishers for nothing more for one subscription."""
        self.engine.declarer.begin_part(subscription)

    def has_drained(self, subscription: Subscription, among: Collection[bytes] | None) -> bool:
        """Tell whether nothing more can be on its way for a subscription; see `Streams.has_drained`."""
        return self.streams.has_drained(subscription, among)

    def end_with_rest(self, subscription: Subscription) -> None:
        """Hand over what has come for a subscription, and end it."""
        self.engine.end_with_rest(subscription)

    def begin_drain(self) -> None:
        """Ask publishers for nothing more."""
        self.engine.declarer.begin_drain()

    def has_left(self, among: Collection[bytes] | None) -> bool:
        """Tell whether nothing more can be on its way; see `Streams.has_left`."""
        return self.streams.has_left(among)

    def flush(self) -> None:
        """Declare what was collected."""
        self.engine.declarer.flush()

    # receiving -------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when to call `take_in` at the latest, in monotonic seconds; None for never."""
        return self.engine.declarer.next_deadline()

    @property
    def has_some(self) -> bool:
        """Whether a message is here already, taken from the socket."""
        return self.engine.has_some

    def take_in(self, seconds: float) -> None:
        """Take in what has come, and hand it to handlers.

        Args:
            seconds: after which to stop, though more comes.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        with suppress(zmq.Again):
            self.engine.next(zmq.NOBLOCK, time.monotonic() + seconds)

    # connections -----------------------------------------------------------------------------------------

    def dial(self, endpoint: str, *, stop: int) -> None:
        """Connect.

        Args:
            endpoint: where to.
            stop: `ONCE` or `FOR_EVER`.

        Raises:
            EndpointError, TransportUnavailable, zmq.ZMQError: as `oz.Subscriber.connect`.
        """
        socket = self.socket
        # It counts for what is connected from now on.
        socket.set(zmq.RECONNECT_STOP, stop)
        # A connection begins with all that is asked for at the time, in order, and not with what was when it
        # was first tried; and nothing is held for those who are not there.
        socket.set(zmq.IMMEDIATE, 1)
        try:
            self._attachments.connect(socket, endpoint)
        finally:
            # The connection has its copy. What the socket has it goes by when a connection ends: with 1 it
            # drops all that has come and was not taken yet; see socket_base_t::hiccuped in libzmq 4.3.5.
            socket.set(zmq.IMMEDIATE, 0)

    def hang_up(self, endpoint: str) -> None:
        """Disconnect; what had come and was not taken yet is lost."""
        if endpoint in self.endpoints:
            # An error: libzmq has given up on it.
            with suppress(zmq.ZMQError):
                self._attachments.disconnect(self.socket, endpoint)
            self._attachments.forget(endpoint)

    def close(self, *, is_drained: bool) -> None:
        """Say goodbye, and close.

        Args:
            is_drained: the goodbye was said before, and answered by those who are there.
        """
        guard = self.engine.declarer.guard
        if self.socket.closed or guard.is_foreign:
            return
        with guard:
            has_said = self.engine.declarer.say_goodbye()
            self.socket.close(round(1000 * GOODBYE_SECONDS) if has_said and not is_drained else 0)

    # who is heard ----------------------------------------------------------------------------------------

    def heard_at(self, origin: bytes) -> int:
        """Return the time when a publisher was heard last, in nanoseconds since 1970; 0 if it never was."""
        return self.streams.heard_at(origin) or 0

    @property
    def may_drop(self) -> bool:
        """Whether any subscription lets messages go otherwise than for newer ones of the same subject."""
        return any(isinstance(one.receive_buffer, DropOldestBuffer) for one in self.streams.buffered)

    def has_answer(self, origin: bytes) -> bool:
        """Tell whether a publisher has answered everything that is asked for."""
        return self.streams.has_answered(origin)

    def asked(self) -> dict[bytes, int]:
        """Declare what is still to be declared, and give the newest chunk of each stream."""
        self.flush()
        return self.streams.asked()

    def lose_track(self, origin: bytes, *, is_in_place: bool) -> None:
        """Report that messages of a publisher may be missing; see `BatchDecoder.lose_track`."""
        assert isinstance(self._decoder, BatchDecoder)
        self._decoder.lose_track(origin, self._introduced, is_in_place=is_in_place)

    def forget(self, origin: bytes) -> None:
        """Forget a publisher that is gone."""
        self.streams.forget(origin)
