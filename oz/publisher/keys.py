"""Keys of a publisher: who may connect, what a key may subscribe to, and changes of the files.

Theory of operation
-------------------
A publisher with `security=` has CURVE on both sockets. libzmq asks the authenticator of the context about each
key, and sets the key as User-Id of each frame. Sessions belong to the key of their HELLO, and the publisher
checks each declared pattern by the rights of this key.

The files of keys and permissions are read again by the clock, every `RIGHTS_INTERVAL` seconds. A change applies
to sessions that exist (`Sessions.reconsider`): patterns that are not allowed any more are refused, and sessions
of keys that are not trusted any more end. Their connections are cut, so that they must prove a key again.

A peer without a key never reaches the authenticator. Only the monitor of the socket reports it. `Calls` logs and
counts it, and connects again to endpoints that have refused the publisher.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.publisher.groups import STANDBY
from oz.security.access import Access
from oz.security.denials import Denial
from oz.security.identity import is_of
from oz.subjects.pattern import Pattern
from oz.transport.backend import PYZMQ, Peer
from oz.transport.calls import Calls
from oz.transport.credentials import Credentials
from oz.transport.endpoints import needs_ipv6
from oz.transport.peer_keys import PeerKeys
from oz.wire.links import Item, Refusal

RIGHTS_INTERVAL = 0.5
"""Seconds between two checks whether the files of keys and permissions have changed."""

owns_session = is_of
"""Whether a session id was made from a key. A foreign key that repeats the id is refused, whether or not the
session exists."""

_log = peer_logger("oz.publisher")


class _KeyedEndpoints:
    """Endpoints of one socket with keys, for `Calls` and `PeerKeys`.

    Attributes:
        credentials: of the publisher.
        bound: endpoints that peers connect to.
        called: key of each endpoint that the socket connects to.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials: Credentials | None = credentials
        self.bound: list[str] = []
        self.called: dict[str, str] = {}

    @property
    def has_bound(self) -> bool:
        """Whether the socket is bound."""
        return bool(self.bound)

    def give_up(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """End a connection that libzmq has given up, before another one is made."""
        # ENOENT: it was ended before.
        with suppress(zmq.ZMQError):
            socket.disconnect(endpoint)

    def call_again(self, socket: zmq.Socket[Any], endpoint: str, key: str) -> None:
        """Connect again to an endpoint, by a key."""
        assert self.credentials is not None
        self.give_up(socket, endpoint)
        self.credentials.prepare(socket, key)
        self.called[endpoint] = key
        socket.setsockopt(zmq.IPV6, int(needs_ipv6(endpoint)))
        socket.connect(endpoint)


class PublisherKeys:
    """Credentials of a publisher, the rights of its subscribers, and the handshakes at its sockets.

    Attributes:
        credentials: of the publisher.
        access: rights by key.
        has_permissions: whether a file of permissions bounds subscriptions.
        denied: subscriptions that were refused by permissions.
    """

    def __init__(self, credentials: Credentials, dialect: str, delimiter: bytes = b"") -> None:
        """Start without sockets.

        Args:
            credentials: of the publisher.
            dialect: of its subjects.
            delimiter: bytes behind the subject in messages of one frame; empty for two frames.
        """
        self.credentials = credentials
        self.access = Access(credentials.rights, dialect, delimiter)
        self.has_permissions = credentials.permissions is not None
        self.denied = 0
        self._sockets: dict[zmq.Socket[Any], tuple[_KeyedEndpoints, PeerKeys, Calls]] = {}
        self._due_at = 0.0

    def _parts(self, socket: zmq.Socket[Any]) -> tuple[_KeyedEndpoints, PeerKeys, Calls]:
        parts = self._sockets.get(socket)
        if parts is None:
            endpoints = _KeyedEndpoints(self.credentials)
            # Refusals are logged: `publish` goes on for other subscribers.
            calls = Calls(endpoints, _ignore, lambda end: end())
            parts = self._sockets[socket] = endpoints, PeerKeys(endpoints, PYZMQ), calls
        return parts

    def serve(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Demand a trusted key at the endpoint that a socket binds next. inproc has no keys.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        if not endpoint.startswith("inproc:"):
            self._parts(socket)[2].begin(socket)
            self.credentials.serve(socket)

    def served(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Record an endpoint that a socket has bound, with its port."""
        if not endpoint.startswith("inproc:"):
            self._parts(socket)[0].bound.append(endpoint)

    def call(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Set the key of the listener that a socket connects to next. inproc has no keys.

        Raises:
            PermissionDenied: one side does not trust the key of the other.
        """
        if not endpoint.startswith("inproc:"):
            endpoints, _, calls = self._parts(socket)
            calls.begin(socket)
            endpoints.called[endpoint] = self.credentials.call(socket, endpoint)

    def forget(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Forget an endpoint that a socket is neither bound nor connected to any more."""
        parts = self._sockets.get(socket)
        if parts is not None:
            parts[0].called.pop(endpoint, None)
            with suppress(ValueError):
                parts[0].bound.remove(endpoint)

    def receive(self, socket: zmq.Socket[Any], flags: int) -> tuple[bytes, Peer | None]:
        """Receive one frame, and its connection with the key; None inside the process.

        Raises:
            zmq.Again: there is none.
        """
        return self._parts(socket)[1].receive(socket, flags)

    def authorize(self, user: str | None, item: Item, pattern: Pattern, group: str | None) -> Refusal | None:
        """Return why a key may not have a subscription, or None; see `Sessions`."""
        if user is None or pattern.text == STANDBY:
            # Inside the process no key is needed. The other pattern matches no message.
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
            _log.warning("key %s may not subscribe: %s. stats.denied counts further ones", user, denial)

    def is_trusted(self, user: str) -> bool:
        """Return whether a key is trusted."""
        return user in self.access.rights.trusted

    def has_changed(self, now: float) -> bool:
        """Do what is due; return whether the rights have changed.

        Args:
            now: in seconds of `time.monotonic`.
        """
        if now < self._due_at:
            return False
        self._due_at = now + RIGHTS_INTERVAL
        for socket, (_, _, calls) in self._sockets.items():
            calls.look(socket, now)
        return self.access.has_changed()

    @property
    def deadline(self) -> float:
        """Time of the next check in seconds of `time.monotonic`."""
        return self._due_at

    def close(self) -> None:
        """End the monitors, before the sockets close."""
        while self._sockets:
            socket, (_, _, calls) = self._sockets.popitem()
            calls.close(socket)


def _ignore(error: PermissionDenied) -> None:
    pass
