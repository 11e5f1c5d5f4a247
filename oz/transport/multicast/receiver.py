"""A subscriber's side of multicast: it takes in everything, and connects anew when one goes silent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.protocol.multicast.receiver import MulticastReceiver
from oz.protocol.multicast.watchdog import Arriving, Watchdog
from oz.protocol.node.advisories import Advisory
from oz.transport.multicast.arrivals import PacketArrivals
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
