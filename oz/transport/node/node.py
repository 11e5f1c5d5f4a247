"""A node without its thread or loop: its parts, and what is due.

What is called "the I/O side" here is the node's one thread, or the loop: only it touches the subscriber, the
name servers and the links. `publish` and `message.reply` may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any
from weakref import WeakSet

from oz.errors import ClosedError, NoResponders
from oz.protocol.messages import Gap, Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.connections import Connections
from oz.protocol.node.handler_queue import HandlerQueue
from oz.protocol.node.inquiry import Inquiries, interest_subject
from oz.protocol.node.links import Links
from oz.protocol.node.membership import Act, Membership
from oz.protocol.node.ownership import Ownership
from oz.protocol.node.presence import presence_pattern
from oz.protocol.node.reach import Reach
from oz.protocol.node.request_client import RequestClient
from oz.protocol.node.requests import Requests
from oz.protocol.node.seeds import Seeds
from oz.protocol.node.steps import Directory
from oz.protocol.node.subscription import NodeStats, Refusable
from oz.subjects.pattern import compile
from oz.transport.node.calling import KeyChecks
from oz.transport.node.connector import FOR_EVER
from oz.transport.node.dialler import Dialler, Introductions
from oz.transport.node.handlers import Replies
from oz.transport.node.keys import NodeKeys
from oz.transport.node.notices import Notices, Watcher, count_all
from oz.transport.node.opening import NodeSettings, NodeSockets
from oz.transport.node.publishing import NodePublishing
from oz.transport.node.readiness import Lifecycle, Readiness, Wait, seconds_between_news
from oz.transport.node.subscriptions import NodeShell, NodeSubscriptions
from oz.wire.codec import Introduction
from oz.wire.discovery import Announcement


class NodeEngine:
    """A node without its thread or loop.

    Attributes:
        settings: what it was made with.
        bus: its bus.
        monotonic: the clock that its deadlines are of.
        is_closed: it has left the bus.
        has_joined: its sockets are there.
        waits: those who wait for news. One that a signal handler cut short goes by itself.
        requests: what it has asked.
        client: what asks.
        publishing: says which publisher a subject goes out by.
        replies: what it has answered.
        notices: what it tells of itself.
        subscriptions: what it has subscribed to.
        introduce: tells a peer of others.
        sockets, membership, links, dialler, readiness, lifecycle, introductions, inquiries: once it joined.
    """

    def __init__(self, settings: NodeSettings, shell: NodeShell) -> None:
        """Put its parts together; nothing is opened yet.

        Args:
            settings: of the node.
            shell: its threads or loop.
        """
        self.settings = settings
        self.bus = settings.configuration.bus
        self._shell = shell
        self.monotonic = shell.kinds.backend.monotonic
        self._stats = NodeStats()
        self.is_closed = self.has_joined = False
        self.notices = Notices(self._stats, shell.wake, shell.kinds.backend)
        refused = partial(self.notices.refused, "reply")
        self.requests = Requests(settings.uuid, shell.kinds.backend.random_bytes, refused)
        self._keys: NodeKeys | None = None
        if (credentials := settings.credentials) is not None:
            ownership = Ownership(settings.uuid, self.requests.waiting_in, self.monotonic)
            self._keys = NodeKeys(credentials, ownership)
        self._key_checks = KeyChecks(
            self._keys, self.notices, self.note_due, lambda: self.has_joined and not self.is_closed,
            self.monotonic,
        )  # fmt: skip
        self.publishing = NodePublishing(shell, settings.configuration.dialect, self.check_open)
        publisher_for = self.publishing.publisher_for
        self.client = RequestClient(
            self.requests, self._stats, publisher_for, self.publishing.has_responders, self._no_responders
        )
        self.replies = Replies(
            settings.name, self._stats, publisher_for, self.note_due, self.monotonic, refused
        )
        self.subscriptions = NodeSubscriptions(
            settings.name, self._stats, shell, self.notices, self._on_failed, self._has_subscribed,
            self.publishing.look_soon,
        )  # fmt: skip
        self.sockets: NodeSockets
        self.membership: Membership
        self.links: Links
        self.dialler: Dialler
        self.readiness: Readiness
        self.lifecycle: Lifecycle
        self.introduce: Callable[[Announcement, str], None]
        self.waits: WeakSet[Wait] = WeakSet()
        self._watcher: Watcher | None = None
        self._is_due = False
        self._tick_at = 0.0
        self._look_at = inf
        self._notified_at = 0.0

    def open(self) -> None:
        """Make the sockets, and connect to the first peers.

        Raises:
            ConfigurationError: the directory where nodes of this host meet cannot be used.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        self._notifications = self.subscriptions.make_queue(
            self._call_on_peer, HandlerQueue(), self.subscriptions.on_dropped
        )
        self.sockets = self.publishing.sockets = sockets = NodeSockets(
            self.settings, self._shell.kinds, self._on_interest, self._on_gap, self._keys
        )
        try:
            self._connect()
        except BaseException:
            self.has_joined = False
            sockets.abandon()
            raise

    def _connect(self) -> None:
        sockets, config = self.sockets, self.settings.configuration
        self.subscriptions.open(sockets.sub)
        self._listen()
        self.membership = Membership(sockets.announcement, config.lost_after)
        self.introductions = Introductions(sockets.main, self.membership)
        self.introduce = self.introductions.introduce
        self.inquiries = Inquiries(sockets.sub.asked, self.introductions.tell)
        self._link()
        seeds = Seeds(config.peers, sockets.announcement, self.monotonic())
        self._key_checks.begin(sockets, self.links, self.subscriptions)
        self.dialler.calls = self._key_checks.calls
        self.readiness = Readiness(
            sockets, self.membership, self.dialler, self.inquiries, self.expect, self.monotonic,
            self._key_checks.calls, self._key_checks.refusals, seeds, self._key_checks.is_absent,
        )  # fmt: skip
        self.lifecycle = Lifecycle(
            config, self._shell, sockets, self.links, self.subscriptions,
            self.publishing.tell_own, sockets.say, self.monotonic, self._key_checks.refusals,
        )  # fmt: skip
        self.has_joined = True
        if self.settings.echo:
            for endpoint in sockets.echoes:
                sockets.sub.connector.dial(endpoint, stop=FOR_EVER)
        self.dialler.start(self.monotonic())

    def _listen(self) -> None:
        """Subscribe to what nodes say to each other."""
        sub, uuid = self.sockets.sub, self.settings.uuid.hex()
        # In one declaration, which costs each peer a third: who has the presence announcement has the others.
        sub.introduce(
            (
                compile(f"{reserved_subjects.NAMING}{uuid}", "nats"),
                compile(interest_subject(self.settings.uuid), "nats"),
                presence_pattern(self.sockets.announcement),
            ),
            self._hear_node,
        )
        sub.subscribe(compile(self.requests.pattern, "nats"), handler=self.requests.take)

    def _link(self) -> None:
        """Decide whom the node connects to, and how; it begins later."""
        sockets, config = self.sockets, self.settings.configuration
        place = sockets.local_directory
        configured = (*config.nameserver, *config.peers)
        prefix = None if place is None else place.prefix
        looks_around: Directory | None = None if configured else place
        trusted = None if configured or place is None else self._key_checks.known_in(place)
        if trusted is not None:
            looks_around = trusted
        reach = Reach(sockets.announcement, configured, prefix, lambda key: key in self._key_checks.trusted)
        connections = Connections(
            sockets.announcement, sockets.sub, looks_around, config.peers,
            reach=reach, limits=self.settings.publishing.limits,
        )  # fmt: skip
        self.links = self.publishing.links = Links(
            self.membership, connections, sockets.local, sockets.network,
            servers=config.nameserver, echo=self.settings.echo,
        )  # fmt: skip
        self.dialler = Dialler(self.links, (sockets.sub, sockets.local, sockets.network), self)
        self.dialler.place = trusted

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of what happens from now on."""
        self._watcher = watcher
        watcher.on_change()

    # what comes ------------------------------------------------------------------------------------------

    def _on_interest(self) -> None:
        if self.has_joined:
            self.links.wake()
            self._shell.wake()
        if self._watcher is not None:
            self._watcher.on_change()

    def _on_gap(self, gap: Gap) -> None:
        sender = self.links.peer_of(gap.origin) if gap.origin is not None else None
        self.notices.lost(gap, sender.name if sender is not None else gap.origin.hex())
        if self._watcher is not None:
            self._watcher.on_gap(gap)

    def _hear_node(self, message: Message) -> None:
        """Take what a peer tells of others, asks, or answers."""
        if isinstance(message.payload, Introduction):
            self.dialler.hear_of(message.payload, self.monotonic())
            self.links.wake()
        elif self.inquiries.take(message):
            self.note_news(self.monotonic())

    def peer_changed(self, act: Act, peer: Announcement) -> None:
        """Record that a peer is up, has left or is lost."""
        what = self.notices.peer_changed(act, peer)
        if self.settings.on_peer is not None:
            # One call after the other, on the pool.
            self._notifications.put((peer, what))  # type: ignore[arg-type]

    def server_changed(self, endpoint: str, *, is_there: bool) -> None:
        """Record that a name server answers, or does not any more."""
        # A node that has closed took its leave itself.
        if not self.is_closed:
            self.notices.server_changed(endpoint, is_there=is_there)

    def refused(self, what: Refusable, text: str) -> None:
        """Record that something of others was not believed, and why."""
        self.notices.refused(what, text)

    def _call_on_peer(self, notified: Any) -> Any:
        assert self.settings.on_peer is not None
        return self.settings.on_peer(*notified)

    def _on_failed(self, message: Any, error: BaseException) -> None:
        is_message = isinstance(message, Message)
        self.notices.failed(message.subject if is_message else "on_peer", error)
        if self.settings.error_replies and is_message:
            with suppress(ClosedError):
                self.replies.answer_failure(message, error)

    def _has_subscribed(self) -> None:
        self.publishing.is_unheard = self.settings.echo

    # what is due; on the I/O side ------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due.

        Raises:
            zmq.ZMQError: a socket is closed.
        """
        self._is_due = False
        if now >= self._look_at:
            self._look_at = inf
        silent = self.links.silent
        for endpoint, frame in self.dialler.tick(now):
            self.sockets.say(endpoint, frame)
        if self._watcher is not None and self.links.silent != silent:
            self._watcher.on_change()
        self.introductions.try_again()
        self._key_checks.look(now)
        for text in [text for one in self.sockets.publishers for text in one.take_refused()]:
            self.notices.refused("announcement", text)
        self.replies.send_parked(self.sockets.main, now)
        self.subscriptions.settle()
        self.notices.count_losses(self.sockets.publishers, self.sockets.sub)
        self.notices.publish(now)
        self._notified_at = now
        self._tick_at = self._next_deadline(now)
        self._shell.changed()

    def _next_deadline(self, now: float) -> float:
        """Return when `tick` has something to do, if nothing comes before; `inf` for never."""
        deadlines = [
            self._look_at,
            self.links.next_deadline(now),
            self.notices.next_deadline(),
            self.replies.next_deadline(),
            self.introductions.next_deadline(now),
            self._key_checks.next_deadline(),
        ]
        return min(at for at in deadlines if at is not None)

    def seconds_left(self) -> float | None:
        """Return how long to wait at most for something to come; None for ever."""
        now = self.monotonic()
        if self.has_due(now) or self.sockets.sub.has_some:
            return 0.0
        at = min(self._tick_at, self.links.look_at, self.sockets.sub.engine.declarer.due_at)
        return None if at == inf else max(0.0, at - now)

    def has_due(self, now: float) -> bool:
        """Tell whether `tick` has something to do."""
        return now >= min(self._tick_at, self.links.look_at) or self._is_due or bool(self.notices.waiting)

    def expect(self, at: float) -> None:
        """Wake those who wait at a time of the monotonic clock."""
        self._look_at = min(self._look_at, at)
        self._tick_at = min(self._tick_at, at)

    def note_news(self, now: float) -> None:
        """Wake those who wait, though not too often."""
        if self.waits:
            self.expect(max(now, self._notified_at + seconds_between_news(len(self.membership.up))))

    def note_due(self) -> None:
        """Have the I/O side look at what is due; any thread may ask for it."""
        self._is_due = True
        self._shell.wake()

    def receive(self, endpoint: str, frame: bytes, now: float) -> None:
        """Take a frame from a name server."""
        self.dialler.receive(endpoint, frame, now)
        self._is_due = True

    # publishing ------------------------------------------------------------------------------------------

    def _no_responders(self, subject: Any) -> NoResponders:
        self._stats.no_responders += 1
        return NoResponders(
            f"nobody on bus {self.bus!r} has a subscription for {subject!r}; "
            f"peers that are up: {len(self.membership.up)}"
        )

    # presence --------------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str | None:
        """The endpoint for the `peers=` of other nodes; see `oz.Node.endpoint`."""
        return self.sockets.endpoint if self.has_joined and not self.is_closed else None

    def check_open(self) -> None:
        """Refuse what comes before the beginning or after the end.

        Raises:
            ClosedError: the node has not joined yet, or is closed.
        """
        if not self.has_joined:
            raise ClosedError(
                f"the node {self.settings.name} has not joined yet: use `async with`, or await start()"
            )
        if self.is_closed:
            raise ClosedError(f"the node {self.settings.name} is closed")

    # leaving ---------------------------------------------------------------------------------------------

    def close_queues(self, *, is_killed: bool = False) -> None:
        """End all requests and subscriptions: what is in a mailbox can be received, the rest is dropped.

        Args:
            is_killed: its process is gone, and tells nobody of what is dropped.
        """
        self.requests.close()
        self.subscriptions.close(is_killed=is_killed)

    # counters --------------------------------------------------------------------------------------------

    def count(self) -> NodeStats:
        """Count what its parts count."""
        if not self.has_joined:
            # One for asyncio that has not joined yet.
            return replace(self._stats)
        sockets, queues = self.sockets, self.subscriptions.queues()
        counted = count_all(self._stats, sockets.publishers, sockets.sub.stats, queues)
        counted.published -= self.introductions.said
        counted.late_replies = self.requests.late
        return counted

    def described(self) -> str:
        """Show name, bus and state, for `repr`."""
        return f"<oz.Node {self.settings.name!r} on bus {self.bus!r}{' closed' if self.is_closed else ''}>"
