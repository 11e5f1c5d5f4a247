"""What nodes and a name server say to each other, counted for buses larger than any machine here holds.

    python benchmarks/bus_counts.py [nodes …]

The real state machines, `Registry` and `DiscoveryClient`, run on a clock that jumps, without sockets. All
nodes start within ten seconds; then nothing happens for a minute; then the name server is started again and
knows nobody; then one node in a hundred leaves. Frames and bytes are counted as they would go over the wire.
Every node announces itself and hears of itself; a sample of ten takes in all that it is told, and must know
everybody at the end of each phase.

Presence between nodes goes over their links, of which each has one to every other node and one from it: its
figures follow from docs/decisions/043-what-an-idle-node-costs.md, and are printed beside.
"""

from __future__ import annotations

import heapq
import sys
import time
import uuid as uuids
from collections.abc import Iterable
from dataclasses import dataclass, field

import machine

from oz.protocol.node.discovery_client import DiscoveryClient, Heard
from oz.protocol.node.registry import Registry, Sends
from oz.wire.discovery import Announcement, Left, Lost

SIZES = (100, 1_000, 10_000)
SAMPLE = 10
START_SECONDS, IDLE_SECONDS, HEAL_SECONDS = 10.0, 60.0, 10.0
RECORDS = 2
"""Records that a node reads of each peer in a second while nothing happens."""

_HEADER = (
    "  nodes | phase                  |      to it |    from it | bytes a node | busiest second | MB in all"
)


@dataclass
class Count:
    """What went to the name server and from it."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    seconds: dict[int, int] = field(default_factory=dict)
    """Frames out in each second."""

    def line(self, phase: str, nodes: int, seconds: float) -> str:
        """Show it as a row of a table."""
        each = nodes * seconds
        busiest = max(self.seconds.values(), default=0)
        return (
            f"{nodes:>7,} | {phase:<22} | {self.frames_in / each:10.2f} | {self.frames_out / each:10.2f} | "
            f"{self.bytes_out / each:12,.0f} | {busiest:14,} | {self.bytes_out / 1e6:9,.1f}"
        )


class Bus:
    """Nodes of one bus and a name server, on a clock of their own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.now = 0.0
        self.count = Count()
        self.clients = [DiscoveryClient(announcement(number), "tcp://server:5670") for number in range(size)]
        self.peers = [b"%08d" % number for number in range(size)]
        self.numbers = {peer: number for number, peer in enumerate(self.peers)}
        self.known: dict[int, set[bytes]] = {size * one // SAMPLE: set() for one in range(SAMPLE)}
        self.gone: set[int] = set()
        self._due: list[tuple[float, int]] = []
        self.start_server(b"\0" * 15 + b"\1")

    def start_server(self, name: bytes) -> None:
        """Begin with a name server that knows nobody."""
        self.registry = Registry(name, "server")

    def start(self) -> None:
        """Start all nodes, one after the other."""
        self._due = [(START_SECONDS * number / self.size, number) for number in range(self.size)]
        heapq.heapify(self._due)

    def run(self, seconds: float) -> Count:
        """Let time pass; return what went over the wire."""
        ends = self.now + seconds
        while True:
            at, number = self._due[0] if self._due else (ends, -1)
            server_at = self.registry.next_deadline()
            if min(at, ends if server_at is None else server_at) >= ends:
                self.now = ends
                return self.count
            if server_at is not None and server_at < at:
                self.now = max(self.now, server_at)
                self._sent(self.registry.tick(self.now))
                continue
            self.now = max(self.now, at)
            heapq.heappop(self._due)
            self._tick(number)

    def leave(self, numbers: Iterable[int]) -> None:
        """Have nodes say goodbye."""
        for number in numbers:
            self.gone.add(number)
            self._say(number, self.clients[number].goodbye())

    def is_known_to_all(self) -> bool:
        """Tell whether the sample knows everybody, and all are registered."""
        there = {
            one.announcement.uuid: one for number, one in enumerate(self.clients) if number not in self.gone
        }
        if not all(one.is_registered(self.now) for one in there.values()):
            return False
        sample = [(self.clients[number].announcement.uuid, known) for number, known in self.known.items()]
        return all(known | {own} == set(there) for own, known in sample if own in there)

    def _tick(self, number: int) -> None:
        client = self.clients[number]
        for frame in client.tick(self.now):
            self._say(number, frame)
        at = client.next_deadline(self.now)
        if at is not None:
            heapq.heappush(self._due, (max(at, self.now + 1e-6), number))

    def _say(self, number: int, frame: bytes) -> None:
        self.count.frames_in += 1
        self._sent(self.registry.receive(self.peers[number], frame, self.now), number)

    def _sent(self, sends: Sends, asker: int | None = None) -> None:
        count, second = self.count, int(self.now)
        count.frames_out += len(sends)
        count.seconds[second] = count.seconds.get(second, 0) + len(sends)
        for peer, frame in sends:
            count.bytes_out += len(frame)
            number = self.numbers[peer]
            # Rosters are long: only the sample reads them, and what it is told without having asked.
            if number in self.known or (number == asker and len(frame) < 1_000):
                self._hear(number, frame)

    def _hear(self, number: int, frame: bytes) -> None:
        for event in self.clients[number].receive(frame, self.now):
            if number in self.known:
                known = self.known[number]
                if isinstance(event, Heard):
                    known.add(event.announcement.uuid)
                elif isinstance(event, Left | Lost):
                    known.discard(event.uuid)


def announcement(number: int) -> Announcement:
    """Make that of a node, as long as those of real ones are."""
    return Announcement(
        uuid=uuids.UUID(int=2 * number + 2).bytes,
        name=f"worker-{number:05}",
        bus="default",
        host=f"host-{number // 20:04}.example.com",
        host_id=uuids.UUID(int=number // 20).bytes,
        pid=1_000 + number,
        endpoints=(f"tcp://10.0.{number // 250 % 250}.{number % 250}:{40_000 + number % 20_000}",),
        local_endpoint=f"ipc:///run/user/1000/oz/default/{number:032x}",
        version="0.1.0",
        started_ns=1_700_000_000_000_000_000 + number,
    )


def main() -> None:
    """Count, and print a table."""
    print(machine.describe())
    print(
        "\nDiscovery: frames a node and second (to the server, from it), bytes from it, and of the whole bus:"
    )
    print(_HEADER)
    for size in [int(one) for one in sys.argv[1:]] or SIZES:
        began = time.perf_counter()
        bus = Bus(size)
        bus.start()
        for phase, seconds, prepare in (
            ("all start in 10 s", START_SECONDS + 2, None),
            ("idle", IDLE_SECONDS, None),
            ("a new name server", HEAL_SECONDS, lambda bus=bus: bus.start_server(b"\0" * 15 + b"\2")),
            ("1 in 100 leaves", HEAL_SECONDS, lambda bus=bus: bus.leave(range(5, bus.size, 100))),
        ):
            bus.count = Count()
            if prepare is not None:
                prepare()
            print(bus.run(seconds).line(phase, size, seconds))
            if not bus.is_known_to_all():
                raise SystemExit(f"{phase}: not everybody is known to everybody")
        print(f"{'':>7} | {time.perf_counter() - began:.0f} s to count")
    print("\nPresence: records that a node reads a second while idle, links of a node, links of the bus:")
    for size in SIZES:
        print(f"{size:>7,} | {RECORDS * (size - 1):>10,} | {2 * (size - 1):>10,} | {size * (size - 1):>14,}")


if __name__ == "__main__":
    main()
