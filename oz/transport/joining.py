"""Publishing subject and payload in one frame."""

from __future__ import annotations

from typing import Any

import zmq

from oz.transport.outlet import LISTEN_EVERY, Outlet

_send = zmq.backend.Socket.send
_SNDMORE = int(zmq.SNDMORE)


class JoiningOutlet(Outlet):
    """Sends the subject, its delimiter and the payload as one frame.

    The remembered subjects end in the delimiter already.
    """

    __slots__ = ()

    def publish(self, socket: Any, subject: Any, payload: Any) -> tuple[bytes, Any] | None:
        """Send one message; see `Outlet.publish`. The common case is done here, in one go."""
        raw = self.subjects.get(subject) if type(subject) is str else None
        if raw is None or type(payload) is not bytes or self._encode is not None:
            return super().publish(socket, subject, payload)
        guard, stats = self._guard, self.stats
        stats.published += 1
        guard.acquire(True)
        try:
            _send(socket, raw + payload, self.flags)
        except zmq.Again:
            return raw, payload
        finally:
            guard.release()
        stats.sent += 1
        if not stats.sent % LISTEN_EVERY:
            socket._listen()
        return None

    def hand_over(self, socket: Any, raw: bytes, payload: Any, flags: int) -> None:
        """Give one message to ZeroMQ; see `Outlet.hand_over`. More frames may follow the first."""
        guard = self._guard
        guard.acquire(True)
        try:
            if type(payload) is bytes:
                _send(socket, raw + payload, flags)
            else:
                first, *rest = payload if type(payload) is tuple else (payload,)
                frames = [raw + bytes(first), *rest]
                for frame in frames[:-1]:
                    _send(socket, frame, flags | _SNDMORE)
                _send(socket, frames[-1], flags)
        finally:
            guard.release()
        stats = self.stats
        stats.sent += 1
        if not stats.sent % LISTEN_EVERY:
            socket._listen()
