"""Virtual network of a test bus: bound endpoints, connections and faults.

Methods of the network never wait. The loop of the bus advances the clock of the network. The seed determines all random
properties, such as the delay of each message and the capacity of each connection.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import ceil
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from oz.testing.clock import VirtualClock

if TYPE_CHECKING:
    from oz.testing.connections import End
    from oz.testing.sockets import Socket

CAPACITY = (1, 64)
"""Smallest and largest capacity of a connection: the number of messages that may be in transit in one direction."""

GRID = 0.001
"""Default for `Network.grid`, in seconds."""


class Port(NamedTuple):
    """Bound endpoint.

    Attributes:
        socket: socket that has bound the endpoint.
        host: name of the socket's host.
        endpoint: endpoint as text.
    """

    socket: Socket
    host: str
    endpoint: str


class Network:
    """Network with a virtual clock and a seed.

    A host is only a name. Connections between two hosts can be reset, cut, stalled, throttled, half-open, or dead in
    one direction. A host can be killed.

    Attributes:
        clock: virtual clock.
        random: source of all random choices.
        latency: minimum time between the sending and the arrival of a message, in seconds.
        jitter: maximum additional time until the arrival of a message, in seconds.
        grid: interval in seconds. Messages arrive only at multiples of this interval. Therefore one turn of an engine
            reads several messages. With 0, messages arrive at any time.
        connections: dict from the dialling end to the listening end of each connection.
        half_open_ends: ends whose peer has noticed the loss of the connection, while they have not.
        mute_ends: ends whose sent messages are lost; see `mute`.
    """

    def __init__(self, seed: int = 0) -> None:
        """Create a network without hosts. The seed determines all random choices."""
        self.clock = VirtualClock()
        self.random = Random(seed)
        self._draw = self.random.random
        self.latency = self.jitter = 0.0005
        self.grid = GRID
        self.connections: dict[End, End] = {}
        self.half_open_ends: dict[End, None] = {}
        self.mute_ends: dict[End, None] = {}
        self._ports: dict[tuple[str, str], Port] = {}
        self._numbers = count(49152)
        self._cut: set[frozenset[str]] = set()
        self._stalled: set[frozenset[str]] = set()
        self._rates: dict[frozenset[str], float] = {}
        self._processes: dict[str, list[Callable[[], None]]] = {}

    # time ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.clock.now

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call a function after a short random delay."""
        clock = self.clock
        clock.call_at(clock.now + self._draw() * self.jitter, action)

    def arrival(self, hosts: frozenset[str], last: float) -> float:
        """Return the time of arrival for a message that is sent now. It is `last`, or later."""
        arrives = self.clock.now + self.latency + self._draw() * self.jitter
        if self.grid:
            arrives = ceil(arrives / self.grid) * self.grid
        rate = self._rates.get(hosts) if self._rates else None
        if rate:
            last += 1 / rate
        return arrives if arrives > last else last

    # endpoints -------------------------------------------------------------------------------------------

    def free_port(self) -> int:
        """Return an unused port."""
        return next(self._numbers)

    def listen(self, transport: str, address: str, socket: Socket) -> bool:
        """Bind a socket to an address. Return False if the address is in use."""
        if any(_overlap(transport, address, port) for port in self._ports):
            return False
        self._ports[transport, address] = Port(socket, socket.host, f"{transport}://{address}")
        return True

    def release(self, transport: str, address: str) -> None:
        """Free an address."""
        self._ports.pop((transport, address), None)

    def find(self, target: tuple[str, str], host: str) -> Port | None:
        """Return the port that is bound to an address; None without such a port, or if a cut separates the hosts."""
        found = self._ports.get(target)
        if found is None and target[0] == "tcp":
            found = self._ports.get(("tcp", f"0.0.0.0:{target[1].rpartition(':')[2]}"))
        return None if found is None or frozenset((host, found.host)) in self._cut else found

    def is_refused(self, target: tuple[str, str]) -> bool:
        """Return whether no socket is bound to an address. A connection that is cut times out instead."""
        return self.find(target, "") is None

    def bound(self, transport: str, prefix: str) -> list[str]:
        """Return the bound addresses that begin with a prefix, including addresses that cannot be reached."""
        return [address for own, address in self._ports if own == transport and address.startswith(prefix)]

    @property
    def capacity(self) -> int:
        """Random capacity for one direction of a new connection; see `CAPACITY`."""
        return self.random.randint(*CAPACITY)

    def add_process(self, host: str, die: Callable[[], None]) -> None:
        """Register a function that ends one context of a host. `kill` calls all functions of the host."""
        self._processes.setdefault(host, []).append(die)

    # faults ----------------------------------------------------------------------------------------------

    def reset(self, host: str, other: str) -> None:
        """Break all connections between two hosts. The hosts may connect again at once."""
        for ends in self._between(host, other):
            for end in ends:
                end.break_off()

    def cut(self, host: str, other: str) -> None:
        """Break all connections between two hosts, and allow no new connections until `heal`."""
        self._cut.add(frozenset((host, other)))
        self.reset(host, other)

    def half_open(self, host: str, other: str) -> None:
        """Break all connections between two hosts. Only `host` notices at once. `other` notices after `heal`."""
        for ends in self._between(host, other):
            for end in ends:
                if end.socket.host == host:
                    end.break_off()
                else:
                    end.open_half()

    def mute(self, host: str, other: str) -> None:
        """Lose all messages from `host` to `other` on existing connections. New connections work as usual.

        Neither host notices the loss. If `host` ends a muted connection, `other` does not notice the end until `heal`.
        """
        for ends in self._between(host, other):
            for end in ends:
                if end.socket.host == host:
                    self.mute_ends[end] = None

    def stall(self, host: str, other: str) -> None:
        """Hold back all messages between two hosts until `heal`. No message is lost."""
        self._stalled.add(frozenset((host, other)))

    def throttle(self, host: str, other: str, rate: float) -> None:
        """Limit the messages between two hosts until `heal`.

        Args:
            host: name of the first host.
            other: name of the second host.
            rate: maximum number of messages per second in each direction of a connection.
        """
        self._rates[frozenset((host, other))] = rate

    def heal(self, *between: str) -> None:
        """End faults between hosts. Sockets connect again, and stalled messages arrive.

        Args:
            between: names of the two hosts between which faults end. Without names, all faults end.
        """
        hosts = frozenset(between)
        for pair in [*self._cut, *self._stalled, *self._rates]:
            if not hosts or pair == hosts:
                self._cut.discard(pair)
                self._stalled.discard(pair)
                self._rates.pop(pair, None)
        for end in [*self.half_open_ends, *self.mute_ends]:
            # A reset of the other end in an earlier iteration may have ended the fault of this end.
            is_faulty = end in self.half_open_ends or end in self.mute_ends
            if is_faulty and (not hosts or end.hosts == hosts):
                end.reset()
        for ends in [*self.connections.items()]:
            for end in ends:
                if not hosts or end.hosts == hosts:
                    self.call_soon(end.deliver)

    def kill(self, host: str) -> None:
        """End all contexts of a host, as `kill -9` does. Unsent messages are lost."""
        for die in self._processes.pop(host, []):
            die()

    def is_stalled(self, hosts: frozenset[str]) -> bool:
        """Return whether two hosts are stalled."""
        return bool(self._stalled) and hosts in self._stalled

    def is_slow(self, hosts: frozenset[str]) -> bool:
        """Return whether two hosts are throttled."""
        return bool(self._rates) and hosts in self._rates

    def _between(self, host: str, other: str) -> list[tuple[End, End]]:
        hosts = frozenset((host, other))
        return [ends for ends in self.connections.items() if ends[0].hosts == hosts]


def _overlap(transport: str, address: str, taken: tuple[str, str]) -> bool:
    if transport != taken[0]:
        return False
    if transport != "tcp":
        return address == taken[1]
    (host, _, port), (other, _, taken_port) = address.rpartition(":"), taken[1].rpartition(":")
    return port == taken_port and (host == other or "0.0.0.0" in (host, other))
