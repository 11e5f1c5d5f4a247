"""Process on the virtual network: the context of its sockets."""

from __future__ import annotations

import errno
from itertools import count
from typing import Any

import zmq

from oz.testing.descriptors import VirtualPoll
from oz.testing.network import Network
from oz.testing.sockets import Socket
from oz.testing.wires import IoThread
from oz.transport.backend import Backend, Peer
from oz.transport.runtime import Runtime

CALL_SECONDS = 20e-6
"""Seconds that an awaited `publish` counts as, for turns of the event loop: the clock stands still meanwhile."""

EPOCH_NS = 1_767_225_600_000_000_000
"""Time of virtual clocks at 0, in nanoseconds since 1970: the begin of 2026 in UTC."""


class Context:
    """Process with sockets on a host of a virtual network.

    Attributes:
        network: of the sockets.
        host: name for faults.
        closed: whether it is terminated.
        io: thread of the connections.
        backend: functions that call the sockets.
        runtime: functions that the engines of links call.
        sockopts: default options of sockets, as in pyzmq; empty here.
        sockets: open sockets.
    """

    socket_class: type[Socket] = Socket

    def __init__(self, network: Network, host: str = "host") -> None:
        """Create a context. All contexts of one host are killed together.

        Args:
            network: of the sockets.
            host: name for faults.
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
        """Return the number of a connection while it is open, in place of an inode."""
        return number if self.network.is_link(number, self.host) else None

    def _cut(self, peer: Peer) -> None:
        self.network.end_link(peer.descriptor)

    def _receive_named(self, socket: Socket, flags: int) -> tuple[bytes, Peer | None]:
        """Receive a frame and the connection that it came over."""
        frame = Socket.recv(socket, flags, copy=False)
        try:
            number = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:
            return frame.bytes, None
        return frame.bytes, Peer(number, self._inode(number))

    def socket(self, socket_type: int, socket_class: Any = None) -> Socket:
        """Create a socket: PUB, XPUB, SUB, XSUB, DEALER, ROUTER or PAIR.

        Args:
            socket_type: as a number.
            socket_class: None for sockets of the class of this context. Engines of links give the class of
                pyzmq, and get a `Socket`.

        Raises:
            zmq.ZMQError: the model has no such type, or the context is terminated.
        """
        if self.closed:
            raise zmq.ContextTerminated
        kind = self.socket_class if socket_class is None else Socket
        made = kind(self, int(socket_type))
        self.sockets[made] = None
        return made

    def _add_socket(self, made: object) -> None:
        """Register a socket, as contexts of pyzmq do."""
        if isinstance(made, Socket):
            self.sockets[made] = None

    def term(self) -> None:
        """Wait until all sockets are closed and have sent their messages, or LINGER is over."""
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
        """Register an inproc name of a socket, and connect the sockets that wait for the name."""
        if name in self._names:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        self._names[name] = socket
        for other in self._waiting.pop(name, []):
            if not other.closed:
                other.endpoints.join(name, socket)

    def unbind_name(self, name: str) -> None:
        """Remove an inproc name."""
        self._names.pop(name, None)

    def connect_name(self, name: str, socket: Socket) -> None:
        """Connect a socket to an inproc name, now or when a socket binds it."""
        if (other := self._names.get(name)) is None:
            self._waiting.setdefault(name, []).append(socket)
        else:
            socket.endpoints.join(name, other)
