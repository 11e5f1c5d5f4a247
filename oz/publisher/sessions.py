"""All sessions of one publisher: HELLO, declarations, publishing, redelivery, time.

Theory of operation
-------------------
`Sessions` is the state machine behind the ROUTER of a publisher, without I/O. The engine calls its methods with frames,
socket errors and the time. The methods put their results into two containers. `ready` holds the sessions that have
frames to send. The engine calls `next_frames` and `confirm_sent` of each session until the socket refuses a frame.
`replies` holds frames for routing ids without a session.

The result of a HELLO depends on its attempt number, epoch and expected sequence number (`docs/wire.md`, "Identity"):

=========================================================== =================================================
HELLO                                                       result
=========================================================== =================================================
protocol version is not supported                           BYE(2)
session id or session belongs to another key                BYE(1)
attempt below the session's, or equal from another route    ignored
attempt equal, from the session's route                     WELCOME again
attempt above, epoch and expected sequence number fit       route and attempt are replaced; session resumes
`admit` returns a reason                                    BYE(reason); the session ends
anything else                                               session ends; a new session with a new epoch begins
too many sessions                                           BYE(3)
=========================================================== =================================================

ACK, DECLARE and BYE are accepted only from a route that belongs to a session. One call of `work` applies a limited
number of patterns, so that the engine can limit the time for which it holds the lock. A HELLO discards declarations
that are not applied yet, because the link declares all its subscriptions again after the HELLO.

Redelivery: the unhandled messages of a member of a redelivering group move to other matching members. A moved message
is sent before new messages, and keeps its position and extras. Messages move in three cases:

- The member is DOWN for 3 seconds. Then only members that are UP receive its messages. In sticky groups the messages
  do not move yet, because a member of a sticky group keeps its keys until its session ends.
- The session of the member ends.
- The member removes a pattern that matched the messages.

In the last two cases, members that are DOWN receive messages too. If a member drains a subscription, the member still
handles the messages that were numbered for it, and only the backlog moves. When the member then removes the pattern or
leaves, its unhandled messages move too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import Any
from weakref import WeakValueDictionary

from oz.errors import OzError, ProtocolError
from oz.publisher.batching import Batcher, split
from oz.publisher.direct import DirectStream
from oz.publisher.last_values import LastValues
from oz.publisher.routing import Interest, Route
from oz.publisher.session import Batch, Session, Settings, Stream
from oz.subjects.pattern import Pattern, estimate_memory, is_timed
from oz.subjects.spelling import restore
from oz.wire import links
from oz.wire.links import (
    MAX_BEATS,
    PING_INTERVAL,
    SLOW_AFTER,
    SLOW_PINGS,
    Ack,
    Answer,
    Bye,
    Declare,
    Hello,
    Item,
    Refusal,
    StreamOptions,
)

REDELIVER_AFTER = 3.0
"""When a member has been DOWN for this number of seconds, its messages go to other members."""
CROWD = 64
"""With fewer sessions than this number, each idle session gets a PING every `PING_INTERVAL`. With more sessions, idle
sessions get fewer PINGs."""
MAX_INVALID = 100
"""A session ends after this number of invalid acknowledgements and malformed frames."""

_KEPT = 32  # Bytes that a conflating stream adds to the size of each message, as an estimate of its overhead.
_PART = 64  # Bytes that are added to the size of each part of a declaration, as an estimate of its overhead.

UP, DOWN, ENDED, DECLARED = "up", "down", "ended", "declared"
"""Events of `Sessions.on_session`.

======== ===============================================================================
event    meaning
======== ===============================================================================
up       a HELLO created or resumed the session
down     the session has no connection
ended    the session has ended
declared a declaration of the subscriber was applied and answered
======== ===============================================================================
"""

Authorize = Callable[[str | None, Item, Pattern, str | None], Refusal | None]


def allow_all(user: str | None, item: Item, pattern: Pattern, group: str | None) -> Refusal | None:
    """Return None: every subscription is allowed."""
    return None


class Sessions:
    """Sessions of a publisher.

    Attributes:
        ready: sessions that may have frames to send, as the keys of a dict, in order.
        replies: pairs of routing id and frame, for peers without a session.
        by_id: dict of sessions that are UP or DOWN, by session id.
        interest: patterns of all sessions.
        batcher: messages that wait for the next flush.
        given_up: number of messages that were lost when sessions ended.
        redelivered: number of messages that moved to another member.
        rejected: number of malformed frames and invalid acknowledgements.
        now: time of the last event, in seconds.
        card: card that introduces a node in later WELCOMEs; empty if the publisher is not a node.
        admit: function called with each HELLO and its user. The result is the reason of a BYE, or None to admit the
            subscriber.
        on_session: function called with a session and an event: UP, DOWN, ENDED or DECLARED. It must not raise.
        drops: number of messages that all sessions have dropped since the start, for each reason.
        by_node: sessions whose HELLO had a card: a dict by node id, each in the order of creation.
    """

    # C code reads and writes these slots.
    __slots__ = ("__dict__", "_bytes", "now", "ready", "replies")

    stream_class = Stream

    def __init__(
        self,
        origin: bytes,
        settings: Settings,
        new_id: Callable[[], bytes],
        *,
        last_values: LastValues | None = None,
        authorize: Authorize = allow_all,
        owns: Callable[[bytes, str], bool] = lambda session, user: True,
        processor_clock: Callable[[], float] = float,
        interest: type[Interest] = Interest,
    ) -> None:
        """Start without sessions.

        Args:
            origin: id of the publisher's process, 16 bytes.
            settings: limits of the sessions.
            new_id: function that returns 16 random bytes.
            last_values: newest message of each subject; None if the publisher does not keep them.
            authorize: function that returns a refusal if a user may not have a subscription, else None.
            owns: function that returns whether a session id belongs to a user.
            processor_clock: function that returns processor time in seconds. `Interest` measures the time of matches
                with this function.
            interest: class that holds the patterns of all sessions.
        """
        self.origin, self.settings, self._new_id = origin, settings, new_id
        self.interest = interest(settings.pattern_time, processor_clock)
        self.interest.on_suspended = self._suspended
        self.batcher = Batcher(
            batch=settings.batch, body_bytes=settings.body_bytes, alone_bytes=settings.alone_bytes
        )
        self.last_values = last_values
        self._authorize, self._owns = authorize, owns
        self.ready: dict[Session, None] = {}
        self.replies: deque[tuple[bytes, bytes]] = deque()
        self.by_id: dict[bytes, Session] = {}
        self._by_route: dict[bytes, Session] = {}
        self._of_key: dict[str, int] = {}
        self._work: deque[Session] = deque()
        self._declare_bytes = 0
        self._beat_at = 0.0
        self._compiled: WeakValueDictionary[tuple[str, str | bytes], Pattern] = WeakValueDictionary()
        self.card = b""
        self.admit: Callable[[Hello, str | None], int | None] = lambda hello, user: None
        self.on_session: Callable[[Session, str], object] = lambda session, event: None
        self.by_node: dict[bytes, dict[Session, None]] = {}
        self.given_up = self.redelivered = self.rejected = 0
        self.drops = [0, 0, 0, 0]
        # Upper bound of the size of all sessions. `_relieve` measures the size only if the bound exceeds `total_bytes`.
        self._bytes = 0
        self.now = 0.0

    # publishing

    def publish(
        self,
        subject: str,
        payload: bytes,
        extras: Any = None,
        *,
        key: bytes | None = None,
        raw: bytes | None = None,
    ) -> bool:
        """Add a message to the next batch; return whether a session receives it.

        Args:
            subject: subject as text.
            payload: payload as bytes.
            extras: map with the headers and other optional fields of the message; None if there are none.
            key: key by which sticky groups choose a member; None uses the subject.
            raw: subject as bytes; None if the caller has not encoded it.
        """
        if raw is None:
            raw = subject.encode("utf-8", "surrogateescape")
        route = self.interest.find(subject, raw)
        batcher = self.batcher
        if self.last_values is not None:
            self.last_values.put(batcher.position + len(batcher.waiting) // 4, raw, payload, extras)
        recipients = () if route is None else route.recipients(raw if key is None else key, self.now)
        if not recipients:
            batcher.unmatched += 1
            if self.last_values is None:
                return False
        batcher.add(recipients, raw, payload, extras)
        return bool(recipients)

    def is_full(self, subject: str, raw: bytes, key: bytes, size: int) -> bool:
        """Return whether a recipient is full and `on_full` makes `publish` wait or raise.

        Args:
            subject: subject as text.
            raw: subject as bytes.
            key: key by which sticky groups choose a member.
            size: size in bytes of the message and of the messages that wait in a batch.
        """
        route = self.interest.find(subject, raw)
        if route is None:
            return False
        chosen = (group.choose(members, key, self.now) for group, members in route.groups)
        return any(stream is not None and stream.is_full(size) for stream in (*route.plain, *chosen))

    def flush(self) -> None:
        """Pass the waiting messages to the sessions that receive them."""
        ready = self.ready
        for streams, body in self.batcher.flush():
            body.at = self.now
            self._bytes += len(streams) * (body.size + _KEPT * body.count)
            for stream in streams:
                session = stream.session
                if session.has_ended:
                    # `publish` read the route before the session ended.
                    self.given_up += body.count
                    continue
                session.offer(stream, body)
                ready[session] = None
            body.drop_unpacked()
        if self._bytes > self.settings.total_bytes:
            self._relieve()

    def publish_alone(
        self, stream: Stream, subject: bytes, payload: bytes, extras: Any, now: float
    ) -> bytes | None:
        """Number a message for one stream, and return its frame. Return None if other frames must be sent first.

        Args:
            stream: stream that receives the message.
            subject: subject as bytes.
            payload: payload as bytes.
            extras: map with the headers and other optional fields of the message; None if there are none.
            now: current time in seconds.
        """
        batcher, session = self.batcher, stream.session
        if self.ready or self.replies or batcher.waiting:
            return None
        position = batcher.position
        frame = session.offer_alone(stream, subject, payload, extras, position, now)
        if frame is not None:
            batcher.position = position + 1
            self.now = now
            self._bytes += len(frame) + _KEPT
            if self._bytes > self.settings.total_bytes:
                self._relieve()
        return frame

    def _relieve(self) -> None:
        """Reduce all sessions together to `total_bytes`. The largest sessions drop their oldest waiting messages."""
        limit = self.settings.total_bytes
        total = sum(session.bytes for session in self.by_id.values())
        for session in (
            sorted(self.by_id.values(), key=lambda session: -session.bytes) if total > limit else ()
        ):
            streams = sorted(session.streams.values(), key=lambda stream: -stream.pending)
            for stream in streams:
                while total > limit and stream.pending and not stream.is_awaited:
                    before = session.bytes
                    if not stream.drop_oldest(max(1, stream.pending // 8)):
                        break
                    total -= before - session.bytes
        # A measurement of thousands of sessions takes time. Measure again only after `limit` ÷ 64 more bytes.
        self._bytes = min(total, limit - (limit >> 6))

    # frames

    def on_frame(self, route: bytes, frame: bytes, now: float, user: str | None = None) -> None:
        """Process a received frame.

        Args:
            route: routing id of the sender.
            frame: frame behind the routing id. An empty frame is a probe and is ignored.
            now: current time in seconds.
            user: name of the sender's key; None without keys.
        """
        self.now = now
        if not frame:
            return
        session = self._by_route.get(route)
        if frame[0] == links.HELLO:
            self._on_hello(route, frame, now, user)
            return
        if session is None:
            return
        if session.user != user:
            # A connection with another key has taken over the routing id. The session must not send to it.
            self.unreachable(session, now)
            return
        session.heard_at = now
        if frame[0] == links.DECLARE:
            self._on_declare(session, frame, now)
            return
        try:
            self._on_control(session, links.decode_control(frame), now)
        except ProtocolError:
            self._reject(session, now)

    def _reject(self, session: Session, now: float) -> None:
        self.rejected += 1
        session.invalid_acks += 1
        if session.invalid_acks >= MAX_INVALID:
            self.replies.append((session.route, self._bye(links.MALFORMED, session.following)))
            self.end(session, now)

    def _on_control(self, session: Session, control: links.Control, now: float) -> None:
        if isinstance(control, Ack):
            if not session.acknowledge(control.expected, control.marks):
                self._reject(session, now)
                return
            self.ready[session] = None
        elif isinstance(control, Bye) and control.role == links.SUBSCRIBER:
            session.acknowledge(control.following, {})
            self.end(session, now)
        else:
            self._reject(session, now)

    # HELLO

    def _on_hello(self, route: bytes, frame: bytes, now: float, user: str | None) -> None:
        try:
            hello = links.decode_control(frame)
        except links.UnsupportedVersion:
            self.replies.append((route, self._bye(links.OTHER_VERSION)))
            return
        except ProtocolError:
            self.rejected += 1
            return
        if not isinstance(hello, Hello) or hello.largest_frame < self.settings.body_bytes + links.HEAD_BYTES:
            self.rejected += 1
            self.replies.append((route, self._bye(links.MALFORMED)))
            return
        session = self.by_id.get(hello.session)
        if user is not None and not self._owns(hello.session, user):
            self.replies.append((route, self._bye(links.KEY_REFUSED)))
            return
        if session is not None:
            if session.user != user:
                self.replies.append((route, self._bye(links.KEY_REFUSED)))
                return
            if self._is_stale(session, hello, route):
                return
            if session.member != hello.member:
                # The direct messages of the session are for its member. Another member must not get the session.
                self.replies.append((route, self._bye(links.MALFORMED)))
                return
        reason = self.admit(hello, user)
        if reason is not None:
            self.replies.append((route, self._bye(reason, 0 if session is None else session.following)))
            if session is not None:
                self.end(session, now)
            return
        if session is not None:
            session.heard_at = now
            self._set_card(session, hello.card)
            if hello.attempt == session.attempt:
                session.welcome(self.origin, self.card)
                self.ready[session] = None
                return
        other = self._by_route.get(route)
        if other is not None and other is not session:
            # A link uses a new session id only after it has ended the old session.
            self.end(other, now)
        if session is not None and session.resumes(hello):
            self._set_route(session, route)
            # The link declares all its subscriptions again.
            self._discard_declarations(session)
            session.resume(hello, route, now)
            session.welcome(self.origin, self.card)
            self.ready[session] = None
            self.on_session(session, UP)
            return
        if session is not None:
            self.end(session, now)
        self._create(hello, route, now, user)

    @staticmethod
    def _is_stale(session: Session, hello: Hello, route: bytes) -> bool:
        return hello.attempt < session.attempt or (
            hello.attempt == session.attempt and route != session.route
        )

    def _set_route(self, session: Session, route: bytes) -> None:
        if self._by_route.get(session.route) is session:
            del self._by_route[session.route]
        self._by_route[route] = session

    def _create(self, hello: Hello, route: bytes, now: float, user: str | None) -> None:
        settings = self.settings
        if len(self.by_id) >= settings.peers or (
            user is not None and self._of_key.get(user, 0) >= settings.peers_of_key
        ):
            self.replies.append((route, self._bye(links.LIMIT)))
            return
        if not self.by_id:
            self._beat_at = _next_beat(now)
        session = Session(hello, route, self._new_id(), settings, now, user, self.drops)
        self.by_id[session.id] = self._by_route[route] = session
        if user is not None:
            self._of_key[user] = self._of_key.get(user, 0) + 1
        session.welcome(self.origin, self.card)
        self.ready[session] = None
        self._set_card(session, hello.card)
        self.on_session(session, UP)

    @staticmethod
    def _bye(reason: int, following: int = 0) -> bytes:
        return links.encode_bye(Bye(reason, links.PUBLISHER, following, {}))

    # declarations

    def _on_declare(self, session: Session, frame: bytes, now: float) -> None:
        """Queue one part of a declaration as bytes, which need less memory than a decoded declaration."""
        if len(frame) > links.MAX_PART:
            self._reject(session, now)
            return
        size = len(frame) + _PART
        session.declare_bytes += size
        self._declare_bytes += size
        session.declarations.append(frame)
        self._queue_work(session)
        if session.declare_bytes > self.settings.declare_bytes:
            self._exceed(session, now)
        elif self._declare_bytes > self.settings.total_declare_bytes:
            self._exceed(max(self._work, key=lambda session: session.declare_bytes), now)

    def _exceed(self, session: Session, now: float) -> None:
        self.replies.append((session.route, self._bye(links.LIMIT, session.following)))
        self.end(session, now)

    def _discard_declarations(self, session: Session) -> None:
        session.declarations.clear()
        self._declare_bytes -= session.declare_bytes
        session.declare_bytes = 0

    def _add_work(self, session: Session, work: Iterator[None]) -> None:
        session.work.append(work)
        self._queue_work(session)

    def _queue_work(self, session: Session) -> None:
        if not session.is_working:
            session.is_working = True
            self._work.append(session)

    def work(self, steps: int = 1) -> bool:
        """Apply declarations and changed rights, and remove patterns of ended sessions; return whether work remains.

        The sessions are processed in rotation, so that a session with many patterns does not delay other sessions.

        Args:
            steps: maximum number of patterns to process.
        """
        waiting = self._work
        while waiting and steps > 0:
            steps -= 1
            session = waiting.popleft()
            if not session.work and session.declarations:
                session.work.append(self._apply(session, session.attempt, session.declarations.popleft()))
            if session.work:
                try:
                    next(session.work[0])
                except StopIteration:
                    session.work.popleft()
            session.is_working = bool(session.work or session.declarations)
            if session.is_working:
                waiting.append(session)
        return bool(waiting)

    def _apply(self, session: Session, attempt: int, frame: bytes) -> Iterator[None]:
        """Apply one part of a declaration. The generator yields after each pattern."""
        size = len(frame) + _PART
        session.declare_bytes -= size
        self._declare_bytes -= size
        try:
            declare = links.decode_control(frame)
        except ProtocolError:
            self._reject(session, self.now)
            return
        assert isinstance(declare, Declare)
        if not self._begin_part(session, declare):
            return
        for number, options in declare.streams.items():
            stream = session.streams.get(number)
            if stream is not None and stream.options != options:
                self._reject(session, self.now)
                return
        for item in declare.items:
            for _ in self._add_item(session, item, declare.streams):
                yield
                if session.has_ended or session.attempt != attempt:
                    return
            yield
            if session.has_ended or session.attempt != attempt:
                return
        drained = {-sid for sid in declare.removed if sid < 0}
        mentioned, removed = session.mentioned, [abs(sid) for sid in declare.removed]
        if mentioned is not None:
            # Record only known subscriptions: a peer that sends endless parts must not fill the memory.
            known = session.patterns, session.refused, session.drained
            named = (*(item.sid for item in declare.items), *drained)
            mentioned.update(sid for sid in named if any(sid in sids for sids in known))
            if declare.is_last:
                removed += [sid for sids in known for sid in sids if sid not in mentioned]
        for sid in removed:
            session.refused.pop(sid, None)
            is_drained = sid in drained
            stream = None if is_drained else session.drained.pop(sid, None)
            if sid in session.patterns:
                stream = self._remove(session, sid)
                is_drained &= len(session.drained) < links.MAX_STREAMS
                if is_drained and stream.redelivers:
                    session.drained[sid] = stream
            if stream is not None:
                # Move messages before the next yield, because a HELLO may end the declaration during the yield.
                if stream.redelivers:
                    self._move_removed(session, stream, is_drained=is_drained)
                yield
                if session.has_ended or session.attempt != attempt:
                    return
        if declare.is_last:
            session.applied, session.part = declare.revision, 0
            self._answer(session)
            if declare.removed and not session.has_unsent:
                # `drain` of the subscriber waits for a PING that has this revision and reports no pending messages.
                session.ping()
            self.on_session(session, DECLARED)

    def _begin_part(self, session: Session, declare: Declare) -> bool:
        """Return whether a part of a declaration must be applied. If not, queue an ANSWER if one is due."""
        revision, base = declare.revision, declare.base
        if revision <= session.applied:
            if declare.is_last:
                self._answer(session)
            return False
        if base == revision:
            return session.part == revision
        session.part = 0
        if base not in (0, session.applied):
            answer = Answer(session.applied, None, self.batcher.position)
            session.post(links.encode_answer(answer), is_nil=True)
            self.ready[session] = None
            return False
        session.part = revision
        session.mentioned = set() if base == 0 else None
        return True

    def _answer(self, session: Session) -> None:
        # Messages that wait in a batch were routed by the earlier declaration. Send them before the ANSWER.
        self.flush()
        answer = Answer(session.applied, list(session.refused.values()), self.batcher.position)
        session.post(links.encode_answer(answer))
        self.ready[session] = None

    def _add_item(
        self, session: Session, item: Item, declared: Mapping[int, StreamOptions]
    ) -> Iterator[None]:
        """Add a subscription. The generator yields while it searches the last values."""
        sid = item.sid
        if sid in session.patterns or sid in session.refused:
            return
        refusal = None
        subjects: set[bytes] = set()
        stream = session.streams.get(item.stream)
        try:
            if stream is None:
                if item.stream not in declared:
                    raise ProtocolError(f"stream {item.stream} of subscription {sid} has no options")
                options = declared[item.stream]
                group = None if options.group is None else self.interest.group(options.group, options.policy)
                stream = self.stream_class(session, item.stream, options, group)
            pattern = self._compile(item)
            if item.last_value and self.last_values is not None:
                subjects = yield from self.last_values.search(pattern, self.settings.pattern_time)
            refusal = self._check_item(session, item, pattern, stream)
        except (OzError, ValueError, Warning) as error:
            # Warning: Python may warn about a regex, and a program may turn warnings into errors.
            refusal = Refusal(sid, str(error))
        if refusal is not None:
            # An ANSWER holds at most `MAX_ENTRIES` refusals.
            if len(session.refused) < links.MAX_ENTRIES:
                session.refused[sid] = refusal
            return
        assert stream is not None
        session.streams[item.stream] = stream
        if not stream.patterns and stream.group is not None:
            # Look the group up again, because a group is removed when all its members have left.
            stream.group = self.interest.group(stream.group.name, stream.options.policy)
        self.flush()
        self.interest.add(pattern, stream)
        session.patterns[sid] = pattern, stream
        session.weight += estimate_memory(pattern)
        session.since[sid] = session.following
        if subjects:
            self._send_last_values(stream, subjects, sid)

    def _compile(self, item: Item) -> Pattern:
        # Subscribers often have equal patterns. Equal patterns share one object, because Python's garbage collector
        # visits each object and stops `publish` meanwhile. Without sharing, 50 subscribers caused a pause of 50 ms.
        key = item.dialect, item.text
        pattern = self._compiled.get(key)
        if pattern is None:
            pattern = self._compiled[key] = restore(item.dialect, item.text)
        return pattern

    def _check_item(self, session: Session, item: Item, pattern: Pattern, stream: Stream) -> Refusal | None:
        settings = self.settings
        if len(session.patterns) >= settings.patterns:
            return Refusal(item.sid, f"the session has {settings.patterns} subscriptions, which is the limit")
        if (
            not stream.patterns
            and sum(used.patterns > 0 for used in session.streams.values()) >= links.MAX_STREAMS
        ):
            return Refusal(item.sid, f"the session has {links.MAX_STREAMS} streams, which is the limit")
        if session.weight + estimate_memory(pattern) > settings.pattern_weight:
            return Refusal(
                item.sid,
                f"the patterns of the session take {settings.pattern_weight} bytes of memory, which is the limit",
            )
        options = stream.options
        refusal = self._authorize(session.user, item, pattern, options.group)
        if refusal is None and options.group is not None:
            group = self.interest.group(options.group, options.policy)
            if group.policy != options.policy:
                return Refusal(
                    item.sid,
                    f"group {options.group!r} has the policy {group.policy!r}, not {options.policy!r}: "
                    "use one policy for all members",
                )
        return refusal

    def _send_last_values(self, stream: Stream, subjects: set[bytes], sid: int) -> None:
        assert self.last_values is not None
        flat: list[Any] = []
        positions: list[int] = []
        for position, subject, payload, extras in self.last_values.values_of(subjects, sid):
            flat += (subject, payload, extras)
            positions.append(position)
        if positions:
            self._offer_all(stream, flat, positions, 0)

    def _offer_all(self, stream: Stream, flat: list[Any], positions: Sequence[int], flags: int) -> None:
        settings = self.settings
        if stream.group is not None and not flags:
            stream.load += len(positions)
        for body in split(flat, positions, settings.body_bytes, settings.alone_bytes, settings.batch):
            body.at = self.now
            self._bytes += body.size + _KEPT * body.count
            stream.session.offer(stream, body, flags)
            body.drop_unpacked()
        self.ready[stream.session] = None

    def _remove(self, session: Session, sid: int) -> Stream:
        pattern, stream = session.patterns.pop(sid)
        del session.since[sid]
        session.weight -= estimate_memory(pattern)
        self.flush()
        self.interest.discard(pattern, stream)
        if not stream.patterns and not stream.matched:
            # The stream has numbered and dropped no message. Therefore a new stream may use its number.
            session.streams.pop(stream.number, None)
        return stream

    def _suspended(self, pattern: Pattern, streams: list[Stream]) -> None:
        for stream in streams:
            for sid, (own, _) in stream.session.patterns.items():
                if own == pattern:
                    stream.session.refused[sid] = Refusal(
                        sid,
                        "suspended: the pattern exceeded its time on three subjects; write a simpler pattern",
                    )
            self._answer(stream.session)

    def reconsider(self, is_trusted: Callable[[str], bool]) -> list[bytes]:
        """Apply changed rights of keys; return the routes of the sessions that had to end.

        Later calls of `work` refuse the patterns that are no longer allowed. A subscriber whose patterns were refused
        earlier declares all its patterns again.

        Args:
            is_trusted: function that returns whether a user may have a session.
        """
        ended = []
        for session in [*self.by_id.values()]:
            if session.user is None:
                continue
            if is_trusted(session.user):
                self._revive(session)
                self._add_work(session, self._reconsider(session))
            else:
                self.replies.append((session.route, self._bye(links.KEY_REFUSED, session.following)))
                ended.append(session.route)
                self.end(session, self.now)
        return ended

    def _revive(self, session: Session) -> None:
        """Request a new complete declaration if rights refused a pattern, because refused patterns are not kept."""
        denied = [sid for sid, refusal in session.refused.items() if refusal.rule is not None]
        if denied and session.applied:
            for sid in denied:
                del session.refused[sid]
            # The link sends its current revision again. Lower `applied`, so that this revision counts as new.
            session.applied -= 1
            answer = Answer(session.applied, None, self.batcher.position)
            session.post(links.encode_answer(answer), is_nil=True)
            self.ready[session] = None

    def _reconsider(self, session: Session) -> Iterator[None]:
        has_refused = False
        for sid, (pattern, stream) in [*session.patterns.items()]:
            if session.has_ended:
                return
            if sid not in session.patterns:
                continue
            item = Item(sid, stream.number, pattern.dialect, "")
            refusal = self._authorize(session.user, item, pattern, stream.options.group)
            if refusal is not None:
                has_refused = True
                session.refused[sid] = refusal
                self._remove(session, sid)
                if stream.redelivers:
                    self._move_removed(session, stream)
                # A suspended pattern does not keep messages, because its matches take too long.
                kept = [
                    pattern
                    for own, (pattern, owner) in session.patterns.items()
                    if owner is stream and own not in session.refused
                ]
                session.deny(stream, partial(_matches_any, kept))
                self.ready[session] = None
            yield
        if has_refused:
            self._answer(session)

    @property
    def has_work(self) -> bool:
        """Whether declarations or patterns wait for `work`."""
        return bool(self._work)

    # redelivery and end

    def _move_removed(self, session: Session, stream: Stream, *, is_drained: bool = False) -> None:
        """Move the messages of a stream to other members, except messages that a remaining pattern protects.

        The subscriber would drop these messages, because their subscription has ended. A remaining pattern protects the
        messages that it matches, if they were numbered after the subscription of the pattern began. A regex with a time
        limit protects no message, because a session may have many slow regexes and many messages.

        Args:
            session: session of the stream.
            stream: stream that has lost a pattern.
            is_drained: whether to move only messages of the backlog.
        """
        kept = [
            (pattern, session.since[sid])
            for sid, (pattern, owner) in session.patterns.items()
            if owner is stream and not is_timed(pattern)
        ]
        self._move(stream, is_final=True, kept=kept, is_drained=is_drained)

    def _move(
        self,
        stream: Stream,
        *,
        is_final: bool,
        kept: Sequence[tuple[Pattern, int]] = (),
        is_drained: bool = False,
    ) -> None:
        """Move the unhandled messages of a member to other members of its group.

        Args:
            stream: stream of the member that loses the messages.
            is_final: whether members that are DOWN receive messages too. In this case, if no other member matches, the
                member itself receives its messages again.
            kept: pairs of a pattern and a sequence number. The pattern protects each message that it matches, if the
                message has this sequence number or a higher one.
            is_drained: whether to move only messages of the backlog.
        """
        moved: list[Any] = []
        targets: dict[Stream, tuple[list[Any], list[int]]] = {}
        for unit, messages in self._unhandled(stream, kept, is_drained=is_drained):
            chosen = [self._heir(stream, subject, is_final) for _, subject, _, _ in messages]
            if None in chosen:
                for heir in chosen:
                    if heir is not None:
                        heir.load -= 1
                continue
            for heir, (position, subject, payload, extras) in zip(chosen, messages, strict=True):
                assert heir is not None
                flat, positions = targets.setdefault(heir, ([], []))
                flat += (subject, payload, extras)
                positions.append(position)
            moved.append(unit)
        if not moved:
            return
        stream.moved(moved)
        self.ready[stream.session] = None
        for heir, (flat, positions) in targets.items():
            self.redelivered += len(positions)
            self._offer_all(heir, flat, positions, links.REDELIVERED)

    @staticmethod
    def _unhandled(
        stream: Stream, kept: Sequence[tuple[Pattern, int]], *, is_drained: bool
    ) -> Iterator[tuple[Any, list[tuple[int, bytes, bytes, Any]]]]:
        """Yield the batches and backlog entries to move, each with its unhandled messages."""
        for unit, body, start in stream.unhandled():
            if is_drained and isinstance(unit, Batch):
                continue
            messages = list(body.messages())[start:]
            sequence = unit.sequence if isinstance(unit, Batch) else stream.session.following
            patterns = [pattern for pattern, since in kept if since <= sequence]
            if not patterns or not all(
                any(_matches(pattern, subject) for pattern in patterns) for _, subject, _, _ in messages
            ):
                yield unit, messages

    def _heir(self, stream: Stream, subject: bytes, is_final: bool) -> Stream | None:
        """Pick the member that receives a moved message: another member, else the stream itself, else None."""
        members = self._members(stream, subject)
        alive = [member for member in members if member is not stream and (member.session.is_up or is_final)]
        if not alive and is_final and stream in members:
            alive = [stream]
        assert stream.group is not None
        return stream.group.pick(alive, subject, self.now) if alive else None

    def _members(self, stream: Stream, subject: bytes) -> Sequence[Stream]:
        route = self.interest.find(subject.decode("utf-8", "surrogateescape"), subject)
        groups = () if route is None else route.groups
        # Find the group by name: if the last member drains and another member joins, the group is a new object.
        name = stream.group.name if stream.group is not None else None
        return next((members for group, members in groups if group.name == name), ())

    def end(self, session: Session, now: float) -> None:
        """End a session: move the messages of redelivering groups, discard other messages, and remove the patterns."""
        if session.has_ended:
            return
        self.now = now
        self.flush()
        session.is_up, session.has_ended = False, True
        self._discard_declarations(session)
        del self.by_id[session.id]
        if self._by_route.get(session.route) is session:
            del self._by_route[session.route]
        if session.user is not None:
            self._of_key[session.user] -= 1
            if not self._of_key[session.user]:
                del self._of_key[session.user]
        self.interest.forget()
        for stream in session.streams.values():
            self.interest.leave(stream)
            if stream.redelivers:
                self._move(stream, is_final=True)
        session.end()
        self.given_up += session.given_up
        self.ready.pop(session, None)
        if session.patterns:
            self._add_work(session, self._forget(session))
        self._forget_node(session)
        self.on_session(session, ENDED)

    def _forget(self, session: Session) -> Iterator[None]:
        for sid in list(session.patterns):
            self._remove(session, sid)
            yield

    def unreachable(self, session: Session, now: float) -> None:
        """Record that the route of a session has no connection (EHOSTUNREACH)."""
        self.now = now
        was_up = session.is_up
        session.unreachable(now)
        if was_up:
            self.on_session(session, DOWN)

    # nodes

    def _set_card(self, session: Session, card: bytes) -> None:
        session.card = card
        if card:
            self.by_node.setdefault(session.member, {})[session] = None
        else:
            self._forget_node(session)

    def _forget_node(self, session: Session) -> None:
        known = self.by_node.get(session.member)
        if known is not None:
            known.pop(session, None)
            if not known:
                del self.by_node[session.member]

    def of_node(self, node: bytes) -> Session | None:
        """Return the first session of a node that is UP, else its newest session, else None.

        If a node has links to two endpoints of the publisher, direct messages use the first link.
        """
        known = self.by_node.get(node)
        if known is None:
            return None
        return next((candidate for candidate in known if candidate.is_up), None) or next(reversed(known))

    def responders(self, subject: str, raw: bytes) -> Route | None:
        """Return the streams and groups of nodes that receive a subject; None if no node receives it.

        Args:
            subject: subject as text.
            raw: subject as bytes.
        """
        route = self.interest.find(subject, raw)
        if route is None:
            return None
        streams = [*route.plain, *(stream for _, members in route.groups for stream in members)]
        nodes = [stream for stream in streams if stream.session.card]
        if len(nodes) == len(streams):
            return route
        return Route(raw, nodes, {}) if nodes else None

    @staticmethod
    def direct_stream(session: Session) -> DirectStream:
        """Return the direct stream of a session."""
        stream = session.streams.get(links.DIRECT)
        if stream is None:
            stream = session.streams[links.DIRECT] = DirectStream(session)
        assert isinstance(stream, DirectStream)
        return stream

    def end_node(self, node: bytes) -> None:
        """Send BYE to a node that is lost, and end its sessions."""
        for session in [*self.by_node.get(node, ())]:
            self.replies.append((session.route, self._bye(links.LOST, session.following)))
            self.end(session, self.now)

    # time

    def tick(self, now: float) -> None:
        """Send due PINGs, redeliver the messages of DOWN members, and end sessions that were DOWN for too long."""
        self.now = now
        if now < self._beat_at:
            return
        self._beat_at = _next_beat(now)
        # The offset `origin[0]` makes the publishers of a large bus send PINGs at different times.
        turn = int(now // PING_INTERVAL) + self.origin[0]
        beats = min(MAX_BEATS, 1 + len(self.by_id) // CROWD)
        for session in [*self.by_id.values()]:
            if not session.is_up:
                if session.clock_at is not None and now - session.clock_at > self.settings.resume_seconds:
                    self.end(session, now)
                    continue
                if session.down_at is not None and now - session.down_at >= REDELIVER_AFTER:
                    self._redeliver(session)
            # A PING that the socket refuses starts the resume clock. Therefore a session whose clock runs gets PINGs.
            is_slow = session.clock_at is None and now - session.heard_at > SLOW_AFTER
            interval = SLOW_PINGS if is_slow else session.beats
            if turn % interval == 0 or not (is_slow or session.is_idle):
                session.ping(beats)
                self.ready[session] = None

    def leave_groups(self) -> None:
        """Move the messages of the closing node's own group members to other members."""
        for session in self.by_node.get(self.origin, ()):
            for stream in session.streams.values():
                if stream.redelivers:
                    self._move(stream, is_final=False)

    def _redeliver(self, session: Session) -> None:
        for stream in session.streams.values():
            if stream.redelivers and stream.options.policy != "sticky" and (stream.held or stream.pending):
                self._move(stream, is_final=False)

    def next_deadline(self, *, is_held: bool = False) -> float | None:
        """Return the time at which the next `tick` or flush is due, in seconds; None without sessions and messages.

        Args:
            is_held: whether the engine keeps messages back (`Engine.hold`), so that no flush is due.
        """
        flush = None if is_held else self.batcher.deadline()
        if not self.by_id:
            return flush
        return self._beat_at if flush is None else min(flush, self._beat_at)

    def unacknowledged(self) -> int:
        """Return the number of messages that wait, are not acknowledged, or are not handled."""
        return sum(session.pending for session in self.by_id.values())

    def acknowledging_until(self, began: float, now: float) -> float | None:
        """Return the time until which `close` must wait at most, in seconds; None if it need not wait.

        `close` waits for sessions with pending messages. If a node has a link to itself, `close` ignores the unhandled
        messages of this link, because the program cannot handle messages while it waits for `close`.

        - Session UP, with unhandled messages of a group: `close` waits until they are handled.
        - Session UP, with messages that the socket has not accepted: `close` waits until the socket has accepted
          them, or until the subscriber has sent no frame for `resume_seconds`. Without this limit, a stopped program
          would block `close`, because its ipc connection stays open.
        - Session UP, and only acknowledgements are missing: `close` waits until one second after the last frame of the
          subscriber, and at least one second. After the wait, libzmq delivers the messages within the linger time of
          the socket.
        - Session DOWN, and another member can receive the oldest message: `close` waits until the messages have moved.
        - Session DOWN, and no other member can receive the oldest message: `close` waits until one second after the
          disconnect. A reconnection takes about a tenth of a second.

        Args:
            began: time at which `close` was called, in seconds.
            now: current time in seconds.
        """
        times = []
        for session in self.by_id.values():
            is_own = session.member == self.origin
            if session.is_idle or (is_own and not session.unreceived):
                continue
            since = max(session.heard_at, began) if session.is_up else session.down_at
            if since is not None and now - since < (limit := self._close_limit(session)):
                times.append(min(since + limit, now + 1.0))
        return min(times, default=None)

    def _close_limit(self, session: Session) -> float:
        """Return the seconds that `close` waits for a session with pending messages; see `acknowledging_until`."""
        if session.is_up:
            if session.has_unhandled:
                return inf
            return self.settings.resume_seconds if session.has_unsent else 1.0
        limit = 1.0
        for stream in session.streams.values():
            if stream.redelivers and self._has_heir(stream):
                after = self.settings.resume_seconds if stream.options.policy == "sticky" else REDELIVER_AFTER
                # `tick` gives the messages to another member within two ping intervals.
                limit = max(limit, after + 2 * PING_INTERVAL)
        return limit

    def _has_heir(self, stream: Stream) -> bool:
        """Return whether another member that is UP can receive the oldest unhandled message."""
        for _, body, start in stream.unhandled():
            _, subject, _, _ = next(islice(body.messages(), start, None))
            return any(
                member is not stream and member.session.is_up for member in self._members(stream, subject)
            )
        return False

    def count(self, subject: str | None, raw: bytes, *, only_up: bool = False) -> int:
        """Return the number of sessions with subscriptions.

        Args:
            subject: count only sessions whose subscriptions match this subject; None counts all sessions whose
                declaration is complete.
            raw: subject as bytes.
            only_up: whether to count only sessions with a connection.
        """
        if subject is None:
            return sum(
                session.is_declared and (session.is_up or not only_up) for session in self.by_id.values()
            )
        route = self.interest.find(subject, raw)
        if route is None:
            return 0
        streams = [*route.plain, *(stream for _, members in route.groups for stream in members)]
        return len({stream.session for stream in streams if stream.session.is_up or not only_up})

    def close(self) -> None:
        """Queue a BYE for each session that is UP. Count the messages of backlogs as dropped."""
        self.flush()
        for session in self.by_id.values():
            if session.is_up:
                session.bye(links.CLOSED)
                self.ready[session] = None


def _next_beat(now: float) -> float:
    """Return the next multiple of `PING_INTERVAL`, so that all processes of a host wake up together."""
    return (now // PING_INTERVAL + 1) * PING_INTERVAL


def _matches_any(patterns: Sequence[Pattern], subject: bytes) -> bool:
    return any(_matches(pattern, subject) for pattern in patterns)


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except OzError:
        return False
