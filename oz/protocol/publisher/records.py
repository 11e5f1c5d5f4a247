"""Records: the answers, heartbeats, goodbyes and last values that a publisher sends beside batches."""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from oz.protocol.publisher.batches import MAX_BATCH, Batches
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.sink import Clock, Sink
from oz.protocol.publisher.stream import CONTROL, LAST_VALUES, LAST_VALUES_RICH, OutStream
from oz.wire.batch import pack_array, pack_chunk, pack_control

HEARTBEAT = 1.0
"""Seconds between two records of where each stream stands; of a node, between two to each subscriber."""

RECORD_PATIENCE = 0.25
"""Seconds for which a record waits for the fullest of several connections before that one is left out."""

MOST_REFUSED = 512
"""Streams without room after which a round of heartbeats ends; the next one goes on with the others."""

_GOODBYE = pack_control(bye=True)


class Records:
    """Tells streams where they stand, and gives the last values that were asked for.

    Attributes:
        beats_at: when the next heartbeat is due, in monotonic seconds.
        is_halfway: some streams were told where they stand and others found no room: worth trying again soon.
    """

    __slots__ = (
        "_batches",
        "_clock",
        "_last_values",
        "_router",
        "_sink",
        "_telling",
        "_unnotified",
        "beats_at",
        "is_halfway",
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
        self._last_values = last_values
        self._telling: OrderedDict[OutStream, None] = OrderedDict()
        self._unnotified: dict[OutStream, None] | None = None
        self.beats_at = 0.0
        self.is_halfway = False

    @property
    def left_out_at(self) -> float:
        """When a connection was left out last, in monotonic seconds; see `Batches.leave_out`."""
        return self._batches.left_out_at

    def answer(self) -> None:
        """Tell streams where they stand, and give the last values that were asked for."""
        router = self._router
        before = len(router.to_answer)
        if router.to_answer:
            if any(stream.send_buffer for stream in router.to_answer):
                # It goes out first: see `_can_be_answered`.
                self._batches.retry()
            self._sink.make_lossless()
            # Shared patterns first: their numbers must be known when the declaration is answered.
            for stream in sorted(router.to_answer, key=lambda one: not one.is_shared):
                body = b"" if stream.is_shared else _answer(stream)
                if _can_be_answered(stream) and self._tell_in_time(stream, body):
                    router.to_answer.pop(stream, None)
        waiting, router.to_serve = router.to_serve, []
        for stream, number in waiting:
            if _has_numbered(stream) and number in stream.chunks:
                # What is held must go first.
                router.to_serve.append((stream, number))
            else:
                self._serve(stream, number)
        self.is_halfway |= 0 < len(router.to_answer) < before

    def beat(self, now: float) -> None:
        """Tell every stream its sequence, when that is due: it shows up what was lost last.

        A stream for which there is no room is told as soon as there is, those first that wait for longest: a
        connection that carries more streams than its high-water mark has room for a part of them only.
        """
        if now >= self.beats_at:
            router = self._router
            self.beats_at = router.next_beat(now, HEARTBEAT)
            router.expire(now)
            # Whoever is left out misses what is sent on other streams as well: docs/decisions/031.
            has_left_out = self.left_out_at != -inf
            self._telling.update(dict.fromkeys(router.streams.values() if has_left_out else router.to_tell()))
        if self._telling:
            self._say_where()

    def next_deadline(self, now: float) -> float | None:
        """Say when something is due that no news tells of, in monotonic seconds; None is never."""
        if self._telling or self._router.to_answer or self._router.to_serve:
            # No room for it so far, and a sink gives no sign when there is.
            return now + RECORD_PATIENCE
        return self.beats_at if self._router.streams else None

    def _say_where(self) -> None:
        self._sink.make_lossless()
        refused: list[OutStream] = []
        count, left_out_at = len(self._telling), self.left_out_at
        # Once somebody was left out, others may be too for a moment: what is sent now could be lost on them.
        while self._telling and len(refused) < MOST_REFUSED and self.left_out_at == left_out_at:
            stream, _ = self._telling.popitem(last=False)
            # What is still unsent tells where it stands when it goes.
            if not stream.is_gone and _can_be_notified(stream) and not self._tell_in_time(stream, b""):
                refused.append(stream)
        self._telling.update(dict.fromkeys(refused))
        self.is_halfway |= 0 < len(self._telling) < count

    def say_goodbye(self) -> bool:
        """Tell every stream its sequence, and that nothing more comes; once each, as soon as there is room.

        Returns:
            Whether all have been told that are there.
        """
        self._sink.make_lossless()
        if self._unnotified is None:
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
        if self._sink.try_send(frames):
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
        return (stream.head(CONTROL, sequence, 0) + body,)

    def _serve(self, stream: OutStream, number: int) -> None:
        chunk = stream.chunks.get(number)
        if chunk is None or self._last_values is None:
            return
        items = self._last_values.match(chunk.patterns)
        for at in range(0, len(items), 2 * MAX_BATCH):
            part = items[at : at + 2 * MAX_BATCH]
            count, sequence = len(part) // 2, stream.sequence
            is_rich = any(type(payload) is not bytes for payload in part[1::2])
            kind = LAST_VALUES_RICH if is_rich else LAST_VALUES
            stream.sequence += count
            frame = stream.head(kind, sequence, count) + pack_chunk(number) + pack_array(part)
            self._sink.make_lossless()
            if not self._batches.try_send(stream, (frame,)):
                self._batches.overflow(stream, count, (frame,), must_wait=True)


def _answer(stream: OutStream) -> bytes:
    return pack_control(
        live=list(stream.chunks), refused=dict(stream.refused), paths=max(1, stream.listeners)
    )


def _has_numbered(stream: OutStream) -> bool:
    """Tell whether a stream holds messages back that have their numbers already."""
    return bool(stream.send_buffer) and stream.send_buffer.is_numbered


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
