"""The sender: what every published message passes through, in one plain object; see `receiver`.

A message for plain subscribers goes to ZeroMQ at once. One for subscribers that have this publisher filter
joins the window, which becomes a batch; see `accumulator`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import zmq

from oz.message import Extras
from oz.protocol.publisher.interest import PLAIN, ROUTED, Recipients
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS
from oz.transport.backend import Backend
from oz.transport.guard import Guard
from oz.transport.publisher.accumulator import Accumulator
from oz.transport.publisher.sink import HandOver, SendingParts, as_item, as_sendable
from oz.transport.publisher.subjects import Route, Routes
from oz.wire.batch import LARGE
from oz.wire.codec import Codec
from oz.wire.extras import check_extras, rich

LISTEN_EVERY = 0.001
"""Seconds after which a busy publisher takes in the subscriptions that have arrived."""

Refused = tuple[Route, Any, Any]
"""A message for which a subscriber has no room: the route of its subject, its payload for plain subscribers
and for the others. Nothing of it was sent, to nobody."""


class Sender:
    """Encodes messages and hands them to one publisher's socket.

    Attributes:
        guard: of the publisher.
        dispatch: sends batches.
        check_open: raises when the publisher is closed.
        monotonic: the clock.
        routes: what is known of subjects.
        accumulator: what waits for others to make a batch.
        stats: what the publisher did; `count` brings it up to date.
        flags: how plain messages are sent: 0 or `zmq.NOBLOCK`.
        hand_over: hands a plain message to ZeroMQ.
        in_use: called when something is sent that no look follows, once until the next look.
        listened_at: when subscriptions were taken in last, in monotonic seconds.
        listen: takes in the subscriptions that have arrived, and tells whether any interest has changed. It
            is called also after a send that a look came before, unless `is_unheard`: nobody else is told of
            what that send has taken the sign of.
        most_bytes: bytes of a frame at most.
        is_behind: more subscriptions wait than were looked at: the thread or loop behind the publisher goes
            on with them, and nothing that is sent waits for that.
        is_unheard: the last look was left out, and somebody else was told to look later.
        send_alone: the compiled part's way of a message that waits for no others; None where there is none.
    """

    __slots__ = (
        "_encode",
        "_interrupting",
        "_is_publishing",
        "_last_values",
        "accumulator",
        "check_open",
        "dispatch",
        "flags",
        "guard",
        "hand_over",
        "in_use",
        "is_behind",
        "is_unheard",
        "listen",
        "listened_at",
        "monotonic",
        "most_bytes",
        "routes",
        "send_alone",
        "stats",
    )

    def __init__(
        self,
        guard: Guard,
        codec: Codec | None,
        parts: SendingParts,
        *,
        routes: Routes,
        hand_over: HandOver,
        in_use: Callable[[], object],
        check_open: Callable[[], None],
        expect_more: Callable[[], object],
        backend: Backend,
        in_turns: bool = False,
    ) -> None:
        """Put together what a publisher has.

        Args:
            guard: of the publisher.
            codec: encodes payloads, if there is one.
            parts: what sends to those who ask.
            routes: what is known of subjects.
            hand_over: hands a plain message to ZeroMQ.
            in_use: the attribute; whoever finds a shorter way replaces it.
            check_open: raises when the publisher is closed.
            expect_more: see `Accumulator`.
            backend: what the socket is called by.
            in_turns: see `Accumulator`.
        """
        self.guard = guard
        self._encode = codec.encode if codec is not None else None
        self.dispatch = parts.dispatch
        self._last_values = parts.last_values
        self._is_publishing = False
        self._interrupting: deque[tuple[Any, Any, Any]] = deque()
        # The attendant's, once there is one.
        self.listen: Callable[[], bool] = bool
        self.in_use = in_use
        self.check_open = check_open
        self.monotonic = backend.monotonic
        self.routes = routes
        self.hand_over = hand_over
        guard.when_disowned = self.routes.forget
        self.stats: PublisherStats = parts.router.stats
        self.accumulator = Accumulator(
            guard,
            self.dispatch,
            self.stats,
            self.look,
            expect_more,
            self.monotonic,
            in_turns=in_turns,
        )
        self.flags = 0
        self.most_bytes = DEFAULT_LIMITS.message_size
        self.listened_at = 0.0
        self.is_behind = self.is_unheard = False
        self.send_alone: Callable[[Any, bytes, Any], bool] | None = None

    def publish(
        self,
        socket: Any,
        subject: Any,
        payload: Any,
        extras: Extras | None = None,
    ) -> Refused | None:
        """Send one message.

        Everything is checked and encoded before the first frame goes: half a message would join the next.

        Args:
            socket: of the publisher.
            subject: as it was given.
            payload: bytes, or what the codec encodes.
            extras: as they were given; they go with it to those with publisher-side filtering.

        Returns:
            None; or the message, when a subscriber is at its high-water mark and it was not sent.

        Raises:
            SubjectError, ProtocolError, ClosedError, OwnershipError, TypeError, ValueError: see
                `oz.Publisher.publish`.
        """
        fields = None if extras is None else check_extras(extras)
        if self._encode is not None:
            payload = self._encode(payload)
        if type(payload) is not bytes:
            payload = as_sendable(payload)
        if type(payload) is not bytes or len(payload) > self.most_bytes:
            self._check_size(payload)
        item = None
        if extras is not None:
            item = rich(payload if type(payload) is bytes else as_item(payload), extras, fields)
        try:
            if self._last_values is None:
                return self.publish_any(socket, self.routes.find(subject), payload, item)
            self.guard.is_wanted = True
            # Whoever joins meanwhile is given either the last value or the message.
            with self.guard:
                if self._is_publishing:
                    # A signal handler interrupts another message, whose position is not taken yet.
                    self.routes.find(subject)
                    self._interrupting.append((subject, payload, item))
                    return None
                return self._keep_all(socket, self.routes.find(subject), payload, item)
        except zmq.ZMQError:
            self.check_open()
            raise

    def _keep_all(self, socket: Any, route: Route, payload: Any, item: Any) -> Refused | None:
        """Send a message that is kept as a last value, and what signal handlers publish meanwhile."""
        self._is_publishing = True
        try:
            refused = self.publish_any(socket, route, payload, item)
            while self._interrupting:
                subject, *other = self._interrupting.popleft()
                self._publish_later(socket, self.routes.find(subject), *other)
            return refused
        finally:
            self._is_publishing = False

    def _check_size(self, payload: Any) -> None:
        """Refuse a payload for which subscribers would cut the publisher off.

        Raises:
            ValueError: a frame is larger than `Limits.message_size`.
        """
        frames = payload if type(payload) is tuple else (payload,)
        largest = max((memoryview(frame).nbytes for frame in frames), default=0)
        if largest > self.most_bytes:
            raise ValueError(
                f"a frame of {largest:,} bytes: sockets of oz take {self.most_bytes:,.0f} at most, and cut "
                "off who sends more; send it in parts, or set oz.Limits(message_size=…) on both sides"
            )

    def flush(self, socket: Any) -> None:
        """Send what waits in the accumulator.

        Raises:
            ClosedError: the publisher is closed, perhaps meanwhile, by another thread or a signal handler.
        """
        if self.routes.is_closing:
            self.check_open()
        try:
            self.accumulator.flush(socket)
        except zmq.ZMQError:
            self.check_open()
            raise

    def look(self, socket: Any) -> bool:
        """Take in the subscriptions that have arrived, if that was not done a moment ago.

        Returns:
            Whether any interest has changed.
        """
        now = self.monotonic()
        if self.is_behind or now - self.listened_at < LISTEN_EVERY:
            if not self.is_unheard:
                self.is_unheard = True
                self.in_use()
            return False
        self.listened_at = now
        self.is_unheard = False
        return self.listen()

    def publish_any(self, socket: Any, route: Route, payload: Any, item: Any = None) -> Refused | None:
        """Send one message of any kind; see `publish`.

        Args:
            socket: of the publisher.
            route: of its subject.
            payload: as plain subscribers get it.
            item: as the others do; None when it is the payload.
        """
        if self.guard.is_interrupted:
            is_simple = route[0].kind == ROUTED and self._last_values is None
            if is_simple and not (self.guard.postponed or self.dispatch.is_blocked):
                # What the handler publishes next waits there too, and is not to come before it.
                self.accumulator.begin_rare(socket, route[0], route[1], self._as_item(payload, item))
            else:
                self.guard.postponed.append(partial(self._publish_later, socket, route, payload, item))
            return None
        return self._publish_now(socket, route, payload, item)

    def _as_item(self, payload: Any, item: Any) -> Any:
        """Return a message as those with publisher-side filtering get it."""
        if item is not None:
            return item
        return payload if type(payload) is bytes else rich(as_item(payload))

    def _publish_now(self, socket: Any, route: Route, payload: Any, item: Any) -> Refused | None:
        if route[0].kind != ROUTED and self.look(socket):
            route = self.routes.look_up(route[1])
        recipients, raw = route
        if not recipients.kind and self._last_values is None:
            self.stats.unwanted += 1
            return None
        item = self._as_item(payload, item)
        if self.dispatch.is_blocked and recipients.kind & ROUTED and not self._make_room(socket):
            return route, payload, item
        if recipients.kind & PLAIN:
            try:
                self.hand_over(socket, raw, payload, self.flags)
            except zmq.Again:
                self.look(socket)
                return route, payload, item
            if not self.is_unheard:
                self.listen()
        if not recipients.kind & ROUTED and self._last_values is None:
            self.stats.sent += 1
        elif self._last_values is None and self._is_sent_alone(recipients, raw, item):
            return None
        elif type(item) is not bytes or len(item) >= LARGE or self._last_values is not None:
            self.guard.is_wanted = True
            with self.guard:
                self._keep_and_begin(socket, recipients, raw, item)
        else:
            self.accumulator.begin(socket, recipients, raw, item)
        return None

    def _is_sent_alone(self, recipients: Recipients, raw: bytes, item: Any) -> bool:
        return self.send_alone is not None and self.send_alone(recipients, raw, item)

    def _publish_later(self, socket: Any, route: Route, payload: Any, item: Any) -> None:
        """Send what a signal handler published in the middle of something else."""
        route = self.routes.look_up(route[1])
        with suppress(zmq.ZMQError):
            if self._publish_now(socket, route, payload, item) is None:
                return
        # Nobody is there any more to wait for room, or to be told.
        self.stats.dropped += 1
        self.skip(1, route[0])

    def skip(self, count: int | None, recipients: Recipients | None = None) -> None:
        """Report messages as lost here; called where nothing comes in between. See `Dispatch.skip`."""
        self.guard.is_torn = True
        self.dispatch.skip(count, recipients)
        self.guard.is_torn = False

    def _keep_and_begin(self, socket: Any, recipients: Recipients, raw: bytes, item: Any) -> None:
        """Keep a message as the last value, if that is wanted, and send what is not the common case."""
        if self._last_values is not None:
            self._last_values.put(raw, item, self.accumulator.position())
        if recipients.kind & ROUTED:
            self.accumulator.begin_rare(socket, recipients, raw, item)
        else:
            self.accumulator.pass_over(socket)
            self.stats.sent += bool(recipients.kind)
            self.stats.unwanted += not recipients.kind

    def count(self) -> PublisherStats:
        """Count what is in the accumulator too; give all that was counted."""
        self.accumulator.count()
        return self.stats

    def _make_room(self, socket: Any) -> bool:
        """Try to send what waits for room; tell whether the publisher can go on."""
        with self.guard:
            self.guard.undivided(self.dispatch.retry)
            self.look(socket)
        return not self.dispatch.is_blocked
