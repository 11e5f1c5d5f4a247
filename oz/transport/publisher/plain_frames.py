"""A message as plain subscribers get it: its payload as frames, and how those are handed to ZeroMQ."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

import zmq

from oz.protocol.publisher.dispatch import Dispatch
from oz.transport.frames import send_frames
from oz.transport.guard import Guard

_send = zmq.backend.Socket.send
# A plain number: the enum's member costs 0.3 µs a message.
_SNDMORE = int(zmq.SNDMORE)


def as_sendable(payload: Any) -> Any:
    """Return a payload that ZeroMQ takes: bytes-like, or a tuple of several frames.

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


def as_item(payload: Any) -> Any:
    """Return the form in which a payload is packed: bytes, or a list of the bytes of several frames."""
    if type(payload) is tuple:
        return [bytes(frame) for frame in payload]
    return payload if type(payload) is bytes else bytes(payload)


class HandOver(Protocol):
    """Hands one plain message to ZeroMQ."""

    def __call__(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Send it.

        Args:
            socket: the publisher.
            wire: its subject.
            payload: bytes-like, or a tuple of several frames.
            flags: 0 or `zmq.NOBLOCK`.

        Raises:
            zmq.Again: a subscriber is at its high-water mark and `on_full` is not `"drop"`.
        """


class PlainFrames:
    """Sends the subject as a frame, and the payload behind it."""

    __slots__ = ("_dispatch", "_guard")

    def __init__(self, guard: Guard, dispatch: Dispatch) -> None:
        """Put together what a publisher has."""
        self._guard = guard
        self._dispatch = dispatch

    def hand_over(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Hand one message to ZeroMQ; see `HandOver`."""
        with self._guard:
            self._dispatch.make_lossy()
            if type(payload) is tuple:
                send_frames(socket, (wire, *payload), flags)
                return
            is_open = True
            try:
                _send(socket, wire, flags | _SNDMORE)
                is_open = False
                _send(socket, payload, flags)
            except zmq.ZMQError:
                raise
            except BaseException:
                # See `send_frames`, of which this is the short way.
                if is_open:
                    with suppress(zmq.Again):
                        _send(socket, payload, flags)
                raise

    def hand_over_joined(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """The same with the subject, its delimiter and the payload in one frame; more may follow it."""
        with self._guard:
            self._dispatch.make_lossy()
            if type(payload) is bytes:
                _send(socket, wire + payload, flags)
            else:
                first, *rest = payload if type(payload) is tuple else (payload,)
                send_frames(socket, (wire + bytes(first), *rest), flags)
