"""The virtual network: who listens where, and what goes wrong.

Nothing here waits: its clock jumps when somebody asks it to. What ZeroMQ and a real network leave open, such
as how many messages fit on the way, follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Protocol

from oz.testing.clock import Timer, VirtualClock


class NetworkLink(Protocol):
    """A connection, as the network sees it."""

    hosts: frozenset[str]

    def reset(self) -> None:
        """Break it: both ends see that, and what is on its way is lost."""

    def half_open(self, host: str) -> None:
        """Break it for one host only."""

    def resume(self) -> None:
        """Go on with what waits, as there may be room or time for it."""


class Listener(Protocol):
    """A place that others can connect to."""

    host: str


class Network:
    """A network with a clock of its own, on which everything follows from a seed.

    Hosts are names: that of a context is given to it. Whatever is between two hosts can be cut, stalled or
    throttled. A host that is one process can be killed.

    Attributes:
        clock: the time on it.
        random: where all choices come from.
        latency: seconds that a message is on its way at least.
        jitter: seconds that it may take longer.
        ends: the hosts of each connection by its number, also of those that have ended.
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
        """Begin without a host.

        Args:
            seed: what every choice follows from.
            latency: seconds that a message is on its way at least; 0 or more.
            jitter: seconds that it may take longer; 0 or more.
            capacity: how many messages are on their way in one direction of a connection at most; each
                connection has a number between these two, at least 1.
            clock: the time on it; by default one of its own, which begins at 0.
        """
        self.clock = VirtualClock() if clock is None else clock
        self.random = Random(seed)
        self._draw = self.random.random
        self.latency = latency
        self.jitter = jitter
        self._capacity = capacity
        self._listeners: dict[tuple[str, str], Listener] = {}
        self.ends: dict[int, frozenset[str]] = {}
        self._links: dict[NetworkLink, int] = {}
        self._standing: set[int] = set()
        self._keys: dict[int, Mapping[object, str]] = {}
        self._left: set[tuple[int, str]] = set()
        self._numbers = count(1)
        self._cut: set[frozenset[str]] = set()
        self._stalled: set[frozenset[str]] = set()
        self._rates: dict[frozenset[str], float] = {}
        self._ports = count(49152)
        self._processes: dict[str, list[Callable[[], None]]] = {}

    # time ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds of virtual time since its clock was made."""
        return self.clock.now

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call something at a time, or now if that is past."""
        return self.clock.call_at(when, action)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call something in a moment, as an I/O thread does it."""
        clock = self.clock
        clock.add(clock.now + self._draw() * self.jitter, action)

    def run_until(self, when: float) -> None:
        """Let everything happen up to a time, which is the time then."""
        self.clock.run_until(when)

    def wait(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Let time pass until something is so; tell whether it is. See `VirtualClock.wait`."""
        return self.clock.wait(condition, deadline)

    # what is where ---------------------------------------------------------------------------------------

    def free_port(self) -> int:
        """Return a port that nobody has."""
        return next(self._ports)

    def listen(self, transport: str, address: str, listener: Listener) -> bool:
        """Register a listener at an address; tell whether it was free."""
        if any(_overlap(transport, address, one) for one in self._listeners):
            return False
        self._listeners[transport, address] = listener
        return True

    def listen_no_more(self, listener: Listener) -> None:
        """Free the address of a listener."""
        for key in [key for key, one in self._listeners.items() if one is listener]:
            del self._listeners[key]

    def find(self, transport: str, address: str, host: str) -> Listener | None:
        """Return who listens at an address and can be reached by a host."""
        found = self._listeners.get((transport, address))
        if found is None and transport == "tcp":
            found = self._listeners.get((transport, f"0.0.0.0:{address.rpartition(':')[2]}"))
        return None if found is None or self.is_cut(host, found.host) else found

    def is_cut(self, one: str, other: str) -> bool:
        """Tell whether nothing comes from one host to another."""
        return frozenset((one, other)) in self._cut

    def is_refused(self, transport: str, address: str, host: str) -> bool:
        """Tell whether somebody says at once that nobody listens: not where nothing comes through."""
        return (transport, address) not in self._listeners and self.find(transport, address, host) is None

    def listening(self, transport: str, begins: str) -> list[str]:
        """Return the addresses that begin so and somebody listens at, also where nobody may go now."""
        return [
            address for one, address in self._listeners if one == transport and address.startswith(begins)
        ]

    def add_link(self, link: NetworkLink) -> int:
        """Know a connection, so that faults can meet it; give its number, which no other has."""
        self._links[link] = number = next(self._numbers)
        self.ends[number] = link.hosts
        self._standing.add(number)
        return number

    def note_keys(self, number: int, ends: Mapping[object, str]) -> None:
        """Know by whose keys a connection was made: of each end, that of the other."""
        self._keys[number] = ends

    def key_beyond(self, number: int, end: object) -> str:
        """Return the key at the other end of a connection; empty where there is none."""
        return self._keys.get(number, {}).get(end, "")

    def is_link(self, number: int, host: str) -> bool:
        """Tell whether a connection stands, as far as a host knows."""
        return number in self._standing and (number, host) not in self._left

    def leave_link(self, number: int, host: str) -> None:
        """Forget a connection at one host."""
        self._left.add((number, host))

    def remove_link(self, link: NetworkLink) -> None:
        """Forget a connection."""
        self._standing.discard(self._links.pop(link, 0))

    def end_link(self, number: int) -> None:
        """Break a connection, if it stands."""
        for link in [link for link, one in self._links.items() if one == number]:
            link.reset()

    def choose_capacity(self) -> int:
        """Return how many messages fit on the way in one direction of a new connection."""
        return self.random.randint(*self._capacity)

    def add_process(self, host: str, die: Callable[[], None]) -> None:
        """Know what ends a context when its host is killed."""
        self._processes.setdefault(host, []).append(die)

    # faults ----------------------------------------------------------------------------------------------

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts; they may connect again at once."""
        for link in self._between(one, other):
            link.reset()

    def cut(self, one: str, other: str) -> None:
        """Break all connections between two hosts, and let no other come about until they are healed."""
        self._cut.add(frozenset((one, other)))
        self.reset(one, other)

    def half_open(self, host: str, other: str) -> None:
        """Break connections for one host only: the other sees nothing of that until `heal`."""
        for link in self._between(host, other):
            link.half_open(host)

    def stall(self, one: str, other: str) -> None:
        """Pass nothing on between two hosts until `heal`; nothing is lost."""
        self._stalled.add(frozenset((one, other)))

    def throttle(self, one: str, other: str, rate: float) -> None:
        """Pass on so many messages a second at most in one direction of a connection, until `heal`."""
        self._rates[frozenset((one, other))] = rate

    def heal(self, *between: str) -> None:
        """End faults between hosts: who was cut off connects again, and what was stalled goes on.

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
        """End all contexts of a host at once, as `kill -9` does: what they have still to send is lost."""
        for die in self._processes.pop(host, []):
            die()

    def is_stalled(self, hosts: frozenset[str]) -> bool:
        """Tell whether nothing is passed on between these hosts."""
        return bool(self._stalled) and hosts in self._stalled

    def is_throttled(self, hosts: frozenset[str]) -> bool:
        """Tell whether messages between these hosts pass one after the other, at a rate."""
        return bool(self._rates) and hosts in self._rates

    def delay(self, hosts: frozenset[str], last: float) -> float:
        """Return when a message arrives that is sent now, after one that arrives at `last`."""
        arrives = self.clock.now + self.latency + self._draw() * self.jitter
        rate = self._rates.get(hosts) if self._rates else None
        if rate:
            last += 1 / rate
        return arrives if arrives > last else last

    def _between(self, one: str, other: str) -> list[NetworkLink]:
        hosts = frozenset((one, other))
        return [link for link in self._links if link.hosts == hosts]


def _overlap(transport: str, address: str, taken: tuple[str, str]) -> bool:
    """Tell whether two listeners would have the same address."""
    if transport != taken[0]:
        return False
    if transport != "tcp":
        return address == taken[1]
    (one, _, port), (other, _, taken_port) = address.rpartition(":"), taken[1].rpartition(":")
    return port == taken_port and (one == other or "0.0.0.0" in (one, other))
