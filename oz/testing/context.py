"""Process on the virtual network: the context of its sockets."""

from __future__ import annotations

from itertools import count
from typing import Any

import zmq

from oz.testing.descriptors import VirtualPoll
from oz.testing.network import Network
from oz.testing.sockets import TYPES, Socket
from oz.transport.runtime import Runtime

CALL_SECONDS = 20e-6
"""Seconds that an awaited `publish` counts as, for turns of the event loop: the clock stands still meanwhile."""

EPOCH_NS = 1_767_225_600_000_000_000
"""Time of virtual clocks at 0, in nanoseconds since 1970: the start of 2026 in UTC."""


class Context:
    """Process of a member of a bus. Engines use it in place of a `zmq.Context`.

    Attributes:
        network: of the sockets.
        host: name for faults.
        closed: whether the process was killed.
        ahead: seconds that the clocks of the process are ahead of the clock of the network. An increase is a jump,
            as after a suspend of the host.
        runtime: functions that the engines call.
        monitored: sockets with a monitor but without its PAIR yet, by address.
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
            socket_type: as a number.
            socket_class: without effect. Engines give the class of pyzmq.

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
