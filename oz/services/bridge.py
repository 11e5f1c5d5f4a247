"""Forwarder between buses: a node on each bus, and the messages that cross. `oz.services.bridge_rules` decides."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from oz.errors import ClosedError, ConfigurationError, OzError, ProtocolError, ReplyError, Timeout
from oz.logs import peer_logger
from oz.message import Extras, Forwarded, Gap
from oz.node import roster
from oz.node.engine import LOSS, Engine, decode_loss, encode_loss
from oz.node.events import DENIED, Event
from oz.node.parts import NodePublisher, NodeSubscriber
from oz.node.replies import ERROR, encode_error
from oz.node.requests import Request, inbox_node
from oz.node.subjects import NodeSubscriptions
from oz.node.threads import ThreadPool
from oz.options import Delivery, NodeOptions
from oz.publisher.engine import Outgoing
from oz.publisher.groups import STANDBY
from oz.publisher.routing import Route
from oz.publisher.session import Session, Stream
from oz.publisher.sessions import Sessions
from oz.services import bridge_rules as rules
from oz.services.attended import Service
from oz.services.bridge_rules import Interest, Side, Source
from oz.subjects.pattern import Pattern, compile
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox
from oz.subscriber.subscriptions import Subscription
from oz.transport.endpoints import as_list
from oz.transport.steps import Steps
from oz.wire import links
from oz.wire.extras import FORWARDER_ID, encode_extras
from oz.wire.links import StreamOptions

REQUEST_TIMEOUT = 60.0
"""Seconds that a forwarder waits for the replies to a request."""
STANDBY_TIMEOUT = 5.0
"""The same while it stands by: responders reply to the copy of the other forwarder, as a rule."""
PREFETCH = 4_096
"""Messages of a group that a forwarder accepts before their members on the other bus acknowledge."""
RETRY_INTERVAL = 0.1
"""Seconds between two attempts to pass a message of a group on, if no member has space."""
HANDOVER_TIME = 2.0
"""Seconds for which a closing forwarder waits until another one takes its groups over, at most."""
_DRAIN_INTERVAL = 0.02  # Seconds between two looks whether a closing forwarder has passed everything on.
_PACE = 10  # A forwarder spends at most 1 ÷ 10 of its time on the interest of the buses.

_log = peer_logger("oz.forwarder")


@dataclass
class ForwarderStats:
    """Counts of a forwarder since it was created.

    Attributes:
        received: messages and requests that arrived.
        payload_bytes: size of their payloads.
        passed: messages and requests that were published, once for each bus.
        requests: requests that were passed on, once for each bus.
        replies: replies that were passed back.
        unwanted: messages without a subscriber on another bus, or that `allow` refuses.
        looped: messages that had passed this forwarder, or come from the other bus.
        lost: messages that were lost before this forwarder, as far as their number is known.
        interests: patterns that it subscribes to at present.
    """

    received: int = 0
    payload_bytes: int = 0
    passed: int = 0
    requests: int = 0
    replies: int = 0
    unwanted: int = 0
    looped: int = 0
    lost: int = 0
    interests: int = 0


def forwarder_of(session: Session) -> bytes | None:
    """Return the id of the forwarder whose session it is, or None."""
    try:
        card = links.decode_card(session.card) if session.card else None
    except ProtocolError:
        return None
    return None if card is None or card.kind != links.FORWARDER else card.node[-FORWARDER_ID:]


class LegPublisher(NodePublisher):
    """Publisher of a leg.

    Attributes:
        known: ids of the forwarders by session.
        asked: while a request is passed on: its group, or None, and the forwarders that do not receive it.
    """

    __slots__ = ()

    known: dict[Session, bytes | None]
    asked: tuple[str | None, Collection[bytes]] | None = None

    def _new_sessions(self) -> Sessions:
        sessions = super()._new_sessions()
        # A parallel forwarder drops a message that comes back. The forwarder itself finds another member.
        sessions.is_heir = lambda session: self.known.get(session) is None
        return sessions

    def responders(self, subject: str, raw: bytes) -> Route | None:
        """Return the streams of nodes that receive a request."""
        route = super().responders(subject, raw)
        if route is None or self.asked is None:
            return None
        found = self.recipients(route, *self.asked)
        return Route(raw, [*found], {}) if found else None

    def recipients(
        self, route: Route | None, group: str | None, excluded: Collection[bytes]
    ) -> Sequence[Stream]:
        """Return the streams of a route that receive a message.

        Args:
            route: of its subject.
            group: for the members of a group; None for the plain streams.
            excluded: ids of forwarders that do not receive it.
        """
        if route is None:
            return ()
        streams: Sequence[Stream] = route.plain
        if group is not None:
            streams = [member for found, members in route.groups if found.name == group for member in members]
        known = self.known
        if all(rules.is_for(known.get(stream.session), excluded) for stream in streams):
            return streams
        return tuple(stream for stream in streams if rules.is_for(known.get(stream.session), excluded))


class LegSubscriptions(NodeSubscriptions):
    """Subscriptions of a leg: one queue receives a whole stream, so that no pattern is matched again."""

    def __init__(self) -> None:
        super().__init__()
        self._any: dict[int, Subscription] = {}

    def add(self, *arguments: Any, **options: Any) -> Subscription:
        """Add a subscription; see `Subscriptions.add`."""
        made = super().add(*arguments, **options)
        self._any[made.stream] = made
        return made

    def match(self, stream: int, subject: bytes, extras: dict[str, Any] | None) -> tuple[Subscription, ...]:
        """Return a subscription of the stream. All subscriptions of a stream have one owner."""
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
        stream: delivery options.
        inbox: whose queue has the messages.
        entries: by pattern.
    """

    def __init__(self, engine: LegEngine, stream: StreamOptions) -> None:
        self.stream = stream
        self.entries: dict[Pattern, Subscription] = {}
        subscriber, delivery = engine.subscriber, Delivery()
        with subscriber.lock:
            self.inbox: Inbox = subscriber.subscribe([], None, stream, delivery, last_value=False, limit=None)
            self.queue = subscriber.own_queue(self.inbox, delivery, "drop_newest").items


class _Held:
    """Message of a group that is passed on and not acknowledged.

    Attributes:
        source: leg at which the message arrived.
        message: of the group.
        matched: messages of the stream up to this one.
        sequence: behind the message; None while it has none.
    """

    __slots__ = ("matched", "message", "sequence", "source")

    def __init__(self, source: Leg, message: Message, matched: int) -> None:
        self.source, self.message, self.matched = source, message, matched
        self.sequence: int | None = None


class Leg:
    """Node of a forwarder on one bus.

    Attributes:
        engine: of the node.
        publisher: of the node.
        side: state for the rules.
        asked: subscriptions on behalf of the other buses, by their delivery options.
        changed: sessions with a new interest.
        losses: losses that no queue has, and those that other forwarders report with the ids of the forwarders.
        held: messages that are passed on to this bus and not acknowledged, by stream.
        is_standby: whether publishers on this bus prefer another forwarder for groups.
    """

    def __init__(self, settings: Mapping[str, Any], own: bytes, notify: Callable[[], None]) -> None:
        """Join a bus.

        Args:
            settings: of the leg.
            own: id of the forwarder.
            notify: called when the rules may decide otherwise.
        """
        given = dict(settings)
        allow = given.pop("allow", ())
        allowed = [allow] if isinstance(allow, (str, bytes, Pattern)) else list(allow)
        self.side = Side([compile(pattern) for pattern in allowed])
        options = {option: given.pop(option) for option in _OPTIONS if given.get(option) is not None}
        for name in ("name", "bus", "connect", "bind", "security"):
            given.setdefault(name, None)
        self._notify = notify
        self.changed: deque[Session] = deque()
        self.losses: deque[tuple[Gap, bytes]] = deque()
        self.asked: dict[StreamOptions, _Asked] = {}
        self.held: dict[Stream, deque[_Held]] = {}
        self.is_standby = False
        self.engine = LegEngine(
            given["name"],
            bus=given["bus"],
            connect=as_list(given["connect"]) if given["connect"] else (),
            bind=as_list(given["bind"]) if given["bind"] else None,
            codec=None,
            dialect="zmq",
            on_full="drop",
            last_value=False,
            security=given["security"],
            options=NodeOptions(echo=False, **{_OPTIONS[name]: value for name, value in options.items()}),
            runs_handlers=True,
            pool=ThreadPool(1),
            kind=links.FORWARDER,
            id_suffix=own,
        )
        publisher = self.engine.publisher
        assert isinstance(publisher, LegPublisher)
        self.publisher = publisher
        publisher.known = {}
        self._on_session = publisher.on_session
        publisher.on_session = self._on_session_event
        self.engine.notify, self.engine.on_loss = self._on_event, self._on_loss
        # A loss that concerns several queues is in none of them.
        self.engine.subscriber.gap_listeners.append(lambda gap: self.losses.append((gap, b"")))
        self.bus = self.engine.bus

    def _on_session_event(self, session: Session, what: str) -> None:
        self._on_session(session, what)
        if what == "up":
            self.publisher.known[session] = forwarder_of(session)
        elif what == "ended":
            self.publisher.known.pop(session, None)
        self.changed.append(session)
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
        """Read the interest of the sessions that have changed."""
        with self.publisher.lock:
            for session in dict.fromkeys(self.changed):
                if session.has_ended:
                    self.side.sources.pop(session, None)
                    continue
                found = {_interest(pattern, stream) for pattern, stream in session.patterns.values()}
                forwarder = forwarder_of(session)
                self.side.sources[session] = Source(forwarder, frozenset(found), session.is_standby)
            self.changed.clear()

    def find_forwarders(self, ids: Collection[bytes]) -> None:
        """Find out which forwarders are on the bus, and which of them stand by.

        Args:
            ids: of all forwarders that have a session at a leg.
        """
        with self.engine.lock:
            peers = {peer.node[-FORWARDER_ID:]: peer for peer in self.engine.roster.by_id.values()}
        self.side.forwarders = frozenset(ids & peers.keys())
        up = {
            source.forwarder: source.is_standby
            for session, source in self.side.sources.items()
            if source.forwarder in peers and session.is_up and peers[source.forwarder].state == roster.UP
        }
        self.side.standby = frozenset(leg for leg, is_standby in up.items() if is_standby)
        self.side.active = frozenset(up.keys() - self.side.standby)

    def ask(self, wanted: Iterable[Interest]) -> int:
        """Replace the subscriptions by the interest of other buses; return the number of patterns."""
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
            removed = [asked.entries.pop(entry) for entry in [*asked.entries] if entry not in patterns]
            if added or removed:
                made = self.engine.subscriber.change_patterns(asked.inbox, stream, added, removed)
                asked.entries.update(zip(added, made, strict=True))
        return count - self.is_standby

    def is_asked(self, group: str, subject: bytes) -> bool:
        """Return whether a subscription of a group matches a subject."""
        patterns = [
            pattern
            for asked in self.asked.values()
            if asked.stream.group == group
            for pattern in asked.entries
        ]
        return rules.matches_any(patterns, subject)

    def abandon(self, message: Message) -> None:
        """Record that a message of a group is not handled, because its subscription has ended."""
        link, sequence = message.arrival.link, message.sequence
        if link is not None and sequence is not None:
            with self.engine.subscriber.lock:
                link.abandon(message.arrival.epoch, message.arrival.stream, sequence)

    def has_peer(self, node: bytes) -> bool:
        """Return whether a node is a peer on this bus."""
        peer = self.engine.roster.by_id.get(node)
        return peer is not None and peer.state != roster.KNOWN

    def send(self, source: Leg, stream: Stream, message: Message, extras: dict[str, Any]) -> bool:
        """Publish a message of a group, which arrived at another leg, to one member; return whether it had space."""
        if stream.session.has_ended or not stream.session.is_up:
            return False
        stream.load += 1
        if not self.publisher.send_in(stream, message.subject_bytes, message.payload, extras):
            return False
        self.held.setdefault(stream, deque()).append(_Held(source, message, stream.matched))
        return True

    def acknowledge(self) -> list[tuple[Leg, str, Message]]:
        """Acknowledge the messages that their members have acknowledged, or handled.

        Returns:
            Messages of members that have ended, if this bus had no other member, each with its leg and its group.
        """
        lost: list[tuple[Leg, str, Message]] = []
        for stream, waiting in [*self.held.items()]:
            session = stream.session
            with self.publisher.lock:
                out = stream.matched - stream.pending
                for message in waiting:
                    if message.sequence is None:
                        if message.matched > out:
                            break
                        message.sequence = session.following
                has_ended = session.has_ended
                if has_ended:
                    done = inf if stream.lost_from is None else stream.lost_from
                elif not stream.holds:
                    done = session.acked
                else:
                    done = stream.held[0].sequence if stream.held else session.following
            while waiting and (
                done == inf or (waiting[0].sequence is not None and waiting[0].sequence <= done)
            ):
                waiting.popleft().message.ack()
            if has_ended:
                lost += [(message.source, stream.options.group or "", message.message) for message in waiting]
                waiting.clear()
            if not waiting:
                del self.held[stream]
        return lost

    def tell_loss(self, gap: Gap, via: bytes, excluded: Collection[bytes]) -> None:
        """Report a loss to the subscribers on this bus."""
        payload = encode_loss(gap, via)
        with self.publisher.lock:
            members = {
                session.member
                for session, source in self.side.sources.items()
                if isinstance(session, Session) and session.card and source.interests
                if rules.is_for(source.forwarder, excluded)
            }
        for member in members:
            self.publisher.direct(member, LOSS, payload)


def _source_of(message: Message) -> Forwarded:
    forwarded = message.extras.forwarded if message.extras is not None else None
    return rules.source_of(forwarded, message.origin, message.position, message.reply_to)


def _interest(pattern: Pattern, stream: Stream) -> Interest:
    options = stream.options
    if options.group is None:
        return Interest(pattern)
    return Interest(pattern, options.group, options.policy)


_OPTIONS = {
    "advertise": "advertise",
    "directory": "directory",
    "lost_after": "lost_after",
    "high_water_mark": "high_water_mark",
    "limits": "limits",
}
"""Settings of a leg that are options of a node."""
LEG_SETTINGS = ("bus", "connect", "bind", "name", "security", "allow", *_OPTIONS)


_STANDBY = compile(STANDBY)


class _Crossing:
    """Request that a forwarder has passed on, to one bus or more.

    Attributes:
        requests: on the other buses.
        failure: why a bus did not accept it.
    """

    def __init__(self, stats: ForwarderStats, leg: Leg, message: Message) -> None:
        self._stats, self._leg = stats, leg
        self._subject, self._reply_to = message.subject, message.reply_to or ""
        self._is_answered = False
        self.requests: list[Request] = []
        self.failure: OzError | None = None

    def notify(self) -> None:
        """Pass replies back, and the error of a request without a reply."""
        for request in self.requests:
            while request.replies:
                reply = request.replies.popleft()
                if isinstance(reply, ReplyError):
                    self._fail(reply)
                else:
                    extras = None if reply.extras is None else encode_extras(Extras(reply.extras.headers))
                    self._send(reply.payload, extras)
            if request.error is not None and not isinstance(request.error, (Timeout, ClosedError)):
                self.failure = request.error
        has_ended = all(request.has_ended for request in self.requests)
        if has_ended and self.failure is not None and not self._is_answered:
            self._fail(self.failure)

    def _fail(self, error: OzError) -> None:
        found = (
            [error.kind, error.text]
            if isinstance(error, ReplyError)
            else encode_error(error, is_hidden=False)
        )
        self._send(b"", {ERROR: found})

    def _send(self, payload: bytes, extras: dict[str, Any] | None) -> None:
        self._is_answered = True
        self._stats.replies += 1
        try:
            self._leg.engine.exchange.send_reply(self._reply_to, payload, extras)
        except OzError as error:
            _log.warning("a reply to %r was not passed back: %s", self._subject, error)


class BridgeEngine:
    """Legs of a forwarder, for one attending thread.

    Attributes:
        id: of the forwarder.
        legs: in the order in which they were given.
        stats: counts.
    """

    def __init__(self, legs: list[dict[str, Any]]) -> None:
        """Join the buses.

        Args:
            legs: settings of each leg.
        """
        self.id = os.urandom(FORWARDER_ID)
        self.stats = ForwarderStats()
        self.legs: list[Leg] = []
        self._is_dirty, self._read_at, self._retry_at = True, 0.0, inf
        # Messages of groups without a member with space, and whether a member may have handled them.
        self._unplaced: dict[tuple[Leg, str, bytes], deque[tuple[Message, bool]]] = {}
        self._is_leaving = self._is_draining = False
        self._wake: Callable[[], None] = lambda: None
        try:
            for leg in legs:
                self.legs.append(Leg(leg, self.id, self._notify))
        except BaseException:
            self.finish(time.monotonic())
            self.end_context()
            raise
        self.clock = self.legs[0].engine.clock

    def _notify(self) -> None:
        self._is_dirty = True

    # the attending side

    @property
    def wake(self) -> Callable[[], None]:
        """Called when the attending side must run."""
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        for leg in self.legs:
            leg.engine.wake = wake

    @property
    def is_resting(self) -> bool:
        """Whether the attending side sleeps."""
        return all(leg.engine.is_resting for leg in self.legs)

    @is_resting.setter
    def is_resting(self, is_resting: bool) -> None:
        for leg in self.legs:
            leg.engine.is_resting = is_resting

    @property
    def waiting(self) -> list[Any]:
        """Messages of one leg that wait for a batch."""
        return next((leg.engine.waiting for leg in self.legs if leg.engine.waiting), [])

    @property
    def is_foreign(self) -> bool:
        """Whether this is the child of a fork."""
        return any(leg.engine.is_foreign for leg in self.legs)

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when `attend` has something to read."""
        return tuple(descriptor for leg in self.legs for descriptor in leg.engine.descriptors())

    def attend(self, *, flushes: bool = False) -> bool:
        """Attend to the legs, and pass messages on; return whether there is more to do at once."""
        has_more = False
        for leg in self.legs:
            has_more |= leg.engine.attend(flushes=flushes)
        for leg in self.legs:
            has_more |= self._pass(leg)
            self._take_back(leg.acknowledge())
        now = self.clock()
        if self._unplaced and now >= self._retry_at:
            self._place_again()
        if self._is_dirty and now >= self._read_at and not self._is_draining:
            self._is_dirty = False
            self._ask()
            self._read_at = now + _PACE * (self.clock() - now)
        return has_more

    def next_deadline(self) -> float | None:
        """Return when `attend` must run without news, None if never."""
        found = [leg.engine.next_deadline() for leg in self.legs]
        found.append(self._read_at if self._is_dirty and not self._is_draining else inf)
        found.append(self._retry_at if self._unplaced else inf)
        deadline = min(item for item in (*found, inf) if item is not None)
        return None if deadline == inf else deadline

    def _ask(self) -> None:
        for leg in self.legs:
            leg.read()
        sides = [leg.side for leg in self.legs]
        ids = {
            source.forwarder
            for side in sides
            for source in side.sources.values()
            if source.forwarder is not None
        }
        for leg in self.legs:
            leg.find_forwarders(ids)
        self.stats.interests = 0
        for at, leg in enumerate(self.legs):
            leg.is_standby = self._is_leaving or rules.stands_by(self.id, sides, at)
            with suppress(ClosedError):
                self.stats.interests += leg.ask(rules.wanted(sides, at))
                self._drop_unwanted(leg)

    # messages

    def _pass(self, leg: Leg) -> bool:
        """Pass on the messages and losses of a leg; return whether there were any."""
        others = [other for other in self.legs if other is not leg and not other.engine.is_closing]
        found = False
        while leg.losses:
            self._lose(leg, *leg.losses.popleft())
        for asked in [*leg.asked.values()]:
            queue = asked.queue
            if not queue:
                continue
            found = True
            for other in others:
                other.publisher.hold(leg)
            try:
                while queue:
                    item = queue.popleft()
                    if isinstance(item, Gap):
                        self._lose(leg, item, b"")
                    else:
                        self._pass_message(leg, asked.stream.group, item, others)
            finally:
                for other in others:
                    other.publisher.release(leg)
        return found

    def _pass_message(self, leg: Leg, group: str | None, message: Message, others: list[Leg]) -> None:
        stats = self.stats
        stats.received += 1
        stats.payload_bytes += len(message.payload)
        source, raw = _source_of(message), message.subject_bytes
        if rules.has_passed(source.via, self.id):
            stats.looped += 1
            message.ack()
            return
        targets = [
            other for other in others if other.side.may_enter(raw) and not other.has_peer(source.origin)
        ]
        if not targets:
            is_looped = any(other.has_peer(source.origin) for other in others)
            stats.looped += is_looped
            stats.unwanted += not is_looped
            message.ack()
        elif message.reply_to is not None and inbox_node(message.reply_to) is not None:
            message.ack()
            self._pass_request(leg, group, message, source, targets)
        elif group is None:
            self._publish(leg, message, source, targets)
        else:
            waiting = self._unplaced.get((leg, group, raw))
            if waiting is not None:
                waiting.append((message, message.redelivered))
            elif not self._place(leg, group, message, message.redelivered):
                self._unplaced[leg, group, raw] = deque([(message, message.redelivered)])
                self._retry_at = min(self._retry_at, self.clock() + RETRY_INTERVAL)

    def _publish(self, leg: Leg, message: Message, source: Forwarded, targets: list[Leg]) -> None:
        raw, extras, is_wanted = message.subject_bytes, None, False
        excluded = leg.side.forwarders | rules.forwarder_ids(source.via)
        for other in targets:
            publisher = other.publisher
            streams = publisher.recipients(publisher.find_route(message.subject, raw), None, excluded)
            if streams:
                if extras is None:
                    extras = rules.extras_of(message.extras, source, self.id)
                publisher.publish_to(tuple(streams), raw, message.payload, extras)
                self.stats.passed += 1
                is_wanted = True
        self.stats.unwanted += not is_wanted

    def _place(self, leg: Leg, group: str, message: Message, is_redelivered: bool) -> bool:
        """Pass a message of a group to one member; return whether there was one with space."""
        raw, source = message.subject_bytes, _source_of(message)
        excluded = leg.side.forwarders | rules.forwarder_ids(source.via)
        found: dict[Stream, Leg] = {}
        for other in self.legs:
            if other is leg or other.engine.is_closing:
                continue
            if other.side.may_enter(raw) and not other.has_peer(source.origin):
                publisher = other.publisher
                members = publisher.recipients(publisher.find_route(message.subject, raw), group, excluded)
                found.update((member, other) for member in members)
        extras = rules.extras_of(message.extras, source, self.id, is_redelivered=is_redelivered)
        is_placed = any(
            found[item].send(leg, item, message, extras) for item in rules.by_rank([*found], raw, source)
        )
        self.stats.passed += is_placed
        return is_placed

    def _place_again(self) -> None:
        """Try to pass on the messages of groups that found no member with space, in the order of each subject."""
        self._retry_at = inf
        for key, waiting in [*self._unplaced.items()]:
            leg, group, _ = key
            while waiting and self._place(leg, group, *waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._unplaced[key]
        if self._unplaced:
            self._retry_at = self.clock() + RETRY_INTERVAL

    def _take_back(self, lost: list[tuple[Leg, str, Message]]) -> None:
        """Pass messages of members that have ended to other members, before later messages of their subjects."""
        for leg, group, message in reversed(lost):
            self._unplaced.setdefault((leg, group, message.subject_bytes), deque()).appendleft(
                (message, True)
            )
            self._retry_at = self.clock()

    def _drop_unwanted(self, leg: Leg) -> None:
        """Drop the messages of subscriptions of a leg that have ended: another member on their bus receives them.

        This comes at once, because a new member may make the forwarder subscribe again.
        """
        for key, waiting in [*self._unplaced.items()]:
            source, group, raw = key
            if source is leg and not leg.is_asked(group, raw):
                self.stats.unwanted += len(waiting)
                for message, _ in waiting:
                    leg.abandon(message)
                del self._unplaced[key]

    def _pass_request(
        self, leg: Leg, group: str | None, message: Message, source: Forwarded, targets: list[Leg]
    ) -> None:
        """Pass a request on: that of a group to one member, another one to each plain subscription."""
        extras = rules.extras_of(message.extras, source, self.id, is_request=True)
        content = Outgoing(message.subject, message.subject_bytes, message.payload, extras, None)
        is_many = bool(message.extras is not None and message.extras.to_all)
        crossing = _Crossing(self.stats, leg, message)
        timeout = STANDBY_TIMEOUT if leg.is_standby else REQUEST_TIMEOUT
        excluded = leg.side.forwarders | rules.forwarder_ids(source.via)
        first = source.position % len(targets)
        for other in targets[first:] + targets[:first]:
            other.publisher.asked = group, excluded
            try:
                crossing.requests.append(
                    other.engine.exchange.begin(content, crossing.notify, timeout=timeout, is_many=is_many)
                )
            except OzError as failure:
                crossing.failure = None if is_many else failure
                continue
            finally:
                other.publisher.asked = None
            self.stats.requests += 1
            self.stats.passed += 1
            if group is not None and crossing.requests[-1].holders:
                break
        crossing.notify()

    def _lose(self, leg: Leg, gap: Gap, via: bytes) -> None:
        """Report a loss on the other buses."""
        if rules.has_passed(via, self.id):
            return
        self.stats.lost += gap.count or 0
        for other in self.legs:
            if other is not leg and not other.has_peer(gap.origin or b""):
                excluded = leg.side.forwarders | rules.forwarder_ids(via)
                with suppress(ClosedError):
                    other.tell_loss(gap, via + self.id, excluded)

    # the end

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Receive no more messages, pass the last ones on, and wait until peers have them."""
        end = self.clock() + (timeout if timeout is not None else inf)
        self._is_leaving = True
        with suppress(ClosedError):
            self._ask()
        revisions = [leg.engine.subscriber.subscriptions.revision for leg in self.legs]
        handover_end = min(end, self.clock() + HANDOVER_TIME)
        while self.clock() < handover_end and self._is_needed(revisions):
            yield min(handover_end, self.clock() + _DRAIN_INTERVAL)
        self._is_draining = True
        drains = []
        for leg in self.legs:
            with suppress(ClosedError):
                drains.append((leg, *leg.engine.subscriber.begin_drain(None)))
        while self.clock() < end:
            is_drained = all(
                leg.engine.subscriber.is_drained(inboxes, revision) for leg, inboxes, revision in drains
            )
            if is_drained and not any(leg.held for leg in self.legs):
                break
            yield min(end, self.clock() + _DRAIN_INTERVAL)
        for leg in self.legs:
            left = None if timeout is None else max(0.0, end - self.clock())
            yield from leg.engine.acknowledgements(left)
        return end

    def _is_needed(self, revisions: Sequence[int]) -> bool:
        """Return whether a parallel forwarder has not taken the groups over, or messages of groups are on their way.

        Args:
            revisions: of the declarations since which each leg stands by.
        """
        sides = [leg.side for leg in self.legs]
        if not any(side.active or side.standby for side in sides):
            return False
        if rules.is_needed(sides) or self._unplaced or any(leg.held for leg in self.legs):
            return True
        pairs = zip(self.legs, revisions, strict=True)
        return not all(leg.engine.subscriber.is_drained([], revision) for leg, revision in pairs)

    def finish(self, end: float) -> int:
        """Say BYE and close the sockets; return the number of messages that were not acknowledged."""
        return sum(leg.engine.finish(end) for leg in self.legs)

    def end_context(self) -> None:
        """Terminate the contexts."""
        for leg in self.legs:
            leg.engine.end_context()


class Forwarder(Service):
    """Joins buses by a node on each. Messages, requests and replies cross to the buses that subscribe to them."""

    def __init__(
        self, legs: Iterable[Mapping[str, Any]], *, name: str | None = None, security: Any = None
    ) -> None:
        """Join the buses. `run` begins to pass messages on.

        Args:
            legs: for each bus a map with `bus` and other arguments of `oz.Node` and `oz.NodeOptions`. `allow` is a
                pattern or a list of patterns for the messages that may enter the bus; default: all messages.
            name: of its nodes; default: "forwarder" and the process id.
            security: of the legs without `security`.

        Raises:
            ConfigurationError: fewer than two legs, or a leg has a wrong setting.
            PatternError: a pattern of `allow` is not valid.
            EndpointError: an endpoint cannot be used.
        """
        given = [] if isinstance(legs, str) else list(legs)
        if len(given) < 2 or not all(isinstance(text, Mapping) for text in given):
            rule = 'give a list of two legs or more, such as [{"bus": "lan"}, {"bus": "wan"}]'
            raise ConfigurationError("legs", legs, "argument", rule)
        common = {"name": name or f"forwarder-{os.getpid()}", "security": security}
        for number, options in enumerate(given, 1):
            _check_leg(options, f"leg {number}")
            if _network_of(options) in map(_network_of, given[: number - 1]):
                rule = "another leg joins the same bus: give another bus, or another connect or directory"
                raise ConfigurationError("bus", options["bus"], f"leg {number}", rule)
        self._engine = BridgeEngine([{**common, **text} for text in given])
        super().__init__(self._engine)

    @property
    def legs(self) -> list[Leg]:
        """Legs, in the order in which they were given."""
        return self._engine.legs

    @property
    def stats(self) -> ForwarderStats:
        """Counts."""
        return self._engine.stats

    @property
    def states(self) -> list[str]:
        """For each leg "passing", or "standing by for groups" while another forwarder has a smaller id."""
        return ["standing by for groups" if leg.is_standby else "passing" for leg in self.legs]

    def __repr__(self) -> str:
        """Show the buses."""
        return f"<oz.services.Forwarder of {', '.join(leg.bus for leg in self.legs)}>"


def _network_of(leg: Mapping[str, Any]) -> tuple[Any, ...]:
    seeds = as_list(leg["connect"]) if leg.get("connect") else ()
    return leg["bus"], sorted(map(str, seeds)), leg.get("directory")


def _check_leg(leg: Mapping[str, Any], where: str) -> None:
    for wrong in leg.keys() - set(LEG_SETTINGS):
        rule = f"a leg has no such setting; it has {', '.join(LEG_SETTINGS)}"
        raise ConfigurationError(str(wrong), leg[wrong], where, rule)
    if not leg.get("bus"):
        raise ConfigurationError("bus", leg.get("bus"), where, "a leg needs the name of its bus")
