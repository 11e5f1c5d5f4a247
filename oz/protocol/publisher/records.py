"""Records: the answers, heartbeats, goodbyes and last values that a publisher sends beside batches."""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import Any

from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.last_value_cache import LastValueCache, LastValueServing
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.sink import Clock, Sink
from oz.protocol.publisher.stream import LAST_VALUES, LAST_VALUES_RICH, OutStream, number_of
from oz.wire.batch import pack_array, pack_chunk, pack_control
from oz.wire.denials import fields_of

HEARTBEAT = 1.0
"""Seconds between two records of where each stream stands; of a node, between two to each subscriber."""

RECORD_PATIENCE = 0.25
"""Seconds for which a record waits for the fullest of several connections before that one is left out."""

MOST_REFUSED = 512
"""Streams without room after which a round of heartbeats ends; the next one goes on with the others."""

ANSWERED_AT_ONCE = 64
"""Chunks of a stream up to which each of its declarations is answered at once."""

ANSWER_RATE = 1_000_000
"""Bytes of answers in a second to a stream that has more: each names all that stand."""

ANSWER_TIME = 0.001
"""Seconds for which streams are answered at a time: one connection may have a thousand with many chunks."""

MOST_REASONS = 65_536
"""Characters of the reasons in one answer, roughly; then each is cut."""

MOST_TOLD = 512
"""Streams that are told at a time where they stand: a round to all takes a second with 100,000."""

CROWD_EVERY = 0.1
"""Seconds between two looks at the streams of connections that have more than a few."""

MOST_LOOKED_AT = 256
"""Of them as many are looked at each time, and told at once where something was sent."""

CROWD_TIME = 0.0004
"""Seconds of each look for the others, which are told in turn, each once a second at most."""

LONGEST_SERVED = 1.0
"""Seconds for which a publisher that closes gives last values, before it says goodbye."""

_GOODBYE = pack_control(bye=True)


class Records:
    """Tells streams where they stand, and gives the last values that were asked for.

    Attributes:
        beats_at: when the next heartbeat is due, in monotonic seconds.
        is_halfway: some streams were told where they stand and others found no room: worth trying again soon.
        telling: streams that are still to be told where they stand.
    """

    __slots__ = (
        "_answer_at",
        "_batches",
        "_clock",
        "_crowd",
        "_crowd_at",
        "_router",
        "_serving",
        "_sink",
        "_unnotified",
        "_untold",
        "beats_at",
        "is_halfway",
        "telling",
    )

    def __init__(
        self,
        router: Router,
        batches: Batches,
        last_values: LastValueCache | None,
        sink: Sink,
        clock: Clock,
    ) -> None:
        """Start with nobody to tell.

        Args:
            router: the interests.
            batches: sends messages on the same streams.
            last_values: the last values, if they are kept.
            sink: takes the frames; that of the batches.
            clock: what time it is.
        """
        self._router = router
        self._batches = batches
        self._sink = sink
        self._clock = clock
        self._serving: LastValueServing | None = None
        if last_values is not None:
            self._serving = LastValueServing(last_values, clock, self._give, _is_held)
            router.acceptance.kept = lambda: last_values.count
        self.telling: OrderedDict[OutStream, None] = OrderedDict()
        self._crowd: deque[OutStream] = deque()
        self._crowd_at = 0.0
        self._untold = 0
        self._answer_at = inf
        self._unnotified: dict[OutStream, None] | None = None
        self.beats_at = 0.0
        self.is_halfway = False

    @property
    def left_out_at(self) -> float:
        """When a connection was left out last, in monotonic seconds; see `Batches.leave_out`."""
        return self._batches.left_out_at

    def answer(self) -> None:
        """Tell streams where they stand, and give the last values that were asked for."""
        router, acceptance = self._router, self._router.acceptance
        before = len(router.to_answer)
        if router.to_answer:
            if any(stream.send_buffer for stream in router.to_answer):
                # It goes out first: see `_can_be_answered`.
                self._batches.retry()
            self._sink.make_lossless()
            self._answer_some(router.to_answer)
        waiting, acceptance.to_serve = acceptance.to_serve, []
        self.is_halfway |= 0 < len(router.to_answer) < before
        if self._serving is not None:
            for asked in waiting:
                self._serving.ask(*asked)
            self._serve()

    def _answer_some(self, to_answer: OrderedDict[OutStream, None]) -> None:
        """Answer streams for as long as a slice lasts; those that cannot be answered now come last."""
        now, self._answer_at = self._clock(), inf
        for _ in range(len(to_answer)):
            stream, _ = to_answer.popitem(last=False)
            if now < stream.answer_at:
                self._answer_at = min(self._answer_at, stream.answer_at)
                to_answer[stream] = None
            elif _can_be_answered(stream) and self._tell_in_time(
                stream, body := b"" if stream.is_shared else _answer(stream)
            ):
                stream.answer_at = now + _seconds_taken_by(stream, body)
            else:
                to_answer[stream] = None
            if self._clock() - now >= ANSWER_TIME:
                return

    def _serve(self) -> None:
        """Serve last values for a moment."""
        if self._serving:
            self.is_halfway |= self._serving.work()

    def beat(self, now: float) -> None:
        """Tell every stream its sequence, when that is due: it shows up what was lost last.

        A stream for which there is no room is told as soon as there is, those first that wait for longest: a
        connection that carries more streams than its high-water mark has room for a part of them only. Where
        it carries many, those on which nothing was sent wait for their turn.
        """
        router = self._router
        if now >= self.beats_at:
            self.beats_at = router.next_beat(now, HEARTBEAT)
            router.expire(now)
            # Whoever is left out misses what is sent on other streams as well: docs/decisions/031.
            has_left_out = self.left_out_at != -inf
            beating = router.lifetimes.beating if has_left_out else router.to_tell()
            self.telling.update(dict.fromkeys(beating))
            self._untold = len(router.lifetimes.crowd)
        if now >= self._crowd_at and router.lifetimes.crowd:
            self._crowd_at = now + CROWD_EVERY
            self._look_at_crowd(router.lifetimes.crowd)
        if self.telling:
            self._say_where()
        self._serve()

    def next_deadline(self, now: float) -> float | None:
        """Say when something is due that no news tells of, in monotonic seconds; None is never."""
        crowd_at = self._crowd_at if self._router.lifetimes.crowd else inf
        if self.telling or self._router.to_answer or self._serving:
            # No room for it so far, and a sink gives no sign when there is.
            return min(now + RECORD_PATIENCE, self._answer_at, crowd_at)
        return min(self.beats_at, crowd_at) if self._router.streams else None

    def _look_at_crowd(self, crowd: OrderedDict[OutStream, None]) -> None:
        """Find some of a crowd on which something was sent, and tell some others where they stand."""
        if not self._crowd:
            self._crowd.extend(crowd)
        for _ in range(min(len(self._crowd), MOST_LOOKED_AT)):
            stream = self._crowd.popleft()
            if stream.sequence != stream.recorded and not stream.is_gone:
                self.telling[stream] = None
        self._sink.make_lossless()
        began = self._clock()
        while self._untold and crowd and self._clock() - began < CROWD_TIME:
            self._untold -= 1
            stream = next(iter(crowd))
            crowd.move_to_end(stream)
            if not _can_be_notified(stream) or self._sink.try_send(
                self._standing(stream, b""), stream.backlog
            ):
                continue
            if len(self.telling) < MOST_TOLD:
                # Not at its next turn: where there is little room, it would never have any.
                self.telling[stream] = None

    def _say_where(self) -> None:
        self._sink.make_lossless()
        refused: list[OutStream] = []
        count, left_out_at = len(self.telling), self.left_out_at
        least = count - MOST_TOLD
        # Once somebody was left out, others may be too for a moment: what is sent now could be lost on them.
        while (
            len(self.telling) > max(0, least)
            and len(refused) < MOST_REFUSED
            and self.left_out_at == left_out_at
        ):
            stream, _ = self.telling.popitem(last=False)
            # What is still unsent tells where it stands when it goes.
            if not stream.is_gone and _can_be_notified(stream) and not self._tell_in_time(stream, b""):
                refused.append(stream)
        self.telling.update(dict.fromkeys(refused))
        self.is_halfway |= 0 < len(self.telling) < count

    def say_goodbye(self) -> bool:
        """Tell every stream its sequence, and that nothing more comes; once each, as soon as there is room.

        Returns:
            Whether all have been told that are there.
        """
        self._sink.make_lossless()
        if self._unnotified is None:
            ends = self._clock() + LONGEST_SERVED
            while self._serving and self._serving.work() and self._clock() < ends:
                pass
            self._unnotified = dict.fromkeys(self._router.streams.values())
        for stream in list(self._unnotified):
            if _is_absent(stream) or (
                _can_be_notified(stream) and self._sink.try_send(self._standing(stream, _GOODBYE))
            ):
                del self._unnotified[stream]
        return not self._unnotified

    def part_again(self) -> None:
        """Begin `say_goodbye` anew, as some may have been left out."""
        self._unnotified = None

    def part_with_the_rest(self) -> None:
        """Say goodbye where that was not done yet, to those who have room for it."""
        for stream in self._unnotified or ():
            if not _is_absent(stream) and _can_be_notified(stream):
                self._batches.leave_out(stream, self._standing(stream, _GOODBYE))

    def _tell_in_time(self, stream: OutStream, body: bytes) -> bool:
        """Send a record, and do not wait for ever for one connection of several; tell whether all got it.

        A subscriber that was left out is not told yet, and may be one that has no room just now.
        """
        frames = self._standing(stream, body)
        if self._sink.try_send(frames, stream.backlog):
            stream.refused_at = inf
            return True
        now = self._clock()
        stream.refused_at = min(stream.refused_at, now)
        if now - max(stream.refused_at, stream.left_out_at) >= RECORD_PATIENCE:
            self._batches.leave_out(stream, frames)
        return False

    def _standing(self, stream: OutStream, body: bytes) -> tuple[bytes, ...]:
        """Make a record of where a stream stands."""
        sequence = stream.sequence
        if _has_numbered(stream):
            # What is held is not lost.
            sequence = stream.send_buffer.take(stream, 0)[0]
        stream.recorded = sequence
        return stream.record(sequence, self._batches.position, body)

    def _give(self, stream: OutStream, place: int, items: list[Any], positions: list[int]) -> None:
        """Send some last values to a chunk that asked for them."""
        count, sequence = len(positions), stream.sequence
        is_rich = any(type(payload) is not bytes for payload in items[1::2])
        stream.sequence += count
        kind = LAST_VALUES_RICH if is_rich else LAST_VALUES
        frames = stream.frames(kind, sequence, positions, pack_array(items), pack_chunk(number_of(place)))
        self._sink.make_lossless()
        if not self._batches.try_send(stream, frames):
            self._batches.overflow(stream, count, frames, must_wait=True)


def _answer(stream: OutStream) -> bytes:
    refused = dict(stream.refused)
    denied = fields_of(refused)
    if sum(map(len, refused.values())) > MOST_REASONS:
        most = MOST_REASONS // len(refused)
        refused = {number: reason[:most] for number, reason in refused.items()}
    more = {"denied": denied} if denied else {}
    return pack_control(live=stream.live(), refused=refused, paths=max(1, stream.listeners), **more)


def _seconds_taken_by(stream: OutStream, answer: bytes) -> float:
    """Return after how long a stream that was answered may be answered again."""
    if len(stream.chunks) + len(stream.refused) <= ANSWERED_AT_ONCE:
        return 0.0
    return len(answer) / ANSWER_RATE


def _has_numbered(stream: OutStream) -> bool:
    """Tell whether a stream holds messages back that have their numbers already."""
    return bool(stream.send_buffer) and stream.send_buffer.is_numbered


def _is_held(stream: OutStream) -> bool:
    """Tell whether something waits on a stream that has its numbers already: it must go first."""
    return bool(stream.unsent) or _has_numbered(stream)


def _can_be_answered(stream: OutStream) -> bool:
    """Tell whether a stream can be told what became of its declarations: not before what waited then."""
    if not _can_be_notified(stream):
        return False
    return not stream.send_buffer or stream.send_buffer.take(stream, 0)[0] >= stream.answer_from


def _is_absent(stream: OutStream) -> bool:
    """Tell whether no connection has the stream."""
    return stream.is_gone or stream.vanished_at is not None


def _can_be_notified(stream: OutStream) -> bool:
    """Tell whether a stream can be told where it stands: not before what is unsent, which has its numbers."""
    if stream.vanished_at is not None or stream.unsent:
        return False
    # A subscriber that takes its leave is given what is still held before it is answered.
    return not (stream.is_closing and stream.send_buffer)
