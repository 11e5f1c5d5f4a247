"""Publishing subject and payload in one frame."""

from __future__ import annotations

from typing import Any

import zmq

from oz.transport.outlet import Outlet

_send = zmq.backend.Socket.send
_SNDMORE = int(zmq.SNDMORE)


class JoiningOutlet(Outlet):
    """Sends the subject, its delimiter and the payload as one frame to plain subscribers."""

    __slots__ = ()

    def hand_over(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Give one message to ZeroMQ; see `Outlet.hand_over`. More frames may follow the first."""
        guard = self._guard
        guard.acquire(True)
        try:
            self._dispatch.make_lossy(socket)
            if type(payload) is bytes:
                _send(socket, wire + payload, flags)
            else:
                first, *rest = payload if type(payload) is tuple else (payload,)
                frames = [wire + bytes(first), *rest]
                for frame in frames[:-1]:
                    _send(socket, frame, flags | _SNDMORE)
                _send(socket, frames[-1], flags)
        finally:
            guard.release()
