"""Listening ROUTER of a publisher, which receives and sends the frames of links.

Each message on a link has two frames: the routing id, and one frame of the protocol. libzmq can raise EAGAIN and
EHOSTUNREACH only for the routing id. `send` returns these errors as results, because the sessions handle them.

After a send, a frame may wait although the descriptor of the socket is not readable, because the send has already
processed the libzmq command that makes the descriptor readable. Therefore the caller checks `has_input` after it has
sent frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from errno import EAGAIN, EHOSTUNREACH
from typing import Any

import zmq

from oz.transport.connections import Connection, cut, inode_of
from oz.transport.libzmq import SHARED_FRAME, option_reader, raw_socket
from oz.transport.peer_keys import key_of_client
from oz.transport.routers import listening_router
from oz.transport.runtime import runtime_of
from oz.wire import links

TAKEN, FULL, GONE = range(3)
"""Results of `LinkListener.send`: TAKEN if the socket accepted the frames, FULL if the queue of the route is full
(EAGAIN), GONE if the route has no connection (EHOSTUNREACH)."""

PROBE = (b"",)
"""Empty frame, which makes a subscriber send HELLO again. libzmq sends an empty frame on each new connection too."""

SHARED_BYTES = 4096
"""Sessions share the frame of a body of at least this number of bytes. A copy of a smaller body costs less."""

MAX_LINGER = 10_000
"""Milliseconds for which libzmq continues to send after `close(timeout=None)`.

Without a limit, `zmq_ctx_term` did not return in 3 of 97 runs, although no subscriber was left.
"""
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)
_ONE_FRAME, _TWO_FRAMES = (_MORE, _LAST), (_MORE, _LAST, _MORE, _LAST)
_BOTH = (_LAST, _LAST)
_COPIED = (True, False)
_HELLO = bytes((links.HELLO,))
_SOURCE = int(zmq.SRCFD)
_RECEIVED = 100  # Maximum number of received frames of one connection that wait in libzmq.
_MAX_CONNECTIONS = 65_536
_POLLIN, _EVENTS, _RCVMORE = int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE)


class SharedJoin:
    """Callable that joins a head and a body into one frame. Sessions with equal heads share this frame."""

    def __init__(self) -> None:
        self._last: tuple[bytes, bytes, Any] = b"", b"", None

    def __call__(self, head: bytes, body: bytes) -> Any:
        """Return the JOINED frame of a body and its head. The head must contain no position differences."""
        if len(body) < SHARED_BYTES:
            return links.join(head, body)
        known_head, known_body, frame = self._last
        if body is not known_body or head != known_head:
            frame = SHARED_FRAME(links.joined_head(head), body)
            # A single assignment, because a signal handler may raise between two assignments.
            self._last = head, body, frame
        return frame


class LinkListener:
    """ROUTER for links. The caller of each method holds the lock of the engine.

    Attributes:
        socket: ROUTER socket.
        rejected: number of rejected messages; each had several frames behind the routing id.
        raw: object that lets C code use the socket; None without the compiled part.
        user: key of the peer whose frame `read` returned last; None without keys.
    """

    # C code reads the slot `raw`.
    __slots__ = ("__dict__", "raw")

    user: str | None = None

    def __init__(
        self, context: zmq.Context[Any], *, message_bytes: int, window: int, handshake: float
    ) -> None:
        """Create the socket, without endpoints.

        Args:
            context: ZeroMQ context of the socket.
            message_bytes: maximum size in bytes of a message.
            window: maximum number of unacknowledged batches of one link.
            handshake: maximum time in seconds for ZeroMQ's handshake with a peer.
        """
        self.socket = listening_router(context, message_bytes=message_bytes, window=window)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, max(int(handshake * 1000), 1))
        # Subscribers send only small frames. If the receive queue is full, TCP delays the subscriber, without a loss.
        self.socket.setsockopt(zmq.MAXMSGSIZE, links.MAX_CONTROL)
        self.socket.setsockopt(zmq.RCVHWM, _RECEIVED)
        self.rejected = 0
        runtime = runtime_of(context)
        self._send, self._recv = runtime.send, runtime.recv
        self._events = option_reader(self.socket, _EVENTS, runtime.get)
        self._has_more = option_reader(self.socket, _RCVMORE, runtime.get)
        self.raw = raw_socket(self.socket)
        if self.raw is not None:
            self.has_input = self.raw.has_input  # type: ignore[method-assign]
        self._pair = (self.socket, self.socket)
        self._four = (self.socket,) * 4

    def bind(self, endpoint: str) -> str:
        """Bind to an endpoint; return the endpoint with its port.

        Raises:
            zmq.ZMQError: libzmq refuses the endpoint.
        """
        self.socket.bind(endpoint)
        if not endpoint.endswith(":*"):
            return endpoint
        bound: str = self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]
        return f"{endpoint[:-1]}{bound.rpartition(':')[2]}"

    def has_input(self) -> bool:
        """Return whether a frame can be read. The call lets libzmq process its pending commands."""
        return bool(self._events(self.socket) & _POLLIN)

    def read(self, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Read at most `limit` messages; yield pairs of routing id and frame."""
        if self.raw is not None:
            for _ in range(limit):
                for frames in (found := self.raw.read(1, 3)):
                    if len(frames) == 2:
                        yield frames[0], frames[1]
                    else:
                        self.rejected += 1
                if not found:
                    return
            return
        socket, events, has_more, recv = self.socket, self._events, self._has_more, self._recv
        if has_more(socket):
            # pyzmq runs signal handlers at the end of `recv`. One of them has raised between two frames of a message.
            self._skip()
        for _ in range(limit):
            if not events(socket) & _POLLIN:
                return
            route, frame = map(recv, self._pair, _BOTH)
            if has_more(socket):
                self._skip()
            else:
                yield route, frame

    def _skip(self) -> None:
        """Read and discard the remaining frames of a message. libzmq has received the whole message already."""
        self.rejected += 1
        while self._has_more(self.socket):
            self._recv(self.socket, _LAST)

    def send(self, route: bytes, frames: tuple[Any, ...]) -> int:
        """Send one or two frames to a route, each as a separate message; return TAKEN, FULL or GONE.

        After FULL for two messages, the socket may have accepted the first message. The caller sends both messages
        again.

        Raises:
            zmq.ZMQError: the context is terminated.
        """
        if self.raw is not None:
            for frame in frames:
                error = self.raw.send_pair(route, frame)
                if error:
                    return FULL if error == EAGAIN else GONE
            return TAKEN
        try:
            # A loop in C: `send` returns None, so that `any` calls it for each frame.
            if len(frames) == 1:
                any(map(self._send, self._pair, (route, frames[0]), _ONE_FRAME))
            else:
                any(map(self._send, self._four, (route, frames[0], route, frames[1]), _TWO_FRAMES))
        except zmq.ZMQError as error:
            if error.errno == EAGAIN:
                return FULL
            if error.errno == EHOSTUNREACH:
                return GONE
            raise
        except BaseException:
            # A signal handler has raised, perhaps between the frames of a message. Then an empty frame completes the
            # message, and the subscriber answers this probe with HELLO. Otherwise libzmq ignores the empty frame.
            with suppress(zmq.ZMQError):
                self._send(self.socket, b"", _LAST)
            raise
        return TAKEN

    def cut(self, route: bytes) -> None:
        """Do nothing. In `KeyedListener`, this method ends the connection of a route."""

    def close(self, linger: int) -> None:
        """Close the socket.

        Args:
            linger: milliseconds for which libzmq continues to send; -1 means `MAX_LINGER`.
        """
        self.socket.close(MAX_LINGER if linger < 0 else linger)


class KeyedListener(LinkListener):
    """ROUTER with keys: the publisher knows the key that sent each received frame.

    Frames are read as pyzmq `Frame` objects, because only these have the key and the descriptor of their connection.
    """

    def __init__(
        self, context: zmq.Context[Any], *, message_bytes: int, window: int, handshake: float
    ) -> None:
        super().__init__(context, message_bytes=message_bytes, window=window, handshake=handshake)
        self._connections: dict[bytes, Connection] = {}

    def read(self, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Read at most `limit` messages; yield pairs of routing id and frame. Set `user` to the key of the sender."""
        socket: Any = self.socket
        if self._has_more(socket):
            self._skip()
        for _ in range(limit):
            if not self._events(socket) & _POLLIN:
                return
            received: Any = map(self._recv, self._pair, _BOTH, _COPIED)
            route, frame = received
            if self._has_more(socket):
                self._skip()
                continue
            self.user = key_of_client(frame)
            content = frame.bytes
            if self.user is not None and content[:1] == _HELLO:
                self._remember(route, frame)
            yield route, content

    def _remember(self, route: bytes, frame: zmq.Frame) -> None:
        connections = self._connections
        if len(connections) >= _MAX_CONNECTIONS:
            del connections[next(iter(connections))]
        descriptor = int(frame.get(_SOURCE))
        connections[route] = Connection(descriptor, inode_of(descriptor), self.user)

    def cut(self, route: bytes) -> None:
        """End the connection of a route whose key is no longer trusted."""
        connection = self._connections.pop(route, None)
        if connection is not None:
            cut(connection)
