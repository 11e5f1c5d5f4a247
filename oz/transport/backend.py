"""The functions that a kind of socket is called by: of pyzmq's backend, or of a model of ZeroMQ.

Engines ask `backend_of` once, when they are made, and call what they are given: with sockets of `oz.testing`
the same engines run without libzmq, on a clock that jumps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq


@dataclass(frozen=True, slots=True)
class Backend:
    """The functions of one kind of socket, each called with the socket first; its clocks and its chance.

    Attributes:
        send: sends one frame.
        recv: receives one frame.
        get: gets a socket option.
        set: sets a socket option.
        bind: binds to an endpoint.
        connect: connects to an endpoint.
        unbind: unbinds from an endpoint.
        disconnect: disconnects from an endpoint.
        monotonic: seconds of a clock that never goes back.
        time_ns: nanoseconds since 1970.
        sleep: lets so many seconds pass.
        inode: tells what a descriptor is of from what had its number before; None when it is closed.
        random_bytes: gives so many, that nobody can guess.
        has_handle: whether libzmq knows the socket by its `underlying`.
    """

    send: Callable[..., Any]
    recv: Callable[..., Any]
    get: Callable[..., Any]
    set: Callable[..., Any]
    bind: Callable[..., Any]
    connect: Callable[..., Any]
    unbind: Callable[..., Any]
    disconnect: Callable[..., Any]
    monotonic: Callable[[], float]
    time_ns: Callable[[], int]
    sleep: Callable[[float], object]
    inode: Callable[[int], int | None]
    random_bytes: Callable[[int], bytes]
    has_handle: bool = False


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


# Unbound methods of the backend: the attributes of zmq.Socket add 0.3 µs to each call, and those of a drop-in
# socket are oz's own.
PYZMQ = Backend(
    send=zmq.backend.Socket.send,
    recv=zmq.backend.Socket.recv,
    get=zmq.backend.Socket.get,
    set=zmq.backend.Socket.set,
    bind=zmq.Socket.bind,
    connect=zmq.Socket.connect,
    unbind=zmq.Socket.unbind,
    disconnect=zmq.Socket.disconnect,
    monotonic=time.monotonic,
    time_ns=time.time_ns,
    sleep=time.sleep,
    inode=_inode,
    random_bytes=os.urandom,
    has_handle=True,
)
"""Sockets of pyzmq, and the clocks of this machine."""


def backend_of(socket: Any) -> Backend:
    """Return what a socket is called by: pyzmq's functions, or what the socket has as `backend`."""
    if isinstance(socket, zmq.backend.Socket):
        return PYZMQ
    found: Backend = socket.backend
    return found


def new_socket(context: Any, kind: int) -> zmq.Socket[Any]:
    """Make a plain socket of a context, also of one whose own sockets are of another class."""
    if isinstance(context, zmq.Context):
        return zmq.Socket(context, kind)
    made: zmq.Socket[Any] = context.socket(kind)
    return made
