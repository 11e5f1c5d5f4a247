"""The frames of one message: read together, sent all or none, and as pyzmq has them.

`recv` gives a frame as bytes in 0.15 µs, but does not say whether more follow. pyzmq says so in two ways: by
a `Frame` object (0.53 µs) or by `getsockopt(RCVMORE)` (0.7 µs, most of it a look-up in an enum). The C
function behind the second costs 0.2 µs through ctypes. A reader calls that where it finds it, and the
compiled part reads all by libzmq's own functions: docs/libzmq.md
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import zmq

from oz.compiled import HOT
from oz.transport.backend import GETSOCKOPT, PYZMQ, address_of, backend_of
from oz.transport.libzmq import IS_KNOWN

# A plain number: the enum's member costs 0.3 µs a message.
_MORE = int(zmq.SNDMORE)


FrameReader = Callable[[Any, int], list[bytes]]
"""Called with a socket and flags (0 or `zmq.NOBLOCK`), gives all frames of its next message.

The socket is the one that the reader was made for, and nobody else uses it meanwhile. Raises `zmq.Again`
when there is no message.
"""


def copy_into(buffer: Any, frame: bytes, nbytes: int) -> int:
    """Copy a frame into a buffer, as `zmq.Socket.recv_into` does: what does not fit is cut off.

    Returns:
        The size of the whole frame in bytes.
    """
    view = memoryview(buffer).cast("B")
    room = min(len(frame), nbytes or len(view), len(view))
    view[:room] = frame[:room]
    return len(frame)


def _asking_reader(handle: int, getsockopt: Any) -> FrameReader:
    """Make a reader that asks libzmq itself after each frame."""
    if HOT is not None and IS_KNOWN:
        return HOT.FrameReader(recv=PYZMQ.recv, socket=handle)
    more = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(more))
    # Ready-made arguments: ctypes would make them anew for each call.
    pointer, option = ctypes.c_void_p.from_param(handle), ctypes.c_int.from_param(int(zmq.RCVMORE))
    answer, length = ctypes.byref(more), ctypes.byref(size)
    recv = PYZMQ.recv

    def read(socket: Any, flags: int) -> list[bytes]:
        frames = [recv(socket, flags)]
        getsockopt(pointer, option, answer, length)
        while more.value:
            frames.append(recv(socket))
            getsockopt(pointer, option, answer, length)
        return frames

    return read


def _read_frame_objects(socket: Any, flags: int) -> list[bytes]:
    """Read frames as pyzmq's objects, which know whether more follow."""
    recv = backend_of(socket).recv
    frame = recv(socket, flags, False, False)
    frames = [frame.bytes]
    while frame.more:
        frame = recv(socket, 0, False, False)
        frames.append(frame.bytes)
    return frames


def frame_reader(socket: zmq.Socket[Any]) -> FrameReader:
    """Make a reader for a socket, which must not outlive it."""
    address = address_of(socket)
    return _asking_reader(address, GETSOCKOPT) if address else _read_frame_objects
