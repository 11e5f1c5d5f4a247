"""Whether packets of a group arrive at all: a socket beside that of libpgm, while a publisher is silent.

libzmq hands over messages and nothing else. So a network that is down, a publisher that stands still, a
repair under way and a receiver that is stuck look alike, and only the last is helped by connecting anew.
"""

from __future__ import annotations

import socket
import struct

from oz.protocol.multicast.watchdog import Arriving
from oz.transport.multicast.endpoint import Endpoint

FRESH = 2.0
"""Seconds for which a publisher counts whose packet came; each sends five a second."""

_MOST_AT_ONCE = 1_000
"""Packets that are read at a time."""

_BUFFER = 2**16
_HEAD = struct.Struct(">2s2xB3x6s")
_REPAIRS = frozenset({0x05, 0x0A})
_FROM_A_PUBLISHER = frozenset({0x00, 0x04}) | _REPAIRS
"""The types of a publisher's packets: where it stands (SPM), data, repairs, and confirmations that one was
asked for (NCF). Source: RFC 3208, section 8.
"""


class PacketArrivals:
    """Sees what packets arrive at an endpoint, beside libpgm and without it."""

    __slots__ = ("_began_at", "_looked_at", "_repaired_at", "_seen", "_socket")

    def __init__(self, endpoint: Endpoint) -> None:
        """Begin to listen.

        Args:
            endpoint: of `epgm`.

        Raises:
            OSError: the socket cannot be had.
        """
        self._seen: dict[bytes, float] = {}
        self._looked_at: float | None = None
        self._began_at = 0.0
        self._repaired_at = -FRESH
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._join(endpoint)
        except BaseException:
            self._socket.close()
            raise

    def _join(self, endpoint: Endpoint) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        # The group only: with any address it would take requests for repair from a publisher of this host.
        self._socket.bind((endpoint.group, endpoint.port))
        membership = socket.inet_aton(endpoint.group) + socket.inet_aton(endpoint.interface)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)

    def look(self, now: float) -> Arriving | None:
        """Return what came lately; None when it was not looked at for long enough.

        Args:
            now: monotonic seconds.
        """
        sources, has_repairs = self._read()
        if self._looked_at is None or now - self._looked_at > FRESH:
            # Nobody knows when these came.
            self._began_at = now
            sources.clear()
        elif has_repairs:
            self._repaired_at = now
        self._looked_at = now
        self._seen.update(dict.fromkeys(sources, now))
        self._seen = {source: at for source, at in self._seen.items() if now - at <= FRESH}
        if now - self._began_at < FRESH:
            return None
        return Arriving(len(self._seen), now - self._repaired_at <= FRESH)

    def _read(self) -> tuple[set[bytes], bool]:
        sources, has_repairs = set(), False
        for _ in range(_MOST_AT_ONCE):
            try:
                packet = self._socket.recv(_HEAD.size)
            except OSError:
                break
            if len(packet) == _HEAD.size:
                port, kind, publisher = _HEAD.unpack(packet)
                if kind in _FROM_A_PUBLISHER:
                    sources.add(port + publisher)
                    has_repairs |= kind in _REPAIRS
        return sources, has_repairs

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
