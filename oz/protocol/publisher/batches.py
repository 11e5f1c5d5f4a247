"""Sending batches, and what becomes of those for which a subscriber has no room."""

from __future__ import annotations

from math import inf
from typing import Any

from oz.protocol.publisher.backlog import WATCHED_FROM
from oz.protocol.publisher.batching import STEP, Batch, split, sticky_key
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.on_their_way import OnTheirWay
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.send_buffer import SEND_BUFFERS, Passing, send_buffer_of
from oz.protocol.publisher.sink import Clock, Sink
from oz.protocol.publisher.stream import PLAIN, RICH, OutStream
from oz.wire.batch import MAX_COUNT, head_end, pack_array

MAX_BATCH = 512
"""Messages in one batch, unless said otherwise."""

PATIENCE = 1.0
"""Seconds that what is held, or may go to another member of a group, waits for the fullest of several
connections before that one is left out."""


class Batches:
    """Sends accumulated messages to the streams of their recipients.

    Attributes:
        full: streams for which something waits until there is room, and since when, in monotonic seconds.
        is_blocked: one of them holds up the publisher.
        left_out_at: when a connection was left out last, in monotonic seconds; see `leave_out`.
        size: bytes of the largest batch of the last flush.
        position: that of the message which is sent next, whoever gets it.
    """

    __slots__ = (
        "_clock",
        "_doubtful",
        "_drops",
        "_on_their_way",
        "_passing",
        "_router",
        "_sink",
        "full",
        "is_blocked",
        "left_out_at",
        "make_lossy",
        "position",
        "size",
    )

    def __init__(self, router: Router, sink: Sink, clock: Clock, *, drops: bool) -> None:
        """Start with nothing to send.

        Args:
            router: the interests.
            sink: takes the frames.
            clock: what time it is.
            drops: whether a full subscriber is passed over; otherwise it holds up the publisher.
        """
        self._router = router
        self._sink = sink
        # Bound, as each plain message calls it.
        self.make_lossy = sink.make_lossy
        self._clock = clock
        self._drops = drops
        self._passing = Passing()
        self._on_their_way = OnTheirWay(router.stats)
        # What is being sent of a send buffer: it stays there until that is done.
        self._doubtful: tuple[OutStream, int, tuple[bytes, ...]] | None = None
        self.full: dict[OutStream, float] = {}
        self.is_blocked = False
        self.left_out_at = -inf
        self.size = 0
        self.position = 0

    def send(self, accumulated: list[Any], first: int, *, is_rich: bool) -> None:
        """Send what was published; see `batching.STEP`.

        Args:
            accumulated: recipients, subject and payload in turn.
            first: the position of the first message; `position` is behind that of the last already, so that
                what is cut short gives none of them again.
            is_rich: whether some payload is not plain bytes.
        """
        self._sink.make_lossless()
        self.size = 0
        self._on_their_way.begin(accumulated[0::STEP], first)
        batches = split(accumulated, first)
        self._passing = Passing(batches)
        for batch in batches:
            self._send_batch(batch, is_rich=is_rich)
        self._on_their_way.end()

    def lose_count(self) -> None:
        """Count anew on every stream: subscribers learn that something is lost, but not how much."""
        # Positions were perhaps given to last values, of what was taken out to be sent and was not.
        self.position += MAX_COUNT
        for stream in list(self._router.streams.values()):
            if stream.has_messages and not self._is_over(stream):
                self._router.renumber(stream)
        self.full.clear()
        self.is_blocked = False

    def skip(self, count: int | None, recipients: Recipients | None = None) -> None:
        """Count messages that were lost before they came here: subscribers find them missing.

        Args:
            count: how many; None when nobody knows, and subscribers learn just that.
            recipients: those that they were for; None where that is not known, and may be everybody.
        """
        if count is None:
            self.lose_count()
            return
        self.position += count
        groups: set[str] = set()
        counted = self._router.counted() if recipients is None else recipients.all_streams
        for stream in sorted(counted, key=lambda one: one.joined):
            if self._is_over(stream):
                continue
            # Only one member of a group would have been given each: the senior one stands for all.
            if stream.delivery.group not in groups:
                stream.sequence += count
            if stream.delivery.group:
                groups.add(stream.delivery.group)

    def _is_over(self, stream: OutStream) -> bool:
        """Tell whether a stream has said goodbye and was told that this is all: nothing of it is lost."""
        return stream.is_closing and stream not in self._router.to_answer

    def _has_left(self, stream: OutStream) -> bool:
        """Tell whether a stream gets nothing more: a message was on its way to it."""
        return stream.is_gone or (stream.is_closing and self._is_over(stream))

    def send_alone(self, recipients: Recipients, subject: bytes, payload: Any) -> None:
        """Send one message: what `send` does, the short way."""
        is_rich = type(payload) is not bytes
        position = self.position
        self.position = position + 1
        if not recipients.is_simple:
            self.send([recipients, subject, payload], position, is_rich=is_rich)
            return
        body = pack_array(items := [subject, payload])
        self._sink.make_lossless()
        is_small = len(body) < WATCHED_FROM
        for stream in recipients.streams:
            sequence = stream.sequence
            is_plain = not stream.is_shared and stream.vanished_at is None and not stream.is_full
            if is_small and is_plain and not (stream.is_closing or stream.is_gone):
                stream.sequence = sequence + 1
                head = stream.heads[is_rich] + head_end(sequence, 1, position)
                if self._sink.try_send_one(head + body):
                    continue
                stream.sequence = sequence
            self._on_their_way.begin_alone(recipients, position)
            self._send_batch(Batch(stream).whole(body, items, (position,)), is_rich=is_rich)
        self._on_their_way.end()

    def send_large(self, accumulated: list[Any]) -> None:
        """Send one message whose payload is large, as a frame of its own and without copying it."""
        recipients, subject, payload = accumulated
        self._passing = Passing()
        self._on_their_way.begin([recipients], self.position)
        self._sink.make_lossless()
        attached = payload[0] if isinstance(payload, list) else payload
        item = [subject, [None, payload[1]] if isinstance(payload, list) else None]
        body, positions = pack_array(item), (self.position,)
        self.position += 1
        streams = [
            *recipients.streams,
            *(one.now(subject).pick(sticky_key(subject, payload)) for one in recipients.choices),
        ]
        for stream in streams:
            if not stream.delivery.group and self._has_left(stream):
                self._on_their_way.count_left(positions)
                continue
            if stream.is_full:
                self._retry(stream)
            takes = not (stream.is_full or (stream.delivery.group and self._has_left(stream)))
            frames = (*stream.frames(RICH, stream.sequence, positions, body), attached)
            if takes and self.try_send(stream, frames):
                stream.sequence += 1
            elif stream.delivery.group or stream.delivery.overflow in SEND_BUFFERS:
                # Within a batch, which can be held back or passed on.
                whole = [subject, payload]
                self._send_batch(Batch(stream).whole(pack_array(whole), whole, positions), is_rich=True)
            else:
                self.overflow(stream, 1, frames)
                stream.sequence += 1
        self._on_their_way.end()

    def _send_batch(self, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.delivery.group:
            self._passing.begin(batch)
            if self._has_left(stream):
                self._send_to_others(batch)
                return
        elif self._has_left(stream):
            self._on_their_way.count_left(batch.positions)
            return
        if stream.is_full:
            self._retry(stream)
        if stream.is_full and self._buffer(batch):
            return
        if stream.delivery.overflow in SEND_BUFFERS:
            self._send_or_buffer(batch, is_rich=is_rich)
            if stream.delivery.group:
                self._passing.note(batch)
            return
        frames = stream.frames(RICH if is_rich else PLAIN, stream.sequence, batch.positions, batch.body)
        self.size = max(self.size, len(frames[0]))
        if not self.try_send(stream, frames):
            if stream.delivery.group:
                self._send_to_others(batch)
                return
            self.overflow(stream, batch.count, frames)
        stream.sequence += batch.count
        if stream.delivery.group:
            self._passing.note(batch)

    def _send_or_buffer(self, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.vanished_at is not None:
            stream.sequence += batch.count
            return
        frames = stream.frames(RICH if is_rich else PLAIN, stream.sequence, batch.positions, batch.body)
        if self._sink.try_send(frames, stream.backlog):
            stream.sequence += batch.count
            return
        self._buffer(batch)
        self._fill(stream)

    def _buffer(self, batch: Batch) -> bool:
        """Hold messages back, if the delivery options of their stream say so."""
        send_buffer = send_buffer_of(batch.stream)
        if send_buffer is None or batch.items is None:
            return False
        self._router.stats.missed += send_buffer.put(batch.stream, batch.items, batch.positions)
        return True

    def try_send(self, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send frames that are numbered; tell whether there was room, or nobody is there to miss them."""
        if stream.vanished_at is not None:
            return True
        if stream.is_gone:
            return not stream.delivery.group
        if not stream.unsent:
            if self._clock() - stream.left_out_at < PATIENCE:
                # A connection that was left out is back only when the sink has looked.
                self._sink.look()
            if self._sink.try_send(frames, stream.backlog):
                return True
            # One of a group is passed over; but not for ever, for a connection that may be dead.
            is_due = stream.delivery.group and self._clock() - stream.left_out_at >= PATIENCE
            if is_due and self.leave_out(stream, frames):
                return True
        self._fill(stream)
        return False

    def overflow(
        self,
        stream: OutStream,
        count: int,
        frames: tuple[bytes, ...],
        *,
        must_wait: bool = False,
    ) -> None:
        """Do with frames that are numbered what is to be done when there is no room."""
        if not must_wait and (self._drops or stream.delivery.overflow == "drop_newest"):
            # Counted once: nobody can tell how many of several connections had no room.
            self._router.stats.missed += count
            if not stream.unsent:
                self.leave_out(stream, frames)
        else:
            stream.unsent.append(frames)
            self.is_blocked |= not self._drops and _blocks(stream)

    def _send_to_others(self, batch: Batch) -> None:
        """Return what a member of a queue group has no room for to others; the rest is its own after all."""
        full = batch.stream
        must_go = self._has_left(full)
        if full.delivery.policy != "round_robin" and not (full.is_closing or must_go):
            # Whoever relies on one member would see its messages overtaken at another.
            self._keep_own(batch, must_wait=False)
            return
        members = [
            one
            for one in self._router.streams.values()
            if one.delivery.group == full.delivery.group
            and not (one.is_full or one.is_closing or one is full)
        ]
        follow, waits, rest = self._passing.share(batch, members, must_go=must_go)
        self._keep_own(waits, must_wait=True)
        self._keep_own(rest, must_wait=False)
        for one in follow:
            self._send_batch(one, is_rich=True)

    def _keep_own(self, batch: Batch, *, must_wait: bool) -> None:
        """Have a member of a queue group that has no room keep its messages: they wait, or overflow."""
        stream, count = batch.stream, batch.count
        if not count:
            return
        if self._has_left(stream):
            if not self._router.lifetimes.count_lost(stream, count):
                self._on_their_way.count_left(batch.positions)
            return
        frames = stream.frames(RICH, stream.sequence, batch.positions, batch.body)
        stream.sequence += count
        self.overflow(stream, count, frames, must_wait=must_wait)
        self._passing.note(batch)

    def _fill(self, stream: OutStream) -> None:
        stream.is_full = True
        self.full.setdefault(stream, self._clock())

    def leave_out(self, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send frames to those of several connections that have room; tell whether there are several.

        A sink refuses a message if one of several connections that listen on its key has no room: of those
        who share a pattern, or the dead connection of a subscriber that has come back by another. Told to
        send past the full, it leaves out that connection alone, until it has looked for room. A subscriber
        that was left out finds by the numbers what it missed. With `on_full` other than `"drop"` all wait.
        """
        if not (self._drops and stream.has_several):
            return False
        self._sink.send_past_the_full(frames)
        self.left_out_at = stream.left_out_at = self._clock()
        return True

    # when there is room again ----------------------------------------------------------------------------

    def retry(self) -> None:
        """Send what waits for room, as far as there is some."""
        if not self.full:
            # It may still say so: a signal handler that raises cuts short what comes after the last.
            self.is_blocked = False
            return
        self._sink.make_lossless()
        for stream in list(self.full):
            self._retry(stream)

    def _retry(self, stream: OutStream) -> None:
        if stream.is_gone or stream.vanished_at is not None:
            stream.unsent.clear()
        if self._has_sent_all(stream):
            stream.is_full = False
            self.full.pop(stream, None)
        self.is_blocked = self.is_blocked and any(_blocks(one) for one in self.full)

    def _has_sent_all(self, stream: OutStream) -> bool:
        """Send what a stream has waiting, as far as there is room; tell whether that was all.

        What a signal handler cuts short may have gone, and goes again the next time: whoever has it passes
        over a frame that is the same to the last byte.
        """
        if self._doubtful is not None:
            self._settle(*self._doubtful)
        while stream.unsent:
            if not self._send_waiting(stream, stream.unsent[0]):
                return False
            stream.unsent.popleft()
        while stream.send_buffer and not stream.is_gone:
            if not self._send_buffered(stream):
                return False
        return True

    def _send_waiting(self, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send what has waited for room; not for ever for one connection of several, which may be dead."""
        if self._sink.try_send(frames, stream.backlog):
            return True
        since = max(self.full.get(stream, inf), stream.left_out_at)
        return self._clock() - since >= PATIENCE and self.leave_out(stream, frames)

    def _send_buffered(self, stream: OutStream) -> bool:
        sequence, items, positions = stream.send_buffer.take(stream, MAX_BATCH)
        is_rich = any(type(payload) is not bytes for payload in items[1::2])
        if stream.vanished_at is None:
            frames = stream.frames(RICH if is_rich else PLAIN, sequence, positions, pack_array(items))
            self._doubtful = stream, len(positions), frames
            if not self._send_waiting(stream, frames):
                self._doubtful = None
                return False
        stream.send_buffer.drop(stream, len(positions))
        self._doubtful = None
        return True

    def _settle(self, stream: OutStream, count: int, frames: tuple[bytes, ...]) -> None:
        """Send what was cut short again as it was, whatever comes into the send buffer meanwhile."""
        self._doubtful = None
        if stream.send_buffer:
            stream.send_buffer.drop(stream, count)
            stream.unsent.append(frames)


def _blocks(stream: OutStream) -> bool:
    """Tell whether the publisher has to wait for a stream; one with an `overflow` never holds anybody up."""
    return bool(stream.unsent) and stream.delivery.overflow is None
