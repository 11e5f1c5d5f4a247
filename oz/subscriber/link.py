"""Link of a subscriber to one publisher: its connections, expected sequence number and acknowledgements.

Theory of operation
-------------------
A link can have several connections, one after another. Each connection begins with a HELLO, which contains the session,
the epoch, the attempt number and the expected sequence number. The publisher answers with a WELCOME that has the same
attempt number. From WELCOME to the end of the connection, every batch arrives one time and in order, because libzmq
loses no frame of a connection. If a batch or a PING has a higher sequence number than expected, the connection is
faulty, and the link replaces the connection.

A faulty connection may carry frames in one direction only: PINGs from the publisher arrive, but the frames that this
link sends are lost. The link suspects this fault if no ANSWER to a DECLARE arrives, or if PINGs report pending messages
although all messages were acknowledged. Then the link repeats its HELLO, because a publisher answers a HELLO at once,
even while it applies a long declaration. If the HELLO gets no answer either, the link replaces the connection. Each
such replacement doubles the time for the next answer, because a long DECLARE may need more time on a slow network.

The engine calls the link with received frames and the time, and gets a list of effects. To send, the engine gets the
next frame from `next_frame`, and calls `confirm_sent` when the socket has accepted the frame. So a frame that the
socket refuses (EAGAIN) is sent later. HELLO is sent first, then ACK, then DECLARE. The link encodes an ACK when it is
sent, so that the ACK is always current.

The silence of a publisher is measured in *listened* time (`ListeningClock`). The clock runs only while the program is
inside `receive`. It starts when the socket is empty, because frames of the publisher may wait unread in the socket.

The table shows the effect of each event in each state. "–" means no effect. "same" means the effect in the column to
the left.

============================= ============== ========================= ======================= ===============
event                         NEW            GREETING                  LIVE                    ENDED
============================= ============== ========================= ======================= ===============
connect (a new handle)        HELLO, DECLARE –                         –                       HELLO, new id
subscribe, unsubscribe        –              DECLARE, if no epoch is   DECLARE                 –
                                             known
probe (a new connection)      HELLO          HELLO                     HELLO, GREETING         HELLO, new id
1, 3, 7 s without WELCOME     –              same HELLO again          –                       –
WELCOME, another attempt      –              –                         –                       –
WELCOME, epoch known          –              first > expected: Gap     same; DECLARE only if   –
                                                                       none is under way
WELCOME, another epoch        –              known before: Gap(None)   same                    –
sequence = expected           –              –                         deliver                 –
sequence < expected           –              –                         repeat                  –
sequence > expected           –              –                         replace                 –
body malformed                –              –                         Gap(count)              –
PING(n)                       –              –                         n > expected: replace;  –
                                                                       else ACK if something
                                                                       changed, or for each
                                                                       20th PING; drops,
                                                                       DECLARE
two PINGs with the same       –              –                         same HELLO again; after –
unanswered DECLARE or                                                  3.5 s, 7 s, 14 s …:
pending messages                                                       replace
ANSWER                        –              –                         refusals                –
BYE                           –              known before: Gap(None)   Gap(n − expected),      –
                                             ENDED                     drops, ENDED; if the
                                                                       reason is not CLOSED:
                                                                       Gap(None)
no WELCOME for 10 s           –              replace                   –                       –
silent, see `silent_after`    –              replace, if a frame has   replace                 –
                                             arrived before
silent: resume_seconds + 2 s  –              known before: Gap(None),  –                       –
                                             ENDED
retry time has come           –              –                         –                       replace
============================= ============== ========================= ======================= ===============

"known before" means that the link knew an epoch. "new id" means a new session id. Each HELLO has the next attempt
number, but a repeated HELLO keeps its number. "replace" means that the engine ends the connection and calls `connect`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oz.errors import ProtocolError
from oz.subscriber.subscriptions import Subscriptions
from oz.wire import links
from oz.wire.links import SLOW_PINGS, Answer, Bye, Drops, Head, Hello, Ping, Refusal, Welcome, silent_after

NEW, GREETING, LIVE, ENDED = "new", "greeting", "live", "ended"

HELLO_AGAIN = 1.0
"""Listened seconds without WELCOME after which HELLO is sent again. The time doubles with each repetition."""
WELCOME_WITHIN = 10.0
"""Listened seconds without WELCOME after which the connection is replaced."""
ACK_AGE = 0.02
"""`before_wait` makes an ACK due only if the last ACK is at least this number of seconds old."""
ACK_BATCHES = 32
"""An ACK is due after at most this number of received batches."""
MAX_BACKOFF = 30.0
"""Maximum time in seconds between two connection attempts of a link whose session has ended."""
MAX_ATTEMPT = 2**32 - 1
"""Largest attempt number. The connection after this number begins a new session."""
OTHERS_READ = 1_000
"""The listening clock also runs when this number of messages was read, even if the socket was never empty."""


class Messages(NamedTuple):
    """Effect: messages have arrived.

    Attributes:
        stream: number of the stream.
        sequence: sequence number of the first message.
        positions: position of each message.
        content: list with three items for each message: subject, payload and extras. It may also be an object of C
            code, whose method `flat` returns this list.
        is_redelivered: whether another member of the group may have handled the messages.
    """

    stream: int
    sequence: int
    positions: Sequence[int]
    content: Any
    is_redelivered: bool

    @property
    def flat(self) -> list[Any]:
        """List with three items for each message: subject, payload and extras."""
        content = self.content
        flat: list[Any] = content if type(content) is list else content.flat()
        return flat


class Gap(NamedTuple):
    """Effect: the publisher lost or dropped messages.

    Attributes:
        count: number of missing messages; None if the number is unknown.
        reason: one of "lost", "dropped", "malformed", "restarted" and "closed".
        stream: number of the stream that lost messages; None if every stream may have lost messages.
        origin: id of the publisher that lost the messages, if another publisher has replaced this publisher; otherwise
            None.
    """

    count: int | None  # type: ignore[assignment]
    reason: str
    stream: int | None = None
    origin: bytes | None = None


class Replace(NamedTuple):
    """Effect: the engine must end the connection, and call `connect` with a new handle.

    Attributes:
        reason: text that explains why the connection is replaced.
    """

    reason: str


class Refused(NamedTuple):
    """Effect: the publisher has answered a declaration.

    Attributes:
        revision: revision of the answered declaration.
        refusals: all refused subscriptions, with the reasons.
        position: position of the publisher's next message.
    """

    revision: int
    refusals: list[Refusal]
    position: int = 0


Effect = Messages | Gap | Replace | Refused


class ListeningClock:
    """Clock that measures for how long a subscriber has listened to its publishers.

    After `enter`, the clock starts as soon as the socket is empty or `OTHERS_READ` messages were read. The clock stops
    at `leave`.
    """

    __slots__ = ("_is_inside", "_read", "_since", "_total")

    def __init__(self) -> None:
        self._total = 0.0
        self._since: float | None = None
        self._read = 0
        self._is_inside = False

    def enter(self) -> None:
        """Allow the clock to run, because the program waits in a call such as `receive`."""
        self._is_inside = True

    def leave(self, now: float) -> None:
        """Stop the clock, because the program no longer waits."""
        self._total = self.time(now)
        self._since, self._is_inside = None, False

    def empty(self, now: float) -> None:
        """Record that the socket is empty."""
        self._read = 0
        self._run(now)

    def read(self, now: float) -> None:
        """Record that a message was read."""
        self._read += 1
        if self._read >= OTHERS_READ:
            self._run(now)

    def _run(self, now: float) -> None:
        if self._is_inside and self._since is None:
            self._since = now

    @property
    def is_running(self) -> bool:
        """Whether the clock runs."""
        return self._since is not None

    def time(self, now: float) -> float:
        """Return the listened time in seconds."""
        return self._total + (now - self._since if self._since is not None else 0.0)


class Marks:
    """Unhandled messages of one stream with `ack="handled"`.

    The *mark* of the stream is the sequence number of its first unhandled message.
    """

    __slots__ = ("_done", "_open")

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._done: set[int] = set()

    def add(self, sequence: int, count: int) -> None:
        """Record messages that have arrived."""
        self._open.extend(range(sequence, sequence + count))

    def handled(self, sequence: int) -> None:
        """Record that a message is handled. Messages may be handled in any order."""
        waiting = self._open
        if not waiting or not waiting[0] <= sequence <= waiting[-1]:
            return
        self._done.add(sequence)
        while waiting and waiting[0] in self._done:
            self._done.discard(waiting.popleft())

    def mark(self, expected: int) -> int:
        """Return the mark. If all messages are handled, return `expected`."""
        return self._open[0] if self._open else expected

    def remove_from(self, sequence: int) -> None:
        """Remove the messages from a sequence number on, because they will arrive again."""
        waiting = self._open
        while waiting and waiting[-1] >= sequence:
            self._done.discard(waiting.pop())


class Link:
    """Link to one publisher.

    Attributes:
        state: one of NEW, GREETING, LIVE and ENDED.
        session: id of the session.
        origin: id of the publisher's process; None before the first WELCOME.
        epoch: epoch of the session; `UNKNOWN_EPOCH` before the first WELCOME.
        attempt: attempt number of the current connection.
        expected: sequence number of the next message.
        answered: revision of the last ANSWER in this epoch.
        applied: revision that the publisher has applied, according to its last WELCOME, PING or ANSWER.
        drops: dict from stream numbers to the number of dropped messages that were reported in this epoch.
        delivered: number of messages that arrived in order.
        repeated: number of messages that arrived again.
        unwanted: number of messages that the publisher has withdrawn, or whose stream is unknown.
        malformed: number of frames that could not be decoded.
        ending: reason of the last BYE; None after a later WELCOME, or if there was no BYE.
        card: encoded description of a node, from the last WELCOME; empty if the publisher is not a node.
        is_ack_due: whether an ACK must be sent.
        idle: revision that the last PING reported as applied, if the PING reported no pending messages; otherwise 0.
            `drain` waits for this value.
    """

    # C code reads and writes these slots.
    __slots__ = (
        "__dict__", "__weakref__", "_ack_batches", "_ack_bytes", "_heard_at", "_live_at", "_unacked_batches",
        "_unacked_bytes", "delivered", "epoch", "expected", "origin",
    )  # fmt: skip

    def __init__(
        self,
        member: bytes,
        subscriptions: Subscriptions,
        new_id: Callable[[], bytes],
        *,
        resume_seconds: float = 30.0,
        largest_frame: int = 64 << 20,
        largest_window: int = 1_024,
        own_card: Callable[[], bytes] = bytes,
        declares_early: bool = True,
    ) -> None:
        """Start without a connection.

        Args:
            member: id of the subscriber, 16 bytes.
            subscriptions: subscriptions of the subscriber.
            new_id: function that returns a new session id, 16 bytes.
            resume_seconds: seconds for which the publisher keeps the session of a disconnected link.
            largest_frame: maximum size in bytes of a frame that the subscriber accepts.
            largest_window: maximum number of unacknowledged batches that the subscriber accepts.
            own_card: function that returns the encoded description of the node for the next HELLO.
            declares_early: whether the first connection of a session sends its subscriptions before WELCOME. Pass
                False if another link may reach the same publisher, because then queue groups would pick this session.
        """
        self._own_card, self.card = own_card, b""
        self._declares_early = declares_early
        self._member, self._subscriptions, self._new_id = member, subscriptions, new_id
        self._resume_seconds = resume_seconds
        self._largest_frame, self._largest_window = largest_frame, largest_window
        self.state = NEW
        self.attempt = 0
        self.origin: bytes | None = None
        self.ending: int | None = None
        self.delivered = self.repeated = self.unwanted = self.malformed = 0
        self._backoff = 1.0
        self._ignored_limit = silent_after(1)
        self._connected_at = self._hello_at = self._heard_at = self._live_at = self._retry_at = 0.0
        self._has_heard = False
        self._acked_at = float("-inf")
        self._hello: bytes | None = None
        self._declares: deque[bytes] = deque()
        self._bye: bytes | None = None
        self.is_ack_due = False
        self._sending = 0
        self._undo: tuple[Head, int | None] | None = None
        self._begin_session()

    def _begin_session(self) -> None:
        self.session = self._new_id()
        self._begin_epoch(links.UNKNOWN_EPOCH, 0)

    def _begin_epoch(self, epoch: bytes, first: int) -> None:
        self.epoch, self.expected = epoch, first
        self.answered = self.applied = self.idle = 0
        self._undo = None
        self.drops: dict[int, int] = {}
        self._unknown: dict[int, int] = {}
        self.reasons: dict[int, Drops] = {}
        self._marks: dict[int, Marks] = {}
        self._abandoned: list[tuple[int, int, int]] = []
        self._begin_connection()

    def _begin_connection(self) -> None:
        self._head: Head | None = None
        # Send all marks again, because the last ACK of the earlier connection may be lost.
        self._sent_marks: dict[int, int] = {}
        # This value makes the first PING cause an ACK.
        self._pings, self._beats = SLOW_PINGS, 1
        self._idle_ping: bytes | None = None
        self._declared = self._replaced_by = 0
        self._ignored: int | None = None
        self._ignored_since = 0.0
        self._unacked_batches = self._unacked_bytes = 0
        self._ack_batches, self._ack_bytes = 1, 1
        self.is_ack_due = False

    # connections

    def connect(self, listened: float) -> None:
        """Begin a new connection: queue HELLO and all subscriptions.

        These frames wait in libzmq until the connection is open. The publisher can receive them while the program does
        other work.

        Args:
            listened: time of the `ListeningClock` in seconds.
        """
        if self.state == ENDED:
            self._begin_session()
        self._connected_at = self._heard_at = listened
        self._has_heard = False
        self._greet(listened)
        if self._declares_early and self._subscriptions.by_sid:
            self._declares.extend(self._subscriptions.declaration(0)[0])
            self._declared = self._subscriptions.revision

    def _greet(self, listened: float) -> None:
        if self.attempt >= MAX_ATTEMPT:
            # The number can be reached, because each probe raises it, and a publisher may send many probes.
            self.attempt = 0
            self._begin_session()
        self.attempt += 1
        self._begin_connection()
        self._declares.clear()
        self.state, self._hello_again = GREETING, HELLO_AGAIN
        self._queue_hello(listened)

    def _queue_hello(self, listened: float) -> None:
        self._hello_at = listened
        self._hello = links.encode_hello(
            Hello(
                self.session, self._member, self.epoch, self.attempt, self.expected, self.answered,
                self._largest_frame, self._largest_window, self._own_card(),
            )
        )  # fmt: skip

    # frames to read

    def on_frame(self, frame: bytes, listened: float) -> list[Effect]:
        """Process a frame of the current connection.

        Args:
            frame: frame without the handle; empty for a probe.
            listened: time of the `ListeningClock` in seconds.

        Returns:
            Effects in order.
        """
        self._heard_at, self._has_heard = listened, True
        self._undo = self._idle_ping = None
        if self.state == LIVE:
            # A probe counts as well: a publisher was not absent only because the program did not read its frames.
            self._live_at = listened
        if not frame:
            if self.state == ENDED:
                self._begin_session()
            self._greet(listened)
            return []
        effects: list[Effect] = []
        kind = frame[0]
        try:
            if kind == links.JOINED:
                self._on_batch(links.decode_head(frame), frame, links.HEAD_BYTES, effects)
            elif kind == links.BATCH:
                self._head = head = links.decode_head(frame)
                if head.flags & links.WITHDRAWN:
                    self._head = None
                    self._on_batch(head, None, 0, effects)
            elif links.is_body(frame):
                if self._head is not None:
                    # Keep the head until the body is processed, because an interrupted body is processed again.
                    self._on_batch(self._head, frame, 0, effects)
                    self._head = None
            else:
                self._on_control(links.decode_control(frame), listened, effects)
                has_more = self._declares or self._marks or self._ignored is not None
                if kind == links.PING and not (effects or has_more):
                    self._idle_ping = frame
        except ProtocolError:
            self.malformed += 1
        return effects

    def repeats_ping(self, frame: bytes, listened: float) -> bool:
        """Process a frame that is equal to the last PING. Return False for any other frame, which needs `on_frame`.

        Most frames that idle nodes receive are repeated PINGs, and `on_frame` takes five times as long.

        Args:
            frame: frame of the current connection.
            listened: time of the `ListeningClock` in seconds.
        """
        if frame != self._idle_ping or self._pings >= SLOW_PINGS:
            return False
        self._pings += self._beats
        self._heard_at = self._live_at = listened
        return True

    def _on_batch(self, head: Head, frame: bytes | None, at: int, effects: list[Effect]) -> None:
        """Process a batch.

        Args:
            head: head of the batch.
            frame: frame with the body of the batch; None for a withdrawn batch.
            at: index in `frame` at which the body begins.
            effects: list to which effects are appended.
        """
        if self.state != LIVE:
            return
        sequence, count = head.sequence, head.count
        if sequence < self.expected:
            self.repeated += count
            return
        if sequence > self.expected:
            self._replace("the connection lost messages", effects)
            return
        self._undo = head, self.drops.get(head.stream)
        self._report_drops(head.stream, head.drops, effects)
        self.expected = sequence + count
        self._unacked_batches += 1
        options = self._subscriptions.options_of(head.stream)
        if frame is not None:
            self._unacked_bytes += len(frame) - at
        if frame is None or options is None:
            # The publisher has withdrawn the batch, or has used a stream number that was never declared.
            self.unwanted += count
        else:
            try:
                content = links.scan_body(frame, at, count)
                if content is None:
                    content = links.decode_body(frame[at:], count)
            except ProtocolError:
                self.malformed += 1
                effects.append(Gap(count, "malformed", head.stream))
            else:
                self.delivered += count
                if options.handled:
                    self._marks.setdefault(head.stream, Marks()).add(sequence, count)
                is_redelivered = bool(head.flags & links.REDELIVERED)
                effects.append(Messages(head.stream, sequence, head.positions(), content, is_redelivered))
        if self._unacked_batches >= self._ack_batches or self._unacked_bytes >= self._ack_bytes:
            self.is_ack_due = True

    def _report_drops(self, stream: int, drops: int, effects: list[Effect]) -> None:
        if self._subscriptions.options_of(stream) is None:
            return
        more = drops - self.drops.get(stream, 0)
        if more > 0:
            self.drops[stream] = drops
            effects.append(Gap(more, "dropped", stream))

    def _on_control(self, control: links.Control, listened: float, effects: list[Effect]) -> None:
        if isinstance(control, Welcome):
            self._on_welcome(control, listened, effects)
        elif isinstance(control, Ping):
            self._on_ping(control, listened, effects)
        elif isinstance(control, Answer):
            self._on_answer(control, effects)
        elif isinstance(control, Bye) and control.role == links.PUBLISHER:
            self._on_bye(control, listened, effects)

    def _on_welcome(self, welcome: Welcome, listened: float, effects: list[Effect]) -> None:
        if self.state not in (GREETING, LIVE) or welcome.attempt != self.attempt:
            return
        self._head = self._ignored = None
        is_repeated = self.state == LIVE and welcome.epoch == self.epoch
        before, self.origin = self.origin, welcome.origin
        self.card, self.ending = welcome.card, None
        if welcome.epoch == self.epoch:
            if welcome.first > self.expected:
                effects.append(Gap(welcome.first - self.expected, "lost"))
                self.expected = welcome.first
        else:
            if self._may_report:
                effects.append(Gap(None, "restarted", origin=None if before == self.origin else before))
            self._begin_epoch(welcome.epoch, welcome.first)
        self.state, self._backoff, self._live_at = LIVE, 1.0, listened
        self.applied = welcome.applied
        self._ack_batches = max(1, min(welcome.window // 4, ACK_BATCHES))
        self._ack_bytes = max(1, welcome.window_bytes // 4)
        if self.applied == self.answered == self._subscriptions.revision:
            self._declared = self.answered
        elif not is_repeated or self._declared != self._subscriptions.revision:
            self._declare_all()

    def _on_ping(self, ping: Ping, listened: float, effects: list[Effect]) -> None:
        if self.state != LIVE:
            return
        if ping.following > self.expected:
            self._replace("the connection lost messages", effects)
            return
        if self._pings >= SLOW_PINGS or self._unacked_batches or self._has_new_marks():
            self.is_ack_due = True
            self._pings = 0
        self._beats = ping.beats
        self._pings += ping.beats
        self.applied = ping.applied
        has_pending = any(drops.pending for drops in ping.streams.values())
        self.idle = 0 if has_pending else ping.applied
        self._report_unknown(ping.streams, effects)
        if ping.following == self.expected:
            self._apply_drops(ping.streams, effects)
        if ping.applied != self._subscriptions.revision and self._declared <= self.answered:
            self._declare_all()
        else:
            self._check_ignored(listened, effects, has_pending=has_pending)

    def _check_ignored(self, listened: float, effects: list[Effect], *, has_pending: bool) -> None:
        """Repeat HELLO if a DECLARE or an ACK has no effect. Replace the connection if HELLO has no effect either."""
        ignored = None
        if self._declared > self.answered:
            ignored = -1
        elif has_pending:
            # An earlier PING has made an ACK due. If the ACK had arrived, the publisher would send pending messages.
            ignored = self.expected
        if ignored is None:
            self._ignored, self._ignored_limit = None, silent_after(self._beats)
            return
        if ignored != self._ignored:
            self._ignored, self._ignored_since = ignored, listened
            return
        seconds = listened - self._ignored_since
        if self._hello_at > self._ignored_since and seconds >= self._ignored_limit:
            self._ignored_limit *= 2
            self._replace("the publisher receives nothing", effects)
        elif seconds >= HELLO_AGAIN:
            self._queue_hello(listened)

    def _report_unknown(self, streams: dict[int, Drops], effects: list[Effect]) -> None:
        for number, drops in streams.items():
            is_known = self._subscriptions.options_of(number) is not None
            if is_known and drops.unknown > self._unknown.get(number, 0):
                self._unknown[number] = drops.unknown
                effects.append(Gap(None, "dropped", number))

    def _apply_drops(self, streams: dict[int, Drops], effects: list[Effect]) -> None:
        for number, drops in streams.items():
            if not drops.pending and self._subscriptions.options_of(number) is not None:
                self.reasons[number] = drops
                self._report_drops(number, drops.dropped, effects)

    def _on_answer(self, answer: Answer, effects: list[Effect]) -> None:
        if self.state != LIVE:
            return
        if answer.refused is None:
            if not self._replaced_by:
                self._declare_all()
            return
        self._ignored = None
        self.answered = self.applied = answer.revision
        if self._replaced_by and answer.revision >= self._replaced_by:
            self._replaced_by = 0
        abandoned, self._abandoned = self._abandoned, []
        for revision, stream, sequence in abandoned:
            if revision <= answer.revision:
                self._marks[stream].handled(sequence)
            else:
                self._abandoned.append((revision, stream, sequence))
        effects.append(Refused(answer.revision, answer.refused, answer.position))

    def _on_bye(self, bye: Bye, listened: float, effects: list[Effect]) -> None:
        if self.state == LIVE:
            lost = bye.following - self.expected
            if lost > 0:
                effects.append(Gap(lost, "closed"))
            self._report_unknown(bye.streams, effects)
            for number, drops in bye.streams.items():
                self._report_drops(number, drops.dropped, effects)
            if bye.reason != links.CLOSED and self._may_report:
                # The publisher continues to publish. Messages before the next session get no numbers for this link.
                effects.append(Gap(None, "lost"))
        elif self.state == GREETING:
            if self._may_report:
                effects.append(Gap(None, "closed"))
        else:
            return
        self.ending = bye.reason
        self._end(listened)

    def _end(self, listened: float) -> None:
        self.state = ENDED
        self._retry_at = listened + self._backoff
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self._hello = self._bye = None
        self._declares.clear()
        self._begin_epoch(links.UNKNOWN_EPOCH, 0)

    def leave(self, listened: float) -> None:
        """End the session, because another link of the subscriber reaches the same publisher.

        After `MAX_BACKOFF` seconds, this link connects again, because the other link may have ended meanwhile.
        """
        bye = links.encode_bye(Bye(links.CLOSED, links.SUBSCRIBER, self.expected, {}))
        self._end(listened)
        self._bye, self._retry_at = bye, listened + MAX_BACKOFF

    def confirm_frame(self) -> None:
        """Record that the messages of the last frame were delivered. Afterwards `undo_frame` has no effect."""
        self._undo = None

    @property
    def undo_sequence(self) -> int | None:
        """Sequence number of the first message in the last frame; None without messages, or after `confirm_frame`."""
        return None if self._undo is None else self._undo[0].sequence

    def undo_frame(self) -> None:
        """Undo the effects of the last frame, because a signal handler has raised during its delivery.

        Afterwards the engine calls `on_frame` with the same frame again. A second call has no effect.
        """
        if self._undo is None:
            return
        head, drops = self._undo
        self.expected = head.sequence
        if drops is None:
            self.drops.pop(head.stream, None)
        else:
            self.drops[head.stream] = drops
        if head.stream in self._marks:
            self._marks[head.stream].remove_from(head.sequence)
        self._head = head
        self._undo = None

    def _replace(self, reason: str, effects: list[Effect]) -> None:
        self.state = NEW
        self._hello = None
        self._declares.clear()
        self._begin_connection()
        effects.append(Replace(reason))

    def disconnect(self) -> None:
        """Record that the engine has ended the connection. The engine calls `connect` later."""
        self._replace("", [])

    # subscriptions

    def declare(self) -> None:
        """Declare the changes of the subscriptions since the last declaration.

        The engine calls this method after each change. On the first connection of a session, the link declares without
        waiting for WELCOME. After WELCOME, the link declares all subscriptions again if the publisher has another
        revision.
        """
        revision = self._subscriptions.revision
        is_first = self._declares_early and self.state == GREETING and self.epoch == links.UNKNOWN_EPOCH
        if not (self.state == LIVE or is_first) or self._declared == revision:
            return
        self._idle_ping = None
        if self.state == LIVE and self._has_new_marks():
            # Send the marks first: when the publisher removes a subscription, other members get all messages above the
            # last mark.
            self.is_ack_due = True
        frames, is_full = self._subscriptions.declaration(self._declared)
        self._declares.extend(frames)
        self._declared = revision
        if is_full and not is_first:
            self._replaced_by = revision

    def _declare_all(self) -> None:
        if self._subscriptions.revision:
            self._declares.clear()
            self._declared = 0
            self.declare()

    @property
    def _may_report(self) -> bool:
        """Whether the publisher may have numbered messages that this link has not received.

        The result is False if the link has no subscriptions and the publisher has answered their removal, because this
        ANSWER arrives after all numbered messages.
        """
        subscriptions = self._subscriptions
        if self.epoch == links.UNKNOWN_EPOCH or not subscriptions.revision:
            return False
        return bool(subscriptions.by_sid) or self.answered != subscriptions.revision

    @property
    def may_have_lost(self) -> bool:
        """Whether the end of this link may lose messages: it had subscriptions, and the publisher sent no BYE."""
        return self._may_report and self.answered > 0 and self.ending is None

    @property
    def is_answered(self) -> bool:
        """Whether the publisher has answered the current subscriptions."""
        return self.state == LIVE and self.answered == self._subscriptions.revision

    # handled messages

    def handled(self, epoch: bytes, stream: int, sequence: int) -> None:
        """Record that a message is handled.

        Args:
            epoch: epoch of the link when the message arrived.
            stream: stream number of the message.
            sequence: sequence number of the message.
        """
        if epoch == self.epoch and stream in self._marks:
            self._marks[stream].handled(sequence)

    def abandon(self, epoch: bytes, stream: int, sequence: int) -> None:
        """Record that a message will not be handled, because its subscription has ended.

        Until the publisher has answered the current revision, the message stays unhandled, so that the publisher may
        send it to another member. Afterwards the message counts as handled. If the whole subscriber is drained, the
        message never counts as handled, and the publisher sends it to another member after BYE.

        Args:
            epoch: epoch of the link when the message arrived.
            stream: stream number of the message.
            sequence: sequence number of the message.
        """
        if epoch != self.epoch or stream not in self._marks or self._subscriptions.is_drained:
            return
        revision = self._subscriptions.revision
        if self.answered >= revision:
            self._marks[stream].handled(sequence)
        else:
            self._abandoned.append((revision, stream, sequence))

    # time

    def tick(self, listened: float) -> list[Effect]:
        """Run the steps that are due: replace or end the connection, or repeat HELLO.

        Args:
            listened: time of the `ListeningClock` in seconds.

        Returns:
            Effects in order.
        """
        effects: list[Effect] = []
        if self.state == LIVE:
            if listened - self._heard_at >= silent_after(self._beats):
                self._replace("the publisher is silent", effects)
        elif self.state == ENDED:
            if listened >= self._retry_at:
                self._retry_at = listened + self._backoff
                self._backoff = min(2 * self._backoff, MAX_BACKOFF)
                effects.append(Replace("the session has ended"))
        elif self.state == GREETING:
            self._tick_greeting(listened, effects)
        return effects

    def _tick_greeting(self, listened: float, effects: list[Effect]) -> None:
        is_known = self.epoch != links.UNKNOWN_EPOCH
        if is_known and listened - self._live_at >= self._resume_seconds + 2:
            if self._may_report:
                effects.append(Gap(None, "lost"))
            self._end(listened)
        elif self._has_heard and listened - self._heard_at >= silent_after(1):
            self._replace("the publisher is silent", effects)
        elif listened - self._connected_at >= WELCOME_WITHIN:
            self._replace("the publisher does not answer", effects)
        elif listened - self._hello_at >= self._hello_again and self._hello is None:
            # Wait longer each time, because a publisher may answer late when hundreds of links begin together.
            self._hello_again *= 2
            self._queue_hello(listened)

    def next_deadline(self) -> float:
        """Return the time at which the next `tick` is due, in seconds of the `ListeningClock`."""
        if self.state == LIVE:
            return self._heard_at + silent_after(self._beats)
        if self.state == ENDED:
            return self._retry_at
        return self._hello_at + self._hello_again if self.state == GREETING else float("inf")

    @property
    def ack_at(self) -> float:
        """Earliest time in seconds at which `before_wait` makes an ACK due; infinite if no ACK is needed."""
        if self.state == LIVE and (self._unacked_batches or self._has_new_marks()):
            return self._acked_at + ACK_AGE
        return float("inf")

    def before_wait(self, now: float) -> None:
        """Make an ACK due if messages are unacknowledged and the last ACK is older than `ACK_AGE`.

        The engine calls this before `receive` waits or returns.

        Args:
            now: time in seconds.
        """
        if (
            self.state == LIVE
            and now - self._acked_at >= ACK_AGE
            and (self._unacked_batches or self._has_new_marks())
        ):
            self.is_ack_due = True

    def _has_new_marks(self) -> bool:
        return bool(self._marks) and self._current_marks() != self._sent_marks

    def _current_marks(self) -> dict[int, int]:
        return {stream: marks.mark(self.expected) for stream, marks in self._marks.items()}

    # frames to send

    def next_frame(self) -> bytes | None:
        """Return the frame to send next, or None. The engine calls `confirm_sent` after the send."""
        if self._hello is not None:
            self._sending = links.HELLO
            return self._hello
        if self.is_ack_due and self.state == LIVE:
            self._sending = links.ACK
            self._sending_marks = self._current_marks()
            return links.encode_ack(self.expected, self._sending_marks)
        if self._declares:
            self._sending = links.DECLARE
            return self._declares[0]
        if self._bye is not None:
            self._sending = links.BYE
            return self._bye
        return None

    def confirm_sent(self, now: float) -> None:
        """Record that the socket has accepted the frame that `next_frame` returned last.

        Args:
            now: time in seconds.
        """
        if self._sending == links.HELLO:
            self._hello = None
        elif self._sending == links.DECLARE:
            self._declares.popleft()
        elif self._sending == links.BYE:
            self._bye = None
        else:
            self.is_ack_due = False
            self._unacked_batches = self._unacked_bytes = 0
            self._acked_at, self._sent_marks = now, self._sending_marks

    def close(self) -> None:
        """Queue a BYE, and a last ACK if the link is LIVE. Afterwards the link sends only these frames."""
        self._declares.clear()
        if self.state in (GREETING, LIVE):
            self.is_ack_due = True
            self._bye = links.encode_bye(Bye(links.CLOSED, links.SUBSCRIBER, self.expected, {}))
