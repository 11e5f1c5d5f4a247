"""A subscriber's side of multicast: it takes in everything, and connects anew when one goes silent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from typing import Any

import zmq

from oz.protocol.multicast.receiver import MulticastReceiver
from oz.protocol.multicast.watchdog import Watchdog
from oz.protocol.node.advisories import Advisory
from oz.transport.multicast.group import MulticastGroup

_log = logging.getLogger("oz.subscriber")

OnAdvisory = Callable[[Advisory], Any]

_set = zmq.backend.Socket.set
_SUBSCRIBE = int(zmq.SUBSCRIBE)


class Listening:
    """The caretaker of the publishers of one multicast subscriber."""

    __slots__ = ("_group", "_has_begun", "_on_advisory", "_receiver", "_watchdog")

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

    def begin(self, socket: Any) -> None:
        """Take in everything from now on: what is missing cannot be told otherwise."""
        if not self._has_begun:
            self._has_begun = True
            self.joined()
            _set(socket, _SUBSCRIBE, b"")

    def joined(self) -> None:
        """Record that the subscriber listens from now on: what came before it is no loss."""
        self._receiver.joined_at = time_ns()

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
        receiver = self._receiver
        findings = self._watchdog.look(receiver.senders, self._group.endpoints, now, is_idle=is_idle)
        findings += self._watchdog.see_corrupt(receiver.corrupt)
        for endpoint in dict.fromkeys(one.reconnect for one in findings if one.reconnect is not None):
            receiver.stats.reconnects += 1
            self._reconnect(socket, endpoint)
        for finding in findings:
            self._say(finding.advisory)

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
