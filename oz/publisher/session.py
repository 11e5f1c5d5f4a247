"""Session of one link at its publisher: sequence numbers, window, backlogs, acknowledgements.

Theory of operation
-------------------
A message of a session passes these queues:

    offer → backlog of its stream → window (numbered, not acknowledged)
          → held (acknowledged, not handled) → freed

`offer` numbers a message at once if the window has space and the stream has no backlog. Otherwise the message waits in
the backlog of its stream, or the overflow policy drops the message.

A message gets its number when it enters the window. Therefore the numbers of a session have no holes, and a dropped
message has no number. Each body carries the number of messages that its stream dropped directly before this body, so
that the subscriber can report a gap at the right position. When a body is dropped, its own drops are added to the next
body.

An acknowledgement frees space in the window. The window is then filled from the backlogs of the streams in rotation,
one body from each stream. Batches of a redelivering stream stay *held* until the member has handled their messages,
because another member may have to receive them.

The engine asks for frames: `next_frames` returns the frames to send next, and the engine calls `confirm_sent` when the
socket has accepted the frames. After EAGAIN the engine asks for the same frames again later. Control frames are sent
before batches, and BYE is sent after all batches.

A session is bound to a *route*, the routing id of one connection, and to the attempt number of the HELLO that set
the route. When a HELLO resumes the session, all unacknowledged batches are sent again on the new connection.

A session that is DOWN has a *resume clock*, which starts when the socket reports that the route has no connection. The
clock stops when the socket accepts a PING. The session ends when the clock reaches `resume_seconds`.

States and events (`Sessions` handles HELLO without a session, DECLARE and redelivery):

============================ ================================ =========================== =========
event                        UP                               DOWN                        ENDED
============================ ================================ =========================== =========
HELLO that resumes           WELCOME, send batches again      same, then UP               –
ACK(n), acked ≤ n ≤ sent     free batches, fill the window    –                           –
ACK(n), other n              count as invalid                 –                           –
message matches              number, or backlog, or drop      same                        given up
EAGAIN                       keep the frames                  –                           –
EHOSTUNREACH                 DOWN, start the resume clock     start the resume clock      –
every 1.5 s                  PING                             PING; if the socket accepts –
                                                              it, stop the resume clock
no frame for 3 s, messages   groups prefer other members      –                           –
are not acknowledged
no frame for 60 s            PING every 30 s only. A live     PING every 30 s, or every   –
                             link misses the PINGs and sends  1.5 s while the resume
                             HELLO.                           clock runs
resume clock reaches         –                                ENDED                       –
`resume_seconds`
`close`, unhandled messages  wait until they are handled      wait until they have moved  –
============================ ================================ =========================== =========

**matched = numbered + pending + dropped** holds for each stream at any time.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oz.publisher.batching import Body
from oz.publisher.groups import HANDLED_PREFETCH, HEARD_WITHIN, RECEIVED_PREFETCH
from oz.wire import links
from oz.wire.links import Bye, Drops, Hello, Ping, Refusal, StreamOptions, Welcome

if TYPE_CHECKING:
    from oz.publisher.groups import Group
    from oz.subjects.pattern import Pattern

FULL, CONFLATED, TOO_LARGE, DENIED = range(4)
"""Reasons for which messages are dropped, as indexes into `Stream.drops`."""

NO_LIMIT = sys.maxsize
"""Value of `Stream.limit` if only the size in bytes limits the backlog."""

ALONE_OVERHEAD = 16
"""A body with one message is at most this number of bytes larger than its subject and payload."""

UP, DOWN, ENDED = "up", "down", "ended"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits of a publisher's sessions.

    Attributes:
        window: maximum number of unacknowledged batches of one session.
        window_bytes: a session's window is full when it holds this number of unacknowledged bytes. The last body may
            exceed the limit.
        pending_bytes: maximum size in bytes of the window, backlogs and held messages of one session together.
        total_bytes: the same limit for all sessions together. Above this size, backlogs drop messages. The sessions may
            exceed the limit by 1 ÷ 64. Streams that make `publish` wait may exceed the limit too, because they drop
            nothing.
        high_water_mark: maximum number of messages in the backlog of a stream without `max_pending`; 0 for no limit.
        on_full: "drop", "block" or "raise", for streams without an overflow policy.
        resume_seconds: seconds without a connection after which a session ends.
        largest_frame: maximum size in bytes of a frame that the publisher accepts.
        joined_bytes: a body below this number of bytes is sent in one frame with its head.
        join: function that joins a head and a body into one frame.
        batch: maximum number of messages in a body.
        body_bytes: maximum size in bytes of a body with several messages.
        alone_bytes: a message of at least this number of bytes gets its own body.
        patterns: maximum number of patterns of one session.
        pattern_time: time limit in seconds for the match of a pattern with one subject.
        pattern_weight: maximum estimated memory in bytes of the patterns of one session.
        declare_bytes: maximum size in bytes of the declarations of one session that are not applied yet.
        total_declare_bytes: the same limit for all sessions together.
        peers: maximum number of sessions that are UP or DOWN.
        peers_of_key: maximum number of sessions that belong to one key.
    """

    window: int = 256
    window_bytes: int = 8 << 20
    pending_bytes: int = 64 << 20
    total_bytes: int = 1 << 30
    high_water_mark: int = 10_000
    on_full: str = "drop"
    resume_seconds: float = 30.0
    largest_frame: int = 64 << 20
    joined_bytes: int = 1 << 16
    join: Callable[[bytes, bytes], Any] = links.join
    batch: int = 512
    body_bytes: int = 1 << 20
    alone_bytes: int = 1 << 16
    patterns: int = 100_000
    pattern_time: float = 0.001
    pattern_weight: int = 16 << 20
    declare_bytes: int = 16 << 20
    total_declare_bytes: int = 256 << 20
    peers: int = 65_536
    peers_of_key: int = 64


class Batch:
    """A numbered batch of a session.

    Attributes:
        stream: stream of the messages.
        sequence: sequence number of the first message.
        count: number of messages.
        body: packed messages; None if the batch is withdrawn.
        size: size of the body in bytes; 0 if the batch is withdrawn.
        flags: flags of the batch's head.
        drops: total number of messages that the stream has dropped before this batch.
        is_acked: whether the subscriber has acknowledged the batch.
    """

    __slots__ = ("body", "count", "drops", "flags", "is_acked", "position", "sequence", "size", "stream")

    def __init__(self, stream: Stream, sequence: int, body: Body, drops: int, flags: int) -> None:
        self.stream, self.sequence, self.count = stream, sequence, body.count
        self.body: Body | None = body
        self.size, self.position = body.size, body.position
        self.drops, self.flags, self.is_acked = drops, flags, False

    def frames(self, settings: Settings) -> tuple[Any, ...]:
        """Return the frames of the batch: one frame with head and body, or two frames, or only the head."""
        body = self.body
        differences = b"" if body is None else body.differences
        head = links.encode_head(
            self.flags, self.stream.number, self.sequence, self.count, self.drops, self.position, differences
        )
        if body is None:
            return (head,)
        if body.size < settings.joined_bytes and not differences:
            return (settings.join(head, body.frame),)
        return head, body.frame

    def blank(self, is_kept: Callable[[bytes], bool]) -> None:
        """Replace messages by empty messages, which keep the sequence numbers of the replaced messages.

        Args:
            is_kept: function that returns whether to keep the messages with a subject.
        """
        if self.body is None:
            return
        flat = self.body.flat()
        if all(map(is_kept, flat[0::3])):
            return
        blanked: list[Any] = []
        for at in range(0, len(flat), 3):
            blanked += flat[at : at + 3] if is_kept(flat[at]) else (b"", b"", None)
        body = Body(blanked, self.body.positions)
        body.at = self.body.at
        body.drop_unpacked()
        self.body, self.size = body, body.size

    def withdraw(self) -> None:
        """Remove the body, because another member has received the messages. The head is still sent."""
        self.body, self.size = None, 0
        self.flags |= links.WITHDRAWN


class _Waiting:
    """Entry of a backlog: a body, its flags, and the number of messages that were dropped directly before it.

    For a body without drops and flags, the entry is the `Body` itself, without this object.
    """

    __slots__ = ("body", "drops", "flags")

    def __init__(self, body: Body, drops: int, flags: int) -> None:
        self.body, self.drops, self.flags = body, drops, flags


class Stream:
    """Messages of a session that have the same delivery options.

    Attributes:
        session: session that the stream belongs to.
        number: number that identifies the stream in frames.
        options: delivery options that the subscriber declared.
        group: queue group; None for a plain stream.
        redelivers: whether messages of a lost member go to other members.
        holds: whether the stream keeps batches in `held`.
        prefetch: the group prefers other members when `load` reaches this number of messages.
        limit: maximum number of messages in the backlog.
        patterns: number of patterns; 0 when the last subscription has ended.
        joined: rank of the stream among all streams, by the time at which they got their first pattern.
        matched: number of messages that were offered to this stream. Messages that moved to another member do not
            count.
        numbered: number of messages that have entered the window.
        pending: number of messages in the backlog.
        drops: number of dropped messages for each reason.
        unknown: number of reported losses whose size is unknown.
        load: load of this member of a group; see `oz.publisher.groups`.
        held: numbered batches of a group whose messages are not acknowledged, or with `ack="handled"`, not handled.
        mark: all messages with a lower sequence number are handled.
    """

    __slots__ = (
        "_conflated", "_numbered_drops", "_tail_drops", "backlog", "drops", "group", "held", "holds",
        "joined", "limit", "load", "mark", "matched", "member", "number", "numbered", "options",
        "overflow", "patterns", "pending", "prefetch", "redelivers", "session", "unknown",
    )  # fmt: skip

    def __init__(self, session: Session, number: int, options: StreamOptions, group: Group | None) -> None:
        self.session, self.number, self.options, self.group = session, number, options, group
        settings = session.settings
        self.overflow = options.overflow
        self.limit = options.max_pending or settings.high_water_mark or NO_LIMIT
        self.redelivers = options.redeliver and group is not None
        self.holds = group is not None and (options.redeliver or options.handled)
        default = HANDLED_PREFETCH if options.handled else RECEIVED_PREFETCH
        self.prefetch = min(options.prefetch or default, self.limit)
        self.patterns = self.joined = 0
        self.matched = self.numbered = self.pending = self.load = self.mark = 0
        self.drops = [0, 0, 0, 0]
        self.unknown = 0
        self.backlog: deque[Body | _Waiting] = deque()
        self.held: deque[Batch] = deque()
        # Newest message by subject. A last value is meant for one subscription only. Therefore the key of a last value
        # includes the number of this subscription.
        self._conflated: dict[bytes | tuple[bytes, int], tuple[int, bytes, Any, int]] = {}
        self._numbered_drops = self._tail_drops = 0

    @property
    def is_awaited(self) -> bool:
        """Whether `publish` waits or raises if this stream is full, because `on_full` is "block" or "raise"."""
        session = self.session
        return self.overflow is None and session.is_up and session.settings.on_full != "drop"

    @property
    def is_nearly_full(self) -> bool:
        """Whether the next batch may fill this stream, so that `publish` must check `is_full` before each message."""
        session = self.session
        is_near = self.pending >= self.limit or 2 * session.bytes >= session.settings.pending_bytes
        return is_near and self.is_awaited

    def is_full(self, size: int) -> bool:
        """Return whether `publish` must wait or raise, because the stream has no space for a message.

        Args:
            size: size of the message in bytes. More than half of `pending_bytes` counts as half. Otherwise a large
                message would wait until the session is nearly empty. That takes long, because subscribers acknowledge
                their last messages late.
        """
        session = self.session
        counted = min(size, session.settings.pending_bytes // 2)
        is_over = self.pending >= self.limit or not session.has_bytes_for(counted)
        return is_over and self.is_awaited

    def has_space(self, size: int) -> bool:
        """Return whether a message of `size` bytes has space. With an overflow policy the result is always True."""
        return self.overflow is not None or (self.pending < self.limit and self.session.has_bytes_for(size))

    @property
    def dropped(self) -> int:
        """Number of dropped messages."""
        return sum(self.drops)

    def _count_drops(self, reason: int, count: int) -> None:
        self.drops[reason] += count
        self.session.all_drops[reason] += count

    @property
    def oldest(self) -> Body:
        """First body of the backlog. The backlog must not be empty."""
        return self._opened(0).body

    def keep(self, body: Body, flags: int) -> None:
        """Add a body to the backlog. If the backlog is full, apply the overflow policy."""
        session = self.session
        if flags & links.REDELIVERED:
            self._insert(body, flags)
        elif self.overflow == "conflate":
            self._conflate(body)
        elif self.overflow == "drop_oldest":
            self._keep_newest(body, flags)
        elif self.is_awaited:
            # No check: `publish` waits while `is_full` is true.
            self._append(body, flags)
        else:
            room = self.limit - self.pending if session.has_bytes_for(body.size) else 0
            self._append(body if room >= body.count else self._cut(body, room), flags)

    def _cut(self, body: Body, room: int) -> Body | None:
        """Append the first `room` messages of a body to the backlog, and drop its other messages; return None."""
        room = max(room, 0)
        self._count_drops(FULL, body.count - room)
        self._unload(body.count - room)
        kept = body.part(0, room) if room else None
        if kept is not None:
            self._append(kept, 0)
        self._tail_drops += body.count - room
        return None

    def _append(self, body: Body | None, flags: int) -> None:
        if body is None:
            return
        # Create `_Waiting` only if needed, because the garbage collector visits each object. With 200,000 such objects
        # in the backlogs, a collection stopped `publish` for 45 ms.
        self.backlog.append(_Waiting(body, self._tail_drops, flags) if self._tail_drops or flags else body)
        self._tail_drops = 0
        self.pending += body.count
        self.session.bytes += body.size

    def _opened(self, at: int) -> _Waiting:
        """Return an entry of the backlog as a `_Waiting` object."""
        waiting = self.backlog[at]
        if isinstance(waiting, Body):
            waiting = self.backlog[at] = _Waiting(waiting, 0, 0)
        return waiting

    def _open_all(self) -> list[_Waiting]:
        return [self._opened(at) for at in range(len(self.backlog))]

    def _insert(self, body: Body, flags: int) -> None:
        """Insert a redelivered body behind the other redelivered bodies, and before all new messages."""
        at = 0
        for waiting in self.backlog:
            if isinstance(waiting, Body) or not waiting.flags & links.REDELIVERED:
                break
            at += 1
        self.backlog.insert(at, _Waiting(body, 0, flags))
        self.pending += body.count
        self.session.bytes += body.size

    def _keep_newest(self, body: Body, flags: int) -> None:
        session = self.session
        over = self.pending + body.count - self.limit
        if over > 0:
            self.drop_oldest(over)
        while not session.has_bytes_for(body.size) and self.drop_oldest(1):
            pass
        if not session.has_bytes_for(body.size):
            self._cut(body, 0)
            return
        over = self.pending + body.count - self.limit
        if over > 0:
            self._count_drops(FULL, min(over, body.count))
            self._unload(min(over, body.count))
            self._tail_drops += min(over, body.count)
            if over >= body.count:
                return
            body = body.part(over, body.count)
        self._append(body, flags)

    def drop_oldest(self, count: int) -> int:
        """Drop the oldest messages, at most `count`, but no redelivered ones; return the number of dropped messages."""
        if self._conflated:
            return self._drop_conflated(count)
        backlog, dropped, at = self.backlog, 0, 0
        while at < len(backlog) and self._opened(at).flags & links.REDELIVERED:
            at += 1
        while dropped < count and at < len(backlog):
            waiting = self._opened(at)
            body, wanted = waiting.body, count - dropped
            own = min(body.count, wanted)
            self.session.bytes -= body.size
            drops = waiting.drops + own
            if own < body.count:
                waiting.body = body.part(own, body.count)
                waiting.drops = drops
                self.session.bytes += waiting.body.size
            else:
                del backlog[at]
                self._add_drops(at, drops)
            self.pending -= own
            dropped += own
        self._count_drops(FULL, dropped)
        self._unload(dropped)
        return dropped

    def _add_drops(self, at: int, drops: int) -> None:
        """Add drops to the body at index `at` of the backlog. If there is none, add them to the next new body."""
        if at < len(self.backlog):
            self._opened(at).drops += drops
        else:
            self._tail_drops += drops

    def _conflate(self, body: Body) -> None:
        kept, session = self._conflated, self.session
        for position, subject, payload, extras in body.messages():
            size = len(subject) + len(payload) + 32
            key: bytes | tuple[bytes, int] = subject
            if extras is not None:
                size += len(links.encode_body([extras]))
                if links.SID in extras:
                    key = subject, extras[links.SID]
            old = kept.pop(key, None)
            if old is not None:
                self._forget(old[3], CONFLATED)
            while kept and (len(kept) >= self.limit or not session.has_bytes_for(size)):
                self._drop_conflated(1)
            if not session.has_bytes_for(size):
                self._count_drops(FULL, 1)
                self._tail_drops += 1
                self._unload(1)
                continue
            kept[key] = position, payload, extras, size
            self.pending += 1
            session.bytes += size

    def _drop_conflated(self, count: int) -> int:
        kept = self._conflated
        for dropped in range(count):
            if not kept:
                return dropped
            self._forget(kept.pop(next(iter(kept)))[3], FULL)
        return count

    def _forget(self, size: int, reason: int) -> None:
        self.session.bytes -= size
        self.pending -= 1
        self._count_drops(reason, 1)
        self._tail_drops += 1
        self._unload(1)

    def deny(self, is_kept: Callable[[bytes], bool]) -> None:
        """Drop the messages of the backlog that the subscriber may no longer receive.

        Args:
            is_kept: function that returns whether to keep the messages with a subject.
        """
        session = self.session
        kept: deque[Body | _Waiting] = deque()
        denied = drops = 0
        for waiting in self._open_all():
            body = waiting.body
            messages = [message for message in body.messages() if is_kept(message[1])]
            count = body.count - len(messages)
            if count:
                denied += count
                drops += count
                session.bytes -= body.size
                if messages:
                    flat = [part for message in messages for part in message[1:]]
                    waiting.body = Body(flat, [message[0] for message in messages])
                    waiting.body.at = body.at
                    waiting.body.drop_unpacked()
                    session.bytes += waiting.body.size
            waiting.drops += drops
            drops = 0
            if messages:
                kept.append(waiting)
            else:
                drops = waiting.drops
        self.backlog = kept
        self._tail_drops += drops
        self.pending -= denied
        self._count_drops(DENIED, denied)
        self._unload(denied)
        for key in [*self._conflated]:
            if not is_kept(key if isinstance(key, bytes) else key[0]):
                self._forget(self._conflated.pop(key)[3], DENIED)

    def drop_backlog(self) -> None:
        """Drop the whole backlog."""
        while (waiting := self.pop_next()) is not None:
            self.refuse(waiting.body.count, FULL)
            self._tail_drops += waiting.drops

    def refuse(self, count: int, reason: int) -> None:
        """Count messages as dropped, because they could enter neither the window nor the backlog."""
        self._count_drops(reason, count)
        self._tail_drops += count
        self._unload(count)

    def count_lost(self, count: int | None) -> None:
        """Count messages that were lost before they reached the publisher; None means an unknown number."""
        if count is None:
            self.unknown += 1
        else:
            self.matched += count
            self._count_drops(FULL, count)
            self._tail_drops += count

    def pop_next(self) -> _Waiting | None:
        """Remove and return the next body of the backlog, else a body of conflated messages, else None."""
        if self.backlog:
            waiting = self._opened(0)
            del self.backlog[0]
            self.pending -= waiting.body.count
            self.session.bytes -= waiting.body.size
            return waiting
        return self._pop_conflated() if self._conflated else None

    def _pop_conflated(self) -> _Waiting:
        settings = self.session.settings
        flat: list[Any] = []
        positions: list[int] = []
        size = 0
        kept = self._conflated
        while kept and len(positions) < settings.batch:
            key = next(iter(kept))
            subject = key if isinstance(key, bytes) else key[0]
            position, payload, extras, own = kept[key]
            step = position - positions[-1] if positions else 1
            is_alone = own >= settings.alone_bytes
            if positions and (
                size + own > settings.body_bytes or is_alone or not 0 < step <= links.MAX_DIFFERENCE
            ):
                break
            del kept[key]
            flat += (subject, payload, extras)
            positions.append(position)
            size += own
            if is_alone:
                break
        self.pending -= len(positions)
        self.session.bytes -= size
        drops, self._tail_drops = self._tail_drops, 0
        return _Waiting(Body(flat, positions), drops, 0)

    def assign(self, body: Body, drops: int | None, flags: int) -> Batch:
        """Return a new batch with the next sequence number.

        Args:
            body: messages of the batch.
            drops: number of messages dropped directly before the body; None for all drops since the last body.
            flags: flags of the batch's head.
        """
        if drops is None:
            drops, self._tail_drops = self._tail_drops, 0
        self._numbered_drops += drops
        self.numbered += body.count
        batch = Batch(self, self.session.following, body, self._numbered_drops, flags)
        if self.holds:
            self.held.append(batch)
        return batch

    def release(self, mark: int) -> None:
        """Free the held batches below a mark. The mark is the lowest sequence number that is not handled."""
        if mark <= self.mark or not self.options.handled:
            return
        before, self.mark = self.mark, mark
        held = self.held
        while held:
            batch = held[0]
            start = max(batch.sequence, before)
            self._unload(max(0, min(mark, batch.sequence + batch.count) - start))
            if batch.sequence + batch.count > mark:
                break
            held.popleft()
            if batch.is_acked:
                self.session.bytes -= batch.size

    def acked(self, batch: Batch) -> None:
        """Record that the subscriber has acknowledged a batch."""
        batch.is_acked = True
        if batch.body is None:
            return
        if self.holds:
            if self.options.handled:
                return
            self.held.popleft()
        self.session.bytes -= batch.size
        self._unload(batch.count)

    def count_unhandled(self, acked: int) -> int:
        """Return the number of messages with sequence numbers below `acked` that are not handled."""
        if not self.options.handled:
            return 0
        return sum(
            max(0, min(acked, batch.sequence + batch.count) - max(batch.sequence, self.mark))
            for batch in self.held
        )

    def unhandled(self) -> Iterator[tuple[Batch | _Waiting, Body, int]]:
        """Yield the batches and backlog entries with unhandled messages, each with the index of the first one."""
        for batch in self.held:
            if batch.body is not None:
                yield batch, batch.body, max(0, self.mark - batch.sequence)
        while self._conflated:
            waiting = self._pop_conflated()
            self.backlog.append(waiting)
            self.pending += waiting.body.count
            self.session.bytes += waiting.body.size
        for waiting in self._open_all():
            yield waiting, waiting.body, 0

    @property
    def first_unhandled(self) -> int | None:
        """Position of the first unhandled message; None without one. The stream must have `holds`."""
        for batch in self.held:
            if batch.body is not None:
                return batch.body.positions[max(0, self.mark - batch.sequence)]
        for waiting in self.backlog:
            return (waiting if isinstance(waiting, Body) else waiting.body).position
        return next((position for position, *_ in self._conflated.values()), None)

    def moved(self, units: list[Batch | _Waiting]) -> None:
        """Remove the batches and backlog entries whose messages another member has received.

        A batch that the subscriber has not acknowledged is withdrawn: the batch keeps its sequence numbers and loses
        its body.
        """
        gone = set(map(id, units))
        session = self.session
        for unit in units:
            if isinstance(unit, Batch):
                self._unload(unit.count - max(0, self.mark - unit.sequence))
                session.bytes -= unit.size
                if not unit.is_acked:
                    session.window_used -= unit.size
                    unit.withdraw()
        if any(isinstance(unit, Batch) for unit in units):
            self.held = deque(batch for batch in self.held if id(batch) not in gone)
        kept: deque[Body | _Waiting] = deque()
        drops = 0
        for waiting in self._open_all():
            if id(waiting) in gone:
                drops += waiting.drops
                self.pending -= waiting.body.count
                self.matched -= waiting.body.count
                session.bytes -= waiting.body.size
                self._unload(waiting.body.count)
            else:
                waiting.drops += drops
                drops = 0
                kept.append(waiting)
        self.backlog = kept
        self._tail_drops += drops

    def _unload(self, count: int) -> None:
        if self.group is not None:
            self.load = max(self.load - count, 0)


class Session:
    """Session of one link.

    Attributes:
        id: id of the subscriber's link object.
        member: id of the subscriber.
        epoch: random id; sequence numbers of different epochs cannot be compared. A new session has a new epoch.
        user: name of the subscriber's key; None without keys.
        card: card in the last HELLO, which introduces a node; empty if the subscriber is not a node.
        route: routing id of the connection.
        attempt: attempt number of the HELLO that set the route.
        state: UP, DOWN or ENDED.
        following: sequence number of the next message.
        acked: sequence number that the subscriber expects next, according to its last acknowledgement.
        sent: sequence number of the first message that the socket has not accepted.
        batches: numbered batches that are not acknowledged.
        bytes: size in bytes of the window, backlogs and held batches.
        window_used: size of the window in bytes.
        streams: streams by number; a stream stays until the epoch ends.
        patterns: dict from the number of each subscription to its pattern and stream.
        weight: estimated memory of the patterns in bytes.
        refused: dict from the number of each refused subscription to its refusal.
        applied: revision of the last applied declaration.
        part: revision of a declaration whose last part is missing, or 0.
        mentioned: while a declaration replaces all subscriptions, the numbers of the subscriptions in its parts; None
            during another declaration.
        drained: dict from the number of each drained subscription to its stream. The member still handles the messages
            that were numbered for this subscription.
        since: dict from the number of each subscription to the sequence number of the first message after its start.
        declarations: parts of declarations that are not applied yet.
        declare_bytes: size of `declarations` in bytes.
        work: generators that apply the current part, apply changed rights, or remove all patterns.
        is_working: whether the session is in the queue of `Sessions.work`.
        is_standby: whether the session stands by; see `oz.publisher.groups`.
        beats: maximum number of ping intervals until the next PING, as announced in the last PING.
        heard_at: time of the last frame from the route, in seconds.
        given_up: number of messages that were lost when the session ended.
        all_drops: number of dropped messages for each reason; all sessions of the publisher share this list.
    """

    # C code reads and writes these slots.
    __slots__ = (
        "__dict__", "__weakref__", "_bye", "_control", "_is_ping_due", "_sent_batches", "batches", "bytes",
        "following", "is_up", "largest_frame", "route", "sent", "window", "window_used",
    )  # fmt: skip

    def __init__(
        self,
        hello: Hello,
        route: bytes,
        epoch: bytes,
        settings: Settings,
        now: float,
        user: str | None,
        all_drops: list[int],
    ):
        self.id, self.member, self.epoch, self.user = hello.session, hello.member, epoch, user
        self.card = b""
        self.route, self.attempt, self.settings = route, hello.attempt, settings
        self.largest_frame = hello.largest_frame
        self.window = max(1, min(settings.window, hello.largest_window))
        self.is_up, self.has_ended = True, False
        self.following = self.acked = self.sent = 0
        self.batches: deque[Batch] = deque()
        self.bytes = self.window_used = 0
        self.streams: dict[int, Stream] = {}
        self.patterns: dict[int, tuple[Pattern, Stream]] = {}
        self.refused: dict[int, Refusal] = {}
        self.applied = self.part = self.weight = 0
        self.mentioned: set[int] | None = None
        self.drained: dict[int, Stream] = {}
        self.since: dict[int, int] = {}
        self.declarations: deque[bytes] = deque()
        self.declare_bytes = 0
        self.work: deque[Iterator[None]] = deque()
        self.is_working = self.is_standby = False
        self.heard_at, self.all_drops = now, all_drops
        self.given_up = self.invalid_acks = 0
        self.down_at: float | None = None
        self.clock_at: float | None = None
        self._sent_batches = 0
        self._known_epoch = hello.epoch
        self._control: dict[object, bytes] = {}
        self._bye: bytes | None = None
        self.beats = 1
        self._is_ping_due = self._is_ping_next = False
        self._turn: deque[Stream] = deque()

    @property
    def state(self) -> str:
        """UP, DOWN or ENDED."""
        return ENDED if self.has_ended else UP if self.is_up else DOWN

    # messages

    def offer(self, stream: Stream, body: Body, flags: int = 0) -> None:
        """Move a body into the window or the backlog of a stream, or drop its messages."""
        if self.has_ended:
            self.given_up += body.count
            return
        stream.matched += body.count
        if body.size + links.HEAD_BYTES > self.largest_frame:
            stream.refuse(body.count, TOO_LARGE)
        elif not stream.pending and self._has_room() and self.bytes < self.settings.pending_bytes:
            self._number(stream, body, None if not flags else 0, flags)
            self.bytes += body.size
        else:
            stream.keep(body, flags)

    def offer_alone(
        self, stream: Stream, subject: bytes, payload: bytes, extras: Any, position: int, now: float
    ) -> bytes | None:
        """Number one message that can be sent at once, and return its frame. After the send, call `confirm_sent`.

        Return None, and number nothing, if other frames must be sent first, if the window is full, or if the message is
        too large for one frame.

        Args:
            stream: stream that receives the message; it must have no group.
            subject: subject as bytes.
            payload: payload as bytes.
            extras: map with the headers and other optional fields of the message; None if there are none.
            position: position of the message among all messages of the publisher.
            now: current time in seconds.
        """
        settings = self.settings
        if (
            not self.is_up
            or self._control
            or self._is_ping_due
            or self._sent_batches != len(self.batches)
            or self._bye is not None
            or stream.pending
            or stream.group is not None
            or len(subject) + len(payload) > settings.joined_bytes - ALONE_OVERHEAD
            or settings.joined_bytes + links.HEAD_BYTES > self.largest_frame
            or self.bytes >= settings.pending_bytes
            or not self._has_room()
        ):
            return None
        body = Body([subject, payload, extras], range(position, position + 1))
        if extras is not None and body.size >= settings.joined_bytes:
            return None
        body.at = now
        self.offer(stream, body)
        body.drop_unpacked()
        self._is_ping_next = False
        frame: bytes = self.batches[-1].frames(settings)[0]
        return frame

    def has_bytes_for(self, size: int) -> bool:
        """Return whether a backlog may grow by `size` bytes, as limited by `pending_bytes`."""
        return self.bytes + size <= self.settings.pending_bytes

    @property
    def is_half_full(self) -> bool:
        """Whether more than half of the window is used. Then the window may be too small for the next batch."""
        return 2 * len(self.batches) > self.window or 2 * self.window_used > self.settings.window_bytes

    def _has_room(self) -> bool:
        return len(self.batches) < self.window and self.window_used < self.settings.window_bytes

    def _number(self, stream: Stream, body: Body, drops: int | None, flags: int) -> None:
        self.batches.append(stream.assign(body, drops, flags))
        self.following += body.count
        self.window_used += body.size

    def fill(self) -> None:
        """Move at most 64 bodies from the backlogs into the window, in rotation over the streams.

        `pending_bytes` is not checked, because the move does not change the size of the session.
        """
        turn = self._turn
        if not turn:
            turn.extend(stream for stream in self.streams.values() if stream.pending)
        for _ in range(64):
            if not self._has_room():
                return
            if not turn:
                turn.extend(stream for stream in self.streams.values() if stream.pending)
                if not turn:
                    return
            stream = turn.popleft()
            waiting = stream.pop_next()
            if waiting is not None:
                self._number(stream, waiting.body, waiting.drops, waiting.flags)
                self.bytes += waiting.body.size
                if stream.pending:
                    turn.append(stream)

    def deny(self, stream: Stream, is_kept: Callable[[bytes], bool]) -> None:
        """Remove the messages that the subscriber may no longer receive from the window and the backlog of a stream.

        Args:
            stream: stream of the messages.
            is_kept: function that returns whether to keep the messages with a subject.
        """
        for batch in self.batches:
            if batch.stream is stream:
                before = batch.size
                batch.blank(is_kept)
                self.window_used += batch.size - before
                self.bytes += batch.size - before
        stream.deny(is_kept)

    # acknowledgements

    def acknowledge(self, expected: int, marks: Mapping[int, int]) -> bool:
        """Free the batches that an ACK acknowledges or reports as handled; return whether the ACK is valid.

        Args:
            expected: sequence number that the subscriber expects next.
            marks: dict from stream numbers to the lowest sequence number that the subscriber has not handled.
        """
        if not self.acked <= expected <= self.sent:
            return False
        self._free(expected)
        for number, mark in marks.items():
            stream = self.streams.get(number)
            if stream is None or mark > expected:
                return False
            stream.release(mark)
        self.fill()
        return True

    def _free(self, expected: int) -> None:
        self.acked = expected
        batches = self.batches
        while batches and batches[0].sequence + batches[0].count <= expected:
            batch = batches.popleft()
            self.window_used -= batch.size
            batch.stream.acked(batch)
            if self._sent_batches:
                self._sent_batches -= 1

    # connection

    def resumes(self, hello: Hello) -> bool:
        """Return whether this session can continue after a HELLO."""
        if self.has_ended:
            return False
        if hello.epoch == self.epoch:
            return self.acked <= hello.expected <= self.following
        # The link has not received WELCOME yet. It still has the epoch of its first HELLO, perhaps the epoch of an
        # earlier process of the publisher.
        return hello.epoch == self._known_epoch and self.acked == 0

    def resume(self, hello: Hello, route: bytes, now: float) -> None:
        """Continue on a new connection. All batches that the subscriber has not received are sent again."""
        self.route, self.attempt = route, hello.attempt
        if hello.epoch == self.epoch:
            self._free(hello.expected)
        self._sent_batches = 0
        self.sent = self.first
        self._control.clear()
        self.is_up, self.down_at, self.clock_at = True, None, None
        self.heard_at, self.part = now, 0
        self.beats = 1
        self._is_ping_due = False
        self.fill()

    @property
    def first(self) -> int:
        """Sequence number of the first message that is not acknowledged."""
        return self.batches[0].sequence if self.batches else self.following

    def welcome(self, origin: bytes, card: bytes) -> None:
        """Queue a WELCOME with the origin and the card of the publisher."""
        settings = self.settings
        self.post(
            links.encode_welcome(
                Welcome(origin, self.epoch, self.attempt, self.first, self.applied, self.window,
                        settings.window_bytes, settings.largest_frame, card)
            )
        )  # fmt: skip

    def unreachable(self, now: float) -> None:
        """Record that the route has no connection (EHOSTUNREACH)."""
        if self.has_ended:
            return
        if self.is_up:
            self.is_up, self.down_at = False, now
        if self.clock_at is None:
            self.clock_at = now
        self._control.clear()
        self._is_ping_due = False

    def is_responsive(self, now: float) -> bool:
        """Return whether the session is UP, and no acknowledgement is overdue."""
        if not self.is_up or self.acked == self.following or now - self.heard_at < HEARD_WITHIN:
            return self.is_up
        # The subscriber of an idle session may send no frame for 30 seconds. Therefore its time limit begins with the
        # first unacknowledged message.
        body = self.batches[0].body
        return body is not None and now - body.at < HEARD_WITHIN

    @property
    def unreceived(self) -> int:
        """Number of messages that wait or are not acknowledged. Messages that moved to another member do not count."""
        unacked = sum(
            batch.sequence + batch.count - max(batch.sequence, self.acked)
            for batch in self.batches
            if batch.body is not None
        )
        return unacked + sum(stream.pending for stream in self.streams.values())

    @property
    def pending(self) -> int:
        """Number of messages that are `unreceived`, plus messages that are acknowledged but not handled."""
        unhandled = sum(stream.count_unhandled(self.acked) for stream in self.streams.values())
        return self.unreceived + unhandled

    @property
    def is_declared(self) -> bool:
        """Whether the session has subscriptions, and no declaration is incomplete."""
        return bool(self.patterns) and self.applied > 0 and not self.part

    @property
    def is_idle(self) -> bool:
        """Whether no message is `pending`."""
        is_waiting = any(stream.pending or stream.held for stream in self.streams.values())
        return not is_waiting and all(batch.body is None for batch in self.batches)

    @property
    def has_unhandled(self) -> bool:
        """Whether the subscriber has not handled all messages of its groups with `ack="handled"`."""
        return any(stream.options.handled and stream.held for stream in self.streams.values())

    @property
    def dropped_unasked(self) -> int:
        """Number of messages that streams without an overflow policy have dropped."""
        return sum(stream.dropped for stream in self.streams.values() if stream.overflow is None)

    @property
    def has_unsent(self) -> bool:
        """Whether the socket has not accepted all messages yet."""
        return self.sent < self.following or any(stream.pending for stream in self.streams.values())

    @property
    def oldest(self) -> float | None:
        """Time of the oldest pending message in seconds; None if no message has a time."""
        bodies = [batch.body for batch in self.batches if batch.body is not None][:1]
        bodies += [stream.oldest for stream in self.streams.values() if stream.backlog]
        return min((body.at for body in bodies if body.at), default=None)

    def end(self) -> None:
        """End the session. Messages that have not moved to another member are discarded."""
        self.is_up, self.has_ended = False, True
        self.given_up += self.pending
        for stream in self.streams.values():
            stream.backlog.clear()
            stream.held.clear()
        self.batches.clear()

    # frames

    def post(self, frame: bytes, *, is_nil: bool = False) -> None:
        """Queue a control frame. The frame replaces an unsent control frame of the same kind.

        Without this rule, a peer that sends many requests and never reads could fill the memory.

        Args:
            frame: control frame to send.
            is_nil: whether the frame is an ANSWER(nil), which requests a complete declaration. ANSWER(nil) counts as a
                separate kind.
        """
        self._control[frame[0], is_nil] = frame

    def ping(self, beats: int = 1) -> None:
        """Queue a PING. `next_frames` encodes the frame, so that its counts are current.

        Args:
            beats: maximum number of ping intervals until the next PING.
        """
        self.beats = beats
        self._is_ping_due = True

    def next_frames(self) -> tuple[Any, ...] | None:
        """Return the frames to send next on the route, or None. After a successful send, call `confirm_sent`."""
        self._is_ping_next = False
        if not self.is_up:
            if self._is_ping_due and not self.has_ended:
                self._is_ping_next = True
                return (self._ping(),)
            return None
        if self._control:
            return (next(iter(self._control.values())),)
        if self._is_ping_due:
            self._is_ping_next = True
            return (self._ping(),)
        if self._sent_batches < len(self.batches):
            return self.batches[self._sent_batches].frames(self.settings)
        return None if self._bye is None else (self._bye,)

    def confirm_sent(self) -> None:
        """Record that the socket has accepted the frames that `next_frames` returned."""
        if self._is_ping_next:
            self._is_ping_due = False
            # The subscriber is connected. It sends HELLO when its program calls oz.
            self.clock_at = None
        elif self._control:
            del self._control[next(iter(self._control))]
        elif self._sent_batches == len(self.batches):
            self._bye = None
        else:
            batch = self.batches[self._sent_batches]
            self._sent_batches += 1
            self.sent = batch.sequence + batch.count

    def _ping(self) -> bytes:
        return links.encode_ping(Ping(self.sent, self.applied, self.totals(), self.beats))

    def totals(self) -> dict[int, Drops]:
        """Return the pending and dropped messages of each stream. Streams without such messages are left out."""
        unsent: dict[int, int] = {}
        if self._sent_batches < len(self.batches):
            for index in range(self._sent_batches, len(self.batches)):
                batch = self.batches[index]
                unsent[batch.stream.number] = unsent.get(batch.stream.number, 0) + batch.count
        found = {}
        for number, stream in self.streams.items():
            pending = stream.pending + unsent.get(number, 0)
            if pending or any(stream.drops) or stream.unknown:
                found[number] = Drops(pending, *stream.drops)._replace(unknown=stream.unknown)
        return found

    def bye(self, reason: int) -> None:
        """Queue a BYE, which is sent after all batches. Count the messages of the backlogs as dropped."""
        for stream in self.streams.values():
            stream.drop_backlog()
        self._bye = links.encode_bye(Bye(reason, links.PUBLISHER, self.following, self.totals()))
