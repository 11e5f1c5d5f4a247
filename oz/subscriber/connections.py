"""Connections of a subscriber: they open endpoints, read and send frames, and choose between links and plain SUBs.

The class `Connections` is the base class of `oz.subscriber.engine.Engine`. Private methods are called under the lock of
the engine. A `Place` holds the state of one endpoint. An endpoint has a link, a plain connection, or both. With
`filtering="auto"`, `oz.subscriber.fallback` chooses between link and plain connection.

`connect` sends frames at once. If the socket is full, the next call sends the frames. `_touched` holds the places that
may have frames to send.

If a signal handler raises an exception during the delivery of a frame, `_undo_frame` undoes the delivery, and
`Dialler.read` returns the same frame again.
"""

from __future__ import annotations

import errno
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from logging import DEBUG, WARNING
from math import inf
from typing import Any

import zmq

from oz.errors import (
    ClosedError,
    ConfigurationError,
    OwnershipError,
    PermissionDenied,
)
from oz.logs import peer_logger
from oz.message import Gap
from oz.multicast.endpoints import is_multicast
from oz.multicast.group import silence_libpgm
from oz.options import Multicast, Options
from oz.program_end import end_daemon
from oz.subscriber import link as machine
from oz.subscriber.fallback import ASKING, LINK, PREFIX, Fallback
from oz.subscriber.keys import SubscriberKeys
from oz.subscriber.link import ENDED, LIVE, NEW, Effect, Link, ListeningClock
from oz.subscriber.links import Dialler
from oz.subscriber.lone import Lone
from oz.subscriber.message import Message
from oz.subscriber.multicast import MulticastSource, needs_link
from oz.subscriber.places import Place
from oz.subscriber.plain import PlainPatterns, PlainSocket
from oz.subscriber.queue import Dispatcher, Inbox
from oz.subscriber.subscriptions import Subscriptions
from oz.transport import descriptors
from oz.transport.credentials import Credentials
from oz.transport.endpoints import check, check_destination
from oz.transport.errors import EndpointError
from oz.transport.keys import LINK as LINK_SOCKET
from oz.transport.monitors import HANDSHAKES, Outcome
from oz.transport.routers import FRAME_SPACE, link_endpoint
from oz.transport.runtime import runtime_of
from oz.wire import links
from oz.wire.links import SID

_POLL_DESCRIPTORS = 4
"""Number of file descriptors that a `Poll` object needs."""
MAX_READ = 100
"""Maximum number of frames that one call reads from links."""
MAX_ALONE = 8
"""Maximum number of frames that `read_alone` reads."""
MAX_MESSAGES = 512
"""One call stops reading links after this number of messages. With a larger number, each frame takes 15% more time,
because the frames do not fit into the processor's cache."""
MAX_PLAIN = 1_000
"""Maximum number of messages that one call reads from a plain connection."""
LAST_READS = 20
"""Maximum number of reads before a plain connection is closed. A fast publisher might always send more messages."""
LARGEST_WINDOW = 1_024
"""Maximum number of unacknowledged batches that a publisher may send on a link."""
TICK_INTERVAL = 0.1
"""Minimum time between two checks of all links, in seconds of a `ListeningClock`."""

_FIRST = links.DIRECT + 1  # Stream number of the first subscription.

_log = peer_logger("oz.subscriber")

OPEN, DRAINED, CLOSED, FOREIGN = "open", "drained", "closed", "foreign"


class Connections(ABC):
    """Sockets and state machines of one subscriber.

    Attributes:
        runtime: object that provides clocks, random bytes and poll objects; tests replace it.
        clock: function that returns the monotonic time of the runtime in seconds.
        lock: lock for all uses of the sockets.
        reading: lock that a thread holds while it reads the sockets.
        lone: state that C code needs to read the next lone message; None if C code must not read. See `find_lone`.
        version: number that changes with each event for which a call may wait.
        notify: function that wakes the waiting calls after a change of `version`.
        dispatcher: object that delivers messages to the queues of the subscriptions.
        listening: clock that runs only while the program waits for messages.
        state: OPEN, DRAINED (all subscriptions have ended), CLOSED or FOREIGN (in the child of a fork).
        places: dict from endpoints to their state.
        poll: poll object with the descriptors of the sockets.
        keys: keys of the subscriber and its publishers; None without security.
        denials: refusals that no call has raised yet. Each key is a pair of place and subscription number, and each
            value is a pair of inbox and error. For a refused connection the number is 0.
        watches_links: whether to read the monitor events of all links. Nodes need these events.
        subscriptions_class: class of `subscriptions`. A node uses a subclass.
        on_link: function called under the lock with a place and an event of its link; see `_report`. It must not
            raise.
        on_connection: function called under the lock with a monitor event of a link without fallback. The arguments are
            the place, the number of the event and the address.
    """

    watches_links = False
    subscriptions_class = Subscriptions

    def __init__(
        self,
        context: zmq.Context[Any] | None,
        filtering: str,
        decode: Callable[[bytes], Any] | None,
        link_endpoints: str | Mapping[str, str] | None,
        options: Options,
        credentials: Credentials | None = None,
        member: bytes | None = None,
        card: bytes = b"",
    ) -> None:
        self.filtering, self.options = filtering, options
        silence_libpgm()
        self._link_endpoints = link_endpoints
        self._context: zmq.Context[Any] = zmq.Context.instance() if context is None else context
        self.runtime = runtime = runtime_of(self._context)
        self.clock = runtime.clock
        self.lock = threading.RLock()
        self.reading = threading.RLock()
        self.version = 0
        self.lone: Lone | None = None
        self.notify: Callable[[], None] = lambda: None
        self.state = OPEN
        self.subscriptions = self.subscriptions_class()
        self.dispatcher = Dispatcher(self.subscriptions, decode=decode, dedupe=options.dedupe)
        self._member = runtime.random_bytes(16) if member is None else member
        self._card = links.check_card(card)
        self.on_link: Callable[[Place, str], object] = lambda place, event: None
        self.on_connection: Callable[[Place, int, str], object] = lambda place, event, where: None
        # A link must accept frames of 1 MiB, because a batch of small messages may be this large.
        self._message_bytes = max(options.limits.message_bytes, 1 << 20)
        self._patterns = PlainPatterns(options.delimiter)
        self.listening = ListeningClock()
        # Weak references, because `leave` is not called if a signal handler raises at the end of a wait.
        self._inside: weakref.WeakSet[Any] = weakref.WeakSet()
        descriptors.need(descriptors.CONTEXT + _POLL_DESCRIPTORS, "a subscriber")
        self.poll = runtime.create_poll()
        self._dialler: Dialler | None = None
        self.places: dict[str, Place] = {}
        self._by_handle: dict[bytes, Place] = {}
        self._plains: dict[Place, None] = {}
        self._multicasts: dict[Place, None] = {}
        self._undecided: dict[Place, None] = {}
        self._place_of: dict[Link, Place] = {}
        self._touched: dict[Place, None] = {}
        self._unacked: dict[Place, None] = {}
        self._current: Link | None = None
        self._tick_at = 0.0
        self._drains = 0
        self.keys: SubscriberKeys | None = None
        if credentials is not None:
            self.keys = SubscriberKeys(
                credentials,
                self.poll.ring,
                self._on_key_refusal,
                self._reconnect,
                self._give_up,
                options.delimiter,
            )
            self.keys.name_of = self.name_of
        self.denials: dict[tuple[Place, int], tuple[Inbox | None, PermissionDenied]] = {}

    @abstractmethod
    def acknowledge(self, message: Message) -> None:
        """Acknowledge a message that the program has handled."""

    def name_of(self, endpoint: str) -> str:
        """Return the name that errors and logs show for the publisher at an endpoint. Nodes return the peer's name."""
        return endpoint

    def refusal_text(self, place: Place, text: str | bytes, refusal: links.Refusal) -> str:
        """Return a text for errors and logs that names the publisher, the refused pattern and the reason.

        Args:
            place: place of the publisher.
            text: text of the refused pattern.
            refusal: refusal from the publisher, with the reason.
        """
        return f"{self.name_of(place.endpoint)} refuses {text!r}: {refusal.reason}"

    def denial(self, place: Place, text: str | bytes, refusal: links.Refusal) -> PermissionDenied:
        """Return the error for a subscription that a publisher's permissions refuse."""
        return PermissionDenied(
            self.refusal_text(place, text, refusal), rule=refusal.rule or None, subject=refusal.witness
        )

    # state

    def check_open(self) -> None:
        """Raise ClosedError or OwnershipError if the subscriber cannot be used."""
        if self.state == CLOSED:
            end_daemon()
            raise ClosedError("the subscriber is closed: create another one")
        if self.state == FOREIGN:
            raise OwnershipError(
                "the subscriber belongs to the parent process: create another one after the fork"
            )

    def _changed(self) -> None:
        self.lone = None
        self.version += 1
        self.notify()

    def enter(self, wait: object) -> None:
        """Record that a call begins to wait, so that the listening clock may run.

        Args:
            wait: object that identifies the waiting call. The caller passes the same object to `leave` later.
        """
        with self.lock:
            self._inside.add(wait)
            self.listening.enter()

    def leave(self, wait: object) -> None:
        """Record that a call has ended its wait. The listening clock stops if no other call waits."""
        with self.lock:
            self._inside.discard(wait)
            if not self._inside:
                self.listening.leave(self.clock())

    @property
    def card(self) -> bytes:
        """Encoded description of the node, sent in later HELLO frames; empty without a node."""
        return self._card

    @card.setter
    def card(self, card: bytes) -> None:
        self._card = links.check_card(card)

    # endpoints

    def connect(self, endpoint: str) -> None:
        """Connect to a publisher; see `Subscriber.connect`."""
        self._find_key(endpoint)
        with self.lock:
            self.check_open()
            check(endpoint, own_context=False)
            check_destination(endpoint)
            if endpoint in self.places:
                return
            descriptors.need_for_endpoint(endpoint)
            if is_multicast(endpoint):
                self._join(endpoint)
                return
            place = Place(endpoint, None)
            if self.filtering != "prefix":
                place.link_endpoint = self._link_endpoint_of(endpoint)
            if place.link_endpoint is None:
                self._open_plain(place)
            else:
                self._start_link(place)
            self.places[endpoint] = place
            self._flush()

    def dial(self, endpoint: str) -> None:
        """Connect a link to a link endpoint, without a plain connection. `disconnect` ends the connection.

        Raises:
            EndpointError: the endpoint cannot be used.
            ClosedError, OwnershipError: the subscriber cannot be used; see `check_open`.
        """
        self._find_key(endpoint, is_exact=True)
        with self.lock:
            self.check_open()
            check(endpoint, own_context=False)
            check_destination(endpoint)
            if is_multicast(endpoint):
                raise EndpointError(f"{endpoint!r} has no links: name a tcp, ipc or inproc endpoint")
            if endpoint in self.places:
                return
            descriptors.need_for_endpoint(endpoint)
            place = Place(endpoint, endpoint)
            self._start_link(place, may_fall_back=False)
            self.places[endpoint] = place
            self._flush()

    def _find_key(self, endpoint: str, *, is_exact: bool = False) -> None:
        """Find a publisher's key. The search does not hold the lock, because it waits for handshakes."""
        if self.keys is None:
            return
        with self.lock:
            self.check_open()
            check(endpoint, own_context=False)
            if is_multicast(endpoint):
                raise EndpointError(
                    f"{endpoint!r}: multicast has no keys; leave security= out, and encrypt payloads"
                )
            if endpoint in self.places:
                return
            where = None
            if is_exact or self.filtering != "prefix":
                where = endpoint if is_exact else self._link_endpoint_of(endpoint)
        self.keys.find(endpoint, where, is_plain=not is_exact and self.filtering != "publisher")

    def _link_endpoint_of(self, endpoint: str) -> str | None:
        """Return the link endpoint of an endpoint; None if `filtering` is "auto" and the transport has no links."""
        known = self._link_endpoints
        if isinstance(known, str):
            if self.places:
                raise ConfigurationError(
                    "links", known, "argument",
                    "one link endpoint serves one endpoint; give a dict of endpoint to link endpoint",
                )  # fmt: skip
            return known
        if known is not None and endpoint in known:
            return known[endpoint]
        try:
            return link_endpoint(endpoint)
        except EndpointError:
            if self.filtering == "publisher":
                raise
            return None

    def _join(self, endpoint: str) -> None:
        if self.filtering == "publisher":
            rule = f'{endpoint!r} has no links: use filtering="auto" or "prefix"'
            raise ConfigurationError("filtering", "publisher", "argument", rule)
        for inbox in self.dispatcher.inboxes:
            if not inbox.falls_back:
                raise needs_link(endpoint)
        place = Place(endpoint, None)
        multicast = self.options.multicast or Multicast()
        if multicast.plain:
            self._open_plain(place, multicast=multicast)
        else:
            source = place.multicast = MulticastSource(
                self._context, endpoint, multicast, self.dispatcher, self._patterns.match
            )
            self._multicasts[place] = None
            self.poll.add([source.listener.fd])
            self.poll.ring()
        self.places[endpoint] = place

    def _start_link(self, place: Place, *, may_fall_back: bool = True) -> None:
        assert place.link_endpoint is not None
        if any(other.link_endpoint == place.link_endpoint for other in self.places.values()):
            raise EndpointError(
                f"{place.endpoint!r}: another endpoint has the link endpoint {place.link_endpoint!r}; "
                "connect to each publisher once"
            )
        if self._dialler is None:
            dialler = Dialler(self._context, message_bytes=self._message_bytes, window=LARGEST_WINDOW)
            self._dialler = dialler
            self.poll.add([dialler.fd])
        if self.filtering == "auto" and may_fall_back:
            place.fallback = Fallback(self.clock())
            self._undecided[place] = None
        if place.fallback is not None or self.keys is not None or self.watches_links:
            # Start the monitor before the dial, because a connection to a process on this host opens at once.
            self._watch(place)
        random_bytes = self.runtime.random_bytes
        place.link = Link(
            self._member,
            self.subscriptions,
            (lambda: random_bytes(16)) if self.keys is None else self.keys.new_session,
            resume_seconds=self.options.resume_seconds,
            largest_frame=self._message_bytes + FRAME_SPACE,
            largest_window=LARGEST_WINDOW,
            own_card=lambda: self._card,
            declares_early=not self._card,
        )
        self._place_of[place.link] = place
        try:
            self._dial(place)
        except BaseException:
            del self._place_of[place.link]
            raise

    def _watch(self, place: Place) -> None:
        dialler = self._dialler
        assert dialler is not None
        assert place.link_endpoint is not None
        if not place.link_endpoint.startswith("inproc://"):
            is_new = dialler.monitor is None
            monitor = dialler.watch(0 if self.keys is None else HANDSHAKES)
            if is_new:
                self.poll.add([monitor.fd])

    def _dial(self, place: Place) -> None:
        assert self._dialler is not None
        assert place.link is not None
        assert place.link_endpoint is not None
        if self.keys is not None:
            self.keys.prepare(self._dialler.router, place.endpoint)
        place.handle = self._dialler.dial(place.link_endpoint)
        self._by_handle[place.handle] = place
        place.link.connect(self.listening.time(self.clock()))
        place.is_twin = False
        self._touched[place] = None
        self._tick_at = 0.0

    def _hang_up(self, place: Place) -> None:
        assert self._dialler is not None
        assert place.link_endpoint is not None
        if self.keys is not None:
            # Process the events before the disconnect, because libzmq has already freed each refused connection.
            self._read_link_events(self.clock())
        if place.handle:
            self._by_handle.pop(place.handle, None)
            self._dialler.hang_up(place.link_endpoint)
            place.handle = b""

    # keys

    def _give_up(self, endpoint: str) -> None:
        """End the connections to an endpoint until `_reconnect` is called."""
        place = self.places.get(endpoint)
        if place is None:
            return
        place.is_given_up = True
        if place.link is not None and place.handle:
            assert self._dialler is not None
            assert place.link_endpoint is not None
            self._dialler.begin()
            self._by_handle.pop(place.handle, None)
            self._dialler.hang_up(place.link_endpoint)
            place.handle = b""
            place.link.disconnect()
            self._report(place, place.link)
        if place.plain is not None:
            self._close_plain(place)
        self._changed()

    def _reconnect(self, endpoint: str) -> None:
        place = self.places.get(endpoint)
        if place is None:
            return
        place.is_given_up = False
        if place.link is not None:
            self._replace(place)
            self._report(place, place.link)
        if place.link is None or (place.fallback is not None and place.fallback.has_plain):
            self._close_plain(place)
            self._open_plain(place)

    def _on_key_refusal(self, endpoint: str, why: str) -> None:
        place = self.places.get(endpoint)
        if place is not None:
            text = f"{self.name_of(endpoint)} {why}"
            place.key_refusal, place.refusal = why, text
            self.denials[place, 0] = None, PermissionDenied(f"{text}. The connection is tried again")
            self._changed()

    def _on_handshake(self, place: Place, outcome: Outcome, kind: int, now: float) -> None:
        assert self.keys is not None
        if outcome is Outcome.ADMITTED and place.key_refusal is not None:
            place.key_refusal = None
            self.denials.pop((place, 0), None)
        self.keys.on_handshake(place.endpoint, outcome, kind, now)

    def _allowed(self, place: Place, link: Link, effect: machine.Messages) -> Iterable[machine.Messages]:
        if self.keys is None:
            return (effect,)
        kept = self.keys.allowed(self.keys.key_of(place.endpoint), link.origin or b"", effect)
        if sum(len(entry.positions) for entry in kept) < len(effect.positions):
            sequences = set(range(effect.sequence, effect.sequence + len(effect.positions)))
            for entry in kept:
                sequences.difference_update(range(entry.sequence, entry.sequence + len(entry.positions)))
            self._drop_denied(place, link, effect, sequences)
        return kept

    def _drop_denied(
        self, place: Place, link: Link, effect: machine.Messages, sequences: Iterable[int]
    ) -> None:
        for sequence in sequences:
            link.handled(link.epoch, effect.stream, sequence)

    def _open_plain(self, place: Place, *, binds: bool = False, multicast: Multicast | None = None) -> None:
        plain = PlainSocket(
            self._context,
            place.endpoint,
            None if place.fallback is not None else self._patterns.prefixes(),
            binds=binds,
            message_bytes=self.options.limits.message_bytes,
            high_water_mark=self.options.high_water_mark,
            keys=self.keys,
            multicast=multicast,
        )
        place.plain = plain
        self._plains[place] = None
        if binds:
            place.endpoint = plain.endpoint
        self.poll.add(plain.fds)
        self.poll.ring()

    def _close_plain(self, place: Place) -> None:
        # Close each object before its reference is removed, because a signal handler may raise in `close`.
        if place.plain is not None:
            self.poll.remove(place.plain.fds)
            place.plain.close()
            place.plain = None
        self._plains.pop(place, None)
        if place.multicast is not None:
            self.poll.remove([place.multicast.listener.fd])
            place.multicast.close()
            place.multicast = None
        self._multicasts.pop(place, None)

    def bind(self, endpoint: str) -> str:
        """Bind a plain SUB; return the bound endpoint. See `Subscriber.bind`."""
        with self.lock:
            self.check_open()
            check(endpoint, own_context=False)
            if is_multicast(endpoint):
                raise EndpointError(
                    f"{endpoint!r}: a subscriber connects to multicast endpoints; use connect="
                )
            if self.filtering == "publisher":
                raise ConfigurationError(
                    "filtering", "publisher", "argument",
                    'links need a publisher that binds: a subscriber that binds needs filtering="auto" or '
                    '"prefix"',
                )  # fmt: skip
            descriptors.need_for_endpoint(endpoint)
            place = Place(endpoint, None)
            place.is_bound = True
            self.lone = None
            self._open_plain(place, binds=True)
            self.places[place.endpoint] = place
            return place.endpoint

    def disconnect(self, endpoint: str, *, is_bound: bool = False, is_lost: bool = False) -> None:
        """Disconnect or unbind; see `Subscriber.disconnect`.

        Args:
            endpoint: endpoint that was connected or bound.
            is_bound: whether the endpoint was bound.
            is_lost: whether the publisher has ended unexpectedly. Then report a gap if messages may be lost.
        """
        with self.lock:
            self.check_open()
            place = self.places.get(endpoint)
            if place is None or place.is_bound != is_bound:
                verb = "bound" if is_bound else "connected"
                known = ", ".join(item for item, that in self.places.items() if that.is_bound == is_bound)
                raise EndpointError(f"{endpoint!r} is not {verb}; there is {known or 'none'}", errno.ENOENT)
            if self.keys is not None:
                # Read the events before their place is removed, as in `_hang_up`.
                self._read_link_events(self.clock())
            del self.places[endpoint]
            if self.keys is not None:
                self.keys.forget(endpoint)
            self.denials = {key: denial for key, denial in self.denials.items() if key[0] is not place}
            self._close_plain(place)
            if place.link is not None:
                if is_lost and place.link.may_have_lost:
                    self.dispatcher.put_gap(Gap(place.link.origin, None, 0, "lost"), None)
                place.link.close()
                self._send_all(place, self.clock())
                self._hang_up(place)
                del self._place_of[place.link]
                self._keep_counters(place.link)
            self._touched.pop(place, None)
            self._unacked.pop(place, None)
            self._undecided.pop(place, None)
            self._unwatch()
            self._changed()

    def _keep_counters(self, link: Link) -> None:
        stats = self.dispatcher.stats
        stats.received += link.unwanted
        stats.unwanted += link.unwanted
        stats.malformed += link.malformed
        stats.repeated += link.repeated

    # subscriptions

    def _declare(self) -> None:
        self._queue_declarations()
        self._flush()

    def _queue_declarations(self) -> None:
        for place in self.places.values():
            if place.link is not None:
                place.link.declare()
                self._touched[place] = None

    # reading

    def _read_links(self, now: float) -> bool:
        dialler, by_handle, clock = self._dialler, self._by_handle, self.listening
        if dialler is None:
            clock.empty(now)
            return False
        stats, time_ns = self.dispatcher.stats, self.runtime.time_ns()
        limit = stats.received + MAX_MESSAGES
        dialler.begin()
        for _ in range(MAX_READ):
            message = dialler.read()
            if message is None:
                clock.empty(now)
                return False
            clock.read(now)
            place = by_handle.get(message[0])
            if place is not None:
                if len(message) == 2:
                    self._on_frame(place, message[1], now, time_ns)
                else:
                    stats.malformed += 1
            dialler.discard()
            if stats.received >= limit:
                break
        return True

    @property
    def link_descriptor(self) -> int:
        """Descriptor of the socket that all links use; -1 without a socket."""
        return -1 if self._dialler is None else self._dialler.fd

    def may_wait_alone(self) -> bool:
        """Return whether `read_alone` may be used: the only frames that can arrive are batches of a single link."""
        if len(self._by_handle) != 1 or len(self.places) != 1 or self.state != OPEN or self._drains:
            return False
        dialler = self._dialler
        if self._plains or self._undecided or self._current or dialler is None or dialler.monitor is not None:
            return False
        (link,) = self._place_of
        return link.state == LIVE and not self.dispatcher.is_full

    def find_lone(self) -> Lone | None:
        """Return the state that C code needs to read lone messages from the only link and its only stream.

        Return None if C code cannot deliver such messages, for example because they must be decoded. The caller holds
        the lock, and `may_wait_alone` has returned True. Code that invalidates the returned state must set `lone` to
        None.
        """
        ((link, place),) = self._place_of.items()
        dialler, fallback = self._dialler, place.fallback
        if (
            dialler is None
            or dialler.raw is None
            or self.keys is not None
            or self.dispatcher.decode is not None
        ):
            return None
        if place.gaps or not (fallback is None or (fallback.state == LINK and place.begin is None)):
            return None
        options, found = self.subscriptions.options_of(_FIRST), self.dispatcher.routes_of(_FIRST)
        if options is None or options.handled or found is None:
            return None
        self._unacked[place] = None
        drops = link.drops.get(_FIRST, 0)
        return Lone(
            link, place, place.handle, dialler.raw, dialler.kept, found, found.cache, self.dispatcher.find,
            _FIRST, drops, dialler.fd,
        )  # fmt: skip

    def read_alone(self) -> Message | None:
        """Read frames until messages arrive; return the first message of the shared queue, or None.

        The caller holds `lock` and `reading`, and calls `Engine.after_alone` later. The next `attend` does the
        remaining work, for example the sending of frames.
        """
        dialler = self._dialler
        if dialler is None or self.state != OPEN or self._current is not None:
            return None
        items, stats, now = self.dispatcher.shared.items, self.dispatcher.stats, self.clock()
        before = stats.received
        dialler.begin()
        for _ in range(MAX_ALONE):
            message = dialler.read()
            if message is None:
                break
            try:
                place = self._by_handle.get(message[0])
                if place is None:
                    pass
                elif len(message) == 2:
                    self._on_frame(place, message[1], now, self.runtime.time_ns())
                    if place.link is not None and place.link.is_ack_due:
                        self._flush(now)
                else:
                    stats.malformed += 1
                dialler.discard()
            except BaseException:
                self._undo_frame()
                raise
            self.version += 1
            if stats.received != before:
                break
        # If messages wait for handlers, return None, because the handlers must run first.
        if items and not self.dispatcher.work and items[0].__class__ is Message:
            found: Any = items.popleft()
            return found  # type: ignore[no-any-return]
        return None

    def _on_frame(self, place: Place, frame: bytes, now: float, time_ns: int) -> None:
        link = place.link
        assert link is not None
        if not self._drains and link.repeats_ping(frame, self.listening.time(now)):
            place.heard_at = now
            return
        link.confirm_frame()
        self.lone = None
        self._current = link
        place.heard_at = now
        self._touched[place] = None
        before = link.state
        effects = link.on_frame(frame, self.listening.time(now))
        if effects:
            self._apply(place, link, effects, time_ns)
        if link.state != place.reported or link.epoch is not place.reported_epoch:
            self._report(place, link)
        if frame and frame[0] == links.WELCOME and link.state == LIVE:
            self._on_welcome(place, link, now)
        elif link.state == ENDED and before != ENDED:
            self._on_end(place)
        elif self._drains and frame and frame[0] == links.PING:
            self._changed()
        self._current = None

    def _apply(self, place: Place, link: Link, effects: list[Effect], time_ns: int) -> None:
        fallback = place.fallback
        is_served = fallback is None or (fallback.state == LINK and place.begin is None)
        for effect in effects:
            if isinstance(effect, machine.Messages):
                self._unacked[place] = None
                if effect.stream == links.DIRECT:
                    self.dispatcher.deliver_direct(link, effect)
                    continue
                if not (is_served or self._is_served_by_link(place, link, effect)):
                    # The plain connection delivers these messages, or a gap reports them.
                    self.dispatcher.stats.repeated += len(effect.positions)
                    continue
                for allowed in self._allowed(place, link, effect):
                    gap = 0
                    if place.gaps:
                        gap = place.gaps.pop(effect.stream, 0) + place.gaps.pop(None, 0)
                    self.dispatcher.deliver(link, allowed, time_ns, gap, self.acknowledge)
            elif isinstance(effect, machine.Gap):
                if effect.count is not None and effect.stream != links.DIRECT:
                    place.gaps[effect.stream] = place.gaps.get(effect.stream, 0) + effect.count
                if effect.reason == "malformed" and effect.count is not None:
                    self.dispatcher.stats.received += effect.count
                    self.dispatcher.stats.malformed += effect.count
                origin = effect.origin or link.origin
                self.dispatcher.put_gap(Gap(origin, effect.count, 0, effect.reason), effect.stream)
                self._changed()
            elif isinstance(effect, machine.Replace):
                self._replace(place)
            else:
                self._on_answer(place, effect)

    def _is_served_by_link(self, place: Place, link: Link, effect: machine.Messages) -> bool:
        """Return whether to deliver messages that arrived on a link. If not, the plain connection delivers them."""
        fallback = place.fallback
        assert fallback is not None
        options = self.subscriptions.options_of(effect.stream)
        if options is None or options.group or options.handled or options.overflow:
            return True
        if effect.flat[2] is not None and SID in effect.flat[2]:
            # A plain connection never delivers last values.
            return True
        if fallback.state == PREFIX and not fallback.has_delivered:
            self._move(place, is_answered=False)
        if fallback.state != LINK:
            fallback.has_delivered = True
            return False
        return place.begin is None or place.begin[0] != link.epoch or effect.positions[0] >= place.begin[1]

    def _move(self, place: Place, *, is_answered: bool) -> None:
        """Move from the plain connection to the link, because the publisher answers on the link; see `Fallback`."""
        fallback, plain = place.fallback, place.plain
        assert fallback is not None
        if plain is not None and plain.serves:
            self._read_last(place, plain)
        if not fallback.has_delivered:
            fallback.serve()
        elif is_answered:
            fallback.move(self.subscriptions.renew())
            self._queue_declarations()
        self._follow(place)

    def _read_last(self, place: Place, plain: PlainSocket) -> None:
        for _ in range(LAST_READS):
            self._deliver_plain(place, plain)
            if plain.is_empty:
                return

    def _replace(self, place: Place) -> None:
        self._hang_up(place)
        self._dial(place)

    def _on_welcome(self, place: Place, link: Link, now: float) -> None:
        for other in self.places.values():
            if other is place or other.link is None or other.is_twin:
                continue
            is_same_key = self.keys is None or self.keys.key_of(other.endpoint) == self.keys.key_of(
                place.endpoint
            )
            if other.link.state == LIVE and other.link.origin == link.origin and is_same_key:
                # For nodes this is no reason for a warning, because they dial several endpoints of a peer.
                _log.log(
                    DEBUG if self._card else WARNING,
                    "%s and %s reach the same publisher; the first link is used. Connect to one of them",
                    other.endpoint,
                    place.endpoint,
                )
                link.leave(self.listening.time(now))
                place.is_twin = True
                self._report(place, link)
                if place.fallback is not None:
                    place.fallback.serve()
                    self._follow(place)
                self._changed()
                return
        fallback = place.fallback
        if fallback is not None:
            if place.begin is not None and place.begin[0] != link.epoch:
                place.begin = None
            # Do not wait for an ANSWER, because the publisher sends none if there are no subscriptions.
            if fallback.state == ASKING or (fallback.state == PREFIX and link.is_answered):
                self._move(place, is_answered=True)
        self._changed()

    def _on_answer(self, place: Place, effect: machine.Refused) -> None:
        known, place.refusals = place.refusals, {refusal.sid: refusal for refusal in effect.refusals}
        place.raised &= place.refusals.keys()
        for sid in known.keys() - place.refusals.keys():
            self.denials.pop((place, sid), None)
        for refusal in effect.refusals:
            place.refusal = refusal.reason
            entry = self.subscriptions.by_sid.get(refusal.sid)
            if entry is None or refusal.sid in known:
                continue
            if refusal.rule is not None:
                denial = self.denial(place, entry.pattern.text, refusal)
                self.denials[place, refusal.sid] = entry.owner, denial
            _log.warning("%s", self.refusal_text(place, entry.pattern.text, refusal))
        link, fallback = place.link, place.fallback
        if fallback is not None and link is not None:
            if fallback.state == PREFIX and link.is_answered:
                self._move(place, is_answered=True)
            elif fallback.answered(effect.revision):
                place.begin = link.epoch, effect.position
                self.dispatcher.put_gap(Gap(link.origin, None, 0, "moved"), None)
                self._follow(place)
        if link is not None and link.is_answered:
            self.on_link(place, "answered")
        self._changed()

    def _report(self, place: Place, link: Link) -> None:
        """Call `on_link` after a change of the state or the epoch of a link.

        ======== ===================================================================================
        event    meaning
        ======== ===================================================================================
        live     the publisher has sent WELCOME; `Link.card` may be new
        answered the publisher has applied the current subscriptions
        silent   the link is no longer LIVE, and the publisher has sent no BYE
        ended    the publisher has sent BYE; `Link.ending` has the reason
        ======== ===================================================================================
        """
        before, place.reported, place.reported_epoch = place.reported, link.state, link.epoch
        if link.state == LIVE:
            self.on_link(place, "live")
            if link.is_answered:
                self.on_link(place, "answered")
        elif link.state == ENDED and link.ending is not None:
            self.on_link(place, "ended")
        elif before == LIVE:
            self.on_link(place, "silent")

    def _on_end(self, place: Place) -> None:
        if place.fallback is not None and place.fallback.ended():
            self._follow(place)
        self._changed()

    def _follow(self, place: Place) -> None:
        """Open the plain connection, let it serve, or close it, according to the state of the fallback."""
        fallback = place.fallback
        assert fallback is not None
        if fallback.has_plain and place.plain is None:
            self._open_plain(place)
            if place.plain is not None and place.plain.is_reached:
                # An inproc connection has no handshake. Do not wait for it.
                fallback.handshake_done(-inf)
                fallback.tick(self.clock())
        if place.plain is not None and fallback.state == PREFIX:
            place.plain.serve(self._patterns.prefixes())
        elif place.plain is not None and not fallback.has_plain:
            self._close_plain(place)
        self._unwatch()
        self._changed()

    def _unwatch(self) -> None:
        """Close the monitor of the links if no endpoint needs it, because unread events would fill the memory."""
        for place in [*self._undecided]:
            if place.fallback is None or place.fallback.deadline == inf:
                del self._undecided[place]
        dialler = self._dialler
        if dialler is None or dialler.monitor is None or self.keys is not None:
            return
        if not self._undecided:
            self.poll.remove([dialler.monitor.fd])
            dialler.unwatch()

    def _read_plain(self, now: float) -> bool:
        has_more = False
        for place in self._plains:
            plain = place.plain
            if plain is None:
                continue
            if self._deliver_plain(place, plain):
                place.heard_at = now
            if not plain.is_empty:
                has_more = True
            elif not place.drained:
                place.drained = True
                # Wake `drain`, which may wait for this change.
                self._changed()
        return has_more

    def _deliver_plain(self, place: Place, plain: PlainSocket) -> bool:
        messages = plain.read(MAX_PLAIN) if self.keys is None else self._read_allowed(place, plain)
        if not messages:
            return False
        found = self.dispatcher.deliver_plain(
            messages, self.runtime.time_ns(), self._patterns.match, self.options.delimiter
        )
        if found and place.fallback is not None:
            place.fallback.has_delivered = True
        return True

    def _read_allowed(self, place: Place, plain: PlainSocket) -> list[list[bytes]]:
        assert self.keys is not None
        if not place.is_bound:
            return self.keys.allowed_plain(self.keys.key_of(place.endpoint), plain.read(MAX_PLAIN))
        keyed = plain.read_keyed(MAX_PLAIN)
        return [frames for key, frames in keyed if self.keys.allowed_plain(key, [frames])]

    def _read_multicast(self, now: float) -> bool:
        has_more = False
        for place in self._multicasts:
            source = place.multicast
            if source is not None:
                if source.read(MAX_READ, now):
                    place.heard_at = now
                place.drained |= source.listener.is_empty
                has_more |= not source.listener.is_empty
        return has_more

    def _read_monitors(self, now: float) -> None:
        for place in [*self._plains]:
            plain, fallback = place.plain, place.fallback
            if plain is None or not plain.read_monitor():
                continue
            outcomes, plain.outcomes = plain.outcomes, []
            if self.keys is not None and not place.is_bound:
                for outcome in outcomes:
                    self._on_handshake(place, outcome, self.keys.plain, now)
                if place.plain is not plain:
                    continue
            if fallback is None:
                pass
            elif plain.is_reached:
                # Read the events of earlier connections of the link first. They must not count for the new connection.
                self._read_link_events(now)
                fallback.handshake_done(now)
                self._ask_again(place)
            elif place.link is not None and place.link.state != LIVE and fallback.connection_ended():
                # Replace the SUB by a SUB without subscriptions, because the link must be tried again first.
                self._read_last(place, plain)
                self._close_plain(place)
                self._open_plain(place)
            self._changed()
        self._read_link_events(now)

    def _ask_again(self, place: Place) -> None:
        """Replace the connection of a link at once, because the plain connection has reached a publisher."""
        if place.link is None or place.link.state == LIVE or place.is_given_up:
            return
        self._undecided[place] = None
        self._watch(place)
        self._replace(place)

    def _read_link_events(self, now: float) -> None:
        dialler = self._dialler
        if dialler is None or dialler.monitor is None or not dialler.monitor.has_events():
            return
        for event in list(dialler.monitor.read()):
            place_found = self._place_at(event.endpoint)
            if place_found is None:
                continue
            if event.outcome is not None:
                if self.keys is not None:
                    self._on_handshake(place_found, event.outcome, LINK_SOCKET, self.clock())
                continue
            if place_found.fallback is None:
                self.on_connection(place_found, event.number, event.endpoint)
            elif event.number == zmq.EVENT_CONNECTED:
                place_found.fallback.connection_opened()
            elif place_found.fallback.refused(now):
                self._follow(place_found)

    def _place_at(self, where: str) -> Place | None:
        """Return the place of a monitor event, or None. The event may contain an IP address instead of a host name."""
        found = [place for place in self.places.values() if place.link_endpoint == where]
        if not found:
            port = where.rpartition(":")[2]
            found = [
                place
                for place in self.places.values()
                if place.link_endpoint is not None and place.link_endpoint.rpartition(":")[2] == port
            ]
        return found[0] if len(found) == 1 else None

    def _tick(self, now: float) -> None:
        listened = self.listening.time(now)
        if listened >= self._tick_at:
            deadline = inf
            for place in [*self.places.values()]:
                link = place.link
                if link is None:
                    continue
                if place.is_given_up:
                    # `SubscriberKeys.tend` decides when to connect again.
                    continue
                before = link.state
                if before == NEW:
                    # A signal handler has raised in `_replace`.
                    self._replace(place)
                effects = link.tick(listened)
                if effects:
                    self._apply(place, link, effects, self.runtime.time_ns())
                if link.state != place.reported:
                    self._report(place, link)
                if link.state == ENDED and before != ENDED:
                    self._on_end(place)
                if link.state != LIVE:
                    self._touched[place] = None
                deadline = min(deadline, link.next_deadline())
            self._tick_at = max(deadline, listened + TICK_INTERVAL)
        for place in [*self._undecided]:
            if place.fallback is not None and place.fallback.tick(now):
                self._follow(place)

    def _undo_frame(self) -> None:
        """Undo a delivery that an exception has interrupted, so that the frame is read again.

        If this call is interrupted too, the next `attend` repeats the call.
        """
        self._tick_at = 0.0
        link = self._current
        if link is None:
            return
        sequence = link.undo_sequence
        if sequence is not None:
            self.dispatcher.remove_from(link, sequence)
            link.undo_frame()
        self._current = None

    # sending

    def _flush(self, now: float | None = None) -> bool:
        """Send waiting frames; return whether a message can be read afterwards."""
        self.lone = None
        dialler = self._dialler
        if dialler is None:
            return False
        if now is None:
            now = self.clock()
        has_sent = False
        touched = self._touched
        for place in [*touched]:
            result = self._send_all(place, now)
            has_sent |= result is not None
            if result is not False:
                # Remove the place after the send, because a signal handler may raise during the send.
                touched.pop(place, None)
            if place.link is not None and place.link.ack_at == inf:
                self._unacked.pop(place, None)
        # A send may have consumed the signal of the descriptor: check the socket itself.
        if has_sent and dialler.is_readable():
            self.poll.ring()
            return True
        return False

    def _send_all(self, place: Place, now: float) -> bool | None:
        """Send the frames of a link; return False if the socket is full, and None if no frame was waiting."""
        dialler, link = self._dialler, place.link
        if link is None or dialler is None or not place.handle:
            return None
        result = None
        with suppress(zmq.ContextTerminated):  # `Engine.attend` closes the subscriber.
            while (frame := link.next_frame()) is not None:
                if not dialler.send(place.handle, frame):
                    return False
                link.confirm_sent(now)
                result = True
        return result

    # time

    def wait_seconds(self, until: float | None) -> float | None:
        """Return the maximum duration of the next poll in seconds; None without a limit.

        Args:
            until: time of `clock` at which the caller must continue, or None.
        """
        now = self.clock()
        deadline = inf if until is None else until
        with self.lock:
            listened = self.listening.time(now)
            if self.places:
                deadline = min(deadline, now + max(0.0, self._tick_at - listened))
            if self.keys is not None and self.places:
                deadline = min(deadline, self.keys.next_deadline())
            for place in self._undecided:
                if place.fallback is not None:
                    deadline = min(deadline, place.fallback.deadline)
            for place in self._unacked:
                if place.link is not None:
                    deadline = min(deadline, place.link.ack_at)
            # While a queue is full, multicast endpoints are not read, so that their deadlines do not matter.
            for place in () if self.dispatcher.is_full else self._multicasts:
                if place.multicast is not None:
                    deadline = min(deadline, place.multicast.next_deadline())
        return None if deadline == inf else max(0.0, deadline - now)
