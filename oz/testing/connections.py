"""Connections between sockets of a test bus.

A connection has two ends, one for each socket. An end keeps the messages that its socket has sent, until they arrive at
the other socket. One socket dials (calls `connect`) and the other socket listens. The end of the dialling socket exists
from `connect` to `disconnect`. When the connection is lost, this end keeps its unsent messages, as in libzmq without
the option IMMEDIATE. The end of the listening socket exists only during one connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from oz.testing.network import Network, Port
    from oz.testing.sockets import Socket

Message = tuple[bytes, ...]
"""Frames of one message."""

CONNECTED, RETRIED = int(zmq.EVENT_CONNECTED), int(zmq.EVENT_CONNECT_RETRIED)
SUCCEEDED, DISCONNECTED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED)


class End:
    """One end of a connection.

    Attributes:
        socket: socket that this end belongs to.
        network: network of the socket.
        target: transport and address to which the socket connects; None for a listening socket.
        endpoint: endpoint to which the dialling socket connects, or that the listening socket has bound.
        name: routing id of the peer, if the socket is a ROUTER.
        peer: other end of the connection; None without a connection, or if only the peer has noticed a loss of the
            connection.
        hosts: names of the hosts of both sockets.
        is_local: whether the transport is inproc. A message over inproc arrives at the same virtual time.
        inbox: messages that have arrived at this end and wait for the socket.
        outgoing: messages that have not arrived at the peer. The messages at the start of this queue are in transit.
        has_ended: whether the end was closed or is lost for ever.
    """

    __slots__ = (
        "_arrivals",
        "_capacity",
        "_identity",
        "_interval",
        "_is_closing",
        "_last_arrival",
        "_sent_at",
        "_was_full",
        "endpoint",
        "has_ended",
        "hosts",
        "inbox",
        "is_local",
        "name",
        "network",
        "outgoing",
        "peer",
        "socket",
        "target",
    )

    def __init__(
        self, socket: Socket, endpoint: str, target: tuple[str, str] | None = None, name: bytes = b""
    ) -> None:
        self.socket, self.endpoint, self.target, self.name = socket, endpoint, target, name
        self.network: Network = socket.network
        self.is_local = target is not None and target[0] == "inproc"
        self.peer: End | None = None
        self.hosts: frozenset[str] = frozenset()
        self.inbox: deque[Message] = deque()
        self.outgoing: deque[Message] = deque()
        self._arrivals: deque[float] = deque()
        self._capacity = 0
        # As libzmq does in `connect`, copy the ROUTING_ID that the socket has now.
        self._identity = b"" if target is None else socket.identity
        self._interval = socket.number(zmq.RECONNECT_IVL) / 1000
        self._last_arrival, self._sent_at = 0.0, -1.0
        self._was_full = self._is_closing = self.has_ended = False

    # connecting ------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Try to connect to the target. If the attempt fails, try again later."""
        if (found := self._find()) is not None:
            self.socket.report(CONNECTED, self.endpoint)
            if self.is_local:
                self._join(found)
            else:
                self.network.clock.call_at(self.network.now + self.network.latency, self._shake_hands)

    def _find(self) -> Port | None:
        """Return the port that is bound to the target. If it cannot be reached, schedule another attempt."""
        if self.has_ended or self.target is None:
            return None
        network, host = self.network, self.socket.host
        found = network.find(self.target, host)
        if found is not None and not network.is_stalled(frozenset((host, found.host))):
            return found
        if found is None and network.is_refused(self.target):
            self.socket.report(RETRIED, self.endpoint)
        self._dial_later()
        return None

    def _dial_later(self) -> None:
        wait = self._interval + self.network.random.random() * self.socket.number(zmq.RECONNECT_IVL) / 1000
        longest = self.socket.number(zmq.RECONNECT_IVL_MAX) / 1000
        if longest:
            wait = min(wait, longest)
            self._interval = min(2 * self._interval, longest)
        self.network.clock.call_at(self.network.now + wait, self.dial)

    def _shake_hands(self) -> None:
        if (found := self._find()) is not None:
            self._join(found)

    def _join(self, found: Port) -> None:
        network = self.network
        self._interval = self.socket.number(zmq.RECONNECT_IVL) / 1000
        other = End(found.socket, found.endpoint, name=self._identity)
        self.hosts = other.hosts = frozenset((self.socket.host, found.host))
        other.is_local = self.is_local
        for end, peer in ((self, other), (other, self)):
            end.peer, end._capacity = peer, network.capacity
            end._last_arrival, end._sent_at = network.now, -1.0
        network.connections[self] = other
        found.socket.attach(other)
        if self.is_local:
            while self.outgoing:
                found.socket.arrived(other, self.outgoing.popleft())
        self.socket.report(SUCCEEDED, self.endpoint)
        self.pump()

    # messages --------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether the queue has space for one more message."""
        mark = self.socket.send_mark
        if (
            not mark
            or (self.is_local and self.peer is not None)
            or len(self.outgoing) - len(self._arrivals) < mark
        ):
            return True
        self._was_full = True
        return False

    def write(self, message: Message) -> None:
        """Send a message. The caller must have called `has_room` first."""
        peer = self.peer
        if self.is_local and peer is not None:
            peer.socket.arrived(peer, message)
            return
        self.outgoing.append(message)
        if peer is not None:
            self.pump()

    def pump(self) -> None:
        """Put messages into transit until the capacity of the connection is used up.

        Messages that are sent at the same time arrive together, because libzmq writes such messages in one system call.
        """
        arrivals, network = self._arrivals, self.network
        free = min(len(self.outgoing), self._capacity) - len(arrivals)
        if free > 0:
            now = network.clock.now
            is_slow = network.is_slow(self.hosts)
            for _ in range(free):
                if is_slow or now != self._sent_at or self._last_arrival <= now:
                    self._sent_at = now
                    self._last_arrival = network.arrival(self.hosts, self._last_arrival)
                    network.clock.call_at(self._last_arrival, self.deliver)
                arrivals.append(self._last_arrival)
            if self._was_full:
                self._was_full = False
                self.socket.signal()
        if self._is_closing and not self.outgoing:
            self.end()

    def deliver(self) -> None:
        """Move messages to the inbox of the peer if their time of arrival has passed and the inbox has space."""
        peer, network, arrivals, outgoing = self.peer, self.network, self._arrivals, self.outgoing
        if peer is None or network.is_stalled(self.hosts):
            return
        now, receiver, mark, count = network.clock.now, peer.socket, peer.socket.receive_mark, len(arrivals)
        is_mute = self in network.mute_ends
        while arrivals and arrivals[0] <= now and (not mark or len(peer.inbox) < mark):
            arrivals.popleft()
            message = outgoing.popleft()
            if not is_mute:
                receiver.arrived(peer, message)
        if len(arrivals) < count:
            self.pump()

    def read(self) -> Message:
        """Return the first message of the inbox."""
        inbox = self.inbox
        message = inbox.popleft()
        # As in libzmq, the sender may send further messages when half of a full queue has been read.
        if self.peer is not None and 2 * len(inbox) == self.socket.receive_mark & ~1:
            self.network.call_soon(self.peer.deliver)
        return message

    # ending ----------------------------------------------------------------------------------------------

    def close(self, linger: int) -> None:
        """End when all messages have arrived, or after `linger` milliseconds. With -1, wait for ever."""
        if self.has_ended:
            return
        if not linger:
            while len(self.outgoing) > len(self._arrivals):
                self.outgoing.pop()
        self._is_closing = True
        if not self.outgoing or (self.peer is None and self.target is None):
            self.end()
        elif linger > 0:
            self.network.clock.call_at(self.network.now + linger / 1000, self.end)

    def end(self) -> None:
        """End at once. The peer loses the connection."""
        if not self.has_ended:
            self.has_ended = True
            peer, self.peer = self.peer, None
            is_mute = self in self.network.mute_ends
            self._forget()
            if peer is not None and is_mute:
                peer.open_half()
            elif peer is not None:
                peer.break_off()

    def reset(self) -> None:
        """Break the connection for both ends."""
        if self.peer is not None:
            self.peer.break_off()
        self.break_off()

    def break_off(self) -> None:
        """Lose the connection and the messages in transit. The socket is notified after a short delay."""
        self.peer = None
        for _ in self._arrivals:
            self.outgoing.popleft()
        self._arrivals.clear()
        self._forget()
        self.network.call_soon(self._lost)

    def open_half(self) -> None:
        """Forget the peer, but do not report the loss of the connection to the socket. `heal` reports it."""
        self.peer = None
        self._forget()
        self.network.half_open_ends[self] = None

    def _forget(self) -> None:
        self.network.connections.pop(self, None)
        self.network.half_open_ends.pop(self, None)
        self.network.mute_ends.pop(self, None)

    def _lost(self) -> None:
        if self.has_ended:
            return
        if self.target is None or (self._is_closing and not self.outgoing):
            self.has_ended = True
            self.socket.detach(self)
            return
        self.socket.report(DISCONNECTED, self.endpoint)
        self.socket.hiccup(self)
        self._dial_later()
