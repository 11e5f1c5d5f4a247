"""Keys of a publisher: the trusted keys, the rights of each key, and changes of the key and permissions files.

Theory of operation
-------------------
A publisher with `security=` uses CURVE on both sockets. The authenticator of the context decides which keys are
trusted. In each received frame, libzmq sets the key of the sender as the User-Id. A session belongs to the key of the
peer that sent its HELLO. The publisher checks each pattern that the session declares by the rights of this key.

The publisher reads the key and permissions files again every `TEND_INTERVAL` seconds. A change applies to existing
sessions too (`Sessions.reconsider`): patterns that are no longer allowed are refused, and sessions of keys that are no
longer trusted end. The publisher cuts the connections of these sessions, so that a subscriber must prove a key again.

The base class `oz.transport.keys.Keys` reports peers that connect without a key. It also connects again to endpoints
that have refused the publisher.
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
"""Function that returns whether a session id was made from a key. If a HELLO contains an id that was made from another
key, the publisher refuses the HELLO, even if no session has this id."""

_recv: Any = zmq.backend.Socket.recv

_log = peer_logger("oz.publisher")


def _ignore(*_: object) -> None:
    pass


def _text(user: str, denial: Denial) -> str:
    return f"key {user} may not subscribe: {denial}"


class PublisherKeys(Keys):
    """Keys of the peers of a publisher: its subscribers, and the listeners to which it connects.

    Attributes:
        access: rights of each subscriber's key.
        has_permissions: whether a permissions file limits subscriptions.
        own_rights: rights of the publisher's key; None without a permissions file.
        denied: number of subscriptions that permissions refused.
    """

    # Type of the socket that connects to endpoints. Only the socket for plain subscribers connects.
    plain = int(zmq.PUB)

    def __init__(self, credentials: Credentials, dialect: str, delimiter: bytes = b"") -> None:
        """Start without sockets.

        Args:
            credentials: key, trusted keys and permissions of the publisher.
            dialect: name of the dialect of the publisher's subjects.
            delimiter: bytes behind the subject in messages of one frame; empty for messages of two frames.
        """
        # `wake` does nothing: the next call of `has_changed` uses the results of key searches. `report` does nothing:
        # refusals are only logged, and `publish` continues for other subscribers.
        super().__init__(credentials, _ignore, _ignore, self._connect_again, self._disconnect)
        self.access = Access(credentials.rights, dialect, delimiter)
        self.has_permissions = credentials.permissions is not None
        self.own_rights: OwnRights | None = None
        if self.has_permissions:
            # `own_rights` reads the rights of `access`, so that `has_changed` also reports changes of `own_rights`.
            self.own_rights = OwnRights(
                lambda: self.access.rights.permissions,
                credentials.public_key,
                credentials.read_permissions_again,
            )
        self.denied = 0
        self._peers = PeerKeys()
        self._socket: zmq.Socket[Any] | None = None

    def serve(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        """Require a trusted key at the endpoint that a socket binds next. An inproc endpoint needs no key.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        if not endpoint.startswith("inproc:"):
            self.watch(socket, now)
            self.credentials.serve(socket)

    def served(self, endpoint: str) -> None:
        """Record a bound endpoint, with its port."""
        if not endpoint.startswith("inproc:"):
            self._peers.bound.append(endpoint)

    def call(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        """Set the listener's key before the socket connects to its endpoint. An inproc endpoint needs no key.

        Raises:
            PermissionDenied: one side does not trust the other side's key.
        """
        if not endpoint.startswith("inproc:"):
            self._socket = socket
            self.watch(socket, now)
            self.find(endpoint, None, is_plain=True)
            self.prepare(socket, endpoint)

    def _disconnect(self, endpoint: str) -> None:
        # ZMQError with ENOENT: the endpoint was disconnected before.
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
        """Remove an endpoint that a socket has unbound or disconnected."""
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
        """Return the refusal of a subscription, or None if the key may have the subscription; see `Sessions`."""
        if user is None or pattern.text == STANDBY:
            # An inproc subscriber (None) needs no key. The pattern `STANDBY` matches no message.
            return None
        denial = self.access.denial(user, (pattern,), group or "")
        if denial is None:
            return None
        self.count(user, denial)
        # The rule is empty if no rule of the permissions file decided.
        return Refusal(item.sid, str(denial), denial.rule or "", denial.subject)

    def denied_subscriptions(self, subject: str | None) -> Iterator[str]:
        """Yield a text for each denied subscription whose pattern matches a subject; None means all subscriptions."""
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
        """Run the periodic work that is due, for example read the files again; return whether rights have changed.

        Args:
            now: current time in seconds of `time.monotonic`.
        """
        if now < self.next_deadline():
            return False
        self.tend(now)
        return self.access.has_changed()

    def close(self) -> None:
        """Stop monitoring the sockets. The caller closes the sockets afterwards."""
        for socket in [*self._monitors]:
            self.unwatch(socket)
