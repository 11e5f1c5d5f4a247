"""Context of model sockets. It represents one process on the virtual network."""

from __future__ import annotations

from itertools import count
from typing import Any

import zmq

from oz.testing.descriptors import VirtualPoll
from oz.testing.network import Network
from oz.testing.sockets import TYPES, Socket
from oz.transport.runtime import Runtime

CALL_SECONDS = 20e-6
"""Seconds by which each call of `busy_clock` advances this clock. If it did not advance, an awaited `publish` would
never yield to the event loop."""

EPOCH_NS = 1_767_225_600_000_000_000
"""Wall-clock time at which virtual clocks begin, in nanoseconds since 1970: the start of 2026 in UTC."""


class Context:
    """Process of a member of a bus. Engines use this class in place of `zmq.Context`.

    Attributes:
        network: virtual network of the sockets.
        host: name of the host. Faults select processes by this name.
        closed: whether the process was killed.
        ahead: seconds by which the clocks of the process are ahead of the clock of the network. A test increases this
            number to simulate a host that was suspended.
        runtime: functions that the engines call.
        monitored: dict from the address of a monitor to the monitored socket. When a PAIR socket connects to an
            address, the entry of the address is removed.
    """

    def __init__(self, network: Network, host: str = "host") -> None:
        """Create a context. All contexts of one host are killed together."""
        self.network = network
        self.host = host
        self.closed = False
        self.ahead = 0.0
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
        self.monitored: dict[str, Socket] = {}
        self._sockets: dict[Socket, None] = {}
        network.add_process(host, self._die)

    def socket(self, socket_type: int, socket_class: Any = None) -> Socket:
        """Create a socket: ROUTER, XPUB, SUB or PAIR.

        Args:
            socket_type: ZeroMQ type, such as `zmq.SUB`.
            socket_class: ignored. Engines pass a class of pyzmq.

        Raises:
            zmq.ContextTerminated: the process was killed.
        """
        if self.closed:
            raise zmq.ContextTerminated
        made = TYPES[int(socket_type)](self, int(socket_type))
        self._sockets[made] = None
        return made

    def _die(self) -> None:
        self.closed = True
        for socket in self._sockets:
            socket.die()
