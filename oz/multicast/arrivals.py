"""Observation of the packets that arrive at a multicast endpoint.

libzmq does not report whether packets arrive. Therefore, while a publisher is silent, the subscriber opens two UDP
sockets at the group and port. These sockets show which publishers send packets, and whether the packets include
repairs.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from oz.multicast.endpoints import Endpoint
from oz.multicast.watchdog import Arriving

FRESH = 2.0
"""Maximum age in seconds of a publisher's last packet. If the packet is older, the publisher counts as sending no
packets. A publisher sends five packets a second.
"""

_MAX_PACKETS = 1_000  # Maximum number of packets that one check reads from a socket.
_BUFFER = 2**16
_HEAD = struct.Struct(">2s2xB3x6s")
_REPAIRS = frozenset({0x05, 0x0A})
_FROM_PUBLISHERS = frozenset({0x00, 0x04}) | _REPAIRS
"""Types of the packets that publishers send: SPM (announces the window), data, repairs, and NCF (confirms a repair
request). Source: RFC 3208, section 8.
"""

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_FILTER = struct.Struct("=HBBI")
_REPAIRS_ONLY = b"".join(
    _FILTER.pack(*step)
    for step in (
        (0x30, 0, 0, 8 + 4),  # Load the packet type, which follows the UDP header and both PGM ports.
        (0x15, 1, 0, 0x05),
        (0x15, 0, 1, 0x0A),
        (0x06, 0, 0, 0xFFFF),  # Accept packets of these two types.
        (0x06, 0, 0, 0),  # Drop all other packets.
    )
)
"""Program for the packet filter of the kernel. The program accepts only repairs. Source: linux/filter.h."""


class PacketArrivals:
    """UDP sockets that observe the packets of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open the sockets.

        Args:
            endpoint: endpoint with the scheme `epgm`. Packets of `pgm` do not use UDP and cannot be observed.

        Raises:
            OSError: the sockets cannot be opened.
        """
        self._seen: dict[bytes, float] = {}
        self._checked_at: float | None = None
        self._began_at = 0.0
        self._repaired_at = -FRESH
        self._sockets: list[socket.socket] = []
        try:
            self._open(endpoint)
            # The second socket receives only repairs. In the first socket, data packets of a fast publisher may fill
            # the buffer.
            _accept_repairs_only(self._open(endpoint))
        except BaseException:
            self.close()
            raise

    def _open(self, endpoint: Endpoint) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sockets.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        # A socket bound to 0.0.0.0 would take repair requests away from a publisher on this host.
        made.bind((endpoint.group, endpoint.port))
        membership = socket.inet_aton(endpoint.group) + socket.inet_aton(endpoint.interface)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return made

    def check(self, now: float) -> Arriving | None:
        """Return a summary of the packets of the last `FRESH` seconds; None if checks have run for a shorter time.

        Args:
            now: current time in seconds of the monotonic clock.
        """
        publishers, has_repairs = self._read()
        if self._checked_at is None or now - self._checked_at > FRESH:
            # Ignore these packets, because they may have waited in the buffer for a long time.
            self._began_at = now
            publishers.clear()
        elif has_repairs:
            self._repaired_at = now
        self._checked_at = now
        self._seen.update(dict.fromkeys(publishers, now))
        self._seen = {key: at for key, at in self._seen.items() if now - at <= FRESH}
        if now - self._began_at < FRESH:
            return None
        return Arriving(len(self._seen), now - self._repaired_at <= FRESH)

    def _read(self) -> tuple[set[bytes], bool]:
        publishers, has_repairs = set(), False
        for raw in self._sockets:
            for packet in _packets(raw):
                port, kind, publisher = _HEAD.unpack(packet)
                if kind in _FROM_PUBLISHERS:
                    publishers.add(port + publisher)
                    has_repairs |= kind in _REPAIRS
        return publishers, has_repairs

    def close(self) -> None:
        """Close the sockets."""
        for raw in self._sockets:
            raw.close()


def _packets(raw: socket.socket) -> Iterator[bytes]:
    with suppress(OSError):
        for _ in range(_MAX_PACKETS):
            packet = raw.recv(_HEAD.size)
            if len(packet) == _HEAD.size:
                yield packet


def _accept_repairs_only(raw: socket.socket) -> None:
    steps = ctypes.create_string_buffer(_REPAIRS_ONLY, len(_REPAIRS_ONLY))
    count = len(_REPAIRS_ONLY) // _FILTER.size
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", count, ctypes.addressof(steps)))
