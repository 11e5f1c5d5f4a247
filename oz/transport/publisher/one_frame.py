"""Publishing subject and payload in one frame."""

from __future__ import annotations

from typing import Any

import zmq

from oz.transport.frames import send_frames
from oz.transport.publisher.sender import Sender

_send = zmq.backend.Socket.send


class JoiningSender(Sender):
    """Sends the subject, its delimiter and the payload as one frame to plain subscribers."""

    __slots__ = ()

    def hand_over(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Return one message to ZeroMQ; see `Sender.hand_over`. More frames may follow the first."""
        with self._guard:
            self._dispatch.make_lossy(socket)
            if type(payload) is bytes:
                _send(socket, wire + payload, flags)
            else:
                first, *rest = payload if type(payload) is tuple else (payload,)
                send_frames(socket, (wire + bytes(first), *rest), flags)
