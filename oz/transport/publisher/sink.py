"""The sink of a publisher whose messages go out by an XPUB socket; see `oz.protocol.publisher.sink`."""

from __future__ import annotations

from typing import Any

import zmq

from oz.transport.frames import send_frames
from oz.wire.batch import LARGE

_send = zmq.backend.Socket.send
_set = zmq.backend.Socket.set
_get = zmq.backend.Socket.get
_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_NODROP = int(zmq.XPUB_NODROP)


class XpubSink:
    """Sends by an XPUB socket, whose guard the caller holds.

    Attributes:
        taken: messages for which `try_send` found room.
    """

    __slots__ = ("_drops", "_is_lossless", "_socket", "taken")

    def __init__(self, socket: zmq.Socket[Any], *, drops: bool) -> None:
        """Begin.

        Args:
            socket: the socket.
            drops: whether what has no room may be dropped; otherwise the publisher waits, and the socket
                has XPUB_NODROP for good.
        """
        self._socket = socket
        self._drops = drops
        self._is_lossless = not drops
        self.taken = 0

    def try_send_one(self, frame: bytes) -> bool:
        """Send one frame, the short way."""
        try:
            _send(self._socket, frame, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def try_send(self, frames: tuple[bytes, ...]) -> bool:
        """Send the frames of one message; tell whether there was room.

        libzmq hears of room that has come only now and then while it sends. Before anything is dropped it is
        made to look: asking for its events does.
        """
        copy = len(frames[-1]) < LARGE
        try:
            send_frames(self._socket, frames, _NOBLOCK, copy=copy)
        except zmq.Again:
            self.look()
            try:
                send_frames(self._socket, frames, _NOBLOCK, copy=copy)
            except zmq.Again:
                return False
        self.taken += 1
        return True

    def send_past_the_full(self, frames: tuple[bytes, ...]) -> None:
        """Send frames to those connections that have room."""
        _set(self._socket, _NODROP, 0)
        self._is_lossless = False
        send_frames(self._socket, frames, _NOBLOCK, copy=len(frames[-1]) < LARGE)
        self.make_lossless()

    def look(self) -> None:
        """Make libzmq take notice of the room that has come."""
        _get(self._socket, _EVENTS)

    def make_lossless(self) -> None:
        """Make ZeroMQ say when there is no room, so that every drop is known."""
        if not self._is_lossless:
            _set(self._socket, _NODROP, 1)
            self._is_lossless = True

    def make_lossy(self) -> None:
        """Make ZeroMQ drop messages for a plain subscriber without room, if that is the publisher's way."""
        if self._is_lossless and self._drops:
            _set(self._socket, _NODROP, 0)
            self._is_lossless = False
