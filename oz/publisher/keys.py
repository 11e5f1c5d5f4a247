"""Keys of a publisher: the trusted keys, the subscriptions of each key, and changes of the files.

Theory of operation
-------------------
A publisher with `security=` has CURVE on both sockets. libzmq asks the authenticator of the context about each
key, and sets the key as the User-Id of each frame. A session belongs to the key that sent its HELLO, and the publisher
checks each declared pattern by the rights of this key.

The files of keys and permissions are read again every `TEND_INTERVAL` seconds. A change applies to existing sessions
too (`Sessions.reconsider`): patterns that are not allowed any more are refused, and sessions of keys that are not
trusted any more end. The connections of ended sessions are cut, so that their subscribers must prove a key again.

`oz.transport.keys.Keys` reports peers that connect without a key. It also connects again to endpoints that have refused
the publisher.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.publisher.groups import STANDBY
from oz.security.access import Access
from oz.security.denials import Denial
from oz.security.identity import is_of
from oz.security.own_rights import OwnRights
from oz.subjects.pattern import Pattern
from oz.transport.arrivals import Arrivals
from oz.transport.connections import Connection
from oz.transport.credentials import Credentials
from oz.transport.endpoints import needs_ipv6
from oz.transport.keys import Keys
from oz.transport.monitors import Event
from oz.transport.peer_keys import PeerKeys, called_endpoint, is_of_caller
from oz.wire.links import Item, Refusal

owns_session = is_of
"""Function that returns whether a session id was made from a key. A HELLO whose id was made from another key is
refused, even if no session has this id."""

_recv: Any = zmq.backend.Socket.recv

_log = peer_logger("oz.publisher")


def _ignore(*_: object) -> None:
    pass


def _text(user: str, denial: Denial) -> str:
    return f"key {user} may not subscribe: {denial}"


class PublisherKeys(Keys):
    """Keys of the subscribers of a publisher, and of the listeners that it connects to.

    Attributes:
        access: rights of each subscriber's key.
        has_permissions: whether a file of permissions limits subscriptions.
        own_rights: rights of the publisher's key; None without a file of permissions.
        denied: number of subscriptions that permissions refused.
    """

    # Only the socket of plain subscribers connects.
    plain = int(zmq.PUB)

    def __init__(self, credentials: Credentials, dialect: str, delimiter: bytes = b"") -> None:
        """Start without sockets.

        Args:
            credentials: key, trusted keys and permissions of the publisher.
            dialect: name of the dialect of the publisher's subjects.
            delimiter: bytes behind the subject in messages of one frame; empty if messages have two frames.
        """
        # Refusals are logged, because `publish` continues for other subscribers. Results of searches for keys are used
        # at the next `has_changed`.
        super().__init__(credentials, _ignore, _ignore, self._connect_again, self._disconnect)
        self.access = Access(credentials.rights, dialect, delimiter)
        self.has_permissions = credentials.permissions is not None
        self.own_rights: OwnRights | None = None
        if self.has_permissions:
            # The rights are shared with subscriptions, so that `has_changed` reports each change.
            self.own_rights = OwnRights(
                lambda: self.access.rights.permissions,
                credentials.public_key,
                credentials.read_permissions_again,
            )
        self.denied = 0
        self._peers = PeerKeys()
        self._socket: zmq.Socket[Any] | None = None

    def serve(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        """Demand a trusted key at the endpoint that a socket binds next, unless the endpoint is inproc.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        if not endpoint.startswith("inproc:"):
            self.watch(socket, now)
            self.credentials.serve(socket)

    def served(self, endpoint: str) -> None:
        """Record an endpoint, with its port, after a socket has bound it."""
        if not endpoint.startswith("inproc:"):
            self._peers.bound.append(endpoint)

    def call(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        """Set a listener's key before the socket connects to an endpoint, unless the endpoint is inproc.

        Raises:
            PermissionDenied: one side does not trust the other side's key.
        """
        if not endpoint.startswith("inproc:"):
            self._socket = socket
            self.watch(socket, now)
            self.find(endpoint, None, is_plain=True)
            self.prepare(socket, endpoint)

    def _disconnect(self, endpoint: str) -> None:
        # ENOENT: the endpoint was disconnected before.
        with suppress(zmq.ZMQError):
            if self._socket is not None:
                self._socket.disconnect(endpoint)

    def _connect_again(self, endpoint: str) -> None:
        if self._socket is not None:
            self._disconnect(endpoint)
            self.prepare(self._socket, endpoint)
            self._socket.setsockopt(zmq.IPV6, int(needs_ipv6(endpoint)))
            self._socket.connect(endpoint)

    def _on_event(self, event: Event, arrivals: Arrivals, now: float) -> None:
        called = self.by_endpoint
        if is_of_caller(event.endpoint, self._peers.bound, called):
            arrivals.add(event, now)
            return
        endpoint = called_endpoint(event.endpoint, called)
        if endpoint is not None and event.outcome is not None:
            self.on_handshake(endpoint, event.outcome, self.plain, now)

    def forget(self, endpoint: str) -> None:
        """Remove an endpoint that the socket has unbound or disconnected."""
        super().forget(endpoint)
        with suppress(ValueError):
            self._peers.bound.remove(endpoint)

    def receive(self, socket: zmq.Socket[Any], flags: int) -> tuple[bytes, Connection | None]:
        """Receive one frame, with its connection and key; the connection is None for inproc.

        Raises:
            zmq.Again: no frame waits.
        """
        frame = _recv(socket, flags, copy=False)
        return frame.bytes, self._peers.connection_of(frame, self.by_endpoint)

    def authorize(self, user: str | None, item: Item, pattern: Pattern, group: str | None) -> Refusal | None:
        """Return why a key may not have a subscription; None if the subscription is allowed; see `Sessions`."""
        if user is None or pattern.text == STANDBY:
            # Inside the process no key is needed. The pattern `STANDBY` matches no message.
            return None
        denial = self.access.denial(user, (pattern,), group or "")
        if denial is None:
            return None
        self.count(user, denial)
        # An empty rule marks a denial that no rule decided.
        return Refusal(item.sid, str(denial), denial.rule or "", denial.subject)

    def denied_subscriptions(self, subject: str | None) -> Iterator[str]:
        """Yield texts about denied subscriptions whose pattern matches a subject; None stands for any subject."""
        for user, denial in self.access.denied_subscriptions(subject):
            yield _text(user, denial)

    def count(self, user: str, denial: Denial) -> None:
        """Count and log a subscription that was refused."""
        self.denied += 1
        _log.warning("%s", _text(user, denial))

    def is_trusted(self, user: str) -> bool:
        """Return whether a key is trusted."""
        return user in self.access.rights.trusted

    def has_changed(self, now: float) -> bool:
        """Run the steps that are due, such as reading the files again; return whether the rights have changed.

        Args:
            now: current time in seconds of `time.monotonic`.
        """
        if now < self.next_deadline():
            return False
        self.tend(now)
        return self.access.has_changed()

    def close(self) -> None:
        """End the monitors of the sockets. The caller closes the sockets after this."""
        for socket in [*self._monitors]:
            self.unwatch(socket)
