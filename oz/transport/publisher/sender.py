"""The sender: what every published message passes through, in one plain object; see `receiver`.

A message for plain subscribers goes to ZeroMQ at once. One for subscribers that have this publisher filter
joins the window, which becomes a batch; see `accumulator`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import zmq

from oz.compiled import HOT
from oz.message import BARE, Extras
from oz.protocol.publisher.dispatch import Dispatch
from oz.protocol.publisher.interest import PLAIN, ROUTED, Recipients
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS
from oz.transport.descriptor_watch import WATCH
from oz.transport.guard import Guard
from oz.transport.publisher.accumulator import Accumulator
from oz.transport.publisher.sink import HandOver, as_item, as_sendable
from oz.transport.publisher.subjects import Route, Routes
from oz.wire.batch import LARGE
from oz.wire.codec import Codec
from oz.wire.extras import check_extras, rich

LISTEN_EVERY = 0.001
"""Seconds after which a busy publisher takes in the subscriptions that have arrived."""

LOOK_EVERY = 1024
"""The same, in messages that nobody wants: those do not even look at the clock."""

_NEVER_GIVEN = "reply_to"
"""The one field that `publish` does not take: a node says itself what to reply to."""

Refused = tuple[Route, Any, Any]
"""A message for which a subscriber has no room: the route of its subject, its payload for plain subscribers
and for the others. Nothing of it was sent, to nobody."""


def by_fields(publish: Callable[[Any, Any, Extras | None], Any]) -> Callable[..., Any]:
    """Return a function with the arguments of `oz.Publisher.publish`, the fields by their names.

    Args:
        publish: takes the fields of a message as one value.
    """

    def long_way(subject: str | bytes, payload: Any = b"", **fields: Any) -> Any:
        extras = None
        if fields:
            try:
                given = Extras(**fields) if _NEVER_GIVEN not in fields else None
            except TypeError:
                given = None
            if given is None:
                unknown = min(fields.keys() - {*Extras._fields} | fields.keys() & {_NEVER_GIVEN})
                raise TypeError(f"publish() got an unexpected keyword argument {unknown!r}")
            if given != BARE:
                extras = given
        return publish(subject, payload, extras)

    long_way.__name__ = long_way.__qualname__ = "publish"
    return long_way


class Sender:
    """Encodes messages and hands them to one publisher's socket.

    Attributes:
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
    """

    __slots__ = (
        "_check_open",
        "_dispatch",
        "_encode",
        "_guard",
        "_interrupting",
        "_is_publishing",
        "_last_values",
        "_monotonic",
        "accumulator",
        "flags",
        "hand_over",
        "in_use",
        "is_behind",
        "is_unheard",
        "listen",
        "listened_at",
        "most_bytes",
        "routes",
        "stats",
    )

    def __init__(
        self,
        guard: Guard,
        codec: Codec | None,
        router: Router,
        dispatch: Dispatch,
        last_values: LastValueCache | None,
        max_batch: int,
        *,
        routes: Routes,
        hand_over: HandOver,
        in_use: Callable[[], object],
        check_open: Callable[[], None],
        expect_more: Callable[[], object],
        monotonic: Callable[[], float],
        in_turns: bool = False,
    ) -> None:
        """Put together what a publisher has.

        Args:
            guard: of the publisher.
            codec: encodes payloads, if there is one.
            router: knows who wants what.
            dispatch: sends batches.
            last_values: the last values, if they are kept.
            max_batch: messages in a batch at most.
            routes: what is known of subjects.
            hand_over: hands a plain message to ZeroMQ.
            in_use: the attribute; whoever finds a shorter way replaces it.
            check_open: raises when the publisher is closed.
            expect_more: see `Accumulator`.
            monotonic: the clock.
            in_turns: see `Accumulator`.
        """
        self._guard = guard
        self._encode = codec.encode if codec is not None else None
        self._dispatch = dispatch
        self._last_values = last_values
        self._is_publishing = False
        self._interrupting: deque[tuple[Any, Any, Any]] = deque()
        # The attendant's, once there is one.
        self.listen: Callable[[], bool] = bool
        self.in_use = in_use
        self._check_open = check_open
        self._monotonic = monotonic
        self.routes = routes
        self.hand_over = hand_over
        guard.when_disowned = self.routes.forget
        self.stats: PublisherStats = router.stats
        self.accumulator = Accumulator(
            guard, dispatch, router.stats, max_batch, self.look, expect_more, monotonic, in_turns=in_turns
        )
        self.flags = 0
        self.most_bytes = DEFAULT_LIMITS.message_size
        self.listened_at = 0.0
        self.is_behind = self.is_unheard = False

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
            self._guard.is_wanted = True
            # Whoever joins meanwhile is given either the last value or the message.
            with self._guard:
                if self._is_publishing:
                    # A signal handler interrupts another message, whose position is not taken yet.
                    self.routes.find(subject)
                    self._interrupting.append((subject, payload, item))
                    return None
                return self._keep_all(socket, self.routes.find(subject), payload, item)
        except zmq.ZMQError:
            self._check_open()
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

    def long_way(
        self, socket: Any, when_refused: Callable[[Any, Refused], object]
    ) -> Callable[[Any, Any, Extras | None], None]:
        """Make a `publish` for messages of any kind; see `publish`.

        Args:
            socket: of the publisher.
            when_refused: called with the subject and the message, when that was not sent.
        """

        def publish(subject: Any, payload: Any = b"", extras: Extras | None = None) -> None:
            refused = self.publish(socket, subject, payload, extras)
            if refused is not None:
                when_refused(subject, refused)

        return publish

    def flush(self, socket: Any) -> None:
        """Send what waits in the accumulator.

        Raises:
            ClosedError: the publisher is closed, perhaps meanwhile, by another thread or a signal handler.
        """
        if self.routes.is_closing:
            self._check_open()
        self._flush_full(socket)

    def shortcut(
        self, socket: Any, long_way: Callable[..., Any], *, looks: bool
    ) -> Callable[..., Any] | None:
        """Make a `publish` that is quick when the publisher is busy: docs/decisions/014-the-short-way.md.

        Args:
            socket: of the publisher.
            long_way: called with the same arguments, for whatever is not the common case.
            looks: whether it must look for subscriptions itself, as no other thread does.

        Returns:
            A function that is called with subject, payload and extras, in the form of the long way, and
            gives None or what that gives. None instead of it for a publisher with a codec or last values.
        """
        if self._encode is not None or self._last_values is not None:
            return None
        accumulator = self.accumulator
        quick, waiting, add = self.routes.quick, accumulator.messages, accumulator.messages.extend
        dispatch, stats = self._dispatch, self.stats

        def publish(subject: Any, payload: Any = b"", extras: Any = None, **fields: Any) -> Any:
            if type(payload) is bytes and extras is None and not fields:
                try:
                    way = quick[subject]
                except (KeyError, TypeError):
                    way = False
                if way is None:
                    stats.unwanted += 1
                    if looks and not stats.unwanted % LOOK_EVERY:
                        self.look(socket)
                    return None
                if type(way) is tuple:
                    if len(payload) < LARGE and not dispatch.is_blocked:
                        recipients, raw = way
                        try:
                            if not waiting:
                                accumulator.begin(socket, recipients, raw, payload)
                                return None
                            # One call, so that another thread sees all three or none.
                            add((recipients, raw, payload))
                            if len(waiting) >= accumulator.limit:
                                accumulator.flush(socket)
                        except zmq.ZMQError:
                            self._check_open()
                            raise
                        return None
                elif (
                    way
                    and len(payload) < LARGE
                    and not self.look(socket)
                    and self._try_plain(socket, way, payload)
                ):
                    return None
            if extras is None:
                return long_way(subject, payload, **fields)
            return long_way(subject, payload, extras, **fields)

        if HOT is None:
            return publish
        return HOT.Publish(
            twin=publish,
            flush=partial(self._flush_full, socket),
            quick=quick,
            waiting=waiting,
            dispatch=dispatch,
            accumulator=accumulator,
            stats=stats,
            sender=self,
            guard=self._guard,
            monotonic=self._monotonic,
            socket=socket,
            error=zmq.ZMQError,
            large=LARGE,
            look_every=LOOK_EVERY if looks else 0,
            listen_every=LISTEN_EVERY,
        )

    def _flush_full(self, socket: Any) -> None:
        """Send what waits in the accumulator, which is full."""
        try:
            self.accumulator.flush(socket)
        except zmq.ZMQError:
            self._check_open()
            raise

    def _try_plain(self, socket: Any, wire: bytes, payload: bytes) -> bool:
        """Send a message that only plain subscribers want; tell whether it could go at once."""
        if self._guard.is_interrupted:
            return False
        try:
            self.hand_over(socket, wire, payload, self.flags)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self._check_open()
            raise
        if not self.is_unheard:
            self.listen()
        self.stats.sent += 1
        return True

    def look(self, socket: Any) -> bool:
        """Take in the subscriptions that have arrived, if that was not done a moment ago.

        Returns:
            Whether any interest has changed.
        """
        now = self._monotonic()
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
        if self._guard.is_interrupted:
            self._guard.postponed.append(partial(self._publish_later, socket, route, payload, item))
            return None
        return self._publish_now(socket, route, payload, item)

    def _publish_now(self, socket: Any, route: Route, payload: Any, item: Any) -> Refused | None:
        if route[0].kind != ROUTED and self.look(socket):
            route = self.routes.look_up(route[1], route[2])
        recipients, wire, raw = route
        if not recipients.kind and self._last_values is None:
            self.stats.unwanted += 1
            return None
        if item is None:
            item = payload if type(payload) is bytes else rich(as_item(payload))
        if self._dispatch.is_blocked and recipients.kind & ROUTED and not self._make_room(socket):
            return route, payload, item
        if recipients.kind & PLAIN:
            try:
                self.hand_over(socket, wire, payload, self.flags)
            except zmq.Again:
                self.look(socket)
                return route, payload, item
            if not self.is_unheard:
                self.listen()
        if not recipients.kind & ROUTED and self._last_values is None:
            self.stats.sent += 1
        elif type(item) is not bytes or len(item) >= LARGE or self._last_values is not None:
            with self._guard:
                self._keep_and_begin(socket, recipients, raw, item)
        else:
            self.accumulator.begin(socket, recipients, raw, item)
        return None

    def _publish_later(self, socket: Any, route: Route, payload: Any, item: Any) -> None:
        """Send what a signal handler published in the middle of something else."""
        with suppress(zmq.ZMQError):
            if self._publish_now(socket, self.routes.look_up(*route[1:]), payload, item) is None:
                return
        # Nobody is there any more to wait for room, or to be told.
        self.stats.dropped += 1
        self.skip(1)

    def skip(self, count: int | None) -> None:
        """Report messages as lost here; called where nothing comes in between."""
        self._guard.is_torn = True
        self._dispatch.skip(count)
        self._guard.is_torn = False

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

    def route_raw(self, socket: Any, subject: bytes, frames: list[bytes]) -> None:
        """Put what was sent by the calls of pyzmq into the accumulator too, for those who filter here."""
        known = self.routes.known.get(subject)
        recipients = known[0] if known is not None else self.routes.look_up(subject, subject)[0]
        if not recipients.kind & ROUTED:
            return
        if len(frames) == 1 and len(frames[0]) < LARGE:
            # The position of a last value goes by what waits, so nothing may come between.
            with nullcontext() if self._last_values is None else self._guard:
                self.accumulator.begin(socket, recipients, subject, frames[0])
        else:
            content = frames[0] if len(frames) == 1 else frames or b""
            with self._guard:
                self._keep_and_begin(socket, recipients, subject, rich(content))

    def count(self) -> PublisherStats:
        """Count what is in the accumulator too; give all that was counted."""
        self.accumulator.count()
        self.stats.starved = WATCH.cut
        return self.stats

    def _make_room(self, socket: Any) -> bool:
        """Try to send what waits for room; tell whether the publisher can go on."""
        with self._guard:
            self._guard.undivided(self._dispatch.retry)
            self.look(socket)
        return not self._dispatch.is_blocked
