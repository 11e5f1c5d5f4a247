"""Engine of a node: a publisher, a subscriber, the roster of peers, and their lock and clock.

Theory of operation
-------------------
The engine owns an engine of a publisher, which listens for the links of peers, and an engine of a subscriber,
which dials the peers. Both have the id of the node: it is the `origin` of the publisher and the `member` of the
subscriber. A pair of nodes has two links, one for each direction. The node receives its own messages over a
link of its own, in inproc, unless `echo=False`.

The *attending side* calls `attend`: a thread (`oz.node.sync`) or an event loop (`oz.node.aio`). It attends to both
engines, passes their events to the roster (`oz.node.roster`), and carries out what the roster decides. Other
threads publish, subscribe and wait. They never call the roster.

An event arises under the lock of one of the two engines, perhaps in a thread that publishes. So it is only
appended to `_events`. The lock of the node is outside, the locks of the two engines are inside.

The engine has the interface of the publisher's engine that `oz.publisher.thread` and `oz.publisher.aio` attend to.
Waits are steps (`oz.transport.steps`). `waiters` are those of the publisher; `news` is for waits for messages and
for peers.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import zmq

from oz.configuration import resolve
from oz.errors import (
    KEYS_HINT,
    ClosedError,
    ConfigurationError,
    OwnershipError,
    PermissionDenied,
    ProtocolError,
    Timeout,
)
from oz.logs import peer_logger
from oz.message import Gap
from oz.node import events, roster
from oz.node.directory import Directory
from oz.node.events import Event, Peer
from oz.node.exchange import Exchange
from oz.node.handlers import InlineRunner, Pool, Runner
from oz.node.parts import CLOSED_TEXT, NodePublisher, NodeRules, NodeSubscriber, runners_of
from oz.node.reading import READING, ReplyReader
from oz.node.requests import INBOX
from oz.node.roster import Roster
from oz.node.stats import NodeStats
from oz.node.subjects import (
    check_subscribed,
)
from oz.options import Delivery, Limits, NodeOptions
from oz.program_end import check_running
from oz.publisher.session import Session
from oz.security.identity import is_of, make_uuid_of
from oz.subjects.pattern import Pattern
from oz.subscriber.link import LIVE, Link
from oz.subscriber.message import Message
from oz.subscriber.places import Place
from oz.subscriber.queue import Direct, Inbox
from oz.system import after_fork
from oz.transport import descriptors
from oz.transport.endpoints import EndpointError, address_towards, advertised, warn_of_strangers
from oz.transport.runtime import runtime_of
from oz.transport.security import Security, credentials_of, resolve_security
from oz.transport.steps import Steps
from oz.transport.waiting import Waiters, tell
from oz.wire import links
from oz.wire.codec import find_codec
from oz.wire.links import Card, Hello, StreamOptions

INTRODUCTION = "_OZ.PEERS"
"""Subject of the direct message that introduces peers: pairs of node id and endpoints, as MessagePack."""
LOSS = "_OZ.LOSS"
"""Subject of the direct message of a forwarder about messages that were lost before it: see `decode_loss`."""
MAX_INTRODUCTION = 1 << 20
"""Bytes of an introduction at most. A larger one is ignored, because small values take much memory."""
PROBE = "_OZ.PROBE"
"""Subject of an empty direct message. Declarations that the peer sent before its acknowledgement have arrived."""
LOOK_INTERVAL = 0.1
"""Seconds between two looks of `wait_ready` at endpoints that have not answered yet."""
ECHO_TIMEOUT = 1.0
"""Seconds that `subscribe` waits for the link of the node to itself."""
_MAX_REASON = 100
_MAX_PAST_NAMES = 1_000
_LINGER = 0.05  # Seconds for the last frames of a node whose constructor failed.

_NAMED = 3  # Refused endpoints that the text of a timeout names.

_log = peer_logger("oz.node")


class _Happened(NamedTuple):
    """Event of one of the two engines, for the roster.

    Attributes:
        kind: "up", "down", "ended" or "declared" of a session; "live", "answered", "silent" or "ended" of a
            link; "introduced".
        node: of a session, else empty.
        session: id of a session.
        endpoint: of a link, else empty.
        card: of the peer; empty if it is no node.
        reason: of the BYE of a link.
        peers: that a peer introduces.
        origin: of a link.
    """

    kind: str
    node: bytes = b""
    session: bytes = b""
    endpoint: str = ""
    card: bytes = b""
    reason: int | None = None
    peers: Any = ()
    origin: bytes = b""


class _Settings(NamedTuple):
    """Configuration of a name server, which has no directory."""

    name: str | None
    bus: str
    bind: tuple[str, ...]
    connect: tuple[str, ...]
    directory: Path | None = None


class Engine:
    """One node.

    Attributes:
        id: of the node, 16 bytes.
        name, bus, kind: of the node.
        options: of the node.
        publisher, subscriber: engines of the node.
        roster: peers.
        news: functions of the threads and tasks that wait for a message or a peer.
        notify: called with each `Event`, on the attending side. It must not raise.
        lock: guards the roster.
        on_loss: called under the lock of the subscriber with the payload of a `LOSS`.
        publisher_class, subscriber_class: of the two engines.
    """

    publisher_class: type[NodePublisher] = NodePublisher
    subscriber_class: type[NodeSubscriber] = NodeSubscriber

    def __init__(
        self,
        name: str | None,
        *,
        bus: str | None,
        connect: Any,
        bind: Any,
        codec: Any,
        dialect: str,
        on_full: str,
        last_value: bool,
        security: Any,
        options: NodeOptions,
        runs_handlers: bool,
        pool: Pool,
        context: zmq.Context[Any] | None = None,
        kind: str = links.NODE,
        id_suffix: bytes | None = None,
    ) -> None:
        """Bind, and dial the endpoints that are known. The arguments are those of `oz.Node`.

        `runs_handlers` means threads and not a loop. Tests with a model of ZeroMQ give a `context`. Services give a
        `kind`, and a forwarder the last 8 bytes of the id. A name server has no directory, and takes no settings
        from the environment or a file.

        Raises:
            ConfigurationError: an argument has no meaning here.
            EndpointError: an endpoint cannot be used.
            ClosedError: the program ends.
        """
        check_running("node")
        if security is None:
            security = resolve_security()
        elif isinstance(security, (str, os.PathLike)):
            security = Security.from_file(security)
        credentials = credentials_of(security)
        self.kind = kind
        config: Any
        if kind == links.NAMESERVER:
            config = _Settings(name, bus or "", tuple(bind or ()), tuple(connect or ()))
        else:
            config = self._resolve(
                name=name, bus=bus, connect=connect or None, bind=bind, directory=options.directory
            )
        self.pool = pool
        self.configuration = config
        if kind != links.NAMESERVER and options.limits == Limits():
            options = replace(options, limits=config.limits)
        self.options = options
        self.name: str = config.name or f"{_program()}-{os.getpid()}"
        self.bus: str = config.bus
        self._introduced: set[bytes] = set()
        self.on_loss: Callable[[bytes], object] = self._put_loss
        self.notify: Callable[[Event], None] = lambda event: None
        self.news: Waiters = {}
        self.lock = threading.RLock()
        self._wake: Callable[[], None] = lambda: None
        self._events: deque[_Happened] = deque()
        self._losses: deque[Gap] = deque()
        self._up_since: dict[bytes, float] = {}
        # Names of peers that the roster has forgotten, for losses that are reported later.
        self._past_names: dict[bytes, str] = {}
        self._direct = 0
        self._has_more = False
        self._denials: deque[tuple[str, str]] = deque()
        self._directory: Directory | None = None
        found = find_codec(codec)
        self._owns_context = context is None
        if context is None:
            descriptors.need_for_node()
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self.runtime = runtime_of(self._context)
        self.clock = self.runtime.clock
        random_bytes = self.runtime.random_bytes
        self.id = (
            random_bytes(16) if credentials is None else make_uuid_of(credentials.public_key, random_bytes)
        )
        if id_suffix is not None:
            # With keys, the other bytes prove whose id it is.
            self.id = self.id[: -len(id_suffix)] + id_suffix
        try:
            self.publisher = self.publisher_class(
                codec=found,
                dialect=dialect,
                on_full=on_full,
                last_value=last_value,
                security=security,
                context=self._context,
                options=options,
                origin=self.id,
            )
            self.subscriber = self.subscriber_class(
                context=self._context,
                filtering="publisher",
                decode=None if found is None else found.decode,
                link_endpoints=None,
                on_gap=self._losses.append,
                options=options,
                runs_handlers=runs_handlers,
                member=self.id,
                credentials=credentials,
            )
            self.publisher.describe_peers = self._describe_peers
            self.subscriber.on_denied = self._on_denied
            if self.subscriber.keys is not None:
                self.subscriber.keys.rights.rules = NodeRules()
            self.exchange = Exchange(
                self.id,
                self.publisher,
                pool=pool,
                codec=found,
                shows_errors=options.error_replies,
                greets=self._is_greeting,
                has_session=lambda node: self.publisher.session_of(node) is not None,
                runners=self.subscriber.runners,
                on_slow=self._report_slow,
                on_idle=self._on_idle,
                has_keys=credentials is not None,
            )
            self.publisher.send_reply = self.exchange.send_reply
            self.reader = ReplyReader(self.subscriber, self.exchange, self._has_work, lambda: self._wake())
            self.exchange.on_end = self.reader.ring
            self._start(config)
        except BaseException:
            self._abandon()
            raise
        _engines.add(self)

    # start

    @staticmethod
    def _resolve(**given: Any) -> Any:
        return resolve(**given)

    def _start(self, config: Any) -> None:
        publisher, subscriber = self.publisher, self.subscriber
        self.waiters = publisher.waiters
        publisher.on_session = self._on_session
        publisher.admit = self._admit
        subscriber.on_link = self._on_link
        subscriber.dispatcher.on_direct = self._on_direct
        subscriber.tell = self._tell
        self._own_endpoint = publisher.bind_links(f"inproc://oz-node-{self.id.hex()}")
        self.endpoints = self._bind(config)
        self.card = Card(
            self.id, self.bus, self.name, socket.gethostname()[:200], os.getpid(), self.endpoints, self.kind
        )
        publisher.card = subscriber.card = links.encode_card(self.card)
        now = self.clock()
        prefix = None if self._directory is None else self._directory.prefix
        self.roster = Roster(
            self.card,
            lost_after=self.options.lost_after,
            limit=self.options.limits.peers,
            local_prefix=prefix,
        )
        if self.options.echo:
            subscriber.dial(self._own_endpoint)
            self._apply_own()
        # From now on the node attends all the time, so that the silence of a peer means something.
        subscriber.enter(self)
        for endpoint in config.connect:
            self._run(self.roster.seed(endpoint, now), now)
        self._scan(now)

    def _bind(self, config: Any) -> tuple[str, ...]:
        """Bind the endpoints of the node; return the endpoints for peers."""
        tcp = [one for one in config.bind if one.startswith("tcp://")]
        other = [self.publisher.bind_links(one) for one in config.bind if one not in tcp]
        try:
            if config.directory is not None:
                has_key = self.subscriber.keys is not None
                self._directory = Directory(config.directory, self.bus, self.id, has_key=has_key)
                other.append(self.publisher.bind_links(self._directory.endpoint))
        except (ConfigurationError, EndpointError, ValueError):
            self._directory = None
            if not (config.connect or config.bind):
                raise
            _log.warning("this node reaches processes of its host over TCP only", exc_info=True)
        if not tcp and any(one.startswith("tcp://") for one in config.connect):
            tcp = [f"tcp://{address_towards(config.connect)}:*"]
        bound = [self.publisher.bind_links(one) for one in tcp]
        if self.subscriber.keys is None:
            warn_of_strangers(bound)
        advertise = self.options.advertise
        address = advertise or (address_towards(config.connect) if bound else "")
        return *advertised(bound, address, is_advertised=bool(advertise)), *other

    @property
    def endpoint(self) -> str | None:
        """First endpoint for the `connect=` of other nodes; None without one."""
        return next(iter(self.endpoints), None)

    # events of the two engines, under their locks

    def _on_session(self, session: Session, what: str) -> None:
        self._events.append(_Happened(what, node=session.member, card=session.card, session=session.id))
        self.exchange.on_session(session, what)
        self._wake()

    def _on_link(self, place: Place, what: str) -> None:
        link = place.link
        if link is not None:
            self._events.append(
                _Happened(
                    f"link {what}",
                    endpoint=place.endpoint,
                    card=link.card,
                    reason=link.ending,
                    origin=link.origin or b"",
                )
            )

    def _on_denied(self, about: str, why: str) -> None:
        self._denials.append((about, why))
        self._wake()

    def _on_direct(self, link: Link, messages: list[Direct]) -> None:
        messages = self._allowed_direct(link, messages)
        for subject, payload, _ in messages:
            self._direct += 1
            if subject == INTRODUCTION:
                self._introduced.add(link.origin or b"")
                self._events.append(_Happened("introduced", peers=_decode_peers(payload)))
            elif subject == LOSS:
                self.on_loss(payload)
        self.exchange.on_direct(link, [one for one in messages if one[0].startswith(INBOX)])

    def _allowed_direct(self, link: Link, messages: list[Direct]) -> list[Direct]:
        """Return the direct messages that the key of their sender may send."""
        keys = self.subscriber.keys
        if keys is None or link is self._own_link():
            return messages
        rights = keys.rights
        rights.key = key = self.subscriber.key_of(link) or ""
        if not rights.owns(link.origin or b"", len(messages)):
            return []
        permissions = keys.credentials.rights().permissions
        if permissions is None:
            return messages
        now = self.clock()
        allowed = []
        for one in messages:
            request = self.exchange.find(one[0])
            if request is None or request.admits(key, permissions, now):
                allowed.append(one)
                continue
            keys.denials.denied += 1
            if not request.has_denied:
                # Once for each request: its peers may send replies without end.
                request.has_denied = True
                subject = request.content.subject
                self._on_denied(subject, f"key {key} may not reply to the request for {subject!r}")
        return allowed

    def _put_loss(self, payload: bytes) -> None:
        found = decode_loss(payload)
        if found is not None:
            self.subscriber.dispatcher.put_gap(found[0], None)

    def _admit(self, hello: Hello, user: str | None) -> int | None:
        """Return the reason of a BYE for a subscriber that may not have a session."""
        if not hello.card:
            return None
        try:
            card = links.decode_card(hello.card)
        except ProtocolError:
            return links.MALFORMED
        if not card.shares_bus(self.card):
            return links.OTHER_BUS
        if card.node != hello.member:
            return links.MALFORMED
        if user is not None and not is_of(card.node, user):
            return links.KEY_REFUSED
        if card.node == self.id and not self._is_own(hello.session):
            return links.OWN_ID
        return None

    def _is_own(self, session: bytes) -> bool:
        """Return whether a session is that of the node's link to itself."""
        own = self._own_link()
        return own is not None and own.session == session

    def _own_link(self) -> Link | None:
        place = self.subscriber.places.get(self._own_endpoint)
        return None if place is None else place.link

    def _tell(self) -> None:
        tell(self.news)

    # the attending side

    @property
    def wake(self) -> Callable[[], None]:
        """Called when the attending side must run."""
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self._wake = self.publisher.wake = wake

    @property
    def is_resting(self) -> bool:
        """Whether the attending side sleeps; see the publisher."""
        return self.publisher.is_resting

    @is_resting.setter
    def is_resting(self, is_resting: bool) -> None:
        self.publisher.is_resting = is_resting

    @property
    def waiting(self) -> list[Any]:
        """Messages that wait for a batch; see the publisher."""
        return self.publisher.waiting

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self.publisher.is_closing

    @property
    def is_closed(self) -> bool:
        """Whether the sockets are closed."""
        return self.publisher.is_closed

    @property
    def is_foreign(self) -> bool:
        """Whether this is the child of a fork."""
        return self.publisher.is_foreign

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when `attend` has something to read."""
        found = self.publisher.descriptors()
        try:
            return (*found, self.subscriber.poll.fileno()) if found else found
        except ValueError:
            # Another thread has closed the node since.
            return ()

    def attend(self, *, flushes: bool = False) -> bool:
        """Attend to both engines and to the roster; return whether there is more to do at once.

        Args:
            flushes: whether waiting messages are due.

        Raises:
            ClosedError: the node is closed.
        """
        # Messages and replies first: threads wait for them.
        with self.subscriber.reading:
            if self.reader.is_reading():
                self.subscriber.call_back()
                more = False
                if self._has_more:
                    # A frame may wait that the descriptor does not signal.
                    self._has_more = False
                    self.reader.ring_any()
            else:
                more = self._has_more = self.subscriber.attend()
        if not self.publisher.is_idle(self.clock()):
            is_urgent, self.exchange.is_urgent = self.exchange.is_urgent, False
            more |= self.publisher.attend(flushes=flushes or is_urgent)
        self._turn()
        return more or bool(self._events)

    def _has_work(self) -> bool:
        """Return whether replies, handlers, gaps or events wait for the attending side."""
        has_events = bool(self._events or self._losses or self._denials)
        return has_events or self.exchange.has_replies or self.subscriber.has_calls()

    def flush_due(self) -> None:
        """Send the waiting messages; see the publisher."""
        self.publisher.flush_due()

    def _turn(self) -> None:
        """Pass events to the roster, do what is due, and report."""
        happened, now = self._events, self.clock()
        self.exchange.turn(now)
        if not (happened or self._losses or self._denials) and now < self._deadline():
            return
        with self.lock:
            for _ in range(len(happened)):
                self._run(self._decide(happened.popleft(), now), now)
            due = self.roster.next_deadline()
            if due is not None and now >= due:
                self._run(self.roster.tick(now), now)
            if self._directory is not None and now >= self._directory.next_read(self.roster):
                self._scan(now)
        while self._losses:
            self._report_loss(self._losses.popleft())
        while self._denials:
            about, why = self._denials.popleft()
            self._emit(events.DENIED, about, why)
        self._tell()

    def _deadline(self) -> float:
        due = self.roster.next_deadline()
        deadline = inf if due is None else due
        directory = self._directory
        return deadline if directory is None else min(deadline, directory.next_read(self.roster))

    def next_deadline(self) -> float | None:
        """Return when `attend` must run without news, None if never, in seconds of `time.monotonic`."""
        due = self.publisher.next_deadline()
        deadline = inf if due is None else due
        seconds = READING if self.reader.is_reading() else self.subscriber.wait_seconds(None)
        if seconds is not None:
            deadline = min(deadline, self.clock() + seconds)
        deadline = min(deadline, self.exchange.next_deadline(self.clock()))
        with self.lock:
            deadline = min(deadline, self._deadline())
        return None if deadline == inf else deadline

    def _decide(self, one: _Happened, now: float) -> Iterable[Any]:
        """Pass one event to the roster, and return its effects."""
        peers = self.roster
        if one.endpoint == self._own_endpoint or one.node == self.id:
            return ()
        if one.kind == "introduced":
            return peers.introduced(one.peers, now)
        card = _decode_card(one.card)
        if one.endpoint:
            if one.kind == "link live":
                if card is not None and not self._is_proved(card, one):
                    card = None
                return peers.on_live(one.endpoint, card, now)
            if one.kind == "link silent":
                return peers.on_silent(one.endpoint, now)
            if one.kind == "link refused":
                return peers.on_refused(one.endpoint, now)
            if one.kind == "link ended":
                return peers.on_end(one.endpoint, one.reason, now)
            return ()
        if one.kind == "declared":
            return ()
        if one.kind == "up":
            if card is None:
                return ()
            return peers.on_hello(card, now, one.session)
        return peers.on_session(one.node, one.kind, now, one.session)

    def _is_proved(self, card: Card, one: _Happened) -> bool:
        """Return whether a card belongs to the publisher that sent it, and to its key."""
        if card.node != one.origin:
            return False
        keys = self.subscriber.keys
        key = None if keys is None else keys.key_of(one.endpoint)
        return keys is None or (key is not None and is_of(card.node, key))

    def _run(self, effects: Iterable[Any], now: float) -> None:
        """Carry out what the roster has decided."""
        for effect in effects:
            if isinstance(effect, roster.Dial):
                self._dial(effect.endpoint, now)
            elif isinstance(effect, roster.HangUp):
                with suppress(EndpointError):
                    self.subscriber.disconnect(effect.endpoint, is_lost=True)
            elif isinstance(effect, roster.EndSession):
                # A node that closes still attends to its links. Its publisher refuses both calls then.
                with suppress(ClosedError):
                    self.publisher.end_session(effect.node)
            elif isinstance(effect, roster.Ping):
                with suppress(ClosedError):
                    self.publisher.ping(effect.node)
            elif isinstance(effect, roster.Introduce):
                with suppress(ClosedError):
                    self._introduce(effect.node, effect.peers)
            else:
                self._report(effect)

    def _introduce(self, node: bytes, peers: Sequence[tuple[bytes, tuple[str, ...]]]) -> None:
        payload = msgpack.packb([(one, list(where)) for one, where in peers])
        if len(payload) <= MAX_INTRODUCTION:
            self.publisher.direct(node, INTRODUCTION, payload, None)
        elif len(peers) > 1:
            half = len(peers) // 2
            self._introduce(node, peers[:half])
            self._introduce(node, peers[half:])

    def _dial(self, endpoint: str, now: float) -> None:
        try:
            descriptors.need_for_peer(endpoint)
            self.subscriber.dial(endpoint)
        except (EndpointError, zmq.ZMQError) as error:
            _log.warning("this node cannot dial %s: %s", endpoint, error)
        except PermissionDenied as error:
            self._emit(events.DENIED, endpoint, str(error))

    def _scan(self, now: float) -> None:
        """Read the directory."""
        if self._directory is None:
            return
        self._run(self._directory.read(self.roster, now), now)

    # events for the program

    def _report(self, effect: Any) -> None:
        if isinstance(effect, roster.Refused):
            self._emit(events.DENIED, effect.endpoint or "", f"{effect.endpoint} is refused: {effect.reason}")
            return
        card: Card = effect.card
        if isinstance(effect, roster.PeerUp):
            self._up_since[card.node] = self.runtime.time_ns() / 1e9
        elif isinstance(effect, roster.PeerGone):
            self._introduced.discard(card.node)
        if card.kind == links.NAMESERVER != self.kind:
            self._up_since.pop(card.node, None)
            _log.info("name server %r at %s: %s", card.name, ", ".join(card.endpoints), type(effect).__name__)
            return
        peer = self._peer(card)
        about = f"peer {card.name!r} (pid {card.pid} on {card.host})"
        if isinstance(effect, roster.PeerUp):
            self._emit(events.PEER_UP, card.name, f"{about} is up", peer)
        elif isinstance(effect, roster.PeerSilent):
            self._emit(events.PEER_SILENT, card.name, f"{about} does not answer", peer)
        elif isinstance(effect, roster.PeerResumed):
            self._emit(events.PEER_UP, card.name, f"{about} answers again", peer)
        elif isinstance(effect, roster.NameConflict):
            self._emit(events.NAME_CONFLICT, card.name, f"{about} has the name of another node", peer)
        elif isinstance(effect, roster.PeerGone):
            self._up_since.pop(card.node, None)
            self._past_names[card.node] = card.name
            if len(self._past_names) > _MAX_PAST_NAMES:
                del self._past_names[next(iter(self._past_names))]
            is_lost = effect.reason == "lost"
            if card.kind == links.FORWARDER:
                self._lose_forwarder(card)
            kind = events.PEER_LOST if is_lost else events.PEER_LEFT
            self._emit(kind, card.name, f"{about} is lost" if is_lost else f"{about} has left", peer)

    def _lose_forwarder(self, card: Card) -> None:
        """Report that messages of other buses may be missing, unless another forwarder is up."""
        if all(one.kind != links.FORWARDER for one in self._cards(roster.UP)):
            with self.subscriber.lock:
                self.subscriber.dispatcher.put_gap(Gap(card.node, None, 0, "lost"), None)

    def _report_loss(self, gap: Gap) -> None:
        origin = gap.origin or b""
        known = self.roster.by_id.get(origin)
        name = known.card.name if known and known.card else self._past_names.get(origin, origin.hex())
        what = "an unknown number of messages" if gap.count is None else f"{gap.count} messages"
        self._emit(events.LOSS, name, f"{what} of {name!r} did not arrive: {gap.reason}", count=gap.count)

    def _emit(
        self, kind: str, about: str, text: str, peer: Peer | None = None, count: int | None = None
    ) -> None:
        self.notify(Event(kind, about, text, peer, count))

    def _peer(self, card: Card) -> Peer:
        since = self._up_since.get(card.node, 0.0)
        return Peer(card.name, card.node.hex(), card.host, card.pid, tuple(card.endpoints), since)

    def _cards(self, *states: str) -> list[Card]:
        """Return the cards of the peers in some states, without name servers. The caller has the lock."""
        return [
            one.card
            for one in self.roster.by_id.values()
            if one.card is not None and one.state in states and one.card.kind != links.NAMESERVER
        ]

    @property
    def peers(self) -> list[Peer]:
        """Peers that are up, by name."""
        if self.is_foreign:
            return []
        with self.lock:
            found = [self._peer(card) for card in self._cards(roster.UP, roster.SILENT)]
        return sorted(found, key=lambda one: (one.name, one.id))

    # subscriptions

    def check_usable(self) -> None:
        """Raise ClosedError after `close`, and OwnershipError in the child of a fork."""
        self.publisher.check_usable()

    def check_may_wait(self) -> None:
        """Raise OwnershipError in the thread that attends to the node: an inline handler cannot wait for it."""
        if self.is_attended_here():
            raise OwnershipError(
                "an inline handler cannot wait, because its own thread attends to the node: leave inline=True out"
            )

    def is_attended_here(self) -> bool:
        """Return whether the calling thread attends to the node, and is no event loop."""
        return self.subscriber.runs_handlers and self.exchange.attending == threading.get_ident()

    def subscribe(
        self,
        patterns: list[Pattern],
        handler: Callable[[Message], Any] | None,
        stream: StreamOptions,
        delivery: Delivery,
        *,
        concurrency: int,
        last_value: bool,
        limit: int | None,
    ) -> Inbox:
        """Add a subscription. The next message that the caller publishes on this node is delivered to it.

        Args:
            patterns: of the subscription.
            handler: called with each message; None for a queue.
            stream: delivery options.
            delivery: delivery options of the receiving side.
            concurrency: messages that the handler handles at once.
            last_value: whether publishers send the last values that match.
            limit: messages after which the subscription ends, or None.

        Raises:
            PatternError: a pattern reaches subjects that belong to oz.
            ClosedError, OwnershipError: as `check_usable`.
        """
        self.check_usable()
        for pattern in patterns:
            check_subscribed(pattern)
        subscriber, receiver = self.subscriber, self._receiver(handler, stream, delivery, concurrency)
        with subscriber.lock:
            inbox = subscriber.subscribe(
                patterns,
                receiver,
                stream,
                delivery,
                last_value=last_value,
                limit=limit,
            )
            inbox.replier = self.exchange.reply
            if isinstance(receiver, Runner):
                subscriber.add_runner(inbox)
            elif receiver is None:
                # A queue with a policy never stops the node from reading.
                subscriber.own_queue(inbox, delivery, stream.overflow or "drop_newest")
        self._apply_own()
        return inbox

    def _receiver(
        self,
        handler: Callable[[Message], Any] | None,
        stream: StreamOptions,
        delivery: Delivery,
        concurrency: int,
    ) -> Runner | InlineRunner | None:
        if handler is None:
            return None
        if delivery.inline:
            return InlineRunner(self.exchange, handler)
        return Runner(
            self.pool,
            self.exchange,
            handler,
            concurrency=concurrency,
            max_pending=delivery.max_pending,
            max_bytes=self.options.pending_bytes,
            overflow=stream.overflow,
        )

    def _apply_own(self) -> None:
        """Let the publisher of this node apply the subscriptions of this node."""
        if not self.options.echo:
            return
        end = self.clock() + ECHO_TIMEOUT
        while not self._is_own_applied() and self.clock() < end:
            # The frames are in libzmq already, because inproc has no connection to wait for.
            self.publisher.attend()
            link = self._own_link()
            if link is not None and link.state != LIVE:
                # In the constructor, or after a long stop of the process: the link declares after WELCOME.
                with self.subscriber.reading:
                    self.subscriber.attend()

    def _is_own_applied(self) -> bool:
        link, session = self._own_link(), self._own_session()
        if link is None or session is None or link.state != LIVE:
            return False
        return session.applied >= self.subscriber.subscriptions.revision

    def _own_session(self) -> Session | None:
        with self.publisher.lock:
            return self.publisher.session_of(self.id)

    # waits

    def ready(
        self, names: Sequence[str], count: int | None, subject: Any, timeout: float | None
    ) -> Steps[None]:
        """Wait for peers and subscriptions; see `oz.Node.wait_ready`.

        Raises:
            Timeout: something is missing; the text names it.
            ClosedError, OwnershipError: as `check_usable`.
        """
        end = None if timeout is None else self.clock() + timeout
        probes: dict[bytes, tuple[Session, int]] = {}
        has_waited = False
        # The publisher has news too: acknowledgements and subscriptions of peers.
        self.waiters[news := partial(tell, self.news)] = None
        try:
            while True:
                self.check_usable()
                missing = self._missing(names, count, subject, probes)
                if not missing:
                    return
                now = self.clock()
                if has_waited and end is not None and now >= end:
                    raise Timeout(f"not ready within {timeout:g} s: {'; '.join(missing)}{self._refusals()}")
                yield now + LOOK_INTERVAL if end is None else min(end, now + LOOK_INTERVAL)
                has_waited = True
        finally:
            self.waiters.pop(news, None)

    def _missing(
        self, names: Sequence[str], count: int | None, subject: Any, probes: dict[bytes, tuple[Session, int]]
    ) -> list[str]:
        """Return what `ready` waits for, in words."""
        missing = []
        refusing = self._refusing()
        with self.lock:
            up, silent = self._cards(roster.UP), {card.name for card in self._cards(roster.SILENT)}
            missing += self._missing_seeds(refusing)
            is_greeting = self.roster.is_greeting(self.clock())
        absent = [one for one in names if all(one != card.name for card in up)]
        missing += [f"peer {one!r} does not answer" for one in absent if one in silent]
        absent = [one for one in absent if one not in silent]
        if absent:
            missing.append(
                f"no peer is named {', '.join(map(repr, absent))}; peers that are up: "
                f"{_listed(card.name for card in up)}{self._hint()}"
            )
        if count is not None and len(up) < count:
            missing.append(
                f"{len(up)} of {count} peers are up: {_listed(card.name for card in up)}{self._hint()}"
            )
        for card in up:
            why = self._unready(card.node, probes)
            if why is not None:
                missing.append(f"peer {card.name!r} {why}")
        if subject is not None and not self.publisher.count_subscribers(subject, only_up=True):
            missing.append(f"no node subscribes to {subject!r}; {self._describe_peers()}")
        if is_greeting:
            missing.append("endpoints that were just found have not answered yet")
        return missing

    def _describe_peers(self) -> str:
        with self.lock:
            return f"peers that are up: {_listed(card.name for card in self._cards(roster.UP))}{self._hint()}"

    def _missing_seeds(self, refusing: Mapping[str, str]) -> list[str]:
        """Return which endpoints of `connect=` have not answered, in words. The caller has the lock.

        Args:
            refusing: endpoints that refuse the key of this node.
        """
        seeds = sorted(self.roster.silent_seeds)
        missing = [f"{one} refuses the key of this node" for one in seeds if one in refusing]
        silent = ", ".join(one for one in seeds if one not in refusing)
        if silent:
            missing.append(
                f"nothing answers at {silent}: start a node or a name server of bus {self.bus!r} there, or "
                "correct connect="
            )
        for one in self.roster.by_id.values():
            card = one.card
            is_up = card is not None and card.kind == links.NAMESERVER and one.state == roster.UP
            if card is not None and is_up and one.node not in self._introduced:
                missing.append(f"the name server {card.name!r} has not introduced the other nodes yet")
        return missing

    def _refusals(self) -> str:
        """Return which endpoints refuse the key of this node, or may demand a key, as further sentences."""
        if self.subscriber.keys is None:
            return f". {KEYS_HINT}" if self.configuration.connect and self.roster.silent_seeds else ""
        found = [*self._refusing().values()]
        more = [f"{len(found) - _NAMED} more endpoints refuse this node"] if len(found) > _NAMED else []
        return "".join(f". {one}" for one in found[:_NAMED] + more)

    def _refusing(self) -> dict[str, str]:
        """Return the reason of each endpoint that refuses the key of this node."""
        with self.subscriber.lock:
            return {
                one.endpoint: one.key_refusal for one in self.subscriber.places.values() if one.key_refusal
            }

    def _hint(self) -> str:
        seeds = self.configuration.connect
        where = f"connect={', '.join(seeds)}" if seeds else f"the directory {self.configuration.directory}"
        return (
            f". Start it, and check that it has bus={self.bus!r} and can be reached: this node uses {where}"
        )

    def _unready(self, node: bytes, probes: dict[bytes, tuple[Session, int]]) -> str | None:
        """Return why subscriptions of this node or of a peer may not be known to the other one yet."""
        with self.subscriber.lock:
            if not any(one.is_answered for one in self._links_to(node)):
                return "has not answered the subscriptions of this node"
        with self.publisher.lock:
            session = self.publisher.session_of(node)
            if session is None:
                return "has no session here yet"
            probe = probes.get(node)
            if probe is None or probe[0] is not session:
                if not self.publisher.direct(node, PROBE, b"", None):
                    return "is too slow"
                probe = probes[node] = session, session.following
            if session.acked < probe[1] or session.declarations or session.work:
                return "has not told its subscriptions yet"
        return None

    def _links_to(self, node: bytes) -> list[Link]:
        found = [place.link for place in self.subscriber.places.values()]
        return [link for link in found if link is not None and link.origin == node]

    # statistics

    # requests and handlers

    def _is_greeting(self) -> bool:
        with self.lock:
            return self.roster.is_greeting(self.clock())

    def _report_slow(self, runner: Runner, lag: float, dropped: int) -> None:
        with self.subscriber.lock:
            inboxes = [one for one in self.subscriber.dispatcher.inboxes if one.handler is runner]
        if inboxes:
            about = ", ".join(str(entry.pattern.text) for entry in inboxes[0].entries)
            text = f"the handler of {about!r} is slow: its oldest message has waited for {lag:.1f} s"
            if dropped:
                text += f", and {dropped} messages were dropped"
            self._emit(events.SLOW_HANDLER, about, text, count=dropped)

    def _on_idle(self) -> None:
        if self.publisher.waiting:
            with suppress(ClosedError):
                self.publisher.flush_due()
        if self.subscriber._drains:
            self._tell()

    def handled(self, timeout: float | None) -> Steps[None]:
        """Receive no more messages for handlers, and wait until the received messages are handled.

        Args:
            timeout: in seconds, None for ever.
        """
        subscriber = self.subscriber
        if self.is_closing or self.pool.is_worker() or not subscriber.runners():
            return
        end = None if timeout is None else self.clock() + timeout
        try:
            inboxes, _ = subscriber.begin_drain(None)
        except ClosedError:
            return
        try:
            while not all(one.lanes.is_idle for one in runners_of(inboxes)):
                if end is not None and self.clock() >= end:
                    return
                yield end
        finally:
            subscriber.end_drain(inboxes, is_last=True)

    def stats(self) -> NodeStats:
        """Return the counters."""
        with self.lock:
            peers = len(self._cards(roster.UP, roster.SILENT))
        received = self.subscriber.stats
        received.failed += self.exchange.failed
        received.dropped += self.exchange.overflowed
        return NodeStats.of(self.publisher.stats(), received, peers, self._direct, self.exchange.counters)

    # the end

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Refuse further messages, and wait for peers that acknowledge; return the end of the timeout."""
        return self.publisher.acknowledgements(timeout)

    def finish(self, end: float) -> int:
        """Say BYE and close the sockets; return the number of messages that were not acknowledged.

        The attending side must have ended. `end_context` comes next.

        Args:
            end: time until which libzmq may go on sending.
        """
        if self.is_foreign:
            return 0
        self._leave_directory()
        self.exchange.end_requests(ClosedError(CLOSED_TEXT))
        self.pool.finish(None if end == inf else max(0.0, end - self.clock()))
        left = self.publisher.finish(end)
        self.subscriber.close()
        self._tell()
        _engines.discard(self)
        return left

    def abort(self) -> None:
        """Close the sockets without BYE."""
        self._leave_directory()
        self.publisher.abort()
        self.subscriber.close()
        self._tell()
        _engines.discard(self)

    def end_context(self) -> None:
        """Terminate the context. It waits until libzmq has sent everything, or its linger time is over."""
        if self.owns_context and not self.is_foreign:
            self._owns_context = False
            self._context.term()

    @property
    def owns_context(self) -> bool:
        """Whether `end_context` has something to do."""
        return self._owns_context

    def _abandon(self) -> None:
        """Close what the constructor has made."""
        self._leave_directory()
        for close in (
            lambda: self.publisher.finish(self.clock() + _LINGER),
            lambda: self.subscriber.close(),
        ):
            with suppress(AttributeError, ClosedError, zmq.ZMQError):
                close()
        if self._owns_context:
            self._context.destroy(0)

    def _leave_directory(self) -> None:
        if self._directory is not None:
            self._directory.remove()
            self._directory = None


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _disown_all() -> None:
    for engine in tuple(_engines):
        # The lock may be held by a thread that the child does not have.
        engine.lock = threading.RLock()
        engine.exchange.lock = threading.Lock()
        engine.pool.disown()
        engine._directory = None
    _engines.clear()


after_fork(_disown_all)


def _decode_card(card: bytes) -> Card | None:
    try:
        return links.decode_card(card) if card else None
    except ProtocolError:
        return None


def _decode_peers(payload: bytes) -> list[tuple[bytes, tuple[str, ...]]]:
    """Return the peers of an introduction; entries that are malformed are left out."""
    if len(payload) > MAX_INTRODUCTION:
        return []
    try:
        found: Any = msgpack.unpackb(payload)
    except Exception:
        return []
    peers = []
    for one in found if isinstance(found, list) else ():
        if isinstance(one, list) and len(one) == 2 and isinstance(one[0], bytes) and isinstance(one[1], list):
            where = tuple(text for text in one[1] if isinstance(text, str))
            if len(one[0]) == len(links.UNKNOWN_EPOCH) and where:
                peers.append((one[0], where))
    return peers


def encode_loss(gap: Gap, via: bytes) -> bytes:
    """Return the payload of a `LOSS`.

    Args:
        gap: of a publisher on another bus.
        via: ids of the forwarders that have passed it on.
    """
    packed: bytes = msgpack.packb((gap.origin, gap.count, gap.reason, via))
    return packed


def decode_loss(payload: bytes) -> tuple[Gap, bytes] | None:
    """Return gap and ids of forwarders of a `LOSS`; None if it is malformed."""
    try:
        origin, count, reason, via = msgpack.unpackb(payload)
    except Exception:
        return None
    is_known = count is None or (type(count) is int and 0 < count < 2**63)
    if type(origin) is not bytes or not is_known or type(reason) is not str or type(via) is not bytes:
        return None
    return Gap(origin, count, 0, reason[:_MAX_REASON]), via


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _program() -> str:
    return Path(sys.argv[0] or "python").stem[:100] or "python"
