"""Functions of the libzmq that pyzmq has loaded.

The compiled part of oz calls these functions directly. If oz runs without its compiled part, or if pyzmq hides a
function of libzmq, oz calls pyzmq instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

import zmq

from oz.compiled import HOT, LIBZMQ


def _open() -> Any:
    try:
        import zmq.backend.cython._zmq as extension

        # Load pyzmq's extension module, so that its libzmq is used and no other. PyDLL keeps the GIL.
        return ctypes.PyDLL(extension.__file__, use_errno=True)
    except (ImportError, OSError, AttributeError, TypeError):
        return None


_LIBZMQ = _open()


def find(name: str) -> Any:
    """Return a function of libzmq; None if pyzmq hides the function."""
    return getattr(_LIBZMQ, name, None)


_GETSOCKOPT = find("zmq_getsockopt")
_CLOSED = vars(zmq.backend.Socket).get("_closed")
_FOUND = tuple(ctypes.cast(find(name), ctypes.c_void_p).value or 0 for name in LIBZMQ)

IS_KNOWN = HOT is not None and _CLOSED is not None and all(_FOUND)
"""Whether the compiled part can call libzmq."""

if HOT is not None and IS_KNOWN:
    HOT.know_libzmq(_FOUND, _CLOSED, zmq.Again)


def raise_of(number: int) -> NoReturn:
    """Raise the error that pyzmq raises for an errno.

    Raises:
        zmq.ZMQError: always.
    """
    kinds: dict[int, type[zmq.ZMQError]] = {zmq.EAGAIN: zmq.Again, zmq.ETERM: zmq.ContextTerminated}
    raise kinds.get(number, zmq.ZMQError)(number)


def option_reader(
    socket: zmq.Socket[Any], option: int, get: Callable[..., Any] = zmq.backend.Socket.get
) -> Callable[[Any], int]:
    """Return a function that returns an integer option of a socket. Its argument is the socket.

    `get` of pyzmq constructs an enum, which takes 0.5 µs. A call of the libzmq function by ctypes takes 0.2 µs.

    Args:
        socket: socket of pyzmq, or model socket of `oz.testing`. The returned function keeps no reference to it.
        option: number of the option in libzmq.
        get: function that is called with the socket and the option if the libzmq function cannot be used: for a model
            socket, for a closed socket, and after an error.
    """
    if _GETSOCKOPT is None or _CLOSED is None or not isinstance(socket, zmq.backend.Socket):
        return lambda socket: int(get(socket, option))
    getsockopt = _GETSOCKOPT
    value = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    # Convert the numbers here, because ctypes would convert Python numbers at each call.
    pointer, number = ctypes.c_void_p.from_param(int(socket.underlying)), ctypes.c_int.from_param(option)
    answer, length = ctypes.byref(value), ctypes.byref(size)

    def read(socket: Any) -> int:
        if socket._closed or getsockopt(pointer, number, answer, length):
            return int(get(socket, option))
        return value.value

    return read


SHARED_FRAME: Any = HOT.SharedFrame if HOT is not None and IS_KNOWN else None
"""Class of a frame that can be sent in several messages; None without the compiled part."""


def raw_socket(socket: zmq.Socket[bytes]) -> Any:
    """Return an object with which C code calls libzmq for a socket; None if only pyzmq can use the socket.

    The class of the object is `oz.compiled.Hot.RawSocket`.
    """
    if HOT is None or not IS_KNOWN or type(socket) is not zmq.Socket:
        return None
    return HOT.RawSocket(socket=socket, address=socket.underlying, raise_error=raise_of)
