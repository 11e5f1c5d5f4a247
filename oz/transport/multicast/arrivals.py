"""Whether packets of a group arrive at all: a socket beside that of libpgm, while a publisher is silent.

libzmq hands over messages and nothing else. So a network that is down, a publisher that stands still, a
repair under way and a receiver that is stuck look alike, and only the last is helped by connecting anew.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

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

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_FILTER = struct.Struct("=HBBI")
_REPAIRS_ONLY = b"".join(
    _FILTER.pack(*step)
    for step in (
        (0x30, 0, 0, 8 + 4),  # load the byte behind UDP's header and both ports: the type
        (0x15, 1, 0, 0x05),
        (0x15, 0, 1, 0x0A),
        (0x06, 0, 0, 0xFFFF),  # one of both: take it
        (0x06, 0, 0, 0),
    )
)
"""Has the kernel take repairs, and confirmations, only. Source: linux/filter.h."""


class PacketArrivals:
    """Sees what packets arrive at an endpoint, beside libpgm and without it."""

    __slots__ = ("_began_at", "_looked_at", "_repaired_at", "_seen", "_sockets")

    def __init__(self, endpoint: Endpoint) -> None:
        """Begin to listen.

        Args:
            endpoint: of `epgm`.

        Raises:
            OSError: the sockets cannot be had.
        """
        self._seen: dict[bytes, float] = {}
        self._looked_at: float | None = None
        self._began_at = 0.0
        self._repaired_at = -FRESH
        self._sockets: list[socket.socket] = []
        try:
            self._listen(endpoint)
            # A buffer for repairs alone: in that of all packets a fast publisher leaves no room for them.
            _take_repairs_only(self._listen(endpoint))
        except BaseException:
            self.close()
            raise

    def _listen(self, endpoint: Endpoint) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sockets.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        # The group only: with any address it would take requests for repair from a publisher of this host.
        made.bind((endpoint.group, endpoint.port))
        membership = socket.inet_aton(endpoint.group) + socket.inet_aton(endpoint.interface)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return made

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
        for one in self._sockets:
            for packet in _waiting(one):
                port, kind, publisher = _HEAD.unpack(packet)
                if kind in _FROM_A_PUBLISHER:
                    sources.add(port + publisher)
                    has_repairs |= kind in _REPAIRS
        return sources, has_repairs

    def close(self) -> None:
        """Listen no more."""
        for one in self._sockets:
            one.close()


def _waiting(one: socket.socket) -> Iterator[bytes]:
    """Return the heads of the packets that wait at a socket."""
    with suppress(OSError):
        for _ in range(_MOST_AT_ONCE):
            packet = one.recv(_HEAD.size)
            if len(packet) == _HEAD.size:
                yield packet


def _take_repairs_only(one: socket.socket) -> None:
    """Have the kernel drop all other packets."""
    steps = ctypes.create_string_buffer(_REPAIRS_ONLY, len(_REPAIRS_ONLY))
    count = len(_REPAIRS_ONLY) // _FILTER.size
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", count, ctypes.addressof(steps)))
