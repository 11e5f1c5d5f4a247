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
        ahead: seconds that the clocks of the process are ahead of the clock of the network. An increase is a jump,
            as after a suspend of the host.
        io: thread of the connections.
        runtime: functions that the engines of links call.
        sockopts: default options of sockets, as in pyzmq; empty here.
        sockets: open sockets.
    """

    def __init__(self, network: Network, host: str = "host") -> None:
        """Create a context. All contexts of one host are killed together.

        Args:
            network: of the sockets.
            host: name for faults.
        """
        self.network = network
        self.host = host
        self.closed = False
        self.ahead = 0.0
        self.io = IoThread(network)
        self.sockopts: dict[int, int] = {}
        clock = network.clock
        self.runtime = Runtime(
            get=Socket.get,
            send=Socket.send,
            recv=Socket.recv,
            clock=lambda: clock.now + self.ahead,
            busy_clock=count(0.0, CALL_SECONDS).__next__,
            time_ns=lambda: EPOCH_NS + round((clock.now + self.ahead) * 1e9),
            random_bytes=network.random.randbytes,
            create_poll=VirtualPoll,
        )
        self.sockets: dict[Socket, None] = {}
        self._names: dict[str, Socket] = {}
        self._waiting: dict[str, list[Socket]] = {}
        network.add_process(host, self._die)

    def socket(self, socket_type: int, socket_class: Any = None) -> Socket:
        """Create a socket: PUB, XPUB, SUB, XSUB, DEALER, ROUTER or PAIR.

        Args:
            socket_type: as a number.
            socket_class: without effect. Engines give the class of pyzmq.

        Raises:
            zmq.ZMQError: the model has no such type, or the context is terminated.
        """
        if self.closed:
            raise zmq.ContextTerminated
        made = Socket(self, int(socket_type))
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
