"""What a publisher sends its streams: batches, answers, heartbeats and last values; see `batches`."""

from __future__ import annotations

from typing import Any

import zmq

from oz.protocol.outgoing import OutStream
from oz.protocol.retained import Retained
from oz.protocol.routing import Router
from oz.transport.batches import CONTROL, MAX_BATCH, RETAINED, RETAINED_RICH, Batches
from oz.wire.batch import pack_array, pack_chunk, pack_control

_send = zmq.backend.Socket.send
_NOBLOCK = int(zmq.NOBLOCK)

HEARTBEAT = 1.0
"""Seconds between two records of where each stream stands."""

_GOODBYE = pack_control(bye=True)


class Dispatch(Batches):
    """Sends batches, and tells streams where they stand. Whoever calls holds the publisher's guard.

    Attributes:
        beats_at: when the next heartbeat is due, in monotonic seconds.
    """

    __slots__ = ("_retained", "beats_at")

    def __init__(self, router: Router, retained: Retained | None, *, drops: bool) -> None:
        """Start with nothing to send.

        Args:
            router: the interests.
            retained: the last values, if they are kept.
            drops: whether a full subscriber is passed over; otherwise it holds up the publisher.
        """
        super().__init__(router, drops=drops)
        self._retained = retained
        self.beats_at = 0.0

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
            _send(socket, self._head(stream, CONTROL, sequence, 0) + body, _NOBLOCK)
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
            kind = RETAINED_RICH if is_rich else RETAINED
            stream.sequence += count
            frame = self._head(stream, kind, sequence, count) + pack_chunk(number) + pack_array(part)
            self.make_lossless(socket)
            if not self._try(socket, stream, (frame,)):
                self._overflow(stream, count, (frame,), must_wait=True)


def _answer(stream: OutStream) -> bytes:
    return pack_control(
        live=list(stream.chunks), refused=dict(stream.refused), paths=max(1, stream.listeners)
    )
