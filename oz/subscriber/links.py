"""Socket of a subscriber for all its links: one ROUTER socket that connects to each publisher.

Theory of operation
-------------------
Each connection has a *handle*: the routing id that precedes each frame. No handle is used for two connections, because
libzmq would abort the process. To replace a connection, the engine calls `hang_up`, which ends all connections to the
endpoint. Then `dial` connects with a new handle. The engine discards frames that arrive with an old handle.

A message is always read completely, because libzmq aborts if a pipe ends inside the read of a multipart message.

A signal handler may raise an exception between two instructions of Python, and at the end of pyzmq's `send` and `recv`,
which run signal handlers. If the exception interrupts a message, `begin` and `send` complete the message. At any other
point no frame is lost, because `read` returns the same message until the engine calls `discard`. A lost frame would
force the link to replace its connection.

The descriptor of a ROUTER signals several messages only once, and a send may consume the signal. Therefore the engine
checks `is_readable` after each send.
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
"""Maximum time in milliseconds after which libzmq tries again to connect."""
LINGER = 200
"""Maximum time in milliseconds in which libzmq delivers a BYE after `close`."""

_LAST = int(zmq.NOBLOCK)
_READ = (_LAST, _LAST)
_SEND = (int(zmq.SNDMORE | zmq.NOBLOCK), _LAST)
_POLLIN, _EVENTS, _RCVMORE, _FD = int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.FD)


_open: set[Dialler] = set()
"""Open `Dialler` objects. The set keeps these objects alive. Otherwise the garbage collector could close the socket
before the subscriber that uses it."""


class Dialler:
    """ROUTER socket that connects to publishers.

    Attributes:
        router: pyzmq socket.
        fd: descriptor that signals messages.
        monitor: monitor of the connections; None while no monitor is needed.
        raw: object that lets C code use the socket, or None.
        kept: frames of the message that `read` returned last; empty after `discard`.
    """

    def __init__(self, context: zmq.Context[Any], *, message_bytes: int, window: int) -> None:
        self.router = routers.dialling_router(context, message_bytes=message_bytes, window=window)
        # A garbage-collected subscriber must be able to send BYE on this socket.
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
        """End all connections to a link endpoint. The caller must have read the last message completely."""
        # ZMQError with ENOENT: no connection exists, or an inproc connection has already ended.
        with suppress(zmq.ZMQError):
            self.router.disconnect(endpoint)

    def watch(self, more: int = 0) -> Monitor:
        """Return the monitor of the connections. The first call creates the monitor.

        Args:
            more: bit mask of events to report, in addition to EVENT_CONNECTED and EVENT_CONNECT_RETRIED.
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
        """Return the handle and the frame of the next message, or None. Call `discard` afterwards.

        If a faulty peer sends a message with more frames, all frames are read, and the result has a third item.
        """
        message, router = self.kept, self.router
        if self.raw is not None:
            if not message:
                # A single C call, so that no signal handler can raise after the read and before the list is extended.
                message.extend(_chain(_chain(map(self.raw.read, _ONE, _FRAMES))))
            return message or None
        if not message:
            try:
                # The assignment stores both frames or no frame.
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
            # A loop in C: `send` returns None, so that `any` calls it for both frames.
            any(map(self._send, self._pair, (handle, frame), _SEND))
        except zmq.ZMQError as error:
            if error.errno in (EAGAIN, EHOSTUNREACH):
                return False
            raise
        except BaseException:
            # If a message is incomplete, the empty frame completes it, and the publisher ignores the message.
            # Otherwise libzmq ignores the empty frame.
            with suppress(zmq.ZMQError):
                self._send(self.router, b"", _LAST)
            raise
        return True

    def is_readable(self) -> bool:
        """Return whether a message can be read. The call lets libzmq process its pending commands."""
        return bool(self._events(self.router) & _POLLIN)

    def close(self, linger: int = LINGER) -> None:
        """Close the socket.

        Args:
            linger: milliseconds for which libzmq continues to send.
        """
        self.unwatch()
        _open.discard(self)
        self.router.close(linger)
