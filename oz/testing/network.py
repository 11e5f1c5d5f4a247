"""Virtual network: listeners, connections and faults.

The network does not wait. Callers advance its clock. The seed determines what ZeroMQ and a real network leave open,
such as the number of messages in transit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Protocol

from oz.testing.clock import Timer, VirtualClock


class NetworkLink(Protocol):
    """Connection, as the network sees it."""

    hosts: frozenset[str]

    def reset(self) -> None:
        """Break the connection for both ends. Messages in transit are lost."""

    def half_open(self, host: str) -> None:
        """Break the connection for one host only."""

    def resume(self) -> None:
        """Deliver waiting messages, if a fault has ended or there is space."""


class Listener(Protocol):
    """Bound endpoint."""

    host: str


class Network:
    """Network with a virtual clock and a seed.

    Hosts are names, which contexts have. Connections between two hosts can be cut, stalled or throttled. A host
    can be killed.

    Attributes:
        clock: virtual clock.
        random: source of all random choices.
        latency: seconds of transit of a message at least.
        jitter: seconds of additional transit at most.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        latency: float = 0.0005,
        jitter: float = 0.0005,
        capacity: tuple[int, int] = (1, 64),
        clock: VirtualClock | None = None,
    ) -> None:
        """Create a network without hosts.

        Args:
            seed: determines all random choices.
            latency: seconds of transit of a message at least; 0 or more.
            jitter: seconds of additional transit at most; 0 or more.
            capacity: limits between which each connection draws its number of messages in transit for one
                direction; at least 1.
            clock: virtual clock; by default a new one, which begins at 0.
        """
        self.clock = VirtualClock() if clock is None else clock
        self.random = Random(seed)
        self._draw = self.random.random
        self.latency = latency
        self.jitter = jitter
        self._capacity = capacity
        self._listeners: dict[tuple[str, str], Listener] = {}
        self._links: dict[NetworkLink, None] = {}
        self._cut: set[frozenset[str]] = set()
        self._stalled: set[frozenset[str]] = set()
        self._rates: dict[frozenset[str], float] = {}
        self._ports = count(49152)
        self._processes: dict[str, list[Callable[[], None]]] = {}

    # time ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.clock.now

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call a function at a time, or now if the time is past."""
        return self.clock.call_at(when, action)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call a function after a short random delay, as an I/O thread does."""
        clock = self.clock
        clock.add(clock.now + self._draw() * self.jitter, action)

    def run_until(self, when: float) -> None:
        """Run all events until a time, and set the clock to it."""
        self.clock.run_until(when)

    def wait(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Advance the virtual time until a condition holds; see `VirtualClock.wait`."""
        return self.clock.wait(condition, deadline)

    # listeners and connections ---------------------------------------------------------------------------------------

    def free_port(self) -> int:
        """Return an unused port."""
        return next(self._ports)

    def listen(self, transport: str, address: str, listener: Listener) -> bool:
        """Register a listener at an address; return whether the address was free."""
        if any(_overlap(transport, address, one) for one in self._listeners):
            return False
        self._listeners[transport, address] = listener
        return True

    def listen_no_more(self, listener: Listener) -> None:
        """Free the address of a listener."""
        for key in [key for key, one in self._listeners.items() if one is listener]:
            del self._listeners[key]

    def find(self, transport: str, address: str, host: str) -> Listener | None:
        """Return the listener at an address, if a host can reach it."""
        found = self._listeners.get((transport, address))
        if found is None and transport == "tcp":
            found = self._listeners.get((transport, f"0.0.0.0:{address.rpartition(':')[2]}"))
        return None if found is None or self.is_cut(host, found.host) else found

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether two hosts are cut."""
        return frozenset((one, other)) in self._cut

    def is_refused(self, transport: str, address: str, host: str) -> bool:
        """Return whether a connection is refused at once. Between hosts that are cut it times out instead."""
        return (transport, address) not in self._listeners and self.find(transport, address, host) is None

    def listening(self, transport: str, begins: str) -> list[str]:
        """Return the bound addresses with a prefix, also unreachable ones."""
        return [
            address for one, address in self._listeners if one == transport and address.startswith(begins)
        ]

    def add_link(self, link: NetworkLink) -> None:
        """Register a connection for faults."""
        self._links[link] = None

    def remove_link(self, link: NetworkLink) -> None:
        """Remove a connection."""
        self._links.pop(link, None)

    def choose_capacity(self) -> int:
        """Return the number of messages in transit at most, for one direction of a new connection."""
        return self.random.randint(*self._capacity)

    def add_process(self, host: str, die: Callable[[], None]) -> None:
        """Register a function that ends a context when its host is killed."""
        self._processes.setdefault(host, []).append(die)

    # faults ----------------------------------------------------------------------------------------------

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts. They may connect again at once."""
        for link in self._between(one, other):
            link.reset()

    def cut(self, one: str, other: str) -> None:
        """Break all connections between two hosts, and allow no new ones until `heal`."""
        self._cut.add(frozenset((one, other)))
        self.reset(one, other)

    def half_open(self, host: str, other: str) -> None:
        """Break connections for one host only. The other host does not notice until `heal`."""
        for link in self._between(host, other):
            link.half_open(host)

    def stall(self, one: str, other: str) -> None:
        """Hold back all messages between two hosts until `heal`. No message is lost."""
        self._stalled.add(frozenset((one, other)))

    def throttle(self, one: str, other: str, rate: float) -> None:
        """Limit the messages a second in each direction between two hosts until `heal`."""
        self._rates[frozenset((one, other))] = rate

    def heal(self, *between: str) -> None:
        """End faults between hosts. Connections are made again, and stalled messages arrive.

        Args:
            between: two hosts; without them all faults end.
        """
        hosts = frozenset(between)
        for one in list(self._cut | self._stalled | self._rates.keys()):
            if not hosts or one == hosts:
                self._cut.discard(one)
                self._stalled.discard(one)
                self._rates.pop(one, None)
        for link in list(self._links):
            if not hosts or link.hosts == hosts:
                link.resume()

    def kill(self, host: str) -> None:
        """End all contexts of a host, as `kill -9` does. Unsent messages are lost."""
        for die in self._processes.pop(host, []):
            die()

    def is_stalled(self, hosts: frozenset[str]) -> bool:
        """Return whether two hosts are stalled."""
        return bool(self._stalled) and hosts in self._stalled

    def is_throttled(self, hosts: frozenset[str]) -> bool:
        """Return whether two hosts are throttled."""
        return bool(self._rates) and hosts in self._rates

    def delay(self, hosts: frozenset[str], last: float) -> float:
        """Return the time of arrival of a message, not before `last`."""
        arrives = self.clock.now + self.latency + self._draw() * self.jitter
        rate = self._rates.get(hosts) if self._rates else None
        if rate:
            last += 1 / rate
        return arrives if arrives > last else last

    def _between(self, one: str, other: str) -> list[NetworkLink]:
        hosts = frozenset((one, other))
        return [link for link in self._links if link.hosts == hosts]


def _overlap(transport: str, address: str, taken: tuple[str, str]) -> bool:
    """Return whether two listeners would have the same address."""
    if transport != taken[0]:
        return False
    if transport != "tcp":
        return address == taken[1]
    (one, _, port), (other, _, taken_port) = address.rpartition(":"), taken[1].rpartition(":")
    return port == taken_port and (one == other or "0.0.0.0" in (one, other))
