"""Keys of a publisher: who may connect, what a key may subscribe to, and changes of the files.

Theory of operation
-------------------
A publisher with `security=` has CURVE on both sockets. libzmq asks the authenticator of the context about each
key, and sets the key as User-Id of each frame. Sessions belong to the key of their HELLO, and the publisher
checks each declared pattern by the rights of this key.

The files of keys and permissions are read again by the clock, every `RIGHTS_INTERVAL` seconds. A change applies
to sessions that exist (`Sessions.reconsider`): patterns that are not allowed any more are refused, and sessions
of keys that are not trusted any more end. Their connections are cut, so that they must prove a key again.

A peer without a key never reaches the authenticator. Only the monitor of the socket reports it; `Arrivals` logs
and counts it.
"""

from __future__ import annotations

from typing import Any

import zmq

from oz.logs import peer_logger
from oz.protocol.publisher.access import Access
from oz.security.identity import is_of
from oz.subjects.pattern import Pattern
from oz.transport.arrivals import Arrivals
from oz.transport.credentials import Credentials
from oz.transport.handshakes import Handshakes, named
from oz.wire.denials import Denial
from oz.wire.links import Item, Refusal

RIGHTS_INTERVAL = 0.5
"""Seconds between two checks whether the files of keys and permissions have changed."""

_log = peer_logger("oz.publisher")

owns_session = is_of
"""Whether a session id was made from a key. A foreign key that repeats the id is refused, whether or not the
session exists."""


class PublisherKeys:
    """Credentials of a publisher, the rights of its subscribers, and the handshakes at its sockets.

    Attributes:
        access: rights by key.
        denied: subscriptions that were refused by permissions.
    """

    def __init__(self, credentials: Credentials, dialect: str) -> None:
        """Start without sockets.

        Args:
            credentials: of the publisher.
            dialect: of its subjects.
        """
        self.credentials = credentials
        self.access = Access(credentials.rights, dialect)
        self.denied = 0
        self._arrivals = Arrivals(credentials)
        self._watched: list[tuple[zmq.Socket[Any], Handshakes]] = []
        self._called: set[str] = set()
        self._due_at = 0.0

    def serve(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Demand a trusted key at the endpoint that a socket binds next. inproc has no keys.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        if endpoint.startswith("inproc:"):
            return
        self.credentials.serve(socket)
        self._watch(socket)

    def _watch(self, socket: zmq.Socket[Any]) -> None:
        if not any(one is socket for one, _ in self._watched):
            handshakes = Handshakes()
            handshakes.begin(socket)
            self._watched.append((socket, handshakes))

    def call(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Set the key of the listener that a socket connects to next. inproc has no keys.

        Raises:
            PermissionDenied: one side does not trust the key of the other.
        """
        if not endpoint.startswith("inproc:"):
            self.credentials.call(socket, endpoint)
            self._called.add(endpoint)

    def authorize(self, user: str | None, item: Item, pattern: Pattern, group: str | None) -> Refusal | None:
        """Return why a key may not have a subscription, or None; see `Sessions`."""
        if user is None:
            # Inside the process, where no key is needed.
            return None
        denial = self.access.denial(user, (pattern,), group or "")
        if denial is None:
            return None
        self.count(user, denial)
        # An empty rule marks a denial that no rule decided.
        return Refusal(item.sid, str(denial), denial.rule or "", denial.subject)

    def count(self, user: str, denial: Denial) -> None:
        """Count and log a subscription that was refused."""
        self.denied += 1
        if self.denied == 1:
            _log.warning("key %s is refused a subscription: %s; stats.denied counts more", user, denial)

    def is_trusted(self, user: str) -> bool:
        """Return whether a key is trusted."""
        return user in self.access.rights.trusted

    def has_changed(self, now: float) -> bool:
        """Read what is due; return whether the rights have changed.

        Args:
            now: in seconds of `time.monotonic`.
        """
        for _, handshakes in self._watched:
            for one in handshakes.read():
                if named(one.where, self._called) is None:
                    self._arrivals.take(one, now)
        if now < self._due_at:
            return False
        self._due_at = now + RIGHTS_INTERVAL
        self._arrivals.look(now)
        return self.access.has_changed()

    @property
    def deadline(self) -> float:
        """Time of the next check in seconds of `time.monotonic`."""
        return self._due_at

    def close(self) -> None:
        """End the monitors, before the sockets close."""
        while self._watched:
            socket, handshakes = self._watched.pop()
            handshakes.close(socket)
