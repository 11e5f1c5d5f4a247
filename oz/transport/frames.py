"""Reading the frames of one message at the least price that pyzmq allows.

`recv` gives a frame as bytes in 0.15 µs, but not whether more follow. pyzmq has two ways to know: asking
for a `Frame` object (0.6 µs) or `getsockopt(RCVMORE)` (0.7 µs, most of it a look-up in an enum). The C
function behind the second costs 0.3 µs through ctypes, so that is what is called, where it can be found.
docs/decisions/010-asking-libzmq-for-rcvmore.md
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import zmq

_recv = zmq.backend.Socket.recv


class FrameReader(Protocol):
    """Reads one message from a socket."""

    def read(self, socket: Any, flags: int) -> list[bytes]:
        """Give all frames of the next message.

        Args:
            socket: the socket that the reader was made for, held by nobody else meanwhile.
            flags: 0 to wait, or `zmq.NOBLOCK`.

        Raises:
            zmq.Again: there is none.
        """


class _AskingReader:
    """Asks libzmq itself after each frame."""

    __slots__ = ("_arguments", "_more")

    def __init__(self, handle: int) -> None:
        self._more = ctypes.c_int()
        size = ctypes.c_size_t(ctypes.sizeof(self._more))
        self._arguments = (
            ctypes.c_void_p(handle),
            ctypes.c_int(int(zmq.RCVMORE)),
            ctypes.byref(self._more),
            ctypes.byref(size),
        )

    def read(self, socket: Any, flags: int) -> list[bytes]:
        handle, option, address, size = self._arguments
        more, ask = self._more, _getsockopt
        frames = [_recv(socket, flags)]
        ask(handle, option, address, size)
        while more.value:
            frames.append(_recv(socket))
            ask(handle, option, address, size)
        return frames


class _FrameObjectReader:
    """Has pyzmq make an object of each frame, which knows whether more follow."""

    __slots__ = ()

    def read(self, socket: Any, flags: int) -> list[bytes]:
        frame = _recv(socket, flags, False, False)
        frames = [frame.bytes]
        while frame.more:
            frame = _recv(socket, 0, False, False)
            frames.append(frame.bytes)
        return frames


def _find_getsockopt() -> Any:
    """Find `zmq_getsockopt` in the library that pyzmq itself has loaded; None where that cannot be done."""
    try:
        import zmq.backend.cython._zmq as extension

        # Looked up through pyzmq's extension module, so that no second libzmq can be meant. PyDLL keeps
        # the interpreter's lock: the call does not wait.
        return ctypes.PyDLL(extension.__file__).zmq_getsockopt
    except (ImportError, OSError, AttributeError, TypeError):
        return None


_getsockopt = _find_getsockopt()


def frame_reader(socket: zmq.Socket[Any]) -> FrameReader:
    """Make a reader for a socket, which must not outlive it."""
    if _getsockopt is None:
        return _FrameObjectReader()
    return _AskingReader(socket.underlying)
