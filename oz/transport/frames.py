"""Reader of all frames of a message, for drop-in sockets.

`recv` returns a frame as bytes in 0.15 µs, but not whether more frames follow. pyzmq reports that by a `zmq.Frame`
(0.53 µs) or by `getsockopt(RCVMORE)` (0.7 µs, most of it for an enum). libzmq's own function takes 0.2 µs by
ctypes. C code reads the whole message by functions of libzmq (`docs/libzmq.md`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import zmq

from oz.compiled import HOT
from oz.transport.libzmq import IS_KNOWN, find

_recv: Any = zmq.backend.Socket.recv
_GETSOCKOPT = find("zmq_getsockopt")

FrameReader = Callable[[Any, int], list[bytes]]
"""Function that returns the frames of the next message of its socket, called with the socket and flags (0 or
`zmq.NOBLOCK`). It raises `zmq.Again` if there is no message."""


def address_of(socket: zmq.Socket[Any]) -> int:
    """Return the address of a socket for functions of libzmq; 0 if they cannot be called."""
    return 0 if _GETSOCKOPT is None else int(socket.underlying)


def more_reader(address: int) -> Callable[[], bool]:
    """Return a function that returns RCVMORE of a socket.

    Args:
        address: of the socket, not 0.
    """
    more = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(more))
    # Made once, because ctypes would convert the arguments at each call.
    pointer, option = ctypes.c_void_p.from_param(address), ctypes.c_int.from_param(int(zmq.RCVMORE))
    answer, length = ctypes.byref(more), ctypes.byref(size)

    def has_more() -> bool:
        return not _GETSOCKOPT(pointer, option, answer, length) and bool(more.value)

    return has_more


def _read_frame_objects(socket: Any, flags: int) -> list[bytes]:
    frame = _recv(socket, flags, False, False)
    frames = [frame.bytes]
    while frame.more:
        frame = _recv(socket, 0, False, False)
        frames.append(frame.bytes)
    return frames


def frame_reader(socket: zmq.Socket[Any]) -> FrameReader:
    """Return a reader for a socket, which must not outlive it."""
    address = address_of(socket)
    if not address:
        return _read_frame_objects
    if HOT is not None and IS_KNOWN:
        return HOT.FrameReader(recv=_recv, socket=address)
    has_more = more_reader(address)

    def read(socket: Any, flags: int) -> list[bytes]:
        frames = [_recv(socket, flags)]
        while has_more():
            frames.append(_recv(socket))
        return frames

    return read
