"""The way out: what every message that is published passes through, in one plain object; see `inlet`.

A message for plain subscribers goes to ZeroMQ at once. One for subscribers that have this publisher filter
joins the window, a list that becomes a batch: at once when the publisher has been quiet, and otherwise when
there are `max_batch` of them or `max_delay` is over. Adding to the window takes no lock: one `list.extend`
is whole whatever other threads do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import zmq

from oz.protocol.audience import NOBODY, PLAIN, ROUTED, Audience
from oz.protocol.packing import STEP, Rich
from oz.protocol.retained import Retained
from oz.protocol.routing import Router
from oz.protocol.stats import PublisherStats
from oz.transport.dispatch import BATCH_BYTES, Dispatch
from oz.transport.frames import send_frames
from oz.transport.guard import Guard
from oz.transport.payloads import as_item, as_sendable
from oz.wire.batch import LARGE, MAX_COUNT
from oz.wire.codec import Codec

_send = zmq.backend.Socket.send
# A plain number: the enum's member costs 0.3 µs a message.
_SNDMORE = int(zmq.SNDMORE)

LISTEN_EVERY = 0.001
"""Seconds after which a busy publisher takes in the subscriptions that have arrived."""

LOOK_EVERY = 1024
"""The same, in messages that nobody wants: those do not even look at the clock."""

QUIET = 20e-6
"""Seconds between two messages, wanted or not, from which a publisher counts as quiet: the next one does not
wait for others."""

SUBJECTS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 1_024
"""How many subjects a publisher remembers as valid, and the bytes of the longest."""

_MOST = STEP * MAX_COUNT

Route = tuple[Audience, bytes, bytes]
"""Of a subject: who wants it, the bytes before a plain payload, and the subject's own bytes."""

Refused = tuple[Route, Any, Any]
"""A message for which a subscriber has no room: the route of its subject, its payload for plain subscribers
and for the others. Nothing of it was sent, to nobody."""


class Outlet:
    """Encodes messages and hands them to one publisher's socket.

    Attributes:
        subjects: the bytes of each subject that was found valid, with and without the delimiter, by how it
            was given.
        routes: the same and who wants it; forgotten whenever an interest changes.
        quick: what of that the short way needs: audience and bytes where all who want it have the publisher
            filter, the bytes before a plain payload where none has, None where nobody wants it, else False.
        stats: what the publisher did.
        flags: how plain messages are sent: 0 or `zmq.NOBLOCK`.
        window: what is to go out in the next batches; see `packing.STEP`.
        limit: the length of the window at which it goes out.
        is_held: `with publisher.batch():`, so that nothing goes out before it is full.
        is_nested: frames of one `send_multipart` are being sent.
    """

    __slots__ = (
        "_counted",
        "_dispatch",
        "_encode",
        "_guard",
        "_is_rich",
        "_listened_at",
        "_retained",
        "_sent_at",
        "_unwanted",
        "_whole_limit",
        "flags",
        "is_held",
        "is_nested",
        "limit",
        "quick",
        "routes",
        "stats",
        "subjects",
        "window",
    )

    def __init__(
        self,
        guard: Guard,
        codec: Codec | None,
        router: Router,
        dispatch: Dispatch,
        retained: Retained | None,
        max_batch: int,
    ) -> None:
        """Put together what a publisher has."""
        self._guard = guard
        guard.when_disowned = self.forget
        self._encode = codec.encode if codec is not None else None
        self._dispatch = dispatch
        self._retained = retained
        self.subjects: dict[str | bytes, tuple[bytes, bytes]] = {}
        self.routes: dict[str | bytes, Route] = {}
        self.quick: dict[str | bytes, Any] = {}
        self.stats: PublisherStats = router.stats
        self.flags = 0
        self.window: list[Any] = []
        self.limit = self._whole_limit = STEP * max_batch
        self.is_held = 0
        self.is_nested = False
        self._is_rich = False
        self._counted = 0
        self._sent_at = 0.0
        self._unwanted = 0
        self._listened_at = 0.0

    def route(self, socket: Any, subject: Any) -> Route:
        """Give what is known of a subject; the socket checks one that is not remembered.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
        """
        try:
            route = self.routes.get(subject)
        except TypeError:
            # Not hashable: no text, or a bytearray.
            route = None
        if route is None:
            admitted: Route = socket._admit(subject)
            return admitted
        return route

    def prepare(self, payload: Any) -> Any:
        """Give a payload that ZeroMQ takes.

        Raises:
            TypeError: it is neither bytes nor what the codec encodes.
        """
        if self._encode is not None:
            payload = self._encode(payload)
        return payload if type(payload) is bytes else as_sendable(payload)

    def publish(self, socket: Any, subject: Any, payload: Any) -> Refused | None:
        """Send one message that has nothing but a payload.

        Everything is checked and encoded before the first frame goes: half a message would join the next.

        Returns:
            None; or the message, when a subscriber is at its high-water mark and it was not sent.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            OwnershipError: the publisher was made before a fork.
        """
        if type(payload) is not bytes or self._encode is not None:
            payload = self.prepare(payload)
        if self._retained is None:
            return self.publish_any(socket, self.route(socket, subject), payload)
        # Whoever joins meanwhile is given either the last value or the message.
        with self._guard:
            return self.publish_any(socket, self.route(socket, subject), payload)

    def shortcut(
        self, socket: Any, long_way: Callable[..., Any], *, looks: bool
    ) -> Callable[..., Any] | None:
        """Make a `publish` that is quick when the publisher is busy: docs/decisions/014-the-short-way.md.

        Args:
            socket: the publisher, which is not kept.
            long_way: its method, for whatever is not the common case.
            looks: whether it must look for subscriptions itself, as no other thread does.

        Returns:
            A function with the arguments of `publish`, which gives None or what the long way gives. None
            instead of it for a publisher with a codec or last values.
        """
        if self._encode is not None or self._retained is not None:
            return None
        quick, window, add = self.quick, self.window, self.window.extend
        find, dispatch, stats = weakref.ref(socket), self._dispatch, self.stats

        def publish(subject: Any, payload: Any = b"", *, headers: Any = None, key: Any = None) -> Any:
            if type(payload) is bytes and headers is None is key:
                try:
                    way = quick[subject]
                except (KeyError, TypeError):
                    way = False
                if way is None:
                    stats.unwanted += 1
                    if looks and not stats.unwanted % LOOK_EVERY:
                        self.look(find())
                    return None
                if type(way) is tuple:
                    if len(payload) < LARGE and not dispatch.is_blocked:
                        audience, raw = way
                        if not window:
                            self._begin(find(), audience, raw, payload)
                            return None
                        # One call, so that another thread sees all three or none.
                        add((audience, raw, payload))
                        if len(window) >= self.limit:
                            self.flush(find())
                        return None
                elif way:
                    owner = find()
                    if not self.look(owner) and self._try_plain(owner, way, payload):
                        return None
            return long_way(find(), subject, payload, headers=headers, key=key)

        return publish

    def _try_plain(self, socket: Any, wire: bytes, payload: bytes) -> bool:
        """Send a message that only plain subscribers want; tell whether there was room."""
        try:
            self.hand_over(socket, wire, payload, self.flags)
        except zmq.Again:
            return False
        self.stats.sent += 1
        return True

    def look(self, socket: Any) -> bool:
        """Take in the subscriptions that have arrived, if that was not done a moment ago.

        Returns:
            Whether any interest has changed.
        """
        now = monotonic()
        if now - self._listened_at < LISTEN_EVERY:
            return False
        self._listened_at = now
        changed: bool = socket._listen()
        return changed

    def remember(self, subject: str | bytes, route: Route) -> None:
        """Remember who wants a subject."""
        audience, wire, raw = route
        if len(raw) > LONGEST_REMEMBERED:
            return
        if len(self.routes) >= SUBJECTS_REMEMBERED:
            self.forget()
        self.routes[subject] = route
        ways = {NOBODY: None, ROUTED: (audience, raw), PLAIN: wire}
        self.quick[subject] = ways.get(audience.kind, False)

    def forget(self) -> None:
        """Forget who wants what."""
        # All at once: finding the oldest again and again would walk over the slots of those gone before.
        self.routes.clear()
        self.quick.clear()

    def publish_with(
        self, socket: Any, subject: Any, payload: Any, extras: dict[str, Any], key: bytes | None
    ) -> Refused | None:
        """Send one message with extras; see `publish`. Plain subscribers do not get them."""
        payload = self.prepare(payload)
        item = Rich(as_item(payload), extras, key)
        if self._retained is None:
            return self.publish_any(socket, self.route(socket, subject), payload, item)
        with self._guard:
            return self.publish_any(socket, self.route(socket, subject), payload, item)

    def publish_any(self, socket: Any, route: Route, payload: Any, item: Any = None) -> Refused | None:
        """Send one message of any kind; see `publish`.

        Args:
            socket: the publisher.
            route: of its subject.
            payload: as plain subscribers get it.
            item: as the others do; None when it is the payload.
        """
        if route[0].kind != ROUTED and self.look(socket):
            route = socket._route(route[1], route[2])
        audience, wire, raw = route
        if not audience.kind and self._retained is None:
            self.stats.unwanted += 1
            return None
        if item is None:
            item = payload if type(payload) is bytes else Rich(as_item(payload), {}, None)
        if self._dispatch.is_blocked and audience.kind & ROUTED and not self._make_room(socket):
            return route, payload, item
        if audience.kind & PLAIN:
            try:
                self.hand_over(socket, wire, payload, self.flags)
            except zmq.Again:
                return route, payload, item
        if not audience.kind & ROUTED and self._retained is None:
            self.stats.sent += 1
        elif type(item) is not bytes or len(item) >= LARGE or self._retained is not None:
            with self._guard:
                self._enqueue_rare(socket, audience, raw, item)
        else:
            self._begin(socket, audience, raw, item)
        return None

    def route_raw(self, socket: Any, subject: bytes, frames: list[bytes]) -> None:
        """Put what was sent by the calls of pyzmq into the window too, for those who want it that way."""
        known = self.routes.get(subject)
        audience = known[0] if known is not None else socket._route(subject, subject)[0]
        if not audience.kind & ROUTED:
            return
        if len(frames) == 1 and len(frames[0]) < LARGE:
            self._begin(socket, audience, subject, frames[0])
        else:
            content = frames[0] if len(frames) == 1 else frames or b""
            with self._guard:
                self._enqueue_rare(socket, audience, subject, Rich(content, {}, None))

    def _begin(self, socket: Any, audience: Audience, raw: bytes, item: bytes) -> None:
        """Send a message at once, if the publisher has been quiet; otherwise put it into the window."""
        now = monotonic()
        unwanted = self.stats.unwanted
        # Messages that nobody wants are no silence: among many of them the wanted ones wait for each other.
        if (
            not self.window
            and now - self._sent_at >= QUIET * (1 + unwanted - self._unwanted)
            and not self.is_held
        ):
            with self._guard:
                if not self.window:
                    self._sent_at = now
                    self._unwanted = unwanted
                    self.stats.sent += 1
                    try:
                        self._dispatch.send_alone(socket, audience, raw, item)
                    except zmq.ZMQError:
                        raise
                    except BaseException:
                        # Not by `_counting`, which would cost half of the time of it all.
                        self._dispatch.lose_count()
                        raise
                    self.look(socket)
                    return
        self.window += (audience, raw, item)
        if len(self.window) >= self.limit:
            self.flush(socket)
        elif not self.is_held:
            socket._expect_more()

    def _enqueue_rare(self, socket: Any, audience: Audience, raw: bytes, item: Any) -> None:
        """The same for what is large, has extras or is kept as a last value, with the guard held."""
        if self._retained is not None:
            self._retained.put(raw, item)
        if not audience.kind & ROUTED:
            self.stats.sent += bool(audience.kind)
            self.stats.unwanted += not audience.kind
            return
        content = item[0] if type(item) is Rich else item
        if type(content) is bytes and len(content) >= LARGE:
            self._send_window(socket)
            self.stats.sent += 1
            with self._counting():
                self._dispatch.send_large(socket, [audience, raw, item])
            return
        self._is_rich |= type(item) is Rich
        is_alone = not (self.window or self.is_held) and monotonic() - self._sent_at >= QUIET
        self.window += (audience, raw, item)
        if is_alone or len(self.window) >= self.limit:
            self._send_window(socket)
        elif not self.is_held:
            socket._expect_more()

    def count(self) -> PublisherStats:
        """Count what is in the window too; give all that was counted."""
        with self._guard:
            waiting = len(self.window) // STEP
            self.stats.sent += waiting - self._counted
            self._counted = waiting
        return self.stats

    def _make_room(self, socket: Any) -> bool:
        """Try to send what waits for room; tell whether the publisher can go on."""
        with self._guard:
            self._dispatch.retry(socket)
        return not self._dispatch.is_blocked

    def flush(self, socket: Any) -> None:
        """Send what is in the window."""
        with self._guard:
            # As much as there is now: other threads may go on adding to it.
            for _ in range(0, len(self.window), _MOST):
                self._send_window(socket)

    def _send_window(self, socket: Any) -> None:
        window = self.window
        length = min(len(window), _MOST)
        if not length:
            return
        with self._counting():
            taken = window[:length]
            del window[:length]
            self.stats.sent += length // STEP - self._counted
            self._counted = 0
            is_rich, self._is_rich = self._is_rich, False
            self._dispatch.send(socket, taken, is_rich=is_rich)
        self._sent_at = monotonic()
        self._unwanted = self.stats.unwanted
        if self._dispatch.size > BATCH_BYTES:
            # Large messages: fewer of them in a batch from now on.
            fewer = length * BATCH_BYTES // self._dispatch.size
            self.limit = max(STEP, fewer - fewer % STEP)
        elif self.limit < self._whole_limit:
            self.limit = min(self._whole_limit, 2 * self.limit)
        self.look(socket)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Have what a raising signal handler cuts short show as a gap: nobody knows what has gone."""
        try:
            yield
        except zmq.ZMQError:
            raise
        except BaseException:
            self._dispatch.lose_count()
            raise

    def hand_over(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Give one plain message to ZeroMQ.

        Raises:
            zmq.Again: a subscriber is at its high-water mark and `on_full` is not `"drop"`.
        """
        with self._guard:
            self._dispatch.make_lossy(socket)
            if type(payload) is tuple:
                send_frames(socket, (wire, *payload), flags)
                return
            is_open = True
            try:
                _send(socket, wire, flags | _SNDMORE)
                is_open = False
                _send(socket, payload, flags)
            except zmq.ZMQError:
                raise
            except BaseException:
                # See `send_frames`, of which this is the short way.
                if is_open:
                    _send(socket, payload, flags)
                raise
