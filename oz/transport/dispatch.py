"""Sending what is routed: batches, answers and heartbeats. Whoever calls holds the publisher's guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import zmq

from oz.protocol.audience import Audience
from oz.protocol.holding import Held, hold
from oz.protocol.outgoing import OutStream
from oz.protocol.packing import Batch, sticky_key
from oz.protocol.packing import split as split_window
from oz.protocol.retained import Retained
from oz.protocol.routing import Router
from oz.wire.batch import LARGE, head_end, pack_array, pack_chunk, pack_control

_send = zmq.backend.Socket.send
_set = zmq.backend.Socket.set
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE)
_NODROP = int(zmq.XPUB_NODROP)

HEARTBEAT = 1.0
"""Seconds between two records of where each stream stands."""

MAX_BATCH = 256
"""Messages in one batch, unless said otherwise."""

BATCH_BYTES = 65_536
"""Size that batches are held to, by taking fewer messages when those are large."""

_PLAIN, _RICH, _CONTROL, _RETAINED, _RETAINED_RICH = range(5)


class Dispatch:
    """Sends windows of published messages to the streams of their audiences.

    Attributes:
        full: streams for which something waits until there is room.
        is_blocked: one of them holds up the publisher.
        beats_at: when the next heartbeat is due, in monotonic seconds.
        size: bytes of the largest batch of the last window.
    """

    __slots__ = ("_drops", "_is_lossless", "_retained", "_router", "beats_at", "full", "is_blocked", "size")

    def __init__(self, router: Router, retained: Retained | None, *, drops: bool) -> None:
        """Start with nothing to send.

        Args:
            router: the interests.
            retained: the last values, if they are kept.
            drops: whether a full subscriber is passed over; otherwise it holds up the publisher.
        """
        self._router = router
        self._retained = retained
        self._drops = drops
        self._is_lossless = not drops
        self.full: dict[OutStream, None] = {}
        self.is_blocked = False
        self.beats_at = 0.0
        self.size = 0

    # batches ---------------------------------------------------------------------------------------------

    def send(self, socket: Any, window: list[Any], *, is_rich: bool) -> None:
        """Send what was published; see `packing.STEP`.

        Args:
            socket: the publisher.
            window: audience, subject and payload in turn.
            is_rich: whether some payload is not plain bytes.
        """
        self.make_lossless(socket)
        batches = split_window(window)
        self.size = 0
        done = 0
        try:
            for batch in batches:
                done += 1
                self._send_batch(socket, batch, is_rich=is_rich)
        finally:
            # Cut short, by a signal handler that raises: what was not sent shows as a gap.
            for batch in batches[done:]:
                batch.stream.sequence += batch.count

    def send_alone(self, socket: Any, audience: Audience, subject: bytes, payload: Any) -> None:
        """Send one message: what `send` does, the short way."""
        if not audience.is_simple or type(payload) is not bytes:
            self.send(socket, [audience, subject, payload], is_rich=type(payload) is not bytes)
            return
        if not self._is_lossless:
            self.make_lossless(socket)
        items = [subject, payload]
        body = pack_array(items)
        for stream in audience.streams:
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

    def send_large(self, socket: Any, window: list[Any]) -> None:
        """Send one message whose payload is large, as a frame of its own and without copying it."""
        audience, subject, payload = window
        self.make_lossless(socket)
        attached = payload[0] if isinstance(payload, list) else payload
        item = [subject, [None, payload[1]] if isinstance(payload, list) else None]
        body = pack_array(item)
        streams = [*audience.streams, *(one.pick(sticky_key(subject, payload)) for one in audience.choices)]
        for stream in streams:
            sequence = stream.sequence
            stream.sequence += 1
            self._send_frames(socket, stream, 1, (self._head(stream, _RICH, sequence, 1) + body, attached))

    @staticmethod
    def _head(stream: OutStream, kind: int, sequence: int, count: int) -> bytes:
        return stream.heads[kind] + head_end(sequence, count)

    def make_lossless(self, socket: Any) -> None:
        """Have ZeroMQ say when there is no room, so that whatever is dropped is known."""
        if not self._is_lossless:
            _set(socket, _NODROP, 1)
            self._is_lossless = True

    def make_lossy(self, socket: Any) -> None:
        """Have ZeroMQ drop what a plain subscriber has no room for, if that is the publisher's way."""
        if self._is_lossless and self._drops:
            _set(socket, _NODROP, 0)
            self._is_lossless = False

    def _send_batch(self, socket: Any, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.is_full:
            self._retry(socket, stream)
        if batch.items is not None and stream.is_full and self._hold(stream, batch.items):
            return
        sequence = stream.sequence
        if batch.items is not None and stream.terms.keep in ("latest", "drop_oldest"):
            self._send_or_hold(socket, batch, is_rich=is_rich)
            return
        stream.sequence += batch.count
        frame = self._head(stream, _RICH if is_rich else _PLAIN, sequence, batch.count) + batch.body
        self.size = max(self.size, len(frame))
        items = batch.items if stream.terms.group else None
        self._send_frames(socket, stream, batch.count, (frame,), items)

    def _send_or_hold(self, socket: Any, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.vanished_at is not None:
            stream.sequence += batch.count
            return
        frame = self._head(stream, _RICH if is_rich else _PLAIN, stream.sequence, batch.count) + batch.body
        try:
            _send(socket, frame, _NOBLOCK)
        except zmq.Again:
            assert batch.items is not None
            self._hold(stream, batch.items)
            self._fill(stream)
        else:
            stream.sequence += batch.count

    def _hold(self, stream: OutStream, items: list[Any]) -> bool:
        """Hold messages back, if the stream's terms say so."""
        held: Held | None = hold(stream)
        if held is None:
            return False
        self._router.stats.missed += held.put(stream, items)
        return True

    def _send_frames(
        self,
        socket: Any,
        stream: OutStream,
        count: int,
        frames: tuple[bytes, ...],
        items: list[Any] | None = None,
        *,
        must_wait: bool = False,
    ) -> None:
        """Send frames that are numbered, or do with them what is to be done when there is no room."""
        if stream.vanished_at is not None or stream.is_gone:
            return
        if not stream.unsent:
            try:
                _send_whole(socket, frames)
            except zmq.Again:
                pass
            else:
                return
        self._fill(stream)
        if items is not None and self._pass_on(socket, stream, items):
            # Nothing of it was sent: its numbers are free again.
            stream.sequence -= count
        elif not must_wait and (self._drops or stream.terms.keep == "drop_newest"):
            self._router.stats.missed += count
        else:
            stream.unsent.append(frames)
            self.is_blocked = not self._drops

    def _pass_on(self, socket: Any, full: OutStream, items: list[Any]) -> bool:
        """Give the messages of a member of a queue group that is full to another that is not."""
        members = [
            one
            for one in self._router.streams.values()
            if one.terms.group == full.terms.group and not one.is_full and not one.is_leaving
        ]
        batches: dict[OutStream, Batch] = {}
        for at in range(0, len(items), 2):
            item = items[at : at + 2]
            member = next((one for one in members if _wants(one, item[0])), None)
            if member is None:
                return False
            batches.setdefault(member, Batch(member)).add(pack_array(item)[1:], item)
        for batch in batches.values():
            self._send_batch(socket, batch, is_rich=True)
        return True

    def _fill(self, stream: OutStream) -> None:
        stream.is_full = True
        self.full[stream] = None

    # when there is room again ----------------------------------------------------------------------------

    def retry(self, socket: Any) -> None:
        """Send what waits for room, as far as there is some."""
        if not self.full:
            return
        self.make_lossless(socket)
        for stream in list(self.full):
            self._retry(socket, stream)
        self.is_blocked = not self._drops and any(stream.unsent for stream in self.full)

    def _retry(self, socket: Any, stream: OutStream) -> None:
        if stream.is_gone or stream.vanished_at is not None:
            stream.unsent.clear()
        try:
            while stream.unsent:
                _send_whole(socket, stream.unsent[0])
                stream.unsent.popleft()
            while stream.held and not stream.is_gone:
                self._send_held(socket, stream)
        except zmq.Again:
            return
        stream.is_full = False
        self.full.pop(stream, None)

    def _send_held(self, socket: Any, stream: OutStream) -> None:
        sequence, items = stream.held.take(stream, MAX_BATCH)
        count = len(items) // 2
        is_rich = any(type(payload) is not bytes for payload in items[1::2])
        if stream.vanished_at is None:
            frame = self._head(stream, _RICH if is_rich else _PLAIN, sequence, count) + pack_array(items)
            _send(socket, frame, _NOBLOCK)
        if stream.terms.keep == "latest":
            stream.sequence += count
        stream.held.drop(count)

    # control ---------------------------------------------------------------------------------------------

    def answer(self, socket: Any) -> None:
        """Tell streams where they stand, and give the last values that were asked for."""
        router = self._router
        if router.to_answer:
            self.make_lossless(socket)
            # Shared patterns first: their numbers must be known when the declaration is answered.
            for stream in sorted(router.to_answer, key=lambda one: not one.is_shared):
                if self._tell(socket, stream, b"" if stream.is_shared else _answer(stream)):
                    router.to_answer.pop(stream, None)
        while router.to_serve:
            self._serve(socket, *router.to_serve.pop(0))

    def beat(self, socket: Any, now: float) -> None:
        """Tell every stream its sequence, when that is due: it shows up what was lost last."""
        if now < self.beats_at:
            return
        self.beats_at = now + HEARTBEAT
        self._router.expire(now)
        if self._router.streams:
            self.say_where(socket)

    def say_where(self, socket: Any) -> None:
        """Tell every stream its sequence."""
        self.make_lossless(socket)
        for stream in list(self._router.streams.values()):
            self._tell(socket, stream, b"")

    def _tell(self, socket: Any, stream: OutStream, body: bytes) -> bool:
        if stream.vanished_at is not None or stream.unsent:
            return False
        sequence = stream.sequence
        if stream.held and stream.terms.keep == "drop_oldest":
            # What is held is numbered already but not lost.
            sequence = stream.held.take(stream, 0)[0]
        try:
            _send(socket, self._head(stream, _CONTROL, sequence, 0) + body, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _serve(self, socket: Any, stream: OutStream, number: int) -> None:
        chunk = stream.chunks.get(number)
        if chunk is None or self._retained is None:
            return
        patterns = [one for one in chunk.patterns if one not in stream.served]
        stream.served.update(patterns)
        items = self._retained.match(patterns)
        for at in range(0, len(items), 2 * MAX_BATCH):
            part = items[at : at + 2 * MAX_BATCH]
            count, sequence = len(part) // 2, stream.sequence
            is_rich = any(type(payload) is not bytes for payload in part[1::2])
            kind = _RETAINED_RICH if is_rich else _RETAINED
            stream.sequence += count
            frame = self._head(stream, kind, sequence, count) + pack_chunk(number) + pack_array(part)
            self.make_lossless(socket)
            self._send_frames(socket, stream, count, (frame,), must_wait=True)


def _answer(stream: OutStream) -> bytes:
    return pack_control(
        live=list(stream.chunks), refused=dict(stream.refused), paths=max(1, stream.listeners)
    )


def _wants(stream: OutStream, subject: bytes) -> bool:
    for pattern in stream.patterns:
        try:
            if pattern.matches(subject):
                return True
        except (ValueError, TimeoutError):
            continue
    return False


def _send_whole(socket: Any, frames: Iterable[bytes]) -> None:
    """Send the frames of one message; only the first can find no room."""
    *first, last = frames
    for frame in first:
        _send(socket, frame, _NOBLOCK | _MORE)
    if first or len(last) >= LARGE:
        _send(socket, last, _NOBLOCK, False)
    else:
        _send(socket, last, _NOBLOCK)
