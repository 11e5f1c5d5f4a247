"""Engine of a node: it joins a publisher, a subscriber and a roster of peers.

Theory of operation
-------------------
A node has the engine of a publisher and the engine of a subscriber. The publisher listens for the links of peers. The
subscriber dials the peers. The id of the node is the `origin` of the publisher and the `member` of the subscriber. A
pair of nodes has two links, one for each direction. With `echo=True`, the node also has a link to itself over inproc,
and receives its own messages.

A *direct message* is sent to one peer, and needs no subscription. oz uses direct messages for replies and for its own
subjects.

The *attending side* is the thread (`oz.node.sync`) or the event loop (`oz.node.aio`) that calls `attend`. `attend` runs
both engines, passes their events to the roster (`oz.node.roster`), and executes the effects that the roster returns.
Other threads publish, subscribe and wait, and never call the roster.

An engine holds its lock when it reports an event, and the reporting thread may be any thread that publishes. Therefore
the event is only appended to `_events`. A thread acquires the lock of the node before the lock of an engine.

This engine has the interface of the engine of a publisher. Therefore `oz.publisher.thread` and `oz.publisher.loop` can
run it. Calls that wait are written as steps (`oz.transport.steps`). `waiters` contains functions that wake the calls
which wait for the publisher. `news` contains functions that wake the calls which wait for messages or peers.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
    ClosedError,
    ConfigurationError,
    OwnershipError,
    PermissionDenied,
)
from oz.logs import peer_logger
from oz.message import Gap
from oz.node import denials, events, proofs, roster
from oz.node.denials import NOTICE, Denials
from oz.node.directory import Directory
from oz.node.events import Event, Peer
from oz.node.exchange import Exchange
from oz.node.handlers import InlineRunner, Pool, Runner
from oz.node.parts import CLOSED_TEXT, NodePublisher, NodeSubscriber, runners_of
from oz.node.readiness import Readiness
from oz.node.requests import INBOX
from oz.node.roster import Roster
from oz.node.sampling import STATISTICS, Sampling
from oz.node.stats import NodeStats
from oz.node.subjects import (
    check_subscribed,
)
from oz.node.trace import TRACE, Traces
from oz.options import Delivery, Limits, NodeOptions
from oz.program_end import check_running
from oz.publisher import sessions
from oz.publisher.session import Session
from oz.security.access import denial_of
from oz.security.identity import is_of, make_uuid_of
from oz.subjects.pattern import Pattern
from oz.subscriber.link import LIVE, Link
from oz.subscriber.message import Message
from oz.subscriber.places import Place
from oz.subscriber.queue import Direct, Inbox
from oz.system import after_fork
from oz.transport import descriptors
from oz.transport.endpoints import address_towards, advertised, warn_of_strangers
from oz.transport.errors import EndpointError
from oz.transport.runtime import runtime_of
from oz.transport.security import Security, credentials_of, resolve_security
from oz.transport.steps import Steps
from oz.transport.waiting import Waiters, notify_all
from oz.wire import links
from oz.wire.codec import find_codec
from oz.wire.links import Card, Hello, StreamOptions

INTRODUCTION = "_OZ.PEERS"
"""Subject of the direct message that introduces peers. The payload has the id and the endpoints of each peer."""
LOSS = "_OZ.LOSS"
"""Subject of the direct message with which a forwarder reports a loss on another bus; see `decode_loss`."""
MAX_INTRODUCTION = 1 << 20
"""Maximum size of an introduction in bytes. A node ignores larger introductions, because they could fill the memory."""
ECHO_TIMEOUT = 1.0
"""Maximum seconds that `subscribe` waits until the publisher of the same node knows the subscription."""
HEALTHY_SECONDS = 5.0
"""A node counts as unhealthy when its attending side is this number of seconds late."""
_MAX_REASON = 100
_MAX_NOTICES = 1_000
_MAX_PAST_NAMES = 1_000
_LINGER = 0.05  # After a failed constructor, libzmq has this number of seconds to send the last frames.

_Happened = Callable[[float], Iterable[Any]]

_log = peer_logger("oz.node")


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
        id: id of the node, 16 bytes.
        name, bus, kind: name of the node, name of its bus, and its kind as in `oz.wire.links.Card`.
        options: options that the program gave.
        publisher, subscriber: the two engines of the node.
        roster: known peers.
        introduced: ids of the nodes that have sent an introduction to this node.
        denied: dict from a subject to the error of a publication that a peer denied. `wait_ready` removes and raises
            one error.
        readiness: conditions of `wait_ready`.
        directory: directory with the sockets of the nodes on this host; None if the node does not use a directory.
        sampling: statistics of this node and of its peers.
        traces: questions about the paths of messages that this node or a peer has asked.
        news: functions that wake the threads and tasks which wait for a message or a peer.
        notify: function that the attending side calls with each `Event`. It must not raise an exception.
        lock: lock of the roster.
        on_loss: function that is called with the payload of each `LOSS` message. The caller holds the lock of the
            subscriber.
        publisher_class, subscriber_class: classes of the two engines.
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
        keep: Callable[[Engine], object] = lambda engine: None,
    ) -> None:
        """Bind the endpoints of the node, and dial the known endpoints. Most arguments are as in `oz.Node`.

        `runs_handlers` is true if a thread attends to the node, and false for an event loop. `context` is the simulated
        context of a test. `kind` is the kind of the node, such as a forwarder. `id_suffix` is the end of the id of a
        forwarder, 6 bytes. The constructor calls `keep` with the complete engine.

        A name server has no directory, and reads no settings from the environment or a file.

        Raises:
            ConfigurationError: an argument has a wrong value.
            EndpointError: an endpoint cannot be used.
            ClosedError: the program is ending, so that a new node would never be closed.
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
        self.introduced: set[bytes] = set()
        self.on_loss: Callable[[bytes], object] = self._put_loss
        self.notify: Callable[[Event], None] = lambda event: None
        self.news: Waiters = {}
        self.lock = threading.RLock()
        self._wake: Callable[[], None] = lambda: None
        # Events of the two engines. Each event is a function of the roster that takes the time and returns effects.
        self._events: deque[_Happened] = deque()
        self._losses: deque[Gap] = deque()
        self._up_since: dict[bytes, float] = {}
        # Names of peers that were lost or have left. A later report of lost messages shows the name of the peer.
        self._past_names: dict[bytes, str] = {}
        self._direct = 0
        self._denials: deque[tuple[str, str]] = deque()
        # Notices of denied messages, each with the id of the peer that has sent the notice.
        self._notices: deque[tuple[bytes, bytes]] = deque(maxlen=_MAX_NOTICES)
        self.denied: dict[str, PermissionDenied] = {}
        self._dropped: Denials | None = None
        self.directory: Directory | None = None
        found = find_codec(codec)
        self._owns_context = context is None
        if context is None:
            descriptors.need_for_node()
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self.runtime = runtime_of(self._context)
        self.clock = self.runtime.clock
        # Time of the last call of `attend`, and time at which the next call is due.
        self._attended_at = self._due_at = self.clock()
        random_bytes = self.runtime.random_bytes
        self.id = (
            random_bytes(16) if credentials is None else make_uuid_of(credentials.public_key, random_bytes)
        )
        if id_suffix is not None:
            # With keys, the first bytes of the id are a hash of the key, which must not change.
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
            self.readiness = Readiness(self)
            self.sampling = Sampling(self)
            self.traces = Traces(self)
            self.publisher.describe_peers = self.readiness.describe_peers
            self.subscriber.on_denied = self._on_denied
            self.subscriber.describe_silence = self.readiness.describe_silence
            self.subscriber.describe_socket = self._describe_socket
            if credentials is not None and self.subscriber.keys is not None:
                self.subscriber.keys.rights.rules = proofs.NodeRules()
                self.subscriber.keys.stranger_at = self._stranger_at
                self._dropped = Denials(credentials.rights)
                self.subscriber.on_dropped = self._on_dropped
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
            self.exchange.inline = self.subscriber.dispatcher.inline
            self.publisher.send_reply = self.exchange.send_reply
            self._start(config)
            _engines.add(self)
            keep(self)
        except BaseException as error:
            self._abandon(error)
            raise

    # Start of the node.

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
        subscriber.notify = self._notify_waiters
        self._own_endpoint = publisher.bind_links(f"inproc://oz-node-{self.id.hex()}")
        self.endpoints = self._bind(config)
        self._make_card()
        now = self.clock()
        prefix = None if self.directory is None else self.directory.prefix
        self.roster = Roster(
            self.card,
            lost_after=self.options.lost_after,
            limit=self.options.limits.peers,
            local_prefix=prefix,
        )
        if self.options.echo:
            subscriber.dial(self._own_endpoint)
            self._apply_own()
        # Start the clock with which the subscriber detects silent peers.
        subscriber.enter(self)
        for endpoint in config.connect:
            self._run(self.roster.seed(endpoint, now), now)
        self._scan(now)

    def _make_card(self) -> None:
        self.card = Card(
            self.id, self.bus, self.name, socket.gethostname()[:200], os.getpid(), self.endpoints, self.kind
        )
        self.publisher.card = self.subscriber.card = links.encode_card(self.card)

    def _make_directory(self, path: Path) -> Directory:
        source = self.configuration.sources["directory"]
        return Directory(path, self.bus, self.id, has_key=self.subscriber.keys is not None, source=source)

    def _bind(self, config: Any) -> tuple[str, ...]:
        """Bind the endpoints of the node; return the endpoints at which peers reach the node."""
        tcp = [endpoint for endpoint in config.bind if endpoint.startswith("tcp://")]
        other = [self.publisher.bind_links(endpoint) for endpoint in config.bind if endpoint not in tcp]
        try:
            if config.directory is not None:
                self.directory = self._make_directory(config.directory)
                other.append(self.publisher.bind_links(self.directory.endpoint))
        except (ConfigurationError, EndpointError, ValueError):
            self.directory = None
            if not (config.connect or config.bind):
                raise
            _log.warning(
                "this node reaches processes of its host over TCP only: correct or leave out directory=",
                exc_info=True,
            )
        if not tcp and any(endpoint.startswith("tcp://") for endpoint in config.connect):
            tcp = [f"tcp://{address_towards(config.connect)}:*"]
        bound = [self.publisher.bind_links(endpoint) for endpoint in tcp]
        if self.subscriber.keys is None:
            warn_of_strangers(bound)
        advertise = self.options.advertise
        address = advertise or (address_towards(config.connect) if bound else "")
        return *advertised(bound, address, is_advertised=bool(advertise)), *other

    @property
    def endpoint(self) -> str | None:
        """First endpoint at which other nodes reach this node; None if there is none."""
        return next(iter(self.endpoints), None)

    # Callbacks: an engine calls these methods while it holds its lock.

    def _on_session(self, session: Session, what: str) -> None:
        node, key, card = session.member, session.id, proofs.decode_card(session.card)
        event: _Happened = _no_effects
        if node != self.id and what in (sessions.DOWN, sessions.ENDED):
            event = partial(self.roster.on_session, node, what, session=key)
        elif node != self.id and what == sessions.UP and card is not None:
            event = partial(self.roster.on_hello, card, session=key)
        self._events.append(event)
        self.exchange.on_session(session, what)
        self._wake()

    def _on_link(self, place: Place, what: str) -> None:
        link, endpoint = place.link, place.endpoint
        event: _Happened = _no_effects
        if link is None or endpoint == self._own_endpoint:
            pass
        elif what == "live":
            card = proofs.card_of_link(link, self.subscriber.keys, endpoint)
            event = partial(self.roster.on_live, endpoint, card)
        elif what == "silent":
            event = partial(self.roster.on_silent, endpoint)
        elif what == "refused":
            event = partial(self.roster.on_refused, endpoint)
        elif what == "ended":
            event = partial(self.roster.on_end, endpoint, link.ending)
        # Append even an event without effects: after each event, the waiting calls check their conditions.
        self._events.append(event)

    def _on_denied(self, about: str, why: str) -> None:
        self._denials.append((about, why))
        self._wake()

    def _describe_socket(self, endpoint: str) -> str:
        """Return a name for the node at an endpoint; see `NodeSubscriber`.

        The file name of a socket in the directory contains the id of its node. For this id, the name may be known.
        """
        node = None if self.directory is None else self.directory.node_at(endpoint)
        if node is None:
            return endpoint
        name = self._known_name(node)
        if name is not None:
            return f"peer {name!r}"
        if self.subscriber.keys is not None:
            credentials = self.subscriber.keys.credentials
            for key, certificate in credentials.trusted.items():
                if is_of(node, key):
                    return f"the node with the certificate {certificate!r}"
        return endpoint if self._stranger_at(endpoint) is None else "a node of this host"

    def _stranger_at(self, endpoint: str) -> str | None:
        """Return the key of the node at an endpoint, if this node has refused connections with this key; else None."""
        node = None if self.directory is None else self.directory.node_at(endpoint)
        if node is None or self.subscriber.keys is None:
            return None
        refused = self.subscriber.keys.credentials.refused_keys
        return next((key for key in refused if is_of(node, key)), None)

    def _on_dropped(self, node: bytes, key: str, subject: bytes, reply_to: object) -> None:
        if self._dropped is not None and self._dropped.add(node, key, subject, reply_to):
            self._wake()

    def _on_direct(self, link: Link, messages: list[Direct]) -> None:
        messages = self._allowed_direct(link, messages)
        for subject, payload, _ in messages:
            self._direct += 1
            if subject == INTRODUCTION:
                self.introduced.add(link.origin or b"")
                self._events.append(partial(self.roster.introduced, _decode_peers(payload)))
            elif subject == LOSS:
                self.on_loss(payload)
            elif subject == STATISTICS:
                self.sampling.on_direct(link, payload)
            elif subject == TRACE:
                self.traces.on_direct(link, payload)
            elif subject == NOTICE:
                self._notices.append((link.origin or b"", payload))
        self.exchange.on_direct(link, [message for message in messages if message[0].startswith(INBOX)])

    def _allowed_direct(self, link: Link, messages: list[Direct]) -> list[Direct]:
        """Return the direct messages that the sender may send with its key. Denied replies end their requests."""
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
        for message in messages:
            request = self.exchange.find(message[0])
            if request is None or request.admits(key, permissions, now):
                allowed.append(message)
                continue
            keys.denials.denied += 1
            subject = request.content.subject
            denial = denial_of(permissions, key, "reply", subject)
            # If no rule denies the reply, it exceeds the limits of `allow_responses`.
            why = "the limits of allow_responses are exceeded" if denial is None else denial
            text = f"key {key} may not reply to the request for {subject!r}: {why}"
            if not request.has_denied:
                # Report only the first denied reply to a request, because responders may send replies without end.
                request.has_denied = True
                self._on_denied(subject, text)
            rule = None if denial is None else denial.rule
            self.exchange.refuse(link, message, PermissionDenied(text, rule=rule, subject=subject))
        return allowed

    def _put_loss(self, payload: bytes) -> None:
        found = decode_loss(payload)
        if found is not None:
            self.subscriber.dispatcher.put_gap(found[0], None)

    def _admit(self, hello: Hello, user: str | None) -> int | None:
        return proofs.refuse_hello(hello, user, self.card, is_own=self._is_own(hello.session))

    def _is_own(self, session: bytes) -> bool:
        own = self._own_link()
        return own is not None and own.session == session

    def _own_link(self) -> Link | None:
        place = self.subscriber.places.get(self._own_endpoint)
        return None if place is None else place.link

    def _notify_waiters(self) -> None:
        notify_all(self.news)

    # Methods of the attending side.

    @property
    def wake(self) -> Callable[[], None]:
        """Function that wakes the attending side."""
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self._wake = self.publisher.wake = wake

    @property
    def is_resting(self) -> bool:
        """Whether the attending side sleeps; see `oz.publisher.engine.Engine`."""
        return self.publisher.is_resting

    @is_resting.setter
    def is_resting(self, is_resting: bool) -> None:
        self.publisher.is_resting = is_resting

    @property
    def waiting(self) -> list[Any]:
        """Messages that wait for further messages of a batch; see `oz.publisher.engine.Engine`."""
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
        """Whether the engine was created before a fork, and this process is the child."""
        return self.publisher.is_foreign

    @property
    def is_healthy(self) -> bool:
        """Whether the node is open, and its attending side is less than `HEALTHY_SECONDS` late.

        The caller needs no lock.
        """
        if self.is_foreign or self.is_closing:
            return False
        return self.clock() < max(self._attended_at, self._due_at) + HEALTHY_SECONDS

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when `attend` has something to read."""
        found = self.publisher.descriptors()
        try:
            return (*found, self.subscriber.poll.fileno()) if found else found
        except ValueError:
            # Another thread has just closed the node.
            return ()

    def attend(self, *, flushes: bool = False) -> bool:
        """Run both engines and the roster once; return whether work remains.

        Args:
            flushes: whether messages in an incomplete batch are sent now.

        Raises:
            ClosedError: the node is closed.
        """
        # Read before sending, because threads wait for messages and replies.
        with self.subscriber.reading:
            more = self.subscriber.attend()
        if not self.publisher.is_idle(self.clock()):
            is_urgent, self.exchange.is_urgent = self.exchange.is_urgent, False
            more |= self.publisher.attend(flushes=flushes or is_urgent)
        self._turn()
        return more or bool(self._events)

    def _turn(self) -> None:
        happened, now = self._events, self.clock()
        self._attended_at = now
        self.exchange.turn(now)
        self.sampling.turn(now)
        self.traces.turn(now)
        while self._notices:
            self._read_notice(*self._notices.popleft())
        for node, notice, is_first in self._dropped.notices() if self._dropped else ():
            with suppress(ClosedError):
                self.publisher.direct(node, NOTICE, notice.encode())
            if is_first:
                what = "publish" if notice.reply_to is None else "send requests to"
                text = f"peer {self._name_of(node)!r} may not {what} {notice.subject!r}: {notice.reason}"
                self._denials.append((notice.subject, text))
        if not (happened or self._losses or self._denials) and now < self._deadline():
            return
        with self.lock:
            for _ in range(len(happened)):
                self._run(happened.popleft()(now), now)
            due = self.roster.next_deadline()
            if due is not None and now >= due:
                self._run(self.roster.tick(now), now)
            if self.directory is not None and now >= self.directory.next_read(self.roster):
                self._scan(now)
        while self._losses:
            self._report_loss(self._losses.popleft())
        while self._denials:
            about, why = self._denials.popleft()
            self._emit(events.DENIED, about, why)
        self._notify_waiters()

    def _read_notice(self, node: bytes, payload: bytes) -> None:
        notice = denials.decode(payload)
        if notice is None:
            return
        error = notice.error(self._name_of(node))
        with self.lock:
            if notice.reply_to is None and len(self.denied) < _MAX_NOTICES:
                self.denied[notice.subject] = error
        if notice.reply_to is None:
            self._denials.append((notice.subject, str(error)))
        else:
            self.exchange.deny(node, notice.reply_to, error)

    def _deadline(self) -> float:
        due = self.roster.next_deadline()
        deadline = inf if due is None else due
        directory = self.directory
        return deadline if directory is None else min(deadline, directory.next_read(self.roster))

    def next_deadline(self) -> float | None:
        """Return the time at which `attend` must run next, in seconds of `time.monotonic`; None without a deadline."""
        due = self.publisher.next_deadline()
        deadline = inf if due is None else due
        seconds = self.subscriber.wait_seconds(None)
        if seconds is not None:
            deadline = min(deadline, self.clock() + seconds)
        deadline = min(deadline, self.exchange.next_deadline(self.clock()))
        with self.lock:
            deadline = min(deadline, self._deadline())
        self._due_at = deadline
        return None if deadline == inf else deadline

    def _run(self, effects: Iterable[Any], now: float) -> None:
        for effect in effects:
            if isinstance(effect, roster.Dial):
                self._dial(effect.endpoint, now)
            elif isinstance(effect, roster.HangUp):
                with suppress(EndpointError):
                    self.subscriber.disconnect(effect.endpoint, is_lost=True)
            elif isinstance(effect, roster.EndSession):
                # ClosedError means that the context may already be terminated.
                with suppress(ClosedError):
                    self.publisher.end_session(effect.node)
            elif isinstance(effect, roster.Ping):
                with suppress(ClosedError):
                    self.publisher.ping(effect.node)
            elif isinstance(effect, roster.Introduce):
                # A node that closes sends no direct messages.
                with suppress(ClosedError):
                    self._introduce(effect.node, effect.peers)
            else:
                self._report(effect)

    def _introduce(self, node: bytes, peers: Sequence[tuple[bytes, tuple[str, ...]]]) -> None:
        payload = msgpack.packb(peers)
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
        """Read the directory. Bind a new socket if the socket of this node was deleted."""
        directory = self.directory
        if directory is None:
            return
        if directory.is_missing:
            try:
                self.directory = directory = self._rebind(directory)
            except (ClosedError, ConfigurationError, EndpointError, zmq.ZMQError) as error:
                _log.warning(
                    "the socket %s was deleted, and cannot be bound again: %s. The node tries it again; protect "
                    "its directory from cleaners such as systemd-tmpfiles",
                    directory.endpoint,
                    error,
                )
        self._run(directory.read(self.roster, now), now)

    def _rebind(self, old: Directory) -> Directory:
        """Bind a new socket. If the directory was deleted too, create a new directory, where sockets have new names."""
        new = self._make_directory(self.configuration.directory)
        self.publisher.bind_links(new.endpoint)
        _log.warning("the socket %s was deleted, and is bound again", old.endpoint)
        self.endpoints = tuple(
            new.endpoint if endpoint == old.endpoint else endpoint for endpoint in self.endpoints
        )
        self._make_card()
        self.roster.move(self.card, new.prefix)
        return new

    # Events for the program.

    def _report(self, effect: Any) -> None:
        if isinstance(effect, roster.Refused):
            about = effect.endpoint
            name = "a node" if about is None else self.subscriber.name_of(about)
            self._emit(events.DENIED, about or "", f"{name} is refused: {effect.reason}")
            return
        card: Card = effect.card
        if isinstance(effect, roster.ForwarderGone):
            self._lose_forwarder(card)
            return
        if isinstance(effect, roster.PeerUp):
            self._up_since[card.node] = self.runtime.time_ns() / 1e9
        elif isinstance(effect, roster.PeerGone):
            self.introduced.discard(card.node)
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
        """Report a possible loss of messages from other buses, unless another forwarder is up."""
        if all(other.kind != links.FORWARDER for other in self.cards(roster.UP)):
            with self.subscriber.lock:
                self.subscriber.dispatcher.put_gap(Gap(card.node, None, 0, "lost"), None)

    def _report_loss(self, gap: Gap) -> None:
        origin = gap.origin or b""
        name = self._name_of(origin)
        what = "an unknown number of messages" if gap.count is None else f"{gap.count} messages"
        self._emit(events.LOSS, name, f"{what} of {name!r} did not arrive: {gap.reason}", count=gap.count)

    def _known_name(self, node: bytes) -> str | None:
        known = self.roster.by_id.get(node)
        return known.card.name if known and known.card else self._past_names.get(node)

    def _name_of(self, node: bytes) -> str:
        return self._known_name(node) or node.hex()

    def _emit(
        self, kind: str, about: str, text: str, peer: Peer | None = None, count: int | None = None
    ) -> None:
        self.notify(Event(kind, about, text, peer, count))

    def _peer(self, card: Card) -> Peer:
        since = self._up_since.get(card.node, 0.0)
        return Peer(card.name, card.node.hex(), card.host, card.pid, tuple(card.endpoints), since)

    def cards(self, *states: str) -> list[Card]:
        """Return the cards of the peers in the given states, without name servers. The caller has the lock."""
        return [
            peer.card
            for peer in self.roster.by_id.values()
            if peer.card is not None and peer.state in states and peer.card.kind != links.NAMESERVER
        ]

    @property
    def peers(self) -> list[Peer]:
        """Peers that are up, sorted by name."""
        if self.is_foreign:
            return []
        with self.lock:
            found = [self._peer(card) for card in self.cards(roster.UP, roster.SILENT)]
        return sorted(found, key=lambda peer: (peer.name, peer.id))

    def unanswered(self) -> list[tuple[str, str | None]]:
        """Return the nodes that accept a connection and do not answer.

        Each node is a pair of a name and an id. If the name is unknown, its endpoint replaces the name. If the id is
        unknown, None replaces the id.
        """
        found = []
        for endpoint in self.subscriber.unanswered():
            card = self.subscriber.card_at(endpoint)
            node = None if self.directory is None else self.directory.node_at(endpoint)
            node = node if card is None else card.node
            name = None if node is None else self._known_name(node)
            found.append((name or endpoint, None if node is None else node.hex()))
        return found

    # Subscriptions of the node.

    def check_usable(self) -> None:
        """Raise ClosedError after `close`, and OwnershipError in the child of a fork."""
        self.publisher.check_usable()

    def check_may_wait(self) -> None:
        """Raise OwnershipError if the caller is an inline handler, because it would wait for its own thread."""
        if self.is_attended_here():
            raise OwnershipError(
                "an inline handler cannot wait, because its own thread attends to the node: leave inline=True out"
            )

    def is_attended_here(self) -> bool:
        """Return whether the calling thread is the thread of the node. The result is False in an event loop."""
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
        """Add a subscription. It receives the next message that the caller publishes on this node.

        Args:
            patterns: patterns of the subscription.
            handler: function that is called with each message; None if the messages wait in a queue.
            stream: options that the publishers apply.
            delivery: options that this node applies.
            concurrency: number of messages that the handler handles at the same time.
            last_value: whether publishers send the newest message of each subject that matches.
            limit: number of messages after which the subscription ends, or None.

        Raises:
            PatternError: a pattern may match subjects that oz reserves.
            ClosedError, OwnershipError: the same reasons as in `check_usable`.
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
                # With an overflow policy, a full queue drops messages. Without one, the node would stop reading.
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
        """Wait until the publisher of this node has applied the subscriptions of this node."""
        if not self.options.echo:
            return
        end = self.clock() + ECHO_TIMEOUT
        while not self._is_own_applied() and self.clock() < end:
            # The publisher can read the subscriptions at once, because an inproc socket sends without delay.
            self.publisher.attend()
            link = self._own_link()
            if link is not None and link.state != LIVE:
                # The link has not received WELCOME: the node is new, or the process was suspended for a long time.
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

    # Requests and handlers.

    def _is_greeting(self) -> bool:
        with self.lock:
            return self.roster.is_greeting(self.clock())

    def _report_slow(self, runner: Runner, lag: float, dropped: int) -> None:
        with self.subscriber.lock:
            inboxes = [inbox for inbox in self.subscriber.dispatcher.inboxes if inbox.handler is runner]
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
            self._notify_waiters()

    def handled(self, timeout: float | None) -> Steps[None]:
        """Stop receiving messages for handlers, and wait until the received messages are handled.

        Args:
            timeout: seconds to wait; None waits for ever.
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
            while not all(runner.lanes.is_idle for runner in runners_of(inboxes)):
                if end is not None and self.clock() >= end:
                    return
                yield end
        finally:
            subscriber.end_drain(inboxes, is_last=True)

    def stats(self) -> NodeStats:
        """Return the counters."""
        with self.lock:
            peers = len(self.cards(roster.UP, roster.SILENT))
        received = self.subscriber.stats
        received.failed += self.exchange.failed
        received.dropped += self.exchange.overflowed
        return NodeStats.of(self.publisher.stats(), received, peers, self._direct, self.exchange.counters)

    # End of the node.

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Stop publishing, and wait for acknowledgements; return the time at which the wait must end."""
        return self.publisher.acknowledgements(timeout)

    def finish(self, end: float) -> int:
        """Send BYE and close the sockets; return the number of messages that peers have not acknowledged.

        The caller stops the attending side before this call, and calls `end_context` after this call.

        Args:
            end: time at which libzmq must stop sending.
        """
        if self.is_foreign:
            return 0
        self._leave_directory()
        self.exchange.end_requests(ClosedError(CLOSED_TEXT))
        self.pool.finish(None if end == inf else max(0.0, end - self.clock()))
        left = self.publisher.finish(end)
        self.subscriber.close()
        self._notify_waiters()
        _engines.discard(self)
        return left

    def abort(self) -> None:
        """Close the sockets without BYE."""
        self._leave_directory()
        self.publisher.abort()
        self.subscriber.close()
        self._notify_waiters()
        _engines.discard(self)

    def end_context(self) -> None:
        """Terminate the context. Wait until libzmq has sent all messages, or until the linger time has passed."""
        if self.owns_context and not self.is_foreign:
            self._owns_context = False
            self._context.term()

    @property
    def owns_context(self) -> bool:
        """Whether the engine has created a context that is not terminated yet."""
        return self._owns_context

    def _abandon(self, error: BaseException) -> None:
        """Close the objects that the constructor has created.

        Args:
            error: exception that ended the constructor. A signal handler may have raised this exception.
        """
        self._leave_directory()
        # The traceback may refer to a socket that pyzmq has not registered in the context yet. `destroy` would wait for
        # this socket.
        traceback.clear_frames(error.__traceback__)
        for close in (
            lambda: self.publisher.finish(self.clock() + _LINGER),
            lambda: self.subscriber.close(),
        ):
            with suppress(AttributeError, ClosedError, zmq.ZMQError):
                close()
        if self._owns_context:
            self._context.destroy(0)

    def _leave_directory(self) -> None:
        if self.directory is not None:
            self.directory.remove()
            self.directory = None


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _disown_all() -> None:
    for engine in tuple(_engines):
        # A new lock, because a thread of the parent may have held the old lock during the fork.
        engine.lock = threading.RLock()
        engine.exchange.lock = threading.Lock()
        engine.pool.disown()
        engine.directory = None
    _engines.clear()


after_fork(_disown_all)


def _no_effects(now: float) -> Iterable[Any]:
    """Return no effects. It stands for an event that does not concern the roster."""
    return ()


def _decode_peers(payload: bytes) -> list[Any]:
    """Return the id and the endpoints of each peer in an introduction. Malformed entries are left out.

    The roster checks the endpoints.
    """
    if len(payload) > MAX_INTRODUCTION:
        return []
    try:
        found: Any = msgpack.unpackb(payload)
    except Exception:
        return []
    return [
        row
        for row in (found if type(found) is list else ())
        if type(row) is list and len(row) == 2 and type(row[0]) is bytes and type(row[1]) is list
        if len(row[0]) == len(links.UNKNOWN_EPOCH)
    ]


def encode_loss(gap: Gap, via: bytes) -> bytes:
    """Return the payload of a `LOSS` message.

    Args:
        gap: loss of messages from a publisher on another bus.
        via: concatenated ids of the forwarders that have forwarded this report.
    """
    packed: bytes = msgpack.packb((gap.origin, gap.count, gap.reason, via))
    return packed


def decode_loss(payload: bytes) -> tuple[Gap, bytes] | None:
    """Return the gap and the ids of forwarders in the payload of a `LOSS` message; None if the payload is malformed."""
    try:
        origin, count, reason, via = msgpack.unpackb(payload)
    except Exception:
        return None
    is_known = count is None or (type(count) is int and 0 < count < 2**63)
    if type(origin) is not bytes or not is_known or type(reason) is not str or type(via) is not bytes:
        return None
    return Gap(origin, count, 0, reason[:_MAX_REASON]), via


def _program() -> str:
    return Path(sys.argv[0] or "python").stem[:100] or "python"
