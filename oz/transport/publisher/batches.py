"""Sending batches, and what becomes of those for which a subscriber has no room.

Whoever calls holds the publisher's guard.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import Any

import zmq

from oz.protocol.publisher.batching import Batch, sticky_key
from oz.protocol.publisher.batching import split as split_accumulated
from oz.protocol.publisher.recipients import Recipients
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.send_buffer import Passing, SendBuffer, send_buffer_of
from oz.protocol.publisher.stream import OutStream
from oz.transport.frames import send_frames
from oz.wire.batch import LARGE, head_end, pack_array

_send = zmq.backend.Socket.send
_set = zmq.backend.Socket.set
_get = zmq.backend.Socket.get
_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_NODROP = int(zmq.XPUB_NODROP)

MAX_BATCH = 256
"""Messages in one batch, unless said otherwise."""

PLAIN, RICH, CONTROL, LAST_VALUES, LAST_VALUES_RICH = range(5)
"""Places in `OutStream.heads`."""

_BUFFERED = ("conflate", "drop_oldest")
"""What a publisher holds messages back for; the others are dropped, or wait in the way of everybody."""

PATIENCE = 1.0
"""Seconds that what is held, or may go to another member of a group, waits for the fullest of several
connections before that one is left out."""


class Batches:
    """Sends accumulated messages to the streams of their recipients.

    Attributes:
        full: streams for which something waits until there is room, and since when, in monotonic seconds.
        is_blocked: one of them holds up the publisher.
        left_out_at: when a connection was left out last, in monotonic seconds; see `_leave_out`.
        size: bytes of the largest batch of the last flush.
    """

    __slots__ = ("_drops", "_is_lossless", "_passing", "_router", "full", "is_blocked", "left_out_at", "size")

    def __init__(self, router: Router, *, drops: bool) -> None:
        """Start with nothing to send.

        Args:
            router: the interests.
            drops: whether a full subscriber is passed over; otherwise it holds up the publisher.
        """
        self._router = router
        self._drops = drops
        self._is_lossless = not drops
        self._passing = Passing()
        self.full: dict[OutStream, float] = {}
        self.is_blocked = False
        self.left_out_at = -inf
        self.size = 0

    def send(self, socket: Any, accumulated: list[Any], *, is_rich: bool) -> None:
        """Send what was published; see `packing.STEP`.

        Args:
            socket: the publisher.
            accumulated: recipients, subject and payload in turn.
            is_rich: whether some payload is not plain bytes.
        """
        self.make_lossless(socket)
        self.size = 0
        batches = split_accumulated(accumulated)
        self._passing = Passing(batches)
        for batch in batches:
            self._send_batch(socket, batch, is_rich=is_rich)

    def lose_count(self) -> None:
        """Count anew on every stream: subscribers learn that something is lost, but not how much."""
        for stream in list(self._router.streams.values()):
            self._router.renumber(stream)
        self.full.clear()
        self.is_blocked = False

    def skip(self, count: int | None) -> None:
        """Count messages that were lost before they came here: subscribers find them missing.

        Args:
            count: how many; None when nobody knows, and subscribers learn just that.
        """
        if count is None:
            self.lose_count()
            return
        groups: set[str] = set()
        for stream in sorted(self._router.counted(), key=lambda one: one.joined):
            # Only one member of a group would have been given each: the senior one stands for all.
            if stream.delivery.group not in groups:
                stream.sequence += count
            if stream.delivery.group:
                groups.add(stream.delivery.group)

    def send_alone(self, socket: Any, recipients: Recipients, subject: bytes, payload: bytes) -> None:
        """Send one message: what `send` does, the short way."""
        if not recipients.is_simple:
            self.send(socket, [recipients, subject, payload], is_rich=False)
            return
        if not self._is_lossless:
            self.make_lossless(socket)
        items = [subject, payload]
        body = pack_array(items)
        for stream in recipients.streams:
            sequence = stream.sequence
            if stream.vanished_at is None and not stream.is_full:
                stream.sequence = sequence + 1
                try:
                    _send(socket, stream.heads[0] + head_end(sequence, 1) + body, _NOBLOCK)
                except zmq.Again:
                    stream.sequence = sequence
                else:
                    continue
            self._send_batch(socket, Batch(stream).whole(body, items), is_rich=False)

    def send_large(self, socket: Any, accumulated: list[Any]) -> None:
        """Send one message whose payload is large, as a frame of its own and without copying it."""
        recipients, subject, payload = accumulated
        self._passing = Passing()
        self.make_lossless(socket)
        attached = payload[0] if isinstance(payload, list) else payload
        item = [subject, [None, payload[1]] if isinstance(payload, list) else None]
        body = pack_array(item)
        streams = [
            *recipients.streams,
            *(one.now(subject).pick(sticky_key(subject, payload)) for one in recipients.choices),
        ]
        for stream in streams:
            if stream.is_full:
                self._retry(socket, stream)
            frames = (self._head(stream, RICH, stream.sequence, 1) + body, attached)
            if not stream.is_full and self._try(socket, stream, frames):
                stream.sequence += 1
            elif stream.delivery.group or stream.delivery.overflow in _BUFFERED:
                # Within a batch, which can be held back or passed on.
                whole = [subject, payload]
                self._send_batch(socket, Batch(stream).whole(pack_array(whole), whole), is_rich=True)
            else:
                self._overflow(socket, stream, 1, frames)
                stream.sequence += 1

    @staticmethod
    def _head(stream: OutStream, kind: int, sequence: int, count: int) -> bytes:
        return stream.heads[kind] + head_end(sequence, count)

    def make_lossless(self, socket: Any) -> None:
        """Make ZeroMQ say when there is no room, so that every drop is known."""
        if not self._is_lossless:
            _set(socket, _NODROP, 1)
            self._is_lossless = True

    def make_lossy(self, socket: Any) -> None:
        """Make ZeroMQ drop messages for a plain subscriber without room, if that is the publisher's way."""
        if self._is_lossless and self._drops:
            _set(socket, _NODROP, 0)
            self._is_lossless = False

    def _send_batch(self, socket: Any, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.delivery.group:
            self._passing.begin(batch)
        if stream.is_full:
            self._retry(socket, stream)
        if batch.items is not None and stream.is_full and self._buffer(stream, batch.items):
            return
        if stream.delivery.overflow in _BUFFERED:
            self._send_or_buffer(socket, batch, is_rich=is_rich)
            if stream.delivery.group:
                self._passing.note(batch)
            return
        frame = self._head(stream, RICH if is_rich else PLAIN, stream.sequence, batch.count) + batch.body
        self.size = max(self.size, len(frame))
        if not self._try(socket, stream, (frame,)):
            if stream.delivery.group:
                self._send_to_others(socket, batch)
                return
            self._overflow(socket, stream, batch.count, (frame,))
        stream.sequence += batch.count
        if stream.delivery.group:
            self._passing.note(batch)

    def _send_or_buffer(self, socket: Any, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.vanished_at is not None:
            stream.sequence += batch.count
            return
        frame = self._head(stream, RICH if is_rich else PLAIN, stream.sequence, batch.count) + batch.body
        try:
            send_if_it_fits(socket, (frame,))
        except zmq.Again:
            assert batch.items is not None
            self._buffer(stream, batch.items)
            self._fill(stream)
        else:
            stream.sequence += batch.count

    def _buffer(self, stream: OutStream, items: list[Any]) -> bool:
        """Hold messages back, if the stream's delivery options say so."""
        send_buffer: SendBuffer | None = send_buffer_of(stream)
        if send_buffer is None:
            return False
        self._router.stats.missed += send_buffer.put(stream, items)
        return True

    def _try(self, socket: Any, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send frames that are numbered; tell whether there was room, or nobody is there to miss them."""
        if stream.vanished_at is not None:
            return True
        if stream.is_gone:
            return not stream.delivery.group
        if not stream.unsent:
            if monotonic() - stream.left_out_at < PATIENCE:
                # Who is left out is back only when libzmq has looked.
                _get(socket, _EVENTS)
            try:
                send_if_it_fits(socket, frames)
            except zmq.Again:
                pass
            else:
                return True
            # One of a group is passed over; but not for ever, for a connection that may be dead.
            is_due = stream.delivery.group and monotonic() - stream.left_out_at >= PATIENCE
            if is_due and self._leave_out(socket, stream, frames):
                return True
        self._fill(stream)
        return False

    def _overflow(
        self,
        socket: Any,
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
                self._leave_out(socket, stream, frames)
        else:
            stream.unsent.append(frames)
            self.is_blocked |= not self._drops and _blocks(stream)

    def _send_to_others(self, socket: Any, batch: Batch) -> None:
        """Return what a member of a queue group has no room for to others; the rest is its own after all."""
        full = batch.stream
        must_go = full.is_gone
        if full.delivery.policy != "round_robin" and not (full.is_closing or must_go):
            # Whoever relies on one member would see its messages overtaken at another.
            self._keep_own(socket, batch, must_wait=False)
            return
        members = [
            one
            for one in self._router.streams.values()
            if one.delivery.group == full.delivery.group
            and not (one.is_full or one.is_closing or one is full)
        ]
        follow, waits, rest = self._passing.share(batch, members, must_go=must_go)
        self._keep_own(socket, waits, must_wait=True)
        self._keep_own(socket, rest, must_wait=False)
        for one in follow:
            self._send_batch(socket, one, is_rich=True)

    def _keep_own(self, socket: Any, batch: Batch, *, must_wait: bool) -> None:
        """Have a member of a queue group that has no room keep its messages: they wait, or overflow."""
        stream, count = batch.stream, batch.count
        if not count or stream.is_gone:
            return
        frame = self._head(stream, RICH, stream.sequence, count) + batch.body
        stream.sequence += count
        self._overflow(socket, stream, count, (frame,), must_wait=must_wait)
        self._passing.note(batch)

    def _fill(self, stream: OutStream) -> None:
        stream.is_full = True
        self.full.setdefault(stream, monotonic())

    def _leave_out(self, socket: Any, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send frames to those of several connections that have room; tell whether there are several.

        libzmq refuses a message that must not be dropped if one connection of many that listen on its key is
        full: those who share a pattern, or the dead connection of a subscriber that has come back by another.
        When it may drop, it does so for that connection only, and leaves it out until it can be written.
        Whoever is there finds by the numbers what was missed. With `on_full` other than `"drop"` all wait.
        """
        if not (self._drops and stream.has_several):
            return False
        _set(socket, _NODROP, 0)
        self._is_lossless = False
        send_frames(socket, frames, _NOBLOCK, copy=len(frames[-1]) < LARGE)
        self.make_lossless(socket)
        self.left_out_at = stream.left_out_at = monotonic()
        return True

    # when there is room again ----------------------------------------------------------------------------

    def retry(self, socket: Any) -> None:
        """Send what waits for room, as far as there is some."""
        if not self.full:
            return
        self.make_lossless(socket)
        for stream in list(self.full):
            self._retry(socket, stream)

    def _retry(self, socket: Any, stream: OutStream) -> None:
        if stream.is_gone or stream.vanished_at is not None:
            stream.unsent.clear()
        try:
            while stream.unsent:
                self._send_waiting(socket, stream, stream.unsent[0])
                stream.unsent.popleft()
            while stream.send_buffer and not stream.is_gone:
                self._send_buffered(socket, stream)
        except zmq.Again:
            pass
        else:
            stream.is_full = False
            self.full.pop(stream, None)
        self.is_blocked = self.is_blocked and any(_blocks(one) for one in self.full)

    def _send_waiting(self, socket: Any, stream: OutStream, frames: tuple[bytes, ...]) -> None:
        """Send what has waited for room; not for ever for one connection of several, which may be dead.

        Raises:
            zmq.Again: there is none yet.
        """
        try:
            send_if_it_fits(socket, frames)
        except zmq.Again:
            since = max(self.full.get(stream, inf), stream.left_out_at)
            if monotonic() - since < PATIENCE or not self._leave_out(socket, stream, frames):
                raise

    def _send_buffered(self, socket: Any, stream: OutStream) -> None:
        sequence, items = stream.send_buffer.take(stream, MAX_BATCH)
        count = len(items) // 2
        is_rich = any(type(payload) is not bytes for payload in items[1::2])
        if stream.vanished_at is None:
            frame = self._head(stream, RICH if is_rich else PLAIN, sequence, count) + pack_array(items)
            self._send_waiting(socket, stream, (frame,))
        if stream.delivery.overflow == "conflate":
            stream.sequence += count
        stream.send_buffer.drop(count)


def _blocks(stream: OutStream) -> bool:
    """Tell whether the publisher has to wait for a stream; one with an `overflow` never holds anybody up."""
    return bool(stream.unsent) and stream.delivery.overflow is None


def send_if_it_fits(socket: Any, frames: tuple[bytes, ...]) -> None:
    """Send the frames of one message.

    libzmq hears of room that has come only now and then while it sends. Before anything is dropped it is
    made to look: asking for its events does.

    Raises:
        zmq.Again: there is no room.
    """
    copy = len(frames[-1]) < LARGE
    try:
        send_frames(socket, frames, _NOBLOCK, copy=copy)
    except zmq.Again:
        _get(socket, _EVENTS)
        send_frames(socket, frames, _NOBLOCK, copy=copy)
