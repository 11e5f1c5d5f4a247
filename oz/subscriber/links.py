"""Socket of a subscriber for all its links: one ROUTER socket that connects to each publisher.

Theory of operation
-------------------
Each connection has a handle: the routing id that precedes each frame. A handle is used only once, because libzmq
aborts the process at a second connection with the same handle. To replace a connection, the engine calls `hang_up`,
which ends all connections to the endpoint. Then `dial` connects with a new handle. The engine discards frames with an
old handle.

Whole messages are read, because libzmq aborts if a pipe ends inside the read of a multipart message. An exception of
a signal handler may be raised between two instructions of Python, and at the end of each call of pyzmq's `send` and
`recv`, which run signal handlers. `begin` and `send` complete an interrupted message. `read` returns the same message
until the engine calls `discard`, so that an interruption at any other point loses no frame. After a lost frame, the
link needs a new connection.

The descriptor of a ROUTER signals several messages only once. Because a send may consume the signal, the engine checks
`is_readable` after each send.
"""

from __future__ import annotations

from contextlib import suppress
from errno import EAGAIN, EHOSTUNREACH
from itertools import chain
from typing import Any

import zmq

from oz.transport import routers
from oz.transport.endpoints import needs_ipv6, refused_by_libzmq
from oz.transport.libzmq import option_reader, raw_socket
from oz.transport.monitors import Monitor
from oz.transport.runtime import runtime_of

_chain = chain.from_iterable
_ONE, _FRAMES = (1,), (3,)

RECONNECT_MAX = 1_000
"""Maximum pause in milliseconds between two attempts of libzmq to connect."""
LINGER = 200
"""Time in milliseconds that libzmq has after `close` to deliver a BYE."""

_LAST = int(zmq.NOBLOCK)
_READ = (_LAST, _LAST)
_SEND = (int(zmq.SNDMORE | zmq.NOBLOCK), _LAST)
_POLLIN, _EVENTS, _RCVMORE, _FD = int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.FD)


_open: set[Dialler] = set()
"""Open `Dialler` objects. The set keeps them from garbage collection, which may close a socket before its owner."""


class Dialler:
    """ROUTER socket that connects to publishers.

    Attributes:
        router: pyzmq socket.
        fd: descriptor that signals messages.
        monitor: monitor of the connections; None while no monitor is needed.
        raw: access to the socket in C, or None.
        kept: frames of the last message that `read` has returned; empty after `discard`.
    """

    def __init__(self, context: zmq.Context[Any], *, message_bytes: int, window: int) -> None:
        """Create the socket; see `routers.dialling_router` for the arguments."""
        self.router = routers.dialling_router(context, message_bytes=message_bytes, window=window)
        # A garbage-collected subscriber sends BYE before the socket closes.
        _open.add(self)
        self.router.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX)
        self._runtime = runtime = runtime_of(context)
        self._send, self._recv = runtime.send, runtime.recv
        self._events = option_reader(self.router, _EVENTS, runtime.get)
        self._has_more = option_reader(self.router, _RCVMORE, runtime.get)
        self.fd = int(runtime.get(self.router, _FD))
        self.monitor: Monitor | None = None
        self._pair = (self.router, self.router)
        self.kept: list[bytes] = []
        self.raw = raw_socket(self.router)
        if self.raw is not None:
            self.is_readable = self.raw.has_input  # type: ignore[method-assign]

    def dial(self, endpoint: str) -> bytes:
        """Connect to a link endpoint; return the handle of the connection.

        Raises:
            EndpointError: libzmq refuses the endpoint.
        """
        self.router.setsockopt(zmq.IPV6, int(needs_ipv6(endpoint)))
        with refused_by_libzmq(endpoint, "name the host and the port of the other side"):
            return routers.dial(self.router, endpoint, self._runtime.random_bytes)

    def hang_up(self, endpoint: str) -> None:
        """End all connections to a link endpoint. The last message must have been read to its end."""
        # Errno is ENOENT if no connection exists, or if the connection of an inproc endpoint has already ended.
        with suppress(zmq.ZMQError):
            self.router.disconnect(endpoint)

    def watch(self, more: int = 0) -> Monitor:
        """Return the monitor of the connections. The first call creates the monitor.

        Args:
            more: mask of events to report in addition to the events of TCP connections.
        """
        if self.monitor is None:
            events = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED | more
            self.monitor = Monitor(self.router, int(events))
        return self.monitor

    def unwatch(self) -> None:
        """Close the monitor of the connections."""
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None

    def begin(self) -> None:
        """Read the remaining frames of an interrupted message. The engine calls this before `read`."""
        if self.raw is None:
            while self._has_more(self.router):
                self._recv(self.router, _LAST)

    def read(self) -> list[bytes] | None:
        """Return the handle and the frame of the next message, or None. `discard` frees the message.

        A hostile peer may send a message with more frames. Then all frames are read, and the result has a third entry.
        """
        message, router = self.kept, self.router
        if self.raw is not None:
            if not message:
                # A single call of C, so that no signal handler can raise between the read and the change of the list.
                message.extend(_chain(_chain(map(self.raw.read, _ONE, _FRAMES))))
            return message or None
        if not message:
            try:
                # The assignment stores both frames or none.
                message[:] = map(self._recv, self._pair, _READ)
            except zmq.Again:
                return None
        if self._has_more(router):
            message.append(b"")
            self.begin()
        return message

    def discard(self) -> None:
        """Free the message that `read` returned last."""
        self.kept.clear()

    def send(self, handle: bytes, frame: bytes) -> bool:
        """Send a frame; return whether the socket has accepted it."""
        if self.raw is not None:
            return not self.raw.send_pair(handle, frame)
        try:
            # `any` calls `send` for both frames in C, because `send` returns None.
            any(map(self._send, self._pair, (handle, frame), _SEND))
        except zmq.ZMQError as error:
            if error.errno in (EAGAIN, EHOSTUNREACH):
                return False
            raise
        except BaseException:
            # The empty frame completes the message, and publishers ignore it. Outside a message, libzmq ignores it.
            with suppress(zmq.ZMQError):
                self._send(self.router, b"", _LAST)
            raise
        return True

    def is_readable(self) -> bool:
        """Return whether the socket has a message to read. The call also processes libzmq's internal commands."""
        return bool(self._events(self.router) & _POLLIN)

    def close(self, linger: int = LINGER) -> None:
        """Close the socket. libzmq has `linger` milliseconds to deliver the messages that the socket has accepted."""
        self.unwatch()
        _open.discard(self)
        self.router.close(linger)
