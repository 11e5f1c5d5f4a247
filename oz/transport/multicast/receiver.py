"""A subscriber's side of multicast: it takes in everything, and connects anew when one goes silent.

libzmq hands over messages and nothing else. So a network that is down, a publisher that stands still, a
repair under way and a receiver that is stuck look alike, and only the last is helped by connecting anew.
While a publisher is silent, a socket beside that of libpgm tells whether packets of the group arrive at all.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import time_ns
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.protocol.multicast.receiver import MulticastReceiver
from oz.protocol.multicast.watchdog import Arriving, Watchdog
from oz.protocol.node.advisories import Advisory
from oz.transport.multicast.endpoint import Endpoint
from oz.transport.multicast.group import MulticastGroup

_log = peer_logger("oz.subscriber")

OnAdvisory = Callable[[Advisory], Any]

_set = zmq.backend.Socket.set
_SUBSCRIBE = int(zmq.SUBSCRIBE)


class Listening:
    """Listens for one multicast subscriber, and watches its publishers."""

    __slots__ = ("_arrivals", "_group", "_has_begun", "_on_advisory", "_receiver", "_watchdog")

    def __init__(
        self, group: MulticastGroup, receiver: MulticastReceiver, on_advisory: OnAdvisory | None
    ) -> None:
        """Start silent.

        Args:
            group: the endpoints and options.
            receiver: what takes frames in.
            on_advisory: called with each `oz.Advisory`; without it they are logged.
        """
        self._group = group
        self._receiver = receiver
        self._on_advisory = on_advisory
        self._watchdog = Watchdog(group.options.stale_after, group.options.rate_kbps)
        self._has_begun = False
        self._arrivals: dict[str, PacketArrivals | None] = {}

    def begin(self, socket: Any) -> None:
        """Take in everything from now on: what is missing cannot be told otherwise."""
        if not self._has_begun:
            self._has_begun = True
            self.joined()
            _set(socket, _SUBSCRIBE, b"")

    def joined(self) -> None:
        """Record that the subscriber listens from now on: what came before it is no loss."""
        self._receiver.joined_at = self._receiver.idle_at = time_ns()

    def next_deadline(self) -> float | None:
        """Return when a publisher has been silent for too long, in monotonic seconds; None for never."""
        return self._watchdog.next_deadline(self._receiver.senders)

    def look(self, socket: Any, now: float, *, is_idle: bool) -> None:
        """Do what is due.

        Args:
            socket: the subscriber, held by its guard.
            now: monotonic seconds.
            is_idle: whether nothing was left to read just before.
        """
        if socket.closed:
            return
        receiver, endpoints = self._receiver, self._group.endpoints
        if is_idle:
            receiver.note_idle(time_ns())
        arriving = self._see_arrivals(now)
        findings = self._watchdog.look(receiver.senders, endpoints, now, is_idle=is_idle, arriving=arriving)
        findings += self._watchdog.see_corrupt(receiver.corrupt)
        for endpoint in dict.fromkeys(one.reconnect for one in findings if one.reconnect is not None):
            receiver.stats.reconnects += 1
            self._reconnect(socket, endpoint)
        for finding in findings:
            if finding.unknown is not None:
                receiver.doubt(finding.unknown)
            if finding.advisory is not None:
                self._say(finding.advisory)

    def close(self) -> None:
        """Listen no more."""
        self._close_all_but(set())

    def _see_arrivals(self, now: float) -> dict[str, Arriving | None]:
        """Return what packets arrive, where a publisher is silent and that can be seen."""
        silent = self._watchdog.silent_on(self._receiver.senders, self._group.endpoints)
        self._close_all_but(silent)
        for endpoint in silent - self._arrivals.keys():
            self._arrivals[endpoint] = self._begin_to_see(endpoint)
        return {text: seen.look(now) for text, seen in self._arrivals.items() if seen is not None}

    def _close_all_but(self, silent: set[str]) -> None:
        for endpoint in self._arrivals.keys() - silent:
            seen = self._arrivals.pop(endpoint)
            if seen is not None:
                seen.close()

    def _begin_to_see(self, text: str) -> PacketArrivals | None:
        endpoint = self._group.endpoints[text]
        if endpoint.scheme == "pgm":
            return None
        try:
            return PacketArrivals(endpoint)
        except OSError as error:
            _log.warning("multicast: cannot see whether packets arrive at %s: %s", text, error.strerror)
            return None

    @staticmethod
    def _reconnect(socket: Any, endpoint: str) -> None:
        """Throw the receiver of libpgm away for a new one, which has nothing to be stuck in."""
        # By the backend: for the user, and for its claims, nothing changes.
        with suppress(zmq.ZMQError):
            zmq.backend.Socket.disconnect(socket, endpoint)
        zmq.backend.Socket.connect(socket, endpoint)

    def _say(self, advisory: Advisory) -> None:
        if self._on_advisory is None:
            _log.warning("multicast: %s", advisory.text)
            return
        try:
            self._on_advisory(advisory)
        except Exception:
            _log.exception("on_advisory raised on %r", advisory)


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
