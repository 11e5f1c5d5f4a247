"""The functions that a kind of socket is called by: of pyzmq's backend, or of a model of ZeroMQ.

Engines ask `backend_of` once, when they are made, and call what they are given: with sockets of `oz.testing`
the same engines run without libzmq, on a clock that jumps.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import zmq

from oz import system
from oz.compiled import HOT
from oz.transport.libzmq import find, raise_of


class Peer(NamedTuple):
    """Connection of a frame.

    Attributes:
        descriptor: of the connection.
        inode: distinguishes it from other connections with this descriptor at other times; None once it is closed.
        key: public key of the peer; None without CURVE.
    """

    descriptor: int
    inode: int | None
    key: str | None = None


def _unknown(peer: Peer) -> int | None:
    return None


def _none_of(peers: Iterable[Peer]) -> dict[Peer, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Backend:
    """The functions of one kind of socket, each called with the socket first; its clocks and its chance.

    Attributes:
        send: sends one frame.
        recv: receives one frame.
        recv_named: receives one frame, and the connection that it came over, if the socket tells it.
        get: gets a socket option.
        set: sets a socket option.
        bind: binds to an endpoint.
        connect: connects to an endpoint.
        unbind: unbinds from an endpoint.
        disconnect: disconnects from an endpoint.
        monotonic: seconds of a clock that never goes back.
        time_ns: nanoseconds since 1970.
        sleep: lets so many seconds pass.
        cut: ends a connection, if it is still there.
        inode: tells what a descriptor is of from what had its number before; None when it is closed.
        random_bytes: gives so many, that nobody can guess.
        watched: makes of a frame one that is sent in its place, and what tells when the socket is done with
            it; None where nothing tells.
        taken: see `_taken`.
        send_whole: sends frames of bytes as one message, or nothing; no signal handler comes in between. For
            what need not wait. None where only frame after frame can be sent.
        read_by_zmq: tells how many bytes ZeroMQ has read of a connection so far; None where that is unknown.
        has_handle: whether libzmq knows the socket by its `underlying`.
        tells_peers: whether `recv_named` tells connections apart.
        prove: has a socket be known by a public key, and refuse whom a function does not admit, given a key
            and where it comes from; None where that takes CURVE.
    """

    send: Callable[..., Any]
    recv: Callable[..., Any]
    recv_named: Callable[..., tuple[bytes, Peer | None]]
    get: Callable[..., Any]
    set: Callable[..., Any]
    bind: Callable[..., Any]
    connect: Callable[..., Any]
    unbind: Callable[..., Any]
    disconnect: Callable[..., Any]
    monotonic: Callable[[], float]
    time_ns: Callable[[], int]
    sleep: Callable[[float], object]
    cut: Callable[[Peer], object]
    inode: Callable[[int], int | None]
    random_bytes: Callable[[int], bytes]
    watched: Callable[[Any], tuple[Any, Callable[[], bool]]] | None = None
    taken: Callable[[Iterable[Peer]], dict[Peer, int]] = _none_of
    send_whole: Callable[[Any, tuple[bytes, ...], int], None] | None = None
    read_by_zmq: Callable[[Peer], int | None] = _unknown
    has_handle: bool = False
    tells_peers: bool = False
    prove: Callable[[Any, str, Callable[[str, str], bool]], None] | None = None


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def _cut(peer: Peer) -> None:
    """End a connection of libzmq's, which takes it for a peer that has gone."""
    try:
        held = os.dup(peer.descriptor)
    except OSError:
        return
    # A copy: the number cannot become something else in between.
    if _inode(held) != peer.inode:
        # The connection has ended, and its number is perhaps that of what is no socket.
        os.close(held)
        return
    with socket.socket(fileno=held) as connection, suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _watched(frame: Any) -> tuple[zmq.Frame, Callable[[], bool]]:
    """Make a frame that libzmq does not copy: it drops the memory once that is sent to all."""
    known = frame.tracker if isinstance(frame, zmq.Frame) else None
    if known is None or known.done:
        frame = zmq.Frame(
            frame if type(frame) is bytes else bytes(frame), track=True, copy=False, copy_threshold=0
        )
        known = frame.tracker
    return frame, lambda: known.done


_ACKNOWLEDGED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` of `tcp_info`, since Linux 4.1. Source: linux/tcp.h."""


def _taken(peers: Iterable[Peer]) -> dict[Peer, int]:
    """Return the bytes acknowledged so far by those that cannot be written to; 0 where nobody knows."""
    poll, by_descriptor = select.poll(), {one.descriptor: one for one in peers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLOUT)
    for descriptor, _ in poll.poll(0):
        # It can be written to, or is gone.
        del by_descriptor[descriptor]
    return {one: _acknowledged(one) for one in by_descriptor.values() if _inode(one.descriptor) == one.inode}


def _acknowledged(peer: Peer) -> int:
    with suppress(OSError, struct.error, AttributeError):
        with socket.socket(fileno=os.dup(peer.descriptor)) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
        (count,) = _ACKNOWLEDGED.unpack(info)
        return int(count)
    return 0


_RECEIVED = struct.Struct("=128xQ")
"""`tcpi_bytes_received` of `tcp_info`, since Linux 4.1. Source: linux/tcp.h."""


def _read_by_zmq(peer: Peer) -> int | None:
    """Tell how many bytes a connection of TCP has brought that the system does not hold any more."""
    if system.TO_BE_READ is None:
        return None
    with (
        suppress(OSError, struct.error, AttributeError),
        socket.socket(fileno=os.dup(peer.descriptor)) as connection,
    ):
        if _inode(connection.fileno()) == peer.inode:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
            unread = system.ioctl(connection.fileno(), system.TO_BE_READ, bytes(4))
            return int(_RECEIVED.unpack(info)[0]) - int.from_bytes(unread, sys.byteorder)
    return None


GETSOCKOPT = find("zmq_getsockopt")
SENDIOV = find("zmq_sendiov")
if SENDIOV is not None:
    SENDIOV.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
SENDIOV_AT = 0 if SENDIOV is None else ctypes.cast(SENDIOV, ctypes.c_void_p).value or 0
"""Its address; 0 where it was not found."""
_WAITING = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, use_errno=True
)(SENDIOV_AT)  # fmt: skip
"""The same, called without the interpreter's lock."""

MOST_PARTS = 64
"""Frames that the compiled part sends at once."""

_SNDMORE, _DONTWAIT = int(zmq.SNDMORE), int(zmq.DONTWAIT)


class _Part(ctypes.Structure):
    """A frame for `zmq_sendiov`."""

    _fields_ = (("base", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Pair(ctypes.Structure):
    """Two of them, as of nearly all messages."""

    _fields_ = (
        ("base", ctypes.c_char_p), ("size", ctypes.c_size_t),
        ("next_base", ctypes.c_char_p), ("next_size", ctypes.c_size_t),
    )  # fmt: skip


def _send_whole(socket: Any, frames: tuple[bytes, ...], flags: int) -> None:
    # pyzmq looks for signals before it sends a frame and behind that: who is told of one cannot know whether
    # the frame has gone.
    if HOT is None or len(frames) > MOST_PARTS:
        number = _send_parts(socket.underlying, frames, flags | _SNDMORE)
    else:
        number = HOT.send_parts(SENDIOV_AT, socket.underlying, frames, flags | _SNDMORE)
    if number:
        raise_of(number)


def _send_parts(handle: int, frames: tuple[bytes, ...], flags: int) -> int:
    """Do what `send_parts` of the compiled part does; see `Hot`."""
    parts: Any
    if len(frames) == 2:
        first, second = frames
        parts = _Pair(first, len(first), second, len(second))
    else:
        parts = (_Part * len(frames))(*[_Part(one, len(one)) for one in frames])
    given, number = ctypes.byref(parts), errno.EINTR if handle else int(zmq.ENOTSOCK)
    # With the interpreter's lock only what cannot wait: see send.c.
    send: Any = SENDIOV
    now = flags | _DONTWAIT
    while number == errno.EINTR:
        number = 0 if send(handle, given, len(frames), now) >= 0 else ctypes.get_errno()
        if number == errno.EAGAIN and now != flags:
            send, now, number = _WAITING, flags, errno.EINTR
    return number


_SOURCE = int(zmq.SRCFD)


def _recv_named(xpub: Any, flags: int) -> tuple[bytes, Peer | None]:
    frame = zmq.backend.Socket.recv(xpub, flags, copy=False)
    try:
        descriptor = int(frame.get(_SOURCE))
    except zmq.ZMQError:
        # A peer in the same process, or what libzmq says itself when a connection ends.
        return frame.bytes, None
    return frame.bytes, Peer(descriptor, _inode(descriptor))


# Unbound methods of the backend: the attributes of zmq.Socket add 0.3 µs to each call, and those of a drop-in
# socket are oz's own.
PYZMQ = Backend(
    send=zmq.backend.Socket.send,
    recv=zmq.backend.Socket.recv,
    recv_named=_recv_named,
    get=zmq.backend.Socket.get,
    set=zmq.backend.Socket.set,
    bind=zmq.Socket.bind,
    connect=zmq.Socket.connect,
    unbind=zmq.Socket.unbind,
    disconnect=zmq.Socket.disconnect,
    monotonic=time.monotonic,
    time_ns=time.time_ns,
    sleep=time.sleep,
    cut=_cut,
    inode=_inode,
    random_bytes=os.urandom,
    watched=_watched,
    taken=_taken,
    send_whole=None if SENDIOV is None else _send_whole,
    read_by_zmq=_read_by_zmq,
    has_handle=True,
    # Elsewhere a connection is no file.
    tells_peers=sys.platform in ("linux", "darwin"),
)
"""Sockets of pyzmq, and the clocks of this machine."""


def backend_of(socket: Any) -> Backend:
    """Return what a socket is called by: pyzmq's functions, or what the socket has as `backend`."""
    if isinstance(socket, zmq.backend.Socket):
        return PYZMQ
    found: Backend = socket.backend
    return found


def address_of(socket: Any) -> int:
    """Return the address by which libzmq's own functions know a socket; 0 where they are not to be called."""
    return int(socket.underlying) if GETSOCKOPT is not None and backend_of(socket).has_handle else 0


_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)


def new_socket(context: Any, kind: int) -> zmq.Socket[Any]:
    """Make a plain socket of a context, also of one whose own sockets are of another class."""
    if isinstance(context, zmq.Context):
        return zmq.Socket(context, kind)
    made: zmq.Socket[Any] = context.socket(kind)
    return made
