"""What nodes for threads and for asyncio share: all but the waiting.

What is called "the I/O side" here is the node's one thread, or the loop: only it touches the subscriber, the
name servers and the mesh. `publish` and `message.reply` may come from anywhere.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from oz.configuration import Configuration, private_directory
from oz.errors import ClosedError, ConfigurationError, NoResponders
from oz.message import Gap, Message
from oz.protocol import distinguished
from oz.protocol.advisory import Advisory, Throttle, advise
from oz.protocol.heralds import herald
from oz.protocol.membership import Act, Membership
from oz.protocol.node_stats import NodeStats
from oz.protocol.node_subscription import NodeSubscription
from oz.protocol.requests import Requests, owner
from oz.protocol.subscriptions import Subscription
from oz.subjects.pattern import Pattern, compile
from oz.transport.addresses import address_towards, advertised
from oz.transport.mesh import Mesh
from oz.transport.nearby import Nearby, host_id
from oz.transport.node_sockets import (
    FOR_EVER,
    NodePublishing,
    NodeSubscribing,
    keep_alive,
    make_uuid,
    near_origin,
    wide_origin,
)
from oz.transport.socket import end_context
from oz.transport.terms import check_terms
from oz.wire.keys import Terms
from oz.wire.naming import Announcement

_log = logging.getLogger("oz.node")

TICK = 0.1
"""Seconds between two looks at what is due."""

PARKED = 2.0
"""Seconds for which a reply waits for its requester to be connected."""

MOST_PARKED = 10_000
"""Replies that wait so at most."""

_WORDS = {Act.UP: ("peer_up", "joined"), Act.LEFT: ("peer_left", "left"), Act.LOST: ("peer_lost", "is lost")}


class NodeBase:
    """A node without its thread or loop."""

    _publisher_class: type[NodePublishing]
    _subscriber_class: type[NodeSubscribing]
    _context_class: type[zmq.Context[Any]] = zmq.Context

    def _configure(self, configuration: Configuration, *, echo: bool, advertise: str | None) -> None:
        """Take note of what the node goes by; nothing is opened yet."""
        self.configuration = configuration
        self.bus = configuration.bus
        self.name = configuration.name or f"{_program()}-{os.getpid()}"
        self.uuid = make_uuid()
        self._echo = echo
        self._advertise = advertise
        self._closed = False
        self._stats = NodeStats()
        self._requests = Requests(self.uuid)
        self._membership: Membership
        self._advised = distinguished.DistinguishedIndex()
        self._subscriptions: dict[NodeSubscription, None] = {}
        self._notices: deque[Advisory] = deque()
        self._throttle = Throttle()
        self._parked: deque[tuple[float, str, Any, Any]] = deque()
        self._tick_at = 0.0
        self._counted = (0, 0)

    # opening ---------------------------------------------------------------------------------------------

    def _open(self, **options: Any) -> None:
        """Make the sockets.

        Args:
            options: of the publishers.

        Raises:
            ConfigurationError: the directory where nodes of this host meet cannot be used.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        config = self.configuration
        self._context = self._context_class()
        try:
            options |= {"context": self._context, "dialect": config.dialect, "codec": config.codec}
            nearby = self._meeting_place()
            self._near = self._make_publisher(near_origin(self.uuid), options)
            self._near.bind(f"inproc://{self.uuid.hex()}.near")
            if nearby is not None:
                self._near.bind(nearby.endpoint)
            self._wide = self._make_wide(options)
            self._main = self._wide or self._near
            self._sub = self._subscriber_class(
                context=self._context, dialect=config.dialect, codec=config.codec, on_gap=self._on_gap
            )
            self._introduce_self(nearby)
            self._servers = {one: self._dial_server(one) for one in config.nameserver}
        except BaseException:
            self._context.destroy(0)
            raise

    def _make_publisher(self, origin: bytes, options: dict[str, Any]) -> NodePublishing:
        return self._publisher_class(origin=origin, on_interest=self._on_interest, **options)

    def _meeting_place(self) -> Nearby | None:
        """Make the place where nodes of this host meet; one that does not need it goes without."""
        config = self.configuration
        try:
            return Nearby(private_directory(config.directory), self.bus, self.uuid)
        except (ConfigurationError, ValueError):
            if not (config.nameserver or config.peers or config.bind):
                raise
            _log.warning("this node reaches processes of its host over TCP only", exc_info=True)
            return None

    def _make_wide(self, options: dict[str, Any]) -> NodePublishing | None:
        config = self.configuration
        others = [*config.nameserver, *config.peers]
        is_near = all(one.startswith(("ipc://", "inproc://")) for one in others)
        if not config.bind and is_near:
            return None
        wide = self._make_publisher(wide_origin(self.uuid), options)
        for endpoint in config.bind or (f"tcp://{address_towards(others)}:*",):
            wide.bind(endpoint)
        self._bound = tuple(wide._endpoints)
        wide.bind(f"inproc://{self.uuid.hex()}.wide")
        return wide

    def _introduce_self(self, nearby: Nearby | None) -> None:
        """Say who this is, to everybody it will connect to."""
        config = self.configuration
        others = [*config.nameserver, *config.peers]
        bound = self._bound if self._wide is not None else ()
        self.announcement = Announcement(
            uuid=self.uuid,
            name=self.name,
            bus=self.bus,
            host=socket.gethostname()[:200],
            host_id=self._host_id(nearby),
            pid=os.getpid(),
            endpoints=advertised(bound, self._advertise or address_towards(others)),
            near=nearby.endpoint if nearby is not None else None,
            version=_version(),
            started_ns=time.time_ns(),
        )
        self._nearby = nearby
        for pattern, handler in (
            (herald(self.announcement), _ignore),
            (compile(self._requests.pattern, "nats"), self._requests.take),
            (compile(f"_OZ.NAMING.{self.uuid.hex()}", "nats"), self._hear_of),
        ):
            self._sub.subscribe(pattern, handler=handler)
        self._membership = Membership(self.announcement, config.lost_after)
        looks_around = nearby if not (config.nameserver or config.peers) else None
        self._mesh = Mesh(
            self._membership,
            self.announcement,
            (self._sub, self._near, self._wide),
            self,
            servers=config.nameserver,
            seeds=config.peers,
            nearby=looks_around,
        )
        if self._echo:
            for publisher in filter(None, (self._near, self._wide)):
                one = next(one for one in publisher._endpoints if one.startswith("inproc://"))
                self._sub.dial(one, stop=FOR_EVER)
        self._mesh.start(time.monotonic())

    def _host_id(self, nearby: Nearby | None) -> bytes:
        return host_id(Path(self.configuration.directory) if nearby is not None else None)

    def _dial_server(self, endpoint: str) -> Any:
        dealer = self._context.socket(zmq.DEALER)
        keep_alive(dealer)
        dealer.set(zmq.LINGER, 500)
        dealer.set(zmq.SNDHWM, 100)
        # What finds no name server is not kept: it is said again.
        dealer.set(zmq.IMMEDIATE, 1)
        dealer.connect(endpoint)
        return dealer

    # what the shells do ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have the I/O side look at what is due soon; any thread may ask for it."""
        raise NotImplementedError

    def _changed(self) -> None:
        """Tell those who wait for peers or readiness to look again."""
        raise NotImplementedError

    def _tell_peer(self, peer: Announcement, what: str) -> None:
        """Have the application's `on_peer` called."""
        raise NotImplementedError

    # the I/O side ----------------------------------------------------------------------------------------

    def _on_interest(self) -> None:
        if (mesh := getattr(self, "_mesh", None)) is not None:
            mesh.stir()
            self._wake()

    def _hear_of(self, message: Message) -> None:
        self._mesh.hear_of(message.payload, time.monotonic())

    def _on_gap(self, gap: Gap) -> None:
        how_many = "some" if gap.count is None else f"{gap.count:,}"
        sender = self._peer_of(gap.origin)
        whose = sender.name if sender is not None else gap.origin.hex()
        text = f"{how_many} messages of {whose} did not arrive"
        self._advise(advise("gap", text, about=whose, count=gap.count, origin=gap.origin))

    def _tick(self, now: float) -> list[tuple[str, bytes]]:
        """Do what is due; give the frames for name servers."""
        self._tick_at = now + TICK
        frames = self._mesh.tick(now)
        self._send_parked(now)
        self._count_losses()
        self._publish_notices(now)
        self._changed()
        return frames

    def _count_losses(self) -> None:
        publishers = [one for one in (self._near, self._wide) if one is not None]
        missed = sum(one.stats.missed for one in publishers)
        timed_out = self._sub.stats.timed_out + sum(one.stats.timed_out for one in publishers)
        before, self._counted = self._counted, (missed, timed_out)
        if missed > before[0]:
            count = missed - before[0]
            text = f"peers had no room for {count:,} messages; each learns what it missed"
            self._advise(advise("slow_consumer", text, about="peers", count=count))
        if timed_out > before[1]:
            count = timed_out - before[1]
            text = f"patterns ran out of time on {count:,} messages"
            self._advise(advise("pattern_timeout", text, about="patterns", count=count))

    # what the mesh tells ---------------------------------------------------------------------------------

    def _peer_changed(self, act: Act, peer: Announcement) -> None:
        kind, word = _WORDS[act]
        _log.info("%s of %s (pid %d) %s", peer.name, peer.host, peer.pid, word)
        self._advise(advise(kind, f"{peer.name} of {peer.host} {word}", about=peer.name, origin=peer.uuid))
        self._tell_peer(peer, kind.removeprefix("peer_"))

    def _server_changed(self, endpoint: str, *, is_there: bool) -> None:
        if is_there:
            self._advise(advise("nameserver_found", f"the name server at {endpoint} answers", about=endpoint))
        else:
            text = f"the name server at {endpoint} does not answer; traffic goes on without it"
            _log.warning(text)
            self._advise(advise("nameserver_lost", text, about=endpoint))

    def _introduce(self, peer: Announcement, text: str) -> None:
        told: Any = text.encode() if self.configuration.codec is None else text
        self._main._outlet.publish(self._main, f"_OZ.NAMING.{peer.uuid.hex()}", told)

    def _peer_of(self, origin: bytes | None) -> Announcement | None:
        if origin is None:
            return None
        for peer in (*self._membership.known, self.announcement):
            if origin in (wide_origin(peer.uuid), near_origin(peer.uuid)):
                return peer
        return None

    # advisories ------------------------------------------------------------------------------------------

    def _advise(self, advisory: Advisory) -> None:
        """Take an advisory, from any thread; the I/O side publishes it."""
        if len(self._notices) < 10_000:
            self._notices.append(advisory)

    def _publish_notices(self, now: float) -> None:
        told = self._throttle.due(now)
        while self._notices:
            advisory = self._throttle.offer(self._notices.popleft(), now)
            if advisory is not None:
                told.append(advisory)
        for advisory in told:
            self._stats.advisories += 1
            found = self._advised.find(advisory.subject)
            if found.values:
                route = _Local(tuple(found.values))
                message = Message(advisory.subject, advisory, [], route, time.time_ns())
                for subscription in found.values:
                    subscription.handler(message)

    # publishing ------------------------------------------------------------------------------------------

    def _publisher_for(self, subject: Any) -> NodePublishing:
        """Say which publisher a subject goes out by.

        Raises:
            SubjectError: it is one of oz's own.
            ClosedError: the node is closed.
        """
        if self._closed:
            raise ClosedError(f"the node {self.name} is closed")
        if isinstance(subject, (str, bytes)) and subject[:1] in ("_", b"_"):
            distinguished.check_published(subject, self.configuration.dialect)
            local = distinguished.LOCAL if isinstance(subject, str) else distinguished.LOCAL.encode()
            if subject.startswith(local):  # type: ignore[arg-type]
                return self._near
        return self._main

    def _has_responders(self, subject: Any) -> bool | None:
        """Tell whether a request would be answered; None when not every peer has had its say yet.

        Raises:
            SubjectError, ClosedError: see `_publisher_for`.
        """
        if self._publisher_for(subject).interest(subject):
            return True
        return None if self._mesh.unready() else False

    def _no_responders(self, subject: Any) -> NoResponders:
        self._stats.no_responders += 1
        return NoResponders(
            f"nobody on bus {self.bus!r} has a subscription for {subject!r}; "
            f"{len(self._membership.up)} peers are up"
        )

    # replies ---------------------------------------------------------------------------------------------

    def _answer(self, message: Message, payload: Any, headers: Any) -> None:
        """Publish a reply; one whose requester is not connected yet waits for it for a while."""
        inbox = message.reply_to
        assert inbox is not None
        publisher = self._publisher_for(inbox)
        self._stats.replies += 1
        if publisher.interest(inbox) or owner(inbox) is None:
            self._send_reply(publisher, inbox, payload, headers)
        elif len(self._parked) >= MOST_PARKED:
            self._stats.replies_dropped += 1
        else:
            self._parked.append((time.monotonic() + PARKED, inbox, payload, headers))

    def _send_reply(self, publisher: NodePublishing, inbox: str, payload: Any, headers: Any) -> None:
        if publisher._outlet.publish(publisher, inbox, payload, headers) is not None:
            self._stats.replies_dropped += 1

    def _send_parked(self, now: float) -> None:
        for _ in range(len(self._parked)):
            until, inbox, payload, headers = self._parked.popleft()
            if self._main.interest(inbox):
                self._send_reply(self._main, inbox, payload, headers)
            elif now >= until:
                self._stats.replies_dropped += 1
            else:
                self._parked.append((until, inbox, payload, headers))

    # subscribing -----------------------------------------------------------------------------------------

    def _prepare(self, pattern: Any, dialect: str | None) -> tuple[list[Pattern], bool]:
        """Compile what is asked for; tell whether it is advisories.

        Raises:
            PatternError: the dialect does not allow it, or applications may not have it.
            ValueError: it is no pattern at all, or advisories together with others.
        """
        patterns = self._sub._compile(pattern, dialect or self.configuration.dialect)
        if not patterns:
            raise ValueError("no pattern at all: a subscription to an empty list would never get a message")
        for one in patterns:
            distinguished.check_subscribed(one)
        kinds = {distinguished.is_advisory(one) for one in patterns}
        if len(kinds) > 1:
            raise ValueError("advisories are had by a subscription of their own")
        return patterns, kinds.pop()

    def _begin(
        self, subscription: NodeSubscription, terms: Terms, *, last_value: bool, is_advisory: bool
    ) -> None:
        """Have a subscription begin; on the I/O side."""
        if is_advisory:
            for pattern in subscription.patterns:
                self._advised.add(pattern, subscription)
        else:
            self._sub._begin(subscription, terms, last_value=last_value)
        self._subscriptions[subscription] = None

    def _end(self, subscription: Subscription) -> None:
        """Have a subscription end; on the I/O side."""
        assert isinstance(subscription, NodeSubscription)
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            # What it did is still counted.
            self._stats.handled += subscription.queue.handled
            self._stats.failed += subscription.queue.failed
            self._stats.dropped += subscription.queue.dropped
        for pattern in subscription.patterns:
            self._advised.discard(pattern, subscription)
        subscription.active = False
        self._sub._cancel(subscription)
        if subscription.left != 0:
            # One that has had its last message is still to handle it.
            subscription.queue.close()

    @staticmethod
    def _check_terms(group: str | None, policy: Any, keep: Any, max_waiting: int | None) -> Terms:
        return check_terms(group, policy, keep, None if keep == "all" else max_waiting, shared=False)

    # closing ---------------------------------------------------------------------------------------------

    def _say_goodbye(self) -> Iterable[tuple[str, bytes]]:
        """Give the frames that take leave of name servers."""
        return [(endpoint, one.goodbye()) for endpoint, one in self._mesh.enrolments.items()]

    def _publishers(self) -> list[NodePublishing]:
        return [one for one in (self._wide, self._near) if one is not None]

    def _end_context(self, timeout: float) -> None:
        if self._nearby is not None:
            self._nearby.remove()
        end_context(self._context, timeout)

    def _count_stats(self) -> NodeStats:
        """Count what its parts count."""
        stats, sub = self._stats, self._sub.stats
        pubs = [one.stats for one in self._publishers()]
        queues = [one.queue for one in list(self._subscriptions)]
        return replace(
            stats,
            published=sum(one.published for one in pubs),
            unwanted=sum(one.unwanted for one in pubs),
            missed=sum(one.missed for one in pubs),
            received=sub.received,
            lost=sub.lost,
            handled=stats.handled + sum(one.handled for one in queues),
            failed=stats.failed + sum(one.failed for one in queues),
            dropped=stats.dropped + sum(one.dropped for one in queues),
            waiting=sum(one.waiting for one in queues),
            late_replies=self._requests.late,
            malformed=sub.malformed + sum(one.malformed for one in pubs),
        )

    def __repr__(self) -> str:
        """Show name, bus and state."""
        return f"<oz.Node {self.name!r} on bus {self.bus!r}{' closed' if self._closed else ''}>"


class _Local:
    """The route of an advisory."""

    handled: tuple[Any, ...] = ()
    is_counted = False
    is_listed = False
    is_only_listed = False

    def __init__(self, subscriptions: tuple[Any, ...]) -> None:
        self.subscriptions = subscriptions


def _ignore(_: Message) -> None:
    """Take a message that nobody sends."""


def _program() -> str:
    return Path(sys.argv[0] or "python").stem[:100] or "python"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ozmq")
    except PackageNotFoundError:
        return ""
