"""The way out: what every message that is published passes through, in one plain object; see `inlet`."""

from __future__ import annotations

from typing import Any

import zmq

from oz.protocol.stats import PublisherStats
from oz.transport.guard import Guard
from oz.wire.codec import Codec

_send = zmq.backend.Socket.send
# A plain number: the enum's member costs 0.3 µs a message.
_SNDMORE = int(zmq.SNDMORE)

LISTEN_EVERY = 4096
"""After so many messages the subscriptions that have arrived are taken in; they would pile up otherwise."""


class Outlet:
    """Encodes messages and hands them to one publisher's socket.

    Attributes:
        subjects: the bytes of each subject that was found valid, by how it was given.
        stats: what the publisher did.
        flags: how `hand_over` sends: 0 or `zmq.NOBLOCK`.
    """

    __slots__ = ("_encode", "_guard", "flags", "stats", "subjects")

    def __init__(self, guard: Guard, codec: Codec | None) -> None:
        """Put together what a publisher has."""
        self._guard = guard
        self._encode = codec.encode if codec is not None else None
        self.subjects: dict[str | bytes, bytes] = {}
        self.stats = PublisherStats()
        self.flags = 0

    def subject(self, socket: Any, subject: Any) -> bytes:
        """Give the bytes of a subject; the socket checks one that is not remembered.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
        """
        try:
            raw = self.subjects.get(subject)
        except TypeError:
            # Not hashable: no text, or a bytearray.
            raw = None
        return bytes(socket._admit(subject)) if raw is None else raw

    def prepare(self, payload: Any) -> Any:
        """Give a payload that ZeroMQ takes.

        Raises:
            TypeError: it is neither bytes nor what the codec encodes.
        """
        if self._encode is not None:
            payload = self._encode(payload)
        return payload if type(payload) is bytes else _as_bytes(payload)

    def publish(self, socket: Any, subject: Any, payload: Any) -> tuple[bytes, Any] | None:
        """Send one message.

        Everything is checked and encoded before the first frame goes: half a message would join the next.

        Returns:
            None; or, when a subscriber is at its high-water mark, what is still to be sent.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            OwnershipError: the publisher was made before a fork.
        """
        try:
            raw = self.subjects[subject]
        except (KeyError, TypeError):
            raw = self.subject(socket, subject)
        if type(payload) is not bytes or self._encode is not None:
            payload = self.prepare(payload)
        self.stats.published += 1
        try:
            self.hand_over(socket, raw, payload, self.flags)
        except zmq.Again:
            return raw, payload
        return None

    def hand_over(self, socket: Any, raw: bytes, payload: Any, flags: int) -> None:
        """Give one message to ZeroMQ.

        Raises:
            zmq.Again: a subscriber is at its high-water mark and `on_full` is not `"drop"`.
        """
        guard = self._guard
        guard.acquire(True)
        try:
            _send(socket, raw, flags | _SNDMORE)
            if type(payload) is tuple:
                for frame in payload[:-1]:
                    _send(socket, frame, flags | _SNDMORE)
                payload = payload[-1]
            _send(socket, payload, flags)
        finally:
            guard.release()
        stats = self.stats
        stats.sent += 1
        if not stats.sent % LISTEN_EVERY:
            socket._listen()


def _as_bytes(payload: Any) -> Any:
    """Give a payload that ZeroMQ takes: bytes-like, or a tuple of several frames.

    Raises:
        TypeError: it is neither; says what to do.
    """
    if isinstance(payload, (list, tuple)) and payload:
        return tuple(_as_frame(frame) for frame in payload)
    return _as_frame(payload)


def _as_frame(payload: Any) -> Any:
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, (bytes, zmq.Frame)):
        return payload
    raise TypeError(
        f"a payload is bytes, not {type(payload).__name__}: encode it, or give the publisher codec='msgpack'"
    )
