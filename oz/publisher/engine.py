"""Engine of a publisher: it owns the sockets, the lock, the clock and the sessions.

Theory of operation
-------------------
The engine has an XPUB for plain subscribers, a ROUTER for links, and the state machine `Sessions`. One lock guards the
sockets and the sessions. The lock is shared by the threads that publish and by the *attending side*: a thread
(`oz.publisher.thread`) or an event loop (`oz.publisher.loop`) that calls `attend`.

- `publish` finds the recipients in a cache, and appends the message to the waiting list of the batcher. The publishing
  thread flushes when the batch is full or the publisher is quiet. After a flush, the same thread also reads frames. The
  send may have processed the libzmq command that would have made the descriptor readable.
- `attend` reads at most 100 frames, applies declarations for at most 3 ms, runs due steps, and sends. If work remains,
  `attend` returns True and is called again. Between two calls, publishing threads get the lock.
- `next_deadline` returns the time at which `attend` must run, even if no descriptor is readable.

The hot path of `publish` takes no lock: it reads a dictionary, and extends a list by one C call. Both operations are
atomic under the GIL, and a flush removes only messages that it has copied. A declaration may be applied after `publish`
has read the recipients and before it appends the message. A subscriber cannot miss a message by this race, because
only a `publish` that begins after the ANSWER must respect the declaration.

The attending side must not sleep past the deadline of a message. It sets `is_resting`, then checks the waiting list.
`publish` appends to the list, then reads `is_resting`. Therefore at least one of the two threads sees the change that
the other thread made.

An exception inside the state machine, for example KeyboardInterrupt in a publishing thread, may leave it inconsistent.
Then `_recover` creates an empty state machine, which continues the positions, and sends a probe to each link. The
subscribers send HELLO again and report a gap of unknown size. `LinkListener` completes interrupted messages.

The calls that wait, `room`, `subscribers` and `acknowledgements`, return `Steps` (`oz.transport.steps`). The engine
calls the functions in `waiters` after each change that may end a wait.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from typing import Any, NamedTuple, TypeVar, cast

import zmq

from oz.compiled import HOT
from oz.errors import KEYS_HINT, ClosedError, ConfigurationError, OwnershipError, Timeout, WouldBlock
from oz.message import Extras
from oz.options import Options
from oz.program_end import end_daemon
from oz.publisher.batching import ALONE_BYTES, Batcher, Body, Recipients
from oz.publisher.endpoints import PublisherEndpoints
from oz.publisher.keyed_plain import KeyedPlainSubscribers
from oz.publisher.keys import PublisherKeys, owns_session
from oz.publisher.last_values import LastValues
from oz.publisher.links import FULL, GONE, PROBE, TAKEN, KeyedListener, LinkListener, SharedJoin
from oz.publisher.plain import PlainSubscribers
from oz.publisher.routing import Interest, Route
from oz.publisher.session import ALONE_OVERHEAD, Batch, Session, Settings, Stream
from oz.publisher.sessions import ENDED, Sessions, allow_all
from oz.publisher.stats import REASONS, PublisherStats, SubscriberInfo
from oz.publisher.subjects import SubjectCheck
from oz.security.permissions import Action
from oz.system import after_fork
from oz.transport import descriptors
from oz.transport.contexts import has_ended
from oz.transport.libzmq import SHARED_FRAME
from oz.transport.runtime import REAL, runtime_of
from oz.transport.security import credentials_of
from oz.transport.steps import Steps
from oz.transport.waiting import Waiters, notify_all
from oz.wire import links as wire
from oz.wire.codec import Codec, find_codec
from oz.wire.extras import check_extras, sticky_bytes
from oz.wire.links import Hello, join

MAX_READ = 100
"""Maximum number of frames that one call of `attend` reads. The limit lets publishing threads get the lock."""
SLICE = 0.003
"""Maximum time in seconds for each of reading, applying and sending. The limit lets publishing threads get the lock."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts to bind a link endpoint that is in use."""
WINDOW = 256
"""Maximum number of unacknowledged batches of a session."""
WATCH_INTERVAL = 0.01
"""Seconds between two checks for new plain subscriptions, while messages are sent to plain subscribers."""
_LARGE = 1_024  # Bytes. The decoding of a larger frame may take long.
_BYE = bytes([wire.BYE])
_ITEMS = 4  # Number of items that one message has in `waiting`.
_STEPS = 8  # Number of patterns that are applied between two reads of the clock.
_TOTAL_BYTES = 1 << 30
_MAX_DENIALS = 3  # Maximum number of denied subscriptions in the text of a `Timeout`.
_MIN_LINGER = 50  # Milliseconds after `close(timeout=0)`; enough to reach subscribers on this host.
_BYE_LINGER = 1_000  # Maximum milliseconds to send BYE, if all messages are acknowledged.

ON_FULL = ("drop", "block", "raise")

UNKNOWN: Any = ()
"""Result of a lookup in `Engine.quick` for a subject that is not cached. None is the cached value of a subject without
subscribers."""

_FD = int(zmq.FD)
_Result = TypeVar("_Result")


class Outgoing(NamedTuple):
    """A message that was checked and encoded.

    Attributes:
        subject: subject as text.
        raw: subject as bytes.
        payload: payload as bytes.
        extras: map with the headers and other optional fields of the message; None if there are none.
        key: key by which sticky groups choose a member; None uses the subject.
    """

    subject: str
    raw: bytes
    payload: bytes
    extras: dict[str, Any] | None
    key: bytes | None


class Engine:
    """Sockets and sessions of one publisher.

    Attributes:
        quick: cache of recipients by subject. If only links without groups receive the subject, the value is a pair of
            streams and encoded subject. If only plain subscribers receive the subject, the value is the encoded
            subject. Without subscribers the value is None. All other subjects are not in the cache.
        batcher: messages that wait for the next flush.
        waiting: the list `batcher.waiting`.
        full_length: the batch is full when `waiting` has this length.
        max_message_bytes: maximum size of a payload in bytes.
        max_fast_bytes: maximum size in bytes of a payload that the hot path sends. If `publish` may wait, the limit
            keeps a batch below half of `pending_bytes`, and a larger payload is sent at once.
        settings: limits of the sessions.
        refuses: whether `publish` may wait or raise, because `on_full` is not "drop".
        is_resting: whether the attending side sleeps, and must be woken when a message is appended to `waiting`.
        is_watching: whether the attending side checks for plain subscriptions every `WATCH_INTERVAL`; see `send_plain`.
        plain_sent: number of messages that only plain subscribers received.
        is_pressed: whether `publish` must check for space, because the next batch may fill a stream. Always False
            unless `on_full` is "block" or "raise".
        defers: whether the attending side collects the requests and replies of several threads, or of one iteration of
            an event loop, and sends them together. Otherwise they are sent like messages of `publish`.
        is_foreign: whether this process is a child of the process that created the engine.
        is_closing: whether `close` was called.
        is_closed: whether the sockets are closed.
        wake: function that wakes the attending side.
        waiters: functions that the engine calls after each change that may end a wait.
        lock: lock around the sockets and the sessions. The hot path of `publish` does not take the lock.
        interest_class, last_values_class, sessions_class, subjects_class: classes that the engine of a node replaces.
        runtime: clocks and socket functions.
        owns_context: whether `end_context` terminates the context.
    """

    # C code reads these slots.
    __slots__ = (
        "__dict__", "__weakref__", "_held", "_listener", "_sessions", "is_closing", "is_pressed", "is_resting",
        "is_watching", "plain_sent",
    )  # fmt: skip

    _patterns_hint = "; publisher.subscribers lists the patterns"
    interest_class = Interest
    last_values_class = LastValues
    sessions_class = Sessions
    subjects_class = SubjectCheck

    def __init__(
        self,
        *,
        codec: str | Codec | None = None,
        dialect: str = "nats",
        on_full: str = "drop",
        last_value: bool = False,
        links: str | bool | None = None,
        security: Any = None,
        context: zmq.Context[Any] | None = None,
        options: Options | None = None,
        origin: bytes | None = None,
        card: bytes = b"",
    ) -> None:
        """Create the sockets, without endpoints. Most arguments are documented at `oz.Publisher`.

        A node passes its id (16 bytes) as `origin`, and its encoded card as `card`. Other publishers have a random
        origin and no card.

        Raises:
            ConfigurationError: an argument has a wrong value.
            ValueError: the card is too large.
            TypeError: an argument has a wrong type.
        """
        options = Options() if options is None else options
        _check(on_full, last_value, links, context, options)
        wire.check_card(card)
        self.options, self.on_full = options, on_full
        self.max_message_bytes = options.limits.message_bytes
        self._codec = find_codec(codec)
        credentials = credentials_of(security, options.multicast)
        self._keys = (
            None if credentials is None else PublisherKeys(credentials, dialect, options.delimiter or b"")
        )
        self._own_rights = None if self._keys is None else self._keys.own_rights
        self._subjects = self.subjects_class(dialect, lambda: self.endpoints, options.delimiter)
        self.lock = threading.RLock()
        self.wake: Callable[[], None] = lambda: None
        self.waiters: Waiters = {}
        self.is_resting = self.is_pressed = self.is_watching = False
        self._watch_at, self._watched = 0.0, 0
        self.is_foreign = self.is_closing = self.is_closed = False
        descriptors.need(descriptors.CONTEXT, "a publisher")
        self.owns_context = context is None
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self.runtime = runtime = runtime_of(self._context)
        self._clock = runtime.clock
        self.defers = False
        self.refuses = on_full != "drop"
        self.max_fast_bytes = self.max_message_bytes
        if self.refuses:
            self.max_fast_bytes = min(
                self.max_message_bytes, ALONE_BYTES, options.pending_bytes // (2 * options.batch)
            )
        self.settings = Settings(
            window=WINDOW,
            # A subscriber sends an acknowledgement each time it has received a quarter of `window_bytes`. If the window
            # were larger than `pending_bytes`, a full publisher would often wait for a timer of the subscriber.
            window_bytes=min(options.resume_bytes, options.pending_bytes),
            pending_bytes=options.pending_bytes,
            total_bytes=max(_TOTAL_BYTES, options.pending_bytes),
            high_water_mark=options.high_water_mark,
            on_full=on_full,
            resume_seconds=options.resume_seconds,
            largest_frame=options.limits.message_bytes,
            batch=options.batch,
            patterns=options.limits.patterns,
            pattern_time=options.limits.pattern_time,
            peers=options.limits.peers,
            join=SharedJoin() if runtime is REAL and SHARED_FRAME is not None else join,
        )
        self._last_values = self.last_values_class() if last_value else None
        self.origin = runtime.random_bytes(16) if origin is None else origin
        self.plain_sent = self._silent = self._refused = 0
        # `_held` is the length of `_holds`. The hot path reads this number.
        self._holds: set[object] = set()
        self._held = 0
        self._given_up = self._given_up_before_close = self._redelivered = self._rejected = 0
        self._drops = [0, 0, 0, 0]
        self.quick: dict[str | bytes, tuple[Recipients, bytes] | bytes | None] = {}
        self._sessions = self._new_sessions()
        self._sessions.card = card
        batcher = self._sessions.batcher
        batcher.batch_delay = options.batch_delay
        self.batcher, self.waiting, self.full_length = batcher, batcher.waiting, 4 * batcher.batch
        self._blocked: dict[Session, None] = {}
        keys = self._keys
        make_plain: Callable[..., PlainSubscribers] = (
            PlainSubscribers if keys is None else partial(KeyedPlainSubscribers, keys=keys)
        )
        self._plain = make_plain(
            self._context,
            high_water_mark=options.high_water_mark,
            longest_prefix=options.limits.subscription_bytes,
            handshake=options.limits.handshake,
            refuses=self.refuses,
            delimiter=options.delimiter or b"",
        )
        self._endpoints = PublisherEndpoints(
            self._plain, self._create_listener, links, own_context=self.owns_context, keys=self._keys
        )
        self._listener: LinkListener | None = None
        self._descriptors: tuple[Any, tuple[int, ...]] = (self, ())
        self._retry_at = 0.0
        _engines.add(self)

    def _new_sessions(self) -> Sessions:
        keys, random_bytes = self._keys, self.runtime.random_bytes
        sessions = self.sessions_class(
            self.origin,
            self.settings,
            lambda: random_bytes(16),
            last_values=self._last_values,
            authorize=allow_all if keys is None else keys.authorize,
            owns=owns_session,
            processor_clock=self.runtime.processor_clock,
            interest=self.interest_class,
        )
        sessions.interest.on_change = self.quick.clear
        sessions.now = self._clock()
        return sessions

    # nodes

    @property
    def card(self) -> bytes:
        """Card that introduces a node in later WELCOMEs; empty if the publisher is not a node."""
        return self._sessions.card

    @card.setter
    def card(self, card: bytes) -> None:
        self._sessions.card = wire.check_card(card)

    @property
    def admit(self) -> Callable[[Hello, str | None], int | None]:
        """Function called under the lock to admit or refuse each HELLO; see `Sessions.admit`."""
        return self._sessions.admit

    @admit.setter
    def admit(self, admit: Callable[[Hello, str | None], int | None]) -> None:
        self._sessions.admit = admit

    @property
    def on_session(self) -> Callable[[Session, str], object]:
        """Function called under the lock with each event of a session; see `Sessions.on_session`."""
        return self._sessions.on_session

    @on_session.setter
    def on_session(self, on_session: Callable[[Session, str], object]) -> None:
        self._sessions.on_session = on_session

    def responders(self, subject: str, raw: bytes) -> Route | None:
        """Return the streams and groups of nodes that receive a subject; None if no node receives it.

        The caller must hold `lock` to call `Group.pick`, because another thread may publish at the same time.

        Args:
            subject: subject as text.
            raw: subject as bytes.

        Raises:
            ClosedError, OwnershipError: see `check_usable`.
        """
        self.check_usable()
        return self._locked(lambda: self._sessions.responders(subject, raw))

    def send_in(
        self,
        stream: Stream,
        raw: bytes,
        payload: bytes,
        extras: dict[str, Any] | None,
        *,
        is_alone: bool = True,
    ) -> bool:
        """Publish a message to one stream, in the next batch.

        Args:
            stream: stream from the result of `responders`. If the stream has a group, the caller has added the message
                to the stream's `load`.
            raw: subject as bytes.
            payload: payload as bytes.
            extras: result of `check_extras`, or None.
            is_alone: whether this is probably the only message of its batch.

        Returns:
            True if the message was published. False if the stream is full or its session has ended; the message is
            then removed from `load`.

        Raises:
            ClosedError, OwnershipError: see `check_usable`.
        """
        if not is_alone and self._may_append(stream, len(raw) + len(payload)):
            self._append((stream,), raw, payload, extras)
            return True
        return self._locked(self._send_in, stream, raw, payload, extras, is_alone)

    def _may_append(self, stream: Stream, size: int) -> bool:
        """Return whether a message for one stream can be added to the batch without the lock.

        Sends hold the lock, and a wait for the lock costs two thread switches.
        """
        waiting, session = len(self.waiting), stream.session
        if self._held or self.is_closing or not self.defers or waiting + _ITEMS >= self.full_length:
            return False
        if session.has_ended or (waiting and session.is_half_full):
            return False
        return stream.has_space(size)

    def _append(self, recipients: Recipients, raw: bytes, payload: bytes, extras: Any) -> None:
        self.waiting.extend((recipients, raw, payload, extras))
        if self.is_resting:
            self.request_attention()

    def _send_in(self, stream: Stream, raw: bytes, payload: bytes, extras: Any, is_alone: bool) -> bool:
        if self.is_closing:
            self.check_usable()
        if self._add(stream, (stream,), raw, payload, extras, len(raw) + len(payload), is_alone):
            return True
        if stream.group is not None:
            stream.load -= 1
        return False

    def _add(
        self,
        stream: Stream,
        recipients: Recipients,
        raw: bytes,
        payload: bytes,
        extras: Any,
        size: int,
        is_alone: bool,
    ) -> bool:
        """Add a message for one stream to the batch; return False if the stream has no space."""
        if self.waiting and stream.session.is_half_full:
            # Flush first, because the messages that wait in the batch need space too.
            self._sessions.now = self._clock()
            self._sessions.flush()
        if stream.session.has_ended or not stream.has_space(size):
            return False
        if is_alone and not (self.waiting or self._held):
            now = self._clock()
            if self.batcher.is_quiet(now) and self._send_alone(stream, raw, payload, extras, now):
                return True
        self.batcher.add(recipients, raw, payload, extras)
        if self._held or len(self.waiting) >= self.full_length:
            # Send even inside a `batch()` block, because the caller waits for a reply.
            self._flush()
        elif not self.defers or (is_alone and len(self.waiting) == _ITEMS):
            self._expect_flush()
        elif self.is_resting:
            self.request_attention()
        return True

    def cached_route(self, subject: str) -> Route | None:
        """Return the cached route of a subject; None without a cached route, or if the publisher closes.

        The call needs no lock. The route also contains streams of subscribers that are not nodes.
        """
        return None if self.is_closing or self.is_foreign else self._sessions.interest.routes.get(subject)

    def find_route(self, subject: str, raw: bytes) -> Route | None:
        """Return the streams and groups of all sessions that receive a subject; None if no session receives it."""
        self.check_usable()
        return self._locked(self._sessions.interest.find, subject, raw)

    def publish_to(
        self, streams: Recipients, raw: bytes, payload: bytes, extras: dict[str, Any] | None
    ) -> None:
        """Publish a message to streams from the result of `find_route`, in the next batch.

        Args:
            streams: streams that have no group.
            raw: subject as bytes.
            payload: payload as bytes.
            extras: map with the headers and other optional fields of the message; None if there are none.

        Raises:
            ClosedError, OwnershipError: see `check_usable`.
        """
        self._locked(self._publish_to, streams, raw, payload, extras)

    def _publish_to(self, streams: Recipients, raw: bytes, payload: bytes, extras: Any) -> None:
        self.check_usable()
        self.batcher.add(streams, raw, payload, extras)
        self._expect_flush()

    def direct(
        self,
        node: bytes,
        subject: str,
        payload: bytes,
        extras: dict[str, Any] | None = None,
        *,
        is_alone: bool = True,
    ) -> bool | None:
        """Send a direct message to a node in the next batch. Overflow policies never drop direct messages.

        Args:
            node: id of the node that receives the message.
            subject: subject as text.
            payload: payload as bytes.
            extras: result of `check_extras`, or None.
            is_alone: whether this is probably the only message of its batch.

        Returns:
            True if the message was accepted, False if the direct stream is full, None if the node has no session.

        Raises:
            ValueError: the node does not accept a message of this size.
            ClosedError, OwnershipError: see `check_usable`.
        """
        # Encode outside of `_locked`, because an exception inside `_locked` ends all sessions.
        raw = subject.encode("utf-8", "surrogateescape")
        size = len(raw) + len(payload) + (0 if extras is None else len(wire.encode_body((extras,))))
        result = self._locked(self._direct, node, raw, payload, extras, size, is_alone)
        if isinstance(result, ValueError):
            raise result
        return result

    def _direct(
        self, node: bytes, raw: bytes, payload: bytes, extras: Any, size: int, is_alone: bool
    ) -> bool | ValueError | None:
        if self.is_closing:
            self.check_usable()
        session = self._sessions.of_node(node)
        if session is None:
            return None
        maximum = session.largest_frame - wire.HEAD_BYTES - ALONE_OVERHEAD
        if size > maximum:
            return _too_large(size, maximum)
        stream = self._sessions.direct_stream(session)
        if not self._add(stream, stream.alone, raw, payload, extras, size, is_alone):
            return False
        # A direct message has a position, but `PublisherStats` must not count it as published.
        self._silent += 1
        return True

    def end_session(self, node: bytes) -> None:
        """Send BYE to a node and end its sessions. The call also works during `close`.

        Messages that the node has not received move to other members of their groups, or are discarded.

        Raises:
            ClosedError: the sockets are closed.
        """
        self._locked(self._end_session, node)

    def _end_session(self, node: bytes) -> None:
        self._sessions.now = self._clock()
        self._sessions.end_node(node)
        if self._listener is not None:
            self._pump(self._listener)

    @property
    def plain_raw(self) -> Any:
        """Object that lets C code use the XPUB, or None."""
        return self._plain.raw

    def _create_listener(self) -> LinkListener:
        limits = self.options.limits
        kind = LinkListener if self._keys is None else KeyedListener
        return kind(
            self._context, message_bytes=limits.message_bytes, window=WINDOW, handshake=limits.handshake
        )

    # endpoints

    def check_usable(self) -> None:
        """Raise ClosedError after `close`, and OwnershipError in the child of a fork."""
        if self.is_foreign:
            raise OwnershipError(
                "this publisher was made before the fork, and its sockets belong to the parent: make a new "
                "one in the child"
            )
        if self.is_closing:
            end_daemon()
            raise ClosedError("the publisher is closed: create another one")

    def _change_endpoints(self, change: Callable[[], None]) -> None:
        self.check_usable()
        with self.lock:
            self.check_usable()
            try:
                change()
            except zmq.ZMQError as error:
                self._check_context(error)
                raise
            finally:
                self._listener = self._endpoints.listener
                self._subjects.forget()
                self.quick.clear()
        self.wake()

    def bind(self, endpoint: str | bytes) -> None:
        """Bind to an endpoint and its link endpoint; see `PublisherEndpoints.bind`."""
        self._change_endpoints(lambda: self._endpoints.bind(endpoint))

    def bind_links(self, endpoint: str | bytes) -> str:
        """Bind to an endpoint for links only; return the endpoint with its port.

        Raises:
            EndpointError: the endpoint cannot be used.
            ClosedError, OwnershipError: see `check_usable`.
        """
        bound: list[str] = []
        self._change_endpoints(lambda: bound.append(self._endpoints.bind_links(endpoint)))
        return bound[0]

    def connect(self, endpoint: str | bytes) -> None:
        """Connect to an endpoint; see `PublisherEndpoints.connect`."""
        self._change_endpoints(lambda: self._endpoints.connect(endpoint))

    def unbind(self, endpoint: str | bytes) -> None:
        """Undo `bind`."""
        self._change_endpoints(lambda: self._endpoints.unbind(endpoint))

    def disconnect(self, endpoint: str | bytes) -> None:
        """Undo `connect`."""
        self._change_endpoints(lambda: self._endpoints.disconnect(endpoint))

    @property
    def endpoint(self) -> str | None:
        """Last bound endpoint. Without a bound endpoint, the last connected endpoint, or None."""
        return self._endpoints.last

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All bound endpoints, then all connected endpoints."""
        return self._endpoints.all

    @property
    def link_endpoints(self) -> tuple[str, ...]:
        """Endpoints to which subscribers connect their links."""
        return self._endpoints.link_endpoints

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when a frame for `attend` arrives.

        Raises:
            ClosedError: the context is terminated.
        """
        with self.lock:
            if self.is_closed:
                return ()
            listener = self._listener
            # A socket never changes its descriptor.
            if self._descriptors[0] is not listener:
                sockets: list[zmq.Socket[bytes]] = [self._plain.socket]
                if listener is not None:
                    sockets.append(listener.socket)
                try:
                    found = tuple(cast("int", self.runtime.get(socket, _FD)) for socket in sockets)
                except zmq.ZMQError as error:
                    self._check_context(error)
                    raise
                self._descriptors = listener, found
            return self._descriptors[1]

    # publishing

    def prepare(
        self,
        subject: Any,
        payload: Any,
        headers: Any = None,
        key: Any = None,
        message_id: Any = None,
        action: Action = "publish",
    ) -> Outgoing:
        """Check and encode a message.

        Args:
            subject: subject as str or bytes.
            payload: bytes, or a value for the codec.
            headers: argument `headers` of `publish`.
            key: key by which sticky groups choose a member; None uses the subject.
            message_id: argument `id` of `publish`.
            action: "publish" or "request".

        Raises:
            SubjectError, TypeError, ValueError: a part of the message is not allowed.
            PermissionDenied: the permissions file of the publisher denies the subject to the publisher's key.
            ClosedError, OwnershipError: see `check_usable`.
        """
        if self.is_foreign or self.is_closing:
            self.check_usable()
        text, raw = self._subjects.check(subject)
        if self._own_rights is not None:
            self._check_right(action, raw)
        if self._codec is not None:
            payload = self._codec.encode(payload)
        if type(payload) is not bytes:
            payload = _as_bytes(payload)
        if len(payload) > self.max_message_bytes:
            raise _too_large(len(payload), self.max_message_bytes)
        if headers is None and key is None and message_id is None:
            return Outgoing(text, raw, payload, None, None)
        extras = check_extras(Extras(headers, None, message_id, key)) or None
        return Outgoing(text, raw, payload, extras, None if key is None else sticky_bytes(key))

    def _check_right(self, action: Action, subject: bytes) -> None:
        assert self._own_rights is not None
        self._own_rights.check(action, subject)

    def offer(self, message: Outgoing) -> bool:
        """Publish a message; return False if a subscriber is full and `on_full` is not "drop".

        Raises:
            ClosedError: the publisher is closed.
        """
        return self._locked(self._offer, message)

    def _offer(self, message: Outgoing) -> bool:
        self.check_usable()
        sessions, batcher, plain = self._sessions, self.batcher, self._plain
        subject, raw, payload, extras, key = message
        size = 0
        if self.refuses:
            sessions.now = self._clock()
            size = len(raw) + len(payload) + (0 if extras is None else len(wire.encode_body((extras,))))
            chooser = raw if key is None else key
            waiting = len(self.waiting) // _ITEMS * self.max_fast_bytes
            if sessions.is_full(subject, raw, chooser, size + waiting):
                self._flush()
                if sessions.is_full(subject, raw, chooser, size):
                    return False
        is_plain = plain.wants(raw)
        if is_plain:
            if not plain.send(raw, payload):
                return False
            if plain.has_input():
                self.request_attention()
        if sessions.interest.groups:
            sessions.now = self._clock()
        is_matched = sessions.publish(subject, payload, extras, key=key, raw=raw)
        if not is_matched:
            if self._last_values is not None:
                self._silent += 1
            if is_plain:
                batcher.unmatched -= 1
                self.plain_sent += 1
        if self._last_values is None and self._codec is None:
            if not is_plain:
                self._remember(subject)
            elif not is_matched:
                self._remember_plain(subject, raw)
        if self.waiting:
            if size > self.max_fast_bytes:
                self._flush()
            else:
                self._expect_flush()
        return True

    def _remember(self, subject: str) -> None:
        """Add a subject to `quick`, if all messages with this subject have the same recipients."""
        # An incomplete route, in which a pattern exceeded its time limit, is not in `routes`.
        route = self._sessions.interest.routes.get(subject, UNKNOWN)
        if route is None:
            if len(self.quick) < _MAX_QUICK:
                self.quick[subject] = None
        elif route and not route.groups:
            if len(self.quick) >= _MAX_QUICK:
                self.quick.clear()
            self.quick[subject] = route.plain, route.subject

    def _remember_plain(self, subject: str, raw: bytes) -> None:
        if self._sessions.interest.routes.get(subject, UNKNOWN) is None:
            if len(self.quick) >= _MAX_QUICK:
                self.quick.clear()
            self.quick[subject] = raw

    def send_plain(self, raw: bytes, payload: bytes) -> bool:
        """Send a message that only plain subscribers receive; return False if the caller must call `offer`.

        After a send, a subscription may wait although the descriptor of the XPUB is not readable. A check after each
        send would cost as much as the send. Therefore the attending side checks every `WATCH_INTERVAL`.

        Raises:
            ClosedError: the context is terminated.
        """
        with self.lock:
            try:
                if self.is_closing or not self._plain.send(raw, payload):
                    return False
            except zmq.ZMQError as error:
                self._check_context(error)
                raise
            self.plain_sent += 1
            if not self.is_watching:
                self.is_watching = True
                self._watch_at = self._clock() + WATCH_INTERVAL
                self.request_attention()
        return True

    def _watch(self, now: float) -> None:
        """Stop the checks for plain subscriptions if no message was sent to the XPUB since the last check."""
        if self.is_watching and now >= self._watch_at:
            self.is_watching = self.plain_sent != self._watched
            self._watched, self._watch_at = self.plain_sent, now + WATCH_INTERVAL

    def _expect_flush(self) -> None:
        """Flush if the waiting messages are due. Otherwise make sure that the attending side will flush."""
        if self._held:
            if len(self.waiting) >= self.full_length:
                self._flush()
        elif self.batcher.is_due(self._clock()):
            self._flush()
        elif self.is_resting:
            self.request_attention()

    def begin_batch(self, way: tuple[Recipients, bytes], payload: bytes) -> None:
        """Publish the first message of a batch.

        Args:
            way: value of `quick` for the subject: streams and encoded subject.
            payload: payload as bytes.

        Raises:
            ClosedError: the publisher is closed.
        """
        self._locked(self._begin_batch, way, payload)

    def _begin_batch(self, way: tuple[Recipients, bytes], payload: bytes) -> None:
        if self.is_closing:
            self.check_usable()
        streams, raw = way
        if len(streams) == 1 and not self._held:
            now = self._clock()
            if self.batcher.is_quiet(now) and self._send_alone(streams[0], raw, payload, None, now):
                return
        self.waiting.extend((streams, raw, payload, None))
        self._expect_flush()

    def _send_alone(self, stream: Stream, raw: bytes, payload: bytes, extras: Any, now: float) -> bool:
        """Send a message to one stream at once; return False if other messages or frames must be sent first."""
        listener = self._listener
        if listener is None:
            return False
        frame = self._sessions.publish_alone(stream, raw, payload, extras, now)
        if frame is None:
            return False
        session = stream.session
        if listener.send(session.route, (frame,)) == TAKEN:
            session.confirm_sent()
            self._sent(listener, now)
        else:
            self._send_again(stream, now)
        return True

    def _send_again(self, stream: Stream, began: float) -> None:
        self._sessions.ready[stream.session] = None
        if self._listener is not None:
            self._pump(self._listener)
        self._sent(self._listener, began)

    def send_again(self, stream: Stream, began: float) -> None:
        """Send again a message that C code has numbered and the socket has refused."""
        self._locked(self._send_again, stream, began)

    def sent_alone(self, began: float) -> None:
        """Read the frames that arrived while C code sent a message; see `_sent`."""
        self._locked(self._sent, self._listener, began)

    def appended(self) -> None:
        """Flush if the batch is full. Otherwise wake the attending side if it sleeps."""
        if len(self.waiting) >= self.full_length:
            self._locked(self._flush)
        elif self.is_resting:
            self.request_attention()

    def request_attention(self) -> None:
        """Wake the attending side."""
        self.is_resting = False
        self.wake()

    def refuse(self, subject: str) -> WouldBlock:
        """Count a refused message and return its error."""
        self._refused += 1
        return WouldBlock(
            f"{subject!r} was not published: a subscriber is full. Wait, raise high_water_mark= or "
            'pending_bytes=, or give on_full="drop"'
        )

    def room(self, message: Outgoing) -> Steps[None]:
        """Wait until each subscriber has space for a message, and publish the message.

        Raises:
            WouldBlock: a subscriber is full. With `on_full="raise"` the error is raised at once, with
                `on_full="block"` after `send_timeout` seconds.
            ClosedError: the publisher was closed.
        """
        end = self._clock() + (self.options.send_timeout if self.on_full == "block" else 0.0)
        while not self.offer(message):
            if self._clock() >= end:
                raise self.refuse(message.subject)
            yield end

    def flush(self) -> None:
        """Send the waiting messages.

        Raises:
            ClosedError, OwnershipError: see `check_usable`.
        """
        self.check_usable()
        self._locked(self._flush)

    def flush_due(self) -> None:
        """Send the waiting messages. Do nothing while `hold` keeps them.

        Raises:
            ClosedError: the publisher is closed.
        """
        if not self._held:
            self._locked(self._flush)

    def report_loss(self, count: int | None) -> None:
        """Report messages that were lost before they reached this publisher.

        Subscribers get the report behind the messages that were published before.

        Args:
            count: number of lost messages; None if it is unknown.

        Raises:
            ClosedError, OwnershipError: see `check_usable`.
        """
        self.check_usable()
        self._locked(self._report_loss, count)

    def _report_loss(self, count: int | None) -> None:
        self._flush()
        for session in self._sessions.by_id.values():
            for stream in session.streams.values():
                stream.count_lost(count)

    def hold(self, token: object) -> None:
        """Keep messages back until the batch is full, or until `release` was called for each token."""
        self.check_usable()
        with self.lock:
            self._holds.add(token)
            self._held = len(self._holds)

    def release(self, token: object) -> None:
        """End the `hold` of a token. When the last `hold` ends, send the waiting messages.

        A second call for the same token does nothing.
        """
        if self.is_foreign or token not in self._holds:
            return
        with self.lock:
            self._held = len(self._holds) - 1
            if not self._held and not self.is_closing:
                self._locked(self._flush)
            # Remove the token last: if a signal handler raises before this line, a second call repeats the work.
            self._holds.discard(token)

    # state machine and sockets; the caller holds the lock

    def _locked(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        with self.lock:
            if self.is_closed:
                self.check_usable()
            try:
                return work(*arguments)
            except (ClosedError, OwnershipError):
                raise
            except BaseException as error:
                self._check_context(error)
                self._recover()
                raise

    def _check_context(self, error: BaseException) -> None:
        """Close the sockets if an error shows that their context has ended.

        Raises:
            ClosedError: the context is terminated.
        """
        if has_ended(error, self._context):
            self._shut(0)
            # Wake the attending side, so that it ends before the system reuses the descriptors that it polls.
            self.wake()
            raise ClosedError(
                "the context of the publisher is terminated: create a publisher in another context"
            ) from None

    def _flush(self) -> None:
        sessions = self._sessions
        began = sessions.now = self._clock()
        sessions.flush()
        listener = self._listener
        if listener is not None:
            self._pump(listener)
        self._sent(listener, began)

    def _sent(self, listener: LinkListener | None, began: float) -> None:
        """Read the frames that arrived during a send, and record the end of the send."""
        sessions = self._sessions
        if listener is not None:
            if listener.has_input():
                self._read_links(listener)
                self._pump(listener)
                self._notify_waiters()
                if sessions.has_work or listener.has_input():
                    self.request_attention()
            if sessions.ready:
                self.request_attention()
        if self.refuses:
            self._measure_pressure()
        self.batcher.sent(began, self._clock())

    def _measure_pressure(self) -> None:
        self.is_pressed = any(
            stream.is_nearly_full
            for session in self._sessions.by_id.values()
            for stream in session.streams.values()
        )

    def _pump(self, listener: LinkListener) -> None:
        """Send the frames of all ready sessions, for at most `SLICE` seconds. Stop at a session whose route is full."""
        sessions, send = self._sessions, listener.send
        replies, ready = sessions.replies, sessions.ready
        while replies:
            # Ignore the result: a peer whose connection is full or lost gets no reply.
            route, frame = replies[0]
            send(route, (frame,))
            replies.popleft()
        if not ready:
            return
        turn = list(ready)
        ready.clear()
        end = self._clock() + SLICE if len(turn) > 1 else 0.0
        for index, session in enumerate(turn):
            while (frames := session.next_frames()) is not None:
                result = send(session.route, frames)
                if result == FULL:
                    self._blocked[session] = None
                    break
                if result == GONE:
                    sessions.unreachable(session, self._clock())
                    break
                session.confirm_sent()
            if end and self._clock() > end:
                # The next call begins with the sessions that were not processed.
                ready.update(dict.fromkeys(turn[index + 1 :]))
                return

    def _read_links(self, listener: LinkListener) -> None:
        sessions, now = self._sessions, self._clock()
        end = now + SLICE
        for route, frame in listener.read(MAX_READ):
            sessions.on_frame(route, frame, now, listener.user)
            if self._keys is not None and listener.user is not None and frame[:1] == _BYE:
                self._keys.on_bye(now)
            # Check the clock after large frames only, because small frames are decoded fast.
            if len(frame) > _LARGE and self._clock() > end:
                break

    def _notify_waiters(self) -> None:
        notify_all(self.waiters)

    def attend(self, *, flushes: bool = False) -> bool:
        """Read frames, apply declarations, run due steps, and send frames; return whether work remains.

        Args:
            flushes: whether to send the waiting messages before their deadline.

        Raises:
            ClosedError: the publisher is closed.
        """
        return self._locked(self._attend, flushes)

    def _attend(self, flushes: bool) -> bool:
        plain, listener, sessions = self._plain, self._listener, self._sessions
        if plain.read(MAX_READ):
            self.quick.clear()
        self._watch(self._clock())
        if self._keys is not None:
            now = self._clock()
            if self._keys.has_changed(now):
                self._reconsider(listener)
            plain.match_reports(now)
        if self._endpoints.taken and self._clock() >= self._retry_at:
            self._endpoints.retry()
            self._retry_at = self._clock() + RETRY_INTERVAL
        more = plain.has_input()
        if listener is not None:
            self._read_links(listener)
            if sessions.has_work:
                end = self._clock() + SLICE
                while sessions.work(_STEPS) and self._clock() < end:
                    pass
            sessions.tick(self._clock())
            if self._blocked:
                sessions.ready.update(self._blocked)
                self._blocked.clear()
            self._pump(listener)
        due = None if self._held else self.batcher.deadline()
        if due is not None and (flushes or self._clock() >= due):
            self._flush()
        elif self.refuses:
            self._measure_pressure()
        self._notify_waiters()
        more = more or sessions.has_work or bool(listener and sessions.ready)
        return more or (listener is not None and listener.has_input())

    def next_deadline(self) -> float | None:
        """Return the time at which `attend` must run next, in seconds of `time.monotonic`; None without a deadline."""
        with self.lock:
            deadline = self._sessions.next_deadline(is_held=self._held > 0)
            if self._keys is not None:
                deadline = min(self._keys.next_deadline(), inf if deadline is None else deadline)
            if self._endpoints.taken:
                deadline = min(self._retry_at, inf if deadline is None else deadline)
            if self.is_watching:
                deadline = min(self._watch_at, inf if deadline is None else deadline)
            return deadline

    def _reconsider(self, listener: LinkListener | None) -> None:
        assert self._keys is not None
        sessions = self._sessions
        sessions.now = self._clock()
        ended = sessions.reconsider(self._keys.is_trusted)
        if listener is not None:
            self._pump(listener)
            for route in ended:
                listener.cut(route)
        self._plain.reconsider()
        self.quick.clear()

    def _recover(self) -> None:
        """Replace the state machine, which may be inconsistent after an exception; see the theory of operation."""
        old, batcher = self._sessions, self.batcher
        routes = [session.route for session in old.by_id.values() if session.is_up]
        with suppress(Exception):
            self._given_up += old.unacknowledged()
            self._drops = [sum(pair) for pair in zip(self._drops, old.drops, strict=True)]
        self._given_up += old.given_up + len(batcher.waiting) // 4
        self._redelivered += old.redelivered
        self._rejected += old.rejected
        batcher.position += len(batcher.waiting) // 4
        batcher.waiting.clear()
        self._blocked.clear()
        self.is_pressed = False
        self._sessions = sessions = self._new_sessions()
        sessions.batcher = batcher
        sessions.card, sessions.admit, sessions.on_session = old.card, old.admit, old.on_session
        for session in old.by_id.values():
            session.is_up, session.has_ended = False, True
            sessions.on_session(session, ENDED)
        self.quick.clear()
        if self._listener is not None:
            for route in routes:
                self._listener.send(route, PROBE)
        self._notify_waiters()

    # subscribers

    def count_subscribers(self, subject: Any = None, *, only_up: bool = False) -> int:
        """Return the number of links with subscriptions, plus the number of subscriptions of plain subscribers.

        Args:
            subject: count only subscribers that receive this subject; None counts all subscribers.
            only_up: whether to count only links with a connection.

        Raises:
            SubjectError, TypeError: the subject is not allowed.
            ClosedError, OwnershipError: see `check_usable`.
        """
        self.check_usable()
        text, raw = (None, b"") if subject is None else self._subjects.check(subject)
        return self._locked(
            lambda: (
                self._sessions.count(text, raw, only_up=only_up)
                + self._plain.count(None if text is None else raw)
            )
        )

    def subscribers(self, subject: Any, count: int, timeout: float | None) -> Steps[None]:
        """Wait until there are `count` subscribers.

        Args:
            subject: count only subscribers that receive this subject; None counts all subscribers.
            count: number of subscribers to wait for, as `count_subscribers` counts them.
            timeout: seconds to wait; None waits for ever.

        Raises:
            Timeout: fewer subscribers than `count` were found within `timeout` seconds.
            SubjectError, TypeError, ClosedError, OwnershipError: see `count_subscribers`.
        """
        end = None if timeout is None else self._clock() + timeout
        while (found := self.count_subscribers(subject, only_up=True)) < count:
            if end is not None and self._clock() >= end:
                of = "" if subject is None else f" of {subject!r}"
                has_called = any(not endpoint.startswith("inproc:") for endpoint in self._endpoints.connected)
                hint = f"; {KEYS_HINT}" if self._keys is None and has_called else ""
                others = "" if subject is None else self._other_subscribers(found)
                why = self.describe_missing(subject) + others + hint
                raise Timeout(f"{found} of {count} subscribers{of} after {timeout:g} s; {why}")
            yield end

    def describe_missing(self, subject: Any) -> str:
        """Return a text with possible reasons for missing subscribers: denied subscriptions, and the endpoints.

        Args:
            subject: subject for which subscribers are missing; None for any subject.

        Raises:
            SubjectError, TypeError: the subject is not allowed.
        """
        text = None if subject is None else self._subjects.check(subject)[0]
        with self.lock:
            denied = (
                [] if self._keys is None else [*islice(self._keys.denied_subscriptions(text), _MAX_DENIALS)]
            )
        return "; ".join([*denied, self._describe(has_cause=bool(denied))])

    def _describe(self, *, has_cause: bool) -> str:
        where = ", ".join(self.endpoints) or "no endpoint: bind or connect it"
        if self.link_endpoints:
            where += f", for links at {', '.join(self.link_endpoints)}"
        return f"the publisher is at {where}"

    def _other_subscribers(self, found: int) -> str:
        others = self.count_subscribers(None) - found
        if others <= 0:
            return ""
        return f". Subscribers without a matching pattern: {others}{self._patterns_hint}"

    def sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        with self.lock:
            return list(self._sessions.by_id.values())

    def subscriber_infos(self) -> list[SubscriberInfo]:
        """Return the state of each link."""
        if self.is_foreign or self.is_closed:
            return []
        with self.lock:
            now = self._clock()
            return [_info(session, now) for session in self._sessions.by_id.values()]

    def stats(self) -> PublisherStats:
        """Return the counters."""
        with self.lock:
            sessions, batcher, listener = self._sessions, self.batcher, self._listener
            numbered = batcher.position + len(batcher.waiting) // 4
            sent = numbered - self._silent + self.plain_sent
            drops = [sum(pair) for pair in zip(self._drops, sessions.drops, strict=True)]
            return PublisherStats(
                published=sent + batcher.unmatched,
                sent=sent,
                unmatched=batcher.unmatched,
                refused=self._refused,
                dropped=dict(zip(REASONS, drops, strict=True)),
                given_up=self._count_given_up(),
                redelivered=self._redelivered + sessions.redelivered,
                rejected=self._rejected + sessions.rejected + (listener.rejected if listener else 0),
                denied=0 if self._keys is None else self._keys.denied,
            )

    def _count_given_up(self) -> int:
        return self._given_up + self._sessions.given_up

    # the end

    def _begin_close(self) -> None:
        if not self.is_closing:
            self.is_closing, self._given_up_before_close = True, self._count_given_up()

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Refuse further messages. Wait until all messages are acknowledged or handled, at most until the timeout.

        `Sessions.acknowledging_until` decides how long the call waits. Returns the time at which the timeout ends, in
        seconds.
        """
        began = self._clock()
        end = float("inf") if timeout is None else began + timeout
        with self.lock:
            if not self.is_closing:
                self._begin_close()
                self.quick.clear()
                if not self.is_closed:
                    with suppress(ClosedError):  # The program has terminated the context.
                        self._locked(self._flush)
                        self._locked(self._sessions.leave_groups)
                self._notify_waiters()
        while not self.is_closed:
            now = self._clock()
            with self.lock:
                until = self._sessions.acknowledging_until(began, now)
            if until is None or now >= end:
                break
            yield min(until, end)
        return end

    def finish(self, end: float) -> int:
        """Send BYE, and close the sockets; return the number of unacknowledged or unhandled messages.

        The caller stops the attending side before this call, and calls `end_context` afterwards.

        Args:
            end: time in seconds of the engine's clock until which libzmq may continue to send.
        """
        with self.lock:
            milliseconds = -1 if end == float("inf") else max(int((end - self._clock()) * 1000), _MIN_LINGER)
            if self.is_closed:
                # A signal handler may have raised and interrupted the first call.
                self._shut(milliseconds)
                return 0
            self._begin_close()
            left = 0
            try:
                sessions = self._sessions
                sessions.flush()
                # Include the messages of sessions that have ended during `close`.
                left = sessions.unacknowledged() + self._count_given_up() - self._given_up_before_close
                sessions.close()
                while self._listener is not None and sessions.ready:
                    self._pump(self._listener)
                is_received = not any(item.is_up and item.unreceived for item in sessions.by_id.values())
                if self._listener is not None and is_received:
                    # Only BYE frames must still be sent. Frames of an ended session, whose process may never read, must
                    # not delay `close`.
                    self._listener.close(_BYE_LINGER if milliseconds < 0 else min(milliseconds, _BYE_LINGER))
            except zmq.ZMQError as error:
                if not has_ended(error, self._context):
                    raise
            finally:
                # Count again instead of adding `left`, because `Sessions.close` has counted backlogs as dropped.
                self._given_up += self._sessions.unacknowledged()
                self._shut(milliseconds)
            return left

    def abort(self) -> None:
        """Close the sockets without sending BYE to the subscribers."""
        with self.lock:
            if not self.is_closed:
                self._shut(0)

    def _shut(self, linger: int) -> None:
        """Close the sockets. If a call was interrupted, a second call closes the remaining sockets."""
        self.is_closing = self.is_closed = True
        self.quick.clear()
        self._endpoints.close()
        if self._keys is not None:
            self._keys.close()
        self._plain.close(linger)
        if self._listener is not None:
            # A stalled subscriber gets the last frames if it reads again within the linger time.
            self._listener.close(linger)
        self._notify_waiters()

    def end_context(self) -> None:
        """Terminate the context, if the engine has created it.

        The call waits until libzmq has sent all messages, or until the linger time of the sockets has passed.
        """
        if self.owns_context and not self.is_foreign:
            # A signal handler may interrupt `term`. Clear the flag first, so that a second `close` does not wait again.
            self.owns_context = False
            self._context.term()

    def _disown(self) -> None:
        """Make all calls raise OwnershipError in the child of a fork."""
        self.is_foreign = True
        self.lock = threading.RLock()
        self.quick.clear()


if HOT is not None:
    HOT.know_lone_publisher(Engine, Sessions, Batcher, Stream, Session, LinkListener, Batch, Body)

_MAX_QUICK = 65_536
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _disown_all() -> None:
    for engine in tuple(_engines):
        engine._disown()


after_fork(_disown_all)


def _info(session: Session, now: float) -> SubscriberInfo:
    drops = [0, 0, 0, 0]
    for stream in session.streams.values():
        drops = [sum(pair) for pair in zip(drops, stream.drops, strict=True)]
    oldest = session.oldest
    return SubscriberInfo(
        member=session.member.hex(),
        patterns=tuple(pattern.text for pattern, _ in session.patterns.values()),
        state=session.state,
        pending=session.pending,
        pending_bytes=session.bytes,
        oldest=None if oldest is None else now - oldest,
        dropped=dict(zip(REASONS, drops, strict=True)),
    )


def _as_bytes(payload: Any) -> bytes:
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, (list, tuple)):
        raise TypeError(
            f"a payload is one body of bytes, not a {type(payload).__name__}: join the parts, publish one "
            "message for each, or give the publisher a codec="
        )
    raise TypeError(
        f"a payload is bytes, not {type(payload).__name__}: encode it, or give the publisher a codec="
    )


def _too_large(size: int, maximum: int) -> ValueError:
    return ValueError(
        f"a payload of {size:,} bytes: at most {maximum:,} are allowed, because subscribers disconnect a "
        "publisher that sends more; send it in parts, or raise Limits(message_bytes=) on both sides"
    )


def _check(on_full: str, last_value: Any, links: Any, context: Any, options: Options) -> None:
    if on_full not in ON_FULL:
        raise ConfigurationError("on_full", on_full, "argument", f"it is one of {', '.join(ON_FULL)}")
    if not isinstance(last_value, bool):
        raise ConfigurationError("last_value", last_value, "argument", "it is True or False")
    if not (links is None or links is False or isinstance(links, str)):
        raise ConfigurationError("links", links, "argument", "it is an endpoint, or False for no links")
    if not isinstance(options, Options):
        raise TypeError(f"options is an Options, not {type(options).__name__}")
    if context is not None:
        runtime_of(context)
