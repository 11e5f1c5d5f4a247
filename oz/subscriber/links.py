"""Socket of a subscriber for all its links: one ROUTER that dials.

Theory of operation
-------------------
Each connection has a handle, the routing id that names it in frames. A handle is used once, because libzmq aborts on
a duplicate. To replace a connection, the engine calls `hang_up`, which ends every connection to the endpoint, and
`dial`, which connects with a new handle. The engine discards frames of a handle that is not current.

Whole messages are read, because libzmq aborts if a pipe ends inside the read of a multipart message. An exception of
a signal handler may be raised between two instructions of Python, and at the end of each call of pyzmq's `send` and
`recv`, which run signal handlers. `begin` and `send` complete a message that was interrupted. `read` returns the same
message until the engine calls `discard`, so that an interruption at any other point loses no frame. A lost frame
costs a new connection.

The descriptor of a ROUTER signals once for several messages. A send may consume the signal, so that the
engine checks `is_readable` after each send.
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
"""Longest pause in milliseconds between two attempts of libzmq to connect."""
LINGER = 200
"""Milliseconds for which libzmq delivers a BYE after `close`."""

_LAST = int(zmq.NOBLOCK)
_READ = (_LAST, _LAST)
_SEND = (int(zmq.SNDMORE | zmq.NOBLOCK), _LAST)
_POLLIN, _EVENTS, _RCVMORE, _FD = int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.FD)


_open: set[Dialler] = set()
"""Kept from garbage collection, which closes sockets before or after the objects that own them."""


class Dialler:
    """Dialling ROUTER.

    Attributes:
        router: socket of pyzmq.
        fd: descriptor that signals messages.
        monitor: of the connections, while one is needed.
        raw: C access to the socket, or None.
        kept: frames of the message that `read` returned last, until `discard`.
    """

    def __init__(self, context: zmq.Context[Any], *, message_bytes: int, window: int) -> None:
        """Create the socket. Arguments as in `routers.dialling_router`."""
        self.router = routers.dialling_router(context, message_bytes=message_bytes, window=window)
        # The owner of a garbage-collected subscriber sends BYE before the socket closes.
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
        """Connect to a link endpoint and return the handle.

        Raises:
            EndpointError: libzmq refuses the endpoint.
        """
        self.router.setsockopt(zmq.IPV6, int(needs_ipv6(endpoint)))
        with refused_by_libzmq(endpoint, "name the host and the port of the other side"):
            return routers.dial(self.router, endpoint, self._runtime.random_bytes)

    def hang_up(self, endpoint: str) -> None:
        """End all connections to a link endpoint. Each message must be read to its end."""
        # ENOENT: there is none, or the connection of an inproc endpoint has ended already.
        with suppress(zmq.ZMQError):
            self.router.disconnect(endpoint)

    def watch(self, more: int = 0) -> Monitor:
        """Return the monitor of the connections; it is created at the first call.

        Args:
            more: events beside those of TCP.
        """
        if self.monitor is None:
            events = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED | more
            self.monitor = Monitor(self.router, int(events))
        return self.monitor

    def unwatch(self) -> None:
        """End the monitor."""
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None

    def begin(self) -> None:
        """Read the remaining frames of an interrupted message. Call it before `read` after an interruption."""
        if self.raw is None:
            while self._has_more(self.router):
                self._recv(self.router, _LAST)

    def read(self) -> list[bytes] | None:
        """Return handle and frame of the next message, or None. `discard` frees the message.

        If a hostile peer sends more frames, the message is read whole, and the result has a third entry.
        """
        message, router = self.kept, self.router
        if self.raw is not None:
            if not message:
                # One call of C, so that no exception of a signal handler comes between the read and the list.
                message.extend(_chain(_chain(map(self.raw.read, _ONE, _FRAMES))))
            return message or None
        if not message:
            try:
                # It assigns both frames or none.
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
            # An iteration in C, because `send` returns None.
            any(map(self._send, self._pair, (handle, frame), _SEND))
        except zmq.ZMQError as error:
            if error.errno in (EAGAIN, EHOSTUNREACH):
                return False
            raise
        except BaseException:
            # A publisher ignores an empty frame. Outside a message, libzmq ignores it.
            with suppress(zmq.ZMQError):
                self._send(self.router, b"", _LAST)
            raise
        return True

    def is_readable(self) -> bool:
        """Return whether the socket has a message. The call processes commands of libzmq."""
        return bool(self._events(self.router) & _POLLIN)

    def close(self, linger: int = LINGER) -> None:
        """Close the socket; messages that it has accepted are delivered for `linger` milliseconds."""
        self.unwatch()
        _open.discard(self)
        self.router.close(linger)
