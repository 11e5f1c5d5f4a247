"""Plain connections: one SUB for each endpoint, with the prefixes of the patterns.

A SUB serves endpoints with `filtering="prefix"`, endpoints that the subscriber binds, and endpoints whose
publisher has no links. libzmq filters by prefix; patterns decide after arrival.

- SNDHWM is 0: with a limit a SUB drops subscriptions of a burst without an error.
- A SUB is closed, never disconnected: libzmq aborts if a pipe ends inside the read of a multipart message.
- The monitor reports the handshake. Before it the publisher does not know the subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import zmq

from oz.subjects.index.patterns import PatternIndex
from oz.subscriber.links import Monitor, is_readable, read
from oz.subscriber.queue import Inbox
from oz.transport.endpoints import needs_ipv6, refused_by_libzmq
from oz.transport.ipc_paths import SocketFiles
from oz.transport.libzmq import raw_socket

_MOST_FRAMES = 1 << 30


class PlainPatterns:
    """Patterns that plain publishers may serve."""

    def __init__(self) -> None:
        self._index: PatternIndex[Inbox] = PatternIndex(cache_size=0)
        self._inboxes: dict[Inbox, None] = {}

    def add(self, inbox: Inbox) -> None:
        """Add the patterns of an inbox."""
        self._inboxes[inbox] = None
        for entry in inbox.entries:
            self._index.add(entry.pattern, inbox)

    def discard(self, inbox: Inbox) -> bool:
        """Remove the patterns of an inbox; return whether they were there."""
        if inbox not in self._inboxes:
            return False
        del self._inboxes[inbox]
        for entry in inbox.entries:
            self._index.discard(entry.pattern, inbox)
        return True

    def match(self, subject: bytes) -> tuple[Inbox, ...]:
        """Return the inboxes that match a subject. A pattern that ran out of time does not match."""
        return tuple(dict.fromkeys(self._index.find(subject).values))

    def prefixes(self) -> Iterable[bytes]:
        """Return the prefixes of all patterns, with repetitions."""
        return [prefix for inbox in self._inboxes for prefix in prefixes_of(inbox)]


def prefixes_of(inbox: Inbox) -> Iterable[bytes]:
    """Return the prefixes of the patterns of an inbox."""
    return [prefix for entry in inbox.entries for prefix in entry.pattern.prefixes]


class PlainSocket:
    """SUB of one endpoint.

    Attributes:
        socket: of pyzmq.
        endpoint: connected or bound, with the real port.
        is_ready: whether the handshake of the connection is done.
        is_empty: whether the last read emptied the socket.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        prefixes: Iterable[bytes],
        *,
        binds: bool,
        message_bytes: int,
        high_water_mark: int,
    ) -> None:
        """Create the SUB and connect or bind it.

        Raises:
            EndpointError: libzmq refuses the endpoint.
        """
        self._files = SocketFiles()
        self.monitor: Monitor | None = None
        self.socket: zmq.Socket[bytes] = context.socket(zmq.SUB, socket_class=zmq.Socket)
        self._raw = raw_socket(self.socket)
        self.fds = [int(self.socket.getsockopt(zmq.FD))]
        try:
            self._open(endpoint, prefixes, binds, message_bytes, high_water_mark)
        except BaseException:
            self.close()
            raise

    def _open(
        self, endpoint: str, prefixes: Iterable[bytes], binds: bool, message_bytes: int, high_water_mark: int
    ) -> None:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, high_water_mark),
            (zmq.MAXMSGSIZE, message_bytes),
            (zmq.IPV6, int(needs_ipv6(endpoint))),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 5),
            (zmq.TCP_KEEPALIVE_INTVL, 2),
            (zmq.TCP_KEEPALIVE_CNT, 3),
            (zmq.RECONNECT_IVL_MAX, 1_000),
        ):
            self.socket.setsockopt(option, value)
        self.subscribe(prefixes)
        self.is_empty = False
        # Over inproc there is no handshake, and no one reports a peer to a socket that is bound.
        self.is_ready = binds or endpoint.startswith("inproc://")
        if not self.is_ready:
            events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            self.monitor = Monitor(self.socket, int(events))
            self.fds.append(self.monitor.fd)
        with refused_by_libzmq(endpoint, "name a host and a port"):
            if binds:
                self._files.bind(self.socket, endpoint)
                last: Any = self.socket.getsockopt(zmq.LAST_ENDPOINT)
                endpoint = last.rstrip(b"\0").decode()
            else:
                self.socket.connect(endpoint)
        self.endpoint = endpoint

    def subscribe(self, prefixes: Iterable[bytes]) -> None:
        """Add prefixes. libzmq counts equal ones."""
        for prefix in prefixes:
            self.socket.setsockopt(zmq.SUBSCRIBE, prefix)

    def unsubscribe(self, prefixes: Iterable[bytes]) -> None:
        """Remove prefixes, each once."""
        for prefix in prefixes:
            self.socket.setsockopt(zmq.UNSUBSCRIBE, prefix)

    def read(self, limit: int) -> list[list[bytes]]:
        """Return the frames of up to `limit` messages."""
        messages: list[list[bytes]] = []
        self.is_empty = False
        if self._raw is not None:
            messages = self._raw.read(limit, _MOST_FRAMES)
            self.is_empty = len(messages) < limit
            return messages
        try:
            while len(messages) < limit:
                messages.append(read(self.socket))
        except zmq.Again:
            self.is_empty = True
        return messages

    def read_monitor(self) -> bool:
        """Read events of the connection; return whether `is_ready` has changed."""
        before = self.is_ready
        for event, _ in self.monitor.read() if self.monitor is not None else ():
            self.is_ready = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        return self.is_ready != before

    def is_readable(self) -> bool:
        """Return whether the socket or its monitor has a message."""
        return is_readable(self.socket) or (self.monitor is not None and is_readable(self.monitor.pair))

    def close(self) -> None:
        """Close the socket."""
        if self.monitor is not None:
            self.monitor.close()
        self._files.remove_all()
        self.socket.close(0)
