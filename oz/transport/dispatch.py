"""Sending what is routed: batches, answers and heartbeats. Whoever calls holds the publisher's guard."""

from __future__ import annotations

from typing import Any

import zmq

from oz.protocol.audience import Audience
from oz.protocol.holding import Held, hold
from oz.protocol.outgoing import OutStream
from oz.protocol.packing import Batch, sticky_key
from oz.protocol.packing import split as split_window
from oz.protocol.retained import Retained
from oz.protocol.routing import Router
from oz.transport.frames import send_frames
from oz.wire.batch import LARGE, head_end, pack_array, pack_chunk, pack_control

_send = zmq.backend.Socket.send
_set = zmq.backend.Socket.set
_get = zmq.backend.Socket.get
_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_NODROP = int(zmq.XPUB_NODROP)

HEARTBEAT = 1.0
"""Seconds between two records of where each stream stands."""

MAX_BATCH = 256
"""Messages in one batch, unless said otherwise."""

BATCH_BYTES = 65_536
"""Size that batches are held to, by taking fewer messages when those are large."""

_HELD_KEEPS = ("latest", "drop_oldest")
"""What a publisher holds messages back for; the others are dropped, or wait in the way of everybody."""

_PLAIN, _RICH, _CONTROL, _RETAINED, _RETAINED_RICH = range(5)


_GOODBYE = pack_control(bye=True)


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
        self.size = 0
        for batch in split_window(window):
            self._send_batch(socket, batch, is_rich=is_rich)

    def lose_count(self) -> None:
        """Count anew on every stream: subscribers learn that something is lost, but not how much."""
        for stream in list(self._router.streams.values()):
            self._router.renumber(stream)
        self.full.clear()
        self.is_blocked = False

    def send_alone(self, socket: Any, audience: Audience, subject: bytes, payload: bytes) -> None:
        """Send one message: what `send` does, the short way."""
        if not audience.is_simple:
            self.send(socket, [audience, subject, payload], is_rich=False)
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
            if stream.is_full:
                self._retry(socket, stream)
            frames = (self._head(stream, _RICH, stream.sequence, 1) + body, attached)
            if not stream.is_full and self._try(socket, stream, frames):
                stream.sequence += 1
            elif stream.terms.group or stream.terms.keep in _HELD_KEEPS:
                # Within a batch, which can be held back or passed on.
                whole = [subject, payload]
                self._send_batch(socket, Batch(stream).whole(pack_array(whole), whole), is_rich=True)
            else:
                stream.sequence += 1
                self._overflow(stream, 1, frames)

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
        if stream.terms.keep in _HELD_KEEPS:
            self._send_or_hold(socket, batch, is_rich=is_rich)
            return
        frame = self._head(stream, _RICH if is_rich else _PLAIN, stream.sequence, batch.count) + batch.body
        self.size = max(self.size, len(frame))
        if not self._try(socket, stream, (frame,)):
            if stream.terms.group:
                self._send_to_others(socket, batch)
                return
            self._overflow(stream, batch.count, (frame,))
        stream.sequence += batch.count

    def _send_or_hold(self, socket: Any, batch: Batch, *, is_rich: bool) -> None:
        stream = batch.stream
        if stream.vanished_at is not None:
            stream.sequence += batch.count
            return
        frame = self._head(stream, _RICH if is_rich else _PLAIN, stream.sequence, batch.count) + batch.body
        try:
            _send_if_it_fits(socket, (frame,))
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

    def _try(self, socket: Any, stream: OutStream, frames: tuple[bytes, ...]) -> bool:
        """Send frames that are numbered; tell whether there was room, or nobody is there to miss them."""
        if stream.vanished_at is not None:
            return True
        if stream.is_gone:
            return not stream.terms.group
        if not stream.unsent:
            try:
                _send_if_it_fits(socket, frames)
            except zmq.Again:
                pass
            else:
                return True
        self._fill(stream)
        return False

    def _overflow(
        self, stream: OutStream, count: int, frames: tuple[bytes, ...], *, must_wait: bool = False
    ) -> None:
        """Do with frames that are numbered what is to be done when there is no room."""
        if not must_wait and (self._drops or stream.terms.keep == "drop_newest"):
            self._router.stats.missed += count
        else:
            stream.unsent.append(frames)
            self.is_blocked |= not self._drops and _blocks(stream)

    def _send_to_others(self, socket: Any, batch: Batch) -> None:
        """Give what a member of a queue group has no room for to others; the rest is its own after all."""
        stream = batch.stream
        assert batch.items is not None
        left = self._pass_on(socket, stream, batch.items)
        count = len(left) // 2
        if not count or stream.is_gone:
            return
        frame = self._head(stream, _RICH, stream.sequence, count) + pack_array(left)
        stream.sequence += count
        self._overflow(stream, count, (frame,))

    def _pass_on(self, socket: Any, full: OutStream, items: list[Any]) -> list[Any]:
        """Give the messages of a member of a queue group to other members; give back those nobody takes."""
        if full.terms.policy != "turn" and not (full.is_leaving or full.is_gone):
            return items
        members = [
            one
            for one in self._router.streams.values()
            if one.terms.group == full.terms.group and not (one.is_full or one.is_leaving or one is full)
        ]
        left: list[Any] = []
        batches: dict[OutStream, Batch] = {}
        for at in range(0, len(items), 2):
            item = items[at : at + 2]
            member = next((one for one in members if _wants(one, item[0])), None)
            if member is None:
                left += item
            else:
                batches.setdefault(member, Batch(member)).add(pack_array(item)[1:], item)
        for batch in batches.values():
            self._send_batch(socket, batch, is_rich=True)
        return left

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

    def _retry(self, socket: Any, stream: OutStream) -> None:
        if stream.is_gone or stream.vanished_at is not None:
            stream.unsent.clear()
        try:
            while stream.unsent:
                send_frames(socket, stream.unsent[0], _NOBLOCK, copy=len(stream.unsent[0][-1]) < LARGE)
                stream.unsent.popleft()
            while stream.held and not stream.is_gone:
                self._send_held(socket, stream)
        except zmq.Again:
            pass
        else:
            stream.is_full = False
            self.full.pop(stream, None)
        self.is_blocked = self.is_blocked and any(_blocks(one) for one in self.full)

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
        waiting, router.to_serve = router.to_serve, []
        for stream, number in waiting:
            if stream.terms.keep == "drop_oldest" and stream.held and number in stream.chunks:
                # What is held is numbered already, and must go first.
                router.to_serve.append((stream, number))
            else:
                self._serve(socket, stream, number)

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

    def say_goodbye(self, socket: Any) -> None:
        """Tell every stream its sequence, and that nothing more comes."""
        self.make_lossless(socket)
        for stream in list(self._router.streams.values()):
            self._tell(socket, stream, _GOODBYE)

    def _tell(self, socket: Any, stream: OutStream, body: bytes) -> bool:
        if stream.vanished_at is not None or stream.unsent or (stream.is_leaving and stream.held):
            # Whoever takes its leave is given what is still held before it is answered.
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
        items = self._retained.match(chunk.patterns)
        for at in range(0, len(items), 2 * MAX_BATCH):
            part = items[at : at + 2 * MAX_BATCH]
            count, sequence = len(part) // 2, stream.sequence
            is_rich = any(type(payload) is not bytes for payload in part[1::2])
            kind = _RETAINED_RICH if is_rich else _RETAINED
            stream.sequence += count
            frame = self._head(stream, kind, sequence, count) + pack_chunk(number) + pack_array(part)
            self.make_lossless(socket)
            if not self._try(socket, stream, (frame,)):
                self._overflow(stream, count, (frame,), must_wait=True)


def _answer(stream: OutStream) -> bytes:
    return pack_control(
        live=list(stream.chunks), refused=dict(stream.refused), paths=max(1, stream.listeners)
    )


def _blocks(stream: OutStream) -> bool:
    """Tell whether the publisher has to wait for a stream; one with a `keep` never holds anybody up."""
    return bool(stream.unsent) and stream.terms.keep == "all"


def _wants(stream: OutStream, subject: bytes) -> bool:
    for pattern in stream.patterns:
        try:
            if pattern.matches(subject):
                return True
        except (ValueError, TimeoutError):
            continue
    return False


def _send_if_it_fits(socket: Any, frames: tuple[bytes, ...]) -> None:
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
