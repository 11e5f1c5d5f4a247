"""*Leg*: node of a forwarder on one bus. A leg reads the subscriptions of peers, and subscribes for the other buses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.message import Gap
from oz.node import roster
from oz.node.engine import LOSS, Engine, decode_loss, encode_loss
from oz.node.events import DENIED, Event
from oz.node.parts import NodePublisher, NodeSubscriber
from oz.node.subjects import NodeSubscriptions
from oz.node.threads import ThreadPool
from oz.options import Delivery, NodeOptions
from oz.publisher.groups import STANDBY, Group
from oz.publisher.routing import Route
from oz.publisher.session import Session, Stream
from oz.publisher.sessions import Sessions
from oz.services import bridge_rules as rules
from oz.services.bridge_rules import Interest, Side, Source
from oz.subjects.pattern import Pattern, compile
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox
from oz.subscriber.subscriptions import Subscription
from oz.transport.endpoints import as_list
from oz.wire import links
from oz.wire.extras import FORWARDER_ID
from oz.wire.links import StreamOptions

if TYPE_CHECKING:
    from oz.services.bridge_groups import Job

PREFETCH = 4_096
"""Maximum number of unacknowledged group messages that a forwarder accepts from a publisher."""

_log = peer_logger("oz.forwarder")

_OPTIONS = ("advertise", "directory", "lost_after", "high_water_mark", "limits")
LEG_SETTINGS = ("bus", "connect", "bind", "name", "security", "allow", *_OPTIONS)
"""Names of the settings of a leg. Settings in `_OPTIONS` have the same names and meanings as in `oz.NodeOptions`."""

_STANDBY = compile(STANDBY)


@lru_cache(maxsize=4_096)
def forwarder_of(packed: bytes) -> bytes | None:
    """Return the id of the forwarder that a card describes; None if the card is empty or describes an ordinary node."""
    try:
        card = links.decode_card(packed) if packed else None
    except ProtocolError:
        return None
    return None if card is None or card.kind != links.FORWARDER else card.node[-FORWARDER_ID:]


class LegStream(Stream):
    """Stream that keeps each message of a group until the member handles it; with "received", until it arrives."""

    __slots__ = ()

    def __init__(self, session: Session, number: int, options: StreamOptions, group: Group | None) -> None:
        super().__init__(session, number, options, group)
        self.holds = group is not None


class LegSessions(Sessions):
    """Sessions of a leg. If a member is lost, the forwarder decides which member receives its unhandled messages.

    Attributes:
        reclaim: function that takes messages back from a member. Its arguments are the stream of the member, the
            positions of the messages, and whether the member has ended. It returns False if the messages stay with the
            member.
    """

    stream_class = LegStream
    reclaim: Callable[[Stream, Sequence[int], bool], bool]

    def _move(
        self,
        stream: Stream,
        *,
        is_final: bool,
        kept: Sequence[tuple[Pattern, int]] = (),
        is_drained: bool = False,
    ) -> None:
        # Begin with the last message, because `reclaim` puts each job before the other waiting jobs.
        moved = [
            unit
            for unit, messages in reversed([*self._unhandled(stream, kept, is_drained=is_drained)])
            if self.reclaim(stream, [position for position, *_ in messages], is_final)
        ]
        if moved:
            stream.moved(moved)
            self.ready[stream.session] = None


class LegPublisher(NodePublisher):
    """Publisher of a leg.

    Attributes:
        reclaim: function that takes messages back from a member; see `LegSessions`.
    """

    __slots__ = ()

    sessions_class = LegSessions
    reclaim: Callable[[Stream, Sequence[int], bool], bool]

    def _new_sessions(self) -> Sessions:
        sessions = super()._new_sessions()
        assert isinstance(sessions, LegSessions)
        sessions.reclaim = lambda stream, positions, is_final: self.reclaim(stream, positions, is_final)
        return sessions

    def request_route(self, request: Message, group: str | None, excluded: Collection[bytes]) -> Route:
        """Return a route with the streams that receive a request; see `recipients`."""
        route = self.responders(request.subject, request.subject_bytes)
        return Route(request.subject_bytes, [*self.recipients(route, group, excluded)], {})

    def send_job(self, stream: Stream, raw: bytes, payload: bytes, extras: dict[str, Any]) -> int | None:
        """Publish a message of a group to a member; return its position, or None if the member has no space."""
        return self._locked(self._send_job, stream, raw, payload, extras)

    def _send_job(self, stream: Stream, raw: bytes, payload: bytes, extras: dict[str, Any]) -> int | None:
        count = len(self.waiting) // 4
        if count and (stream.session.is_half_full or stream.pending + count >= stream.limit):
            # Send the messages that wait for a batch, so that the checks below count them.
            self._flush()
            count = 0
        if not stream.session.is_up or not stream.has_space(len(raw) + len(payload)):
            return None
        position = self.batcher.position + count
        stream.load += 1
        self.batcher.add((stream,), raw, payload, extras)
        self._expect_flush()
        return position

    @staticmethod
    def recipients(route: Route | None, group: str | None, excluded: Collection[bytes]) -> Sequence[Stream]:
        """Return the streams of a route that receive a message.

        Args:
            route: route of the message's subject.
            group: name of the group whose members receive the message; None for the plain streams.
            excluded: ids of the forwarders that do not receive the message.
        """
        if route is None:
            return ()
        streams: Sequence[Stream] = route.plain
        if group is not None:
            streams = [member for found, members in route.groups if found.name == group for member in members]
        if all(forwarder_of(stream.session.card) not in excluded for stream in streams):
            return streams
        return tuple(stream for stream in streams if forwarder_of(stream.session.card) not in excluded)


class LegSubscriptions(NodeSubscriptions):
    """Subscriptions of a leg. One queue receives all messages of a stream. Therefore patterns need not be matched."""

    def __init__(self) -> None:
        super().__init__()
        self._any: dict[int, Subscription] = {}

    def add(self, *arguments: Any, **options: Any) -> Subscription:
        """Add a subscription; see `Subscriptions.add`."""
        made = super().add(*arguments, **options)
        self._any[made.stream] = made
        return made

    def match(self, stream: int, subject: bytes, extras: dict[str, Any] | None) -> tuple[Subscription, ...]:
        """Return any subscription of a stream, because all subscriptions of a stream have the same inbox."""
        return (self._any[stream],) if stream in self._active else ()


class LegSubscriber(NodeSubscriber):
    """Subscriber of a leg."""

    __slots__ = ()

    subscriptions_class = LegSubscriptions


class LegEngine(Engine):
    """Node of a leg."""

    publisher_class = LegPublisher
    subscriber_class = LegSubscriber


class _Asked:
    """Subscriptions of a leg with the same delivery options.

    Attributes:
        inbox: inbox of the subscriptions.
        queue: messages that have arrived.
        entries: dict from a pattern to its subscription.
    """

    def __init__(self, engine: LegEngine, stream: StreamOptions) -> None:
        self.entries: dict[Pattern, Subscription] = {}
        subscriber, delivery = engine.subscriber, Delivery()
        with subscriber.lock:
            self.inbox: Inbox = subscriber.subscribe([], None, stream, delivery, last_value=False, limit=None)
            self.queue = subscriber.own_queue(self.inbox, delivery, "drop_newest").items


class Leg:
    """Node of a forwarder on one bus.

    Attributes:
        engine: engine of the node.
        publisher: publisher of the node.
        side: state that the rules of forwarders read.
        asked: subscriptions of this leg for other buses: a dict from delivery options to the subscriptions.
        losses: losses that are not in a queue of `asked`, and losses that other forwarders report. Each entry is a gap
            and the ids of the forwarders that have passed on the report.
        held: jobs (`oz.services.bridge_groups`) that were sent to members on this bus and are not acknowledged.
            `held[stream][position]` is one job.
        is_standby: whether the forwarder stands by on this bus; see `oz.services.bridge_rules`.
    """

    def __init__(self, settings: Mapping[str, Any], own: bytes, notify: Callable[[], None]) -> None:
        """Join a bus.

        Args:
            settings: settings of the leg.
            own: id of the forwarder.
            notify: function that is called after each event that may change the subscriptions of the forwarder.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        allow = given.get("allow", ())
        allowed = [allow] if isinstance(allow, (str, bytes, Pattern)) else allow
        self.side = Side([compile(pattern) for pattern in allowed])
        self._notify = notify
        self._changed: deque[Session] = deque()
        self.losses: deque[tuple[Gap, bytes]] = deque()
        self.asked: dict[StreamOptions, _Asked] = {}
        self.held: dict[Stream, dict[int, Job]] = {}
        self.is_standby = False
        bind = given.get("bind")
        self.engine = LegEngine(
            given.get("name"),
            bus=given.get("bus"),
            connect=as_list(given.get("connect") or ()),
            bind=as_list(bind) if bind else None,
            codec=None,
            dialect="zmq",
            on_full="drop",
            last_value=False,
            security=given.get("security"),
            options=NodeOptions(echo=False, **{name: given[name] for name in _OPTIONS if name in given}),
            runs_handlers=True,
            pool=ThreadPool(1),
            kind=links.FORWARDER,
            id_suffix=own,
        )
        self.bus = self.engine.bus
        publisher = self.engine.publisher
        assert isinstance(publisher, LegPublisher)
        self.publisher = publisher
        self._on_session = publisher.on_session
        publisher.on_session = self._on_session_event
        self.engine.notify, self.engine.on_loss = self._on_event, self._on_loss
        # The subscriber puts a gap into a queue only if the loss concerns one queue. This listener gets other gaps.
        self.engine.subscriber.gap_listeners.append(lambda gap: self.losses.append((gap, b"")))

    def _on_session_event(self, session: Session, what: str) -> None:
        self._on_session(session, what)
        self._changed.append(session)
        self._notify()

    def _on_event(self, event: Event) -> None:
        self._notify()
        if event.kind == DENIED:
            _log.warning("bus %r: %s", self.bus, event.text)

    def _on_loss(self, payload: bytes) -> None:
        found = decode_loss(payload)
        if found is not None:
            self.losses.append(found)

    def read(self) -> None:
        """Read the patterns of the sessions that have changed."""
        with self.publisher.lock:
            for session in dict.fromkeys(self._changed):
                if session.has_ended:
                    self.side.sources.pop(session, None)
                    continue
                found = {_interest(pattern, stream) for pattern, stream in session.patterns.values()}
                forwarder = forwarder_of(session.card)
                self.side.sources[session] = Source(forwarder, frozenset(found), session.is_standby)
            self._changed.clear()

    def find_forwarders(self, ids: set[bytes]) -> None:
        """Update the sets of forwarders in `side`.

        Args:
            ids: ids of all forwarders that have a session at a leg.
        """
        with self.engine.lock:
            peers = {peer.node[-FORWARDER_ID:]: peer for peer in self.engine.roster.by_id.values()}
        # Include the forwarders in the directory: no peer introduces them, and this node may be unable to reach them.
        directory = self.engine.directory if ids else None
        found = set() if directory is None else directory.nodes()
        self.side.forwarders = frozenset(ids & (peers.keys() | {node[-FORWARDER_ID:] for node in found}))
        up = {
            source.forwarder: source.is_standby
            for session, source in self.side.sources.items()
            if source.forwarder in peers and session.is_up and peers[source.forwarder].state == roster.UP
        }
        self.side.standby = frozenset(forwarder for forwarder, is_standby in up.items() if is_standby)
        self.side.active = frozenset(up.keys() - self.side.standby)

    def ask(self, wanted: Iterable[Interest]) -> int:
        """Replace the subscriptions of this leg; return the number of patterns.

        Args:
            wanted: interest of the other buses.
        """
        by_stream: dict[StreamOptions, set[Pattern]] = {
            StreamOptions(): {_STANDBY} if self.is_standby else set()
        }
        for pattern, group, policy in wanted:
            stream = StreamOptions()
            if group is not None:
                stream = StreamOptions(group, policy, handled=True, redeliver=True, prefetch=PREFETCH)
            by_stream.setdefault(stream, set()).add(pattern)
        count = 0
        for stream in {*by_stream, *self.asked}:
            patterns = by_stream.get(stream, set())
            count += len(patterns)
            asked = self.asked.get(stream)
            if asked is None:
                asked = self.asked[stream] = _Asked(self.engine, stream)
            added = [pattern for pattern in patterns if pattern not in asked.entries]
            removed = [asked.entries.pop(pattern) for pattern in [*asked.entries] if pattern not in patterns]
            if added or removed:
                made = self.engine.subscriber.change_patterns(asked.inbox, stream, added, removed)
                asked.entries.update(zip(added, made, strict=True))
        return count - self.is_standby

    def is_asked(self, group: str, subject: bytes) -> bool:
        """Return whether this leg has a subscription of a group that matches a subject."""
        patterns = [
            pattern
            for stream, asked in self.asked.items()
            if stream.group == group
            for pattern in asked.entries
        ]
        return rules.matches_any(patterns, subject)

    def abandon(self, message: Message) -> None:
        """Record that a message of a group was not handled and that its subscription has ended."""
        link, sequence = message.arrival.link, message.sequence
        if link is not None and sequence is not None:
            with self.engine.subscriber.lock:
                link.abandon(message.arrival.epoch, message.arrival.stream, sequence)

    def has_peer(self, node: bytes) -> bool:
        """Return whether a node is a peer on this bus."""
        peer = self.engine.roster.by_id.get(node)
        return peer is not None and peer.state != roster.KNOWN

    def send_loss(self, gap: Gap, via: bytes, excluded: Collection[bytes]) -> None:
        """Report a loss to the subscribers on this bus."""
        payload = encode_loss(gap, via)
        with self.publisher.lock:
            members = {
                session.member
                for session, source in self.side.sources.items()
                if session.card and source.interests and source.forwarder not in excluded
            }
        for member in members:
            self.publisher.direct(member, LOSS, payload)


def _interest(pattern: Pattern, stream: Stream) -> Interest:
    options = stream.options
    if options.group is None:
        return Interest(pattern)
    return Interest(pattern, options.group, options.policy)
