"""Reader of all frames of a message, for drop-in sockets.

`recv` of pyzmq returns a frame as bytes in 0.15 µs, but does not report whether more frames follow. In pyzmq, a
`zmq.Frame` (0.53 µs) or `getsockopt(RCVMORE)` (0.7 µs, because it constructs an enum) reports it. A call of
zmq_getsockopt by ctypes takes 0.2 µs. The C code of oz calls libzmq directly for all frames (`docs/libzmq.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from oz.compiled import HOT
from oz.transport.libzmq import IS_KNOWN, option_reader

_recv: Any = zmq.backend.Socket.recv

FrameReader = Callable[[Any, int], list[bytes]]
"""Function that returns the frames of the next message. Its arguments are the socket and flags (0 or `zmq.NOBLOCK`).
With `zmq.NOBLOCK` it raises `zmq.Again` if no message has arrived."""


def frame_reader(socket: zmq.Socket[Any]) -> FrameReader:
    """Return a function that reads messages from a socket. Do not call it after the socket object is deleted."""
    if HOT is not None and IS_KNOWN:
        return HOT.FrameReader(recv=_recv, socket=socket.underlying)
    has_more = option_reader(socket, int(zmq.RCVMORE))

    def read(socket: Any, flags: int) -> list[bytes]:
        frames = [_recv(socket, flags)]
        while has_more(socket):
            frames.append(_recv(socket))
        return frames

    return read
