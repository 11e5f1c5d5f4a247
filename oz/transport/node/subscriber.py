"""The subscriber of a node: an engine on a plain socket, and whom it hears."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from typing import Any

import zmq

from oz.protocol.messages import Message
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.pattern import Pattern
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of, make_asking
from oz.transport.guard import StrictGuard
from oz.transport.node.connector import Connector
from oz.transport.node.keys import NodeKeys
from oz.transport.option_checks import Policy, delivery_options
from oz.transport.socket import keep_link_alive, limit_peers
from oz.transport.subscriber.engine import SubscriberEngine
from oz.wire.codec import Codec
from oz.wire.denials import Denial
from oz.wire.keys import DeliveryOptions

INTRODUCTION = DeliveryOptions(policy="failover")
"""Delivery options of the presence announcement's stream: spelt as `DeliveryOptions()` are.

It is declared last on every connection, so that where a presence announcement stands, everything that its
node had asked for stands too.
"""

_NOBLOCK = int(zmq.NOBLOCK)

GREETING = 60.0
"""Seconds between two greetings; see `Streams`. Nothing stands between nodes that may drop a key, and whoever
connects anew is told all: it is for what nobody has thought of."""

PATIENCE = 30.0
"""Seconds for an answer before something is declared again, as nothing between nodes drops it: a publisher
that is slow answers no sooner for that, and all the others take in and answer it once more."""

GOODBYE_SECONDS = 0.5
"""Seconds that `close` waits at most until the goodbye is sent."""


class TakenIn:
    """The messages of one turn of a subscriber; true while one is handed over beside others.

    Attributes:
        count: those that were handed over.
        is_handled: some were handled here, by an inline handler.
    """

    __slots__ = ("_waiting", "count", "is_handled")

    def __init__(self, waiting: Sized) -> None:
        """Begin with none.

        Args:
            waiting: those that were read and are still to be handed over.
        """
        self._waiting = waiting
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.count = 0
        self.is_handled = False

    def __bool__(self) -> bool:
        """Tell whether there were others before, or are behind."""
        return self.count > 1 or bool(self._waiting)


class NodeSubscriber:
    """A node's subscriber: an engine on a plain socket, which knows whom it hears.

    Only the I/O side of the node touches it. All its handlers are plain functions.

    Attributes:
        socket: the SUB, to be waited for; of asyncio where the context is.
        engine: what receives.
        streams: what is asked for.
        connector: makes and ends its connections.
        has_denials: a publisher has denied something since `take_denials` was called last.
        is_behind: more had come than the last turn has taken in.
        taken_in: what this turn has brought.
        between_frames: called between the frames of a turn.
    """

    __slots__ = (
        "_ask",
        "_decoder",
        "_introduced",
        "between_frames",
        "connector",
        "engine",
        "has_denials",
        "is_behind",
        "socket",
        "streams",
        "taken_in",
    )  # fmt: skip

    def __init__(
        self,
        context: zmq.Context[Any],
        codec: Codec,
        on_gap: OnGap,
        limits: Limits = DEFAULT_LIMITS,
        keys: NodeKeys | None = None,
    ) -> None:
        """Make one that is not connected yet.

        Args:
            context: the node's.
            codec: decodes payloads.
            on_gap: called with each `oz.Gap`.
            limits: of the node.
            keys: of the node, and of its peers; None where nobody has to prove anything.
        """
        self.socket: Any = context.socket(zmq.SUB)
        self._ask = make_asking(self.socket)
        self.streams = Streams(
            backend_of(self.socket).random_bytes,
            index=ReservedIndex,
            ends_with_first=True,
            greet_every=GREETING,
            patience=PATIENCE,
        )
        guard = StrictGuard()
        credentials = None if keys is None else keys.credentials
        attachments = Attachments(guard, credentials)
        self.has_denials = self.is_behind = False
        self._decoder = BatchDecoder(self.streams, codec, on_gap, limits)
        self.engine = SubscriberEngine(self.socket, guard, self._decoder, attachments)
        self.connector = Connector(self.socket, self.engine, attachments)
        self.taken_in = TakenIn(self.engine.waiting)
        self.between_frames: Callable[[], object] = bool
        if keys is not None and (access := self._decoder.access) is not None:
            access.rules = keys.ownership
        self._introduced: Stream | None = None
        # A SUB forwards only so many subscriptions in a burst, and silently drops the rest.
        self.socket.set(zmq.SNDHWM, 0)
        keep_link_alive(self.socket)
        limit_peers(self.socket, limits)
        # Whom it hangs up on may read no more; closing gives its own time.
        self.socket.set(zmq.LINGER, 0)

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
        found_by: tuple[Pattern, ...] = (),
    ) -> Subscribed:
        """Ask for the messages whose subject matches.

        Args:
            pattern: which.
            handler: a plain function.
            group: a queue group.
            policy: which member of the group gets a message.
            found_by: patterns by which its messages are found among those that come, if not by this one.

        Raises:
            PatternError: it cannot be sent to publishers.
            ValueError: the group or policy is none.
        """
        subscription = Subscribed([pattern], handler, self.engine.cancel)
        if found_by:
            subscription._find_by(found_by)
        delivery = delivery_options(group, policy, None, None)
        self.begin(subscription, delivery, last_value=False)
        return subscription

    def introduce(self, patterns: tuple[Pattern, ...], handler: Callable[[Message], Any]) -> None:
        """Subscribe to what nodes say to each other: the first to do, see `INTRODUCTION`."""
        subscription = Subscribed(patterns, handler, lambda _: None, None)
        self.begin(subscription, INTRODUCTION, last_value=False)
        self._introduced = self.streams.stream(subscription)

    def begin(self, subscription: Subscribed, delivery: DeliveryOptions, *, last_value: bool) -> None:
        """Ask for what a subscription wants; see `Declarer.begin`."""
        self.engine.declarer.begin(subscription, delivery, last_value=last_value)

    def cancel(self, subscription: Subscribed) -> None:
        """End a subscription."""
        self.engine.cancel(subscription)

    def begin_part(self, *subscriptions: Subscribed) -> None:
        """Ask publishers for nothing more for some subscriptions."""
        self.engine.declarer.begin_part(*subscriptions)

    def has_drained(self, subscription: Subscribed, among: Collection[bytes] | None) -> bool:
        """Tell whether nothing more can be on its way for a subscription; see `Streams.has_drained`."""
        return self.streams.has_drained(subscription, among)

    def end_with_rest(self, subscription: Subscribed) -> None:
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
        return bool(self.engine.waiting)

    def has_due(self, now: float) -> bool:
        """Tell whether `take_in` has something to do, though nothing may have come.

        Args:
            now: monotonic seconds.
        """
        return self.streams.is_collecting or now >= self.engine.declarer.due_at or self.has_some

    @property
    def has_come(self) -> bool:
        """Whether something waits in the socket. It takes the sign of its descriptor, which comes once."""
        return self._ask()

    def take_in(self, seconds: float, *, is_signed: bool = False) -> bool:
        """Take in what has come, and hand it to handlers.

        Args:
            seconds: after which to stop, though more comes.
            is_signed: something has come, as far as one knows.

        Returns:
            Whether more may be there, so that `has_come` is to be asked before one waits. Otherwise the next
            that comes signs the socket's descriptor.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        engine, waiting = self.engine, self.engine.waiting
        monotonic = engine.monotonic
        ends = monotonic() + seconds
        self.taken_in.begin()
        self.is_behind = True
        while True:
            while waiting:
                self._hand_over(waiting.popleft())
                if monotonic() >= ends:
                    return True
            self.between_frames()
            # Asking whether there is more costs a third of what it does to read in vain.
            if not (is_signed or self.streams.is_collecting or self.has_come):
                break
            is_signed = False
            try:
                message = engine.take(self.socket, _NOBLOCK, ends)
            except zmq.Again:
                self.is_behind = False
                return True
            self._hand_over(message)
            if monotonic() >= ends:
                return True
        self.is_behind = False
        if monotonic() < engine.declarer.due_at:
            return False
        engine.declarer.look(monotonic())
        return True

    def _hand_over(self, message: Message | None) -> None:
        """Hand a message to handlers, if there is one."""
        if message is not None:
            self.taken_in.count += 1
            self.engine.dispatch(message)

    # the end ---------------------------------------------------------------------------------------------

    def close(self, *, is_drained: bool) -> None:
        """Say goodbye, and close.

        Args:
            is_drained: the goodbye was said before, and answered by those who are there.
        """
        guard = self.engine.declarer.guard
        if self.socket.closed or guard.is_foreign:
            return
        self.connector.close()
        with guard:
            has_said = not is_drained and self.engine.declarer.say_goodbye()
            self.socket.close(round(1000 * GOODBYE_SECONDS) if has_said else 0)

    # what is denied --------------------------------------------------------------------------------------

    def tell_denials(self, note_due: Callable[[], object]) -> None:
        """Call something when publishers deny what is asked for, so that `take_denials` is called."""

        def note() -> None:
            self.has_denials = True
            note_due()

        self._decoder.answers.on_denial = note

    def take_denials(self) -> list[tuple[Subscribed, Denial]]:
        """Return the subscriptions that publishers deny."""
        self.has_denials = False
        self._decoder.answers.denials.clear()
        return self.streams.denied()

    def denials(self) -> list[Denial]:
        """Return what publishers deny now."""
        return [one for one in self.streams.publishers.refusals() if isinstance(one, Denial)]

    @property
    def denied(self) -> str:
        """The last denial of a message of a peer, in words; empty before."""
        access = self._decoder.access
        return "" if access is None else access.last_denied

    # who is heard ----------------------------------------------------------------------------------------

    def heard_at(self, origin: bytes) -> int:
        """Return the time when a publisher was heard last, in nanoseconds since 1970; 0 if it never was."""
        return self.streams.publishers.heard_at(origin) or 0

    def last_heard(self) -> dict[bytes, int]:
        """Return the same of all publishers that are known."""
        return self.streams.publishers.last_heard()

    def has_answer(self, origin: bytes) -> bool:
        """Tell whether a publisher has answered everything that is asked for."""
        return self.streams.has_answered(origin)

    def asked(self) -> dict[bytes, int]:
        """Declare what is still to be declared, and give the newest chunk of each stream."""
        self.flush()
        return self.streams.asked()

    def lose_track(self, origin: bytes, *, is_in_place: bool) -> None:
        """Report that messages of a publisher may be missing; see `Losses.lose_track`."""
        self._decoder.losses.lose_track(origin, self._introduced, is_in_place=is_in_place)

    def forget(self, origin: bytes) -> None:
        """Forget a publisher that is gone."""
        self.streams.forget(origin)
