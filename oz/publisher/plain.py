"""XPUB of a publisher: plain ZeroMQ subscribers, which filter by prefix.

The socket is not in manual mode, because in manual mode libzmq 4.3.5 reads freed memory when a connection ends.
With XPUB_VERBOSER, libzmq reports each subscription and unsubscription of each subscriber, and also reports
unsubscriptions when a connection ends. The publisher counts subscriptions by these reports. The XPUB sends only
messages of the program, because any other message would reach every subscriber to `b""`.

The publisher sends a message to the XPUB only if a subscriber has subscribed to a prefix of the message's subject.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import zmq

from oz.transport.endpoints import needs_ipv6
from oz.transport.libzmq import option_reader, raw_socket
from oz.transport.runtime import runtime_of

LONGEST_PREFIX = 131_071
"""Maximum size of a subscription in bytes. Longer prefixes could overflow the C stack, because libzmq walks its prefix
tree by recursion."""
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)
_FLAGS = (_MORE, _LAST)
_ONE = (_LAST,)
_POLLIN, _EVENTS = int(zmq.POLLIN), int(zmq.EVENTS)


class PlainSubscribers:
    """XPUB and the prefixes of its subscribers. The caller of each method holds the lock of the engine.

    Attributes:
        socket: XPUB socket.
        raw: object that lets C code use the socket; None without the compiled part, or with a delimiter.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        *,
        high_water_mark: int,
        longest_prefix: int,
        handshake: float,
        refuses: bool,
        delimiter: bytes = b"",
    ) -> None:
        """Create the socket, without endpoints.

        Args:
            context: ZeroMQ context of the socket.
            high_water_mark: maximum number of messages that wait for one subscriber.
            longest_prefix: maximum size of a subscription in bytes.
            handshake: maximum time in seconds for ZeroMQ's handshake with a peer.
            refuses: whether `send` refuses a message if a subscriber is full. Otherwise libzmq drops the message for
                this subscriber.
            delimiter: bytes between subject and payload in messages of one frame; empty for messages of two frames.
        """
        self.socket: zmq.Socket[bytes] = context.socket(zmq.XPUB, socket_class=zmq.Socket)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.XPUB_VERBOSER, 1),
            (zmq.XPUB_NODROP, int(refuses)),
            (zmq.SNDHWM, high_water_mark),
            (zmq.MAXMSGSIZE, min(longest_prefix, LONGEST_PREFIX) + 1),
            (zmq.HANDSHAKE_IVL, max(int(handshake * 1000), 1)),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 5),
            (zmq.TCP_KEEPALIVE_INTVL, 2),
            (zmq.TCP_KEEPALIVE_CNT, 3),
        ):
            self.socket.setsockopt(option, value)
        self._pair = (self.socket, self.socket)
        self._delimiter = delimiter
        runtime = runtime_of(context)
        self._send, self._recv = runtime.send, runtime.recv
        self._events = option_reader(self.socket, _EVENTS, runtime.get)
        # C code sends messages of two frames only.
        self.raw = None if delimiter else raw_socket(self.socket)
        self._counts: dict[bytes, int] = {}
        self._of_length: dict[int, int] = {}
        self._lengths: list[int] = []
        self._unread: deque[bytes] = deque()

    def bind(self, endpoint: str) -> str:
        """Bind to an endpoint; return the endpoint with its port.

        Raises:
            zmq.ZMQError: libzmq refuses the endpoint.
        """
        self._allow_ipv6(endpoint)
        self.socket.bind(endpoint)
        return self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]

    def connect(self, endpoint: str) -> None:
        """Connect to an endpoint, such as the endpoint of a proxy.

        Raises:
            zmq.ZMQError: libzmq refuses the endpoint.
        """
        self._allow_ipv6(endpoint)
        self.socket.connect(endpoint)

    def _allow_ipv6(self, endpoint: str) -> None:
        # Set IPV6 only for an endpoint that needs it, because with IPV6=1 the address `*` includes IPv6 addresses.
        self.socket.setsockopt(zmq.IPV6, int(needs_ipv6(endpoint)))

    def has_input(self) -> bool:
        """Return whether a subscription can be read. The call lets libzmq process its pending commands."""
        return bool(self._events(self.socket) & _POLLIN)

    def read(self, limit: int) -> bool:
        """Read at most `limit` subscriptions; return whether at least one was read."""
        unread = self._unread
        for _ in range(limit):
            if not self.has_input():
                break
            unread.extend(map(self._recv, (self.socket,), _ONE))
        if not unread:
            return False
        while unread:
            self._apply(unread.popleft())
        return True

    def _apply(self, frame: bytes) -> None:
        """Apply a subscription (first byte 1) or an unsubscription (first byte 0)."""
        counts, kind, prefix = self._counts, frame[:1], frame[1:]
        if kind == b"\x01":
            counts[prefix] = counts.get(prefix, 0) + 1
            if counts[prefix] == 1:
                self._count_length(len(prefix), 1)
        elif kind == b"\x00" and prefix in counts:
            counts[prefix] -= 1
            if not counts[prefix]:
                del counts[prefix]
                self._count_length(len(prefix), -1)
        # A frame with another first byte is a message that an XSUB has sent. Such messages are ignored.

    def _count_length(self, length: int, change: int) -> None:
        """Update the set of prefix lengths. Counting all prefixes again for each change would delay `publish`."""
        count = self._of_length.pop(length, 0) + change
        if count:
            self._of_length[length] = count
        if not count or count == change:
            self._lengths = sorted(self._of_length)

    def wants(self, subject: bytes) -> bool:
        """Return whether a subscriber has subscribed to a prefix of a subject."""
        # The prefix may be a whole subject with the delimiter behind it.
        subject += self._delimiter
        counts, size = self._counts, len(subject)
        return any(subject[:length] in counts for length in self._lengths if length <= size)

    def count(self, subject: bytes | None) -> int:
        """Return how many subscriptions receive a subject. With None, return the number of all subscriptions."""
        counts = self._counts
        if subject is None:
            return sum(counts.values())
        subject += self._delimiter
        return sum(counts.get(subject[:length], 0) for length in self._lengths if length <= len(subject))

    def send(self, subject: bytes, payload: bytes) -> bool:
        """Send a message. Return False if a subscriber is full and the socket was created with `refuses`.

        Raises:
            zmq.ZMQError: the context is terminated.
        """
        try:
            if self._delimiter:
                self._send(self.socket, subject + self._delimiter + payload, _LAST)
                return True
            # A loop in C: `send` returns None, so that `any` calls it for both frames. A signal handler that raises can
            # leave half a message only if the signal comes during the first send.
            any(map(self._send, self._pair, (subject, payload), _FLAGS))
        except zmq.Again:
            return False
        return True

    def reconsider(self) -> None:
        """Do nothing. In `KeyedPlainSubscribers`, this method applies changed rights."""

    def match_reports(self, now: float) -> None:
        """Do nothing. In `KeyedPlainSubscribers`, this method matches the reports of ended connections."""

    def close(self, linger: int) -> None:
        """Close the socket.

        Args:
            linger: milliseconds for which libzmq continues to send.
        """
        self.socket.close(linger)
