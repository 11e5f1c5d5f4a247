"""A process of the virtual network: the context that its sockets are made by."""

from __future__ import annotations

import errno
from itertools import count
from typing import Any

import zmq

from oz.protocol.publisher.accounts import Peer
from oz.testing.descriptors import VirtualPoll
from oz.testing.network import Network
from oz.testing.sockets import Socket
from oz.testing.wires import IoThread
from oz.transport.backend import Backend
from oz.transport.runtime import Runtime

CALL_SECONDS = 20e-6
"""Seconds that an awaited `publish` counts as, for turns of the event loop: the clock stands still meanwhile."""

EPOCH_NS = 1_767_225_600_000_000_000
"""The time at which virtual clocks begin, in nanoseconds since 1970: 2026 in UTC."""


class Context:
    """A process with sockets, on a host of a virtual network.

    Attributes:
        network: where its sockets are.
        host: the name by which faults mean it.
        closed: whether it is terminated.
        io: the thread in which connections are served.
        backend: what its sockets are called by.
        runtime: the same, for the engines of links.
        sockopts: options of sockets that are made, as pyzmq's contexts have them; none here.
        sockets: what is open.
    """

    socket_class: type[Socket] = Socket

    def __init__(self, network: Network, host: str = "host") -> None:
        """Make a context; several on one host are killed together.

        Args:
            network: where its sockets are.
            host: a name.
        """
        self.network = network
        self.host = host
        self.closed = False
        self.io = IoThread(network)
        self.sockopts: dict[int, int] = {}
        clock = network.clock
        self.backend = Backend(
            send=Socket.send,
            recv=Socket.recv,
            recv_named=self._receive_named,
            get=Socket.get,
            set=Socket.set,
            bind=Socket.bind,
            connect=Socket.connect,
            unbind=Socket.unbind,
            disconnect=Socket.disconnect,
            monotonic=lambda: clock.now,
            time_ns=lambda: EPOCH_NS + round(clock.now * 1e9),
            sleep=lambda seconds: network.run_until(clock.now + seconds),
            cut=self._cut,
            inode=self._inode,
            random_bytes=network.random.randbytes,
            tells_peers=True,
            prove=Socket.prove,
        )
        self.runtime = Runtime(
            get=Socket.get,
            send=Socket.send,
            recv=Socket.recv,
            clock=self.backend.monotonic,
            busy_clock=count(0.0, CALL_SECONDS).__next__,
            time_ns=self.backend.time_ns,
            random_bytes=self.backend.random_bytes,
            create_poll=VirtualPoll,
        )
        self.sockets: dict[Socket, None] = {}
        self._names: dict[str, Socket] = {}
        self._waiting: dict[str, list[Socket]] = {}
        network.add_process(host, self._die)

    def _inode(self, number: int) -> int | None:
        """Return what tells a connection from others, which is its number, while it stands."""
        return number if self.network.is_link(number, self.host) else None

    def _cut(self, peer: Peer) -> None:
        self.network.end_link(peer.descriptor)

    def _receive_named(self, socket: Socket, flags: int) -> tuple[bytes, Peer | None]:
        """Receive a frame, and tell by which connection it came."""
        frame = Socket.recv(socket, flags, copy=False)
        try:
            number = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:
            return frame.bytes, None
        return frame.bytes, Peer(number, self._inode(number))

    def socket(self, socket_type: int, socket_class: Any = None) -> Socket:
        """Make a socket of a type: PUB, XPUB, SUB, XSUB, DEALER, ROUTER or PAIR.

        Args:
            socket_type: as a number.
            socket_class: None for sockets of the class of this context. Engines of links give the class of
                pyzmq, and get a `Socket`.

        Raises:
            zmq.ZMQError: there is no model of that type, or the context is terminated.
        """
        if self.closed:
            raise zmq.ContextTerminated
        kind = self.socket_class if socket_class is None else Socket
        made = kind(self, int(socket_type))
        self.sockets[made] = None
        return made

    def _add_socket(self, made: object) -> None:
        """Know a socket that was made otherwise, as pyzmq's contexts are told of it."""
        if isinstance(made, Socket):
            self.sockets[made] = None

    def term(self) -> None:
        """Wait until every socket is closed and has sent what it lingers for."""
        self.closed = True
        if not self.network.wait(lambda: all(not one.is_busy() for one in self.sockets)):
            raise zmq.ZMQError(errno.EDEADLK)

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets, and terminate."""
        for one in list(self.sockets):
            one.close(linger)
        self.term()

    def _die(self) -> None:
        self.closed = True
        for one in list(self.sockets):
            one.die()

    # inproc ----------------------------------------------------------------------------------------------

    def bind_name(self, name: str, socket: Socket) -> None:
        """Register a name of a socket within this context; those that wait for the name are joined to it."""
        if name in self._names:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        self._names[name] = socket
        for other in self._waiting.pop(name, []):
            if not other.closed:
                other.endpoints.join(name, socket)

    def unbind_name(self, name: str) -> None:
        """Free a name."""
        self._names.pop(name, None)

    def connect_name(self, name: str, socket: Socket) -> None:
        """Join a socket to the one of a name, now or when there is one."""
        if (other := self._names.get(name)) is None:
            self._waiting.setdefault(name, []).append(socket)
        else:
            socket.endpoints.join(name, other)
