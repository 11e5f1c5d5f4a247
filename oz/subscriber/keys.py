"""Keys of a subscriber: which key each publisher has, refused connections, and what a key may publish.

Theory of operation
-------------------
A client of CURVE must know the key of the server before it connects. `find` tries the trusted keys at an
endpoint, 16 at once. If nothing listens there yet, the endpoint is connected with the likeliest key.

libzmq reports the outcome of a handshake only to the monitor of the socket. The engine passes the outcomes on:

================================ ==============================================================
outcome                          reaction
================================ ==============================================================
ADMITTED                         the endpoint is in order
REFUSED: own key not trusted     connection ends; connect again after 0.2 to 5 s; report
BROKEN: listener without keys    connection ends; connect again after 0.2 to 5 s; report
FAILED: listener has another key the second in a row begins a search; libzmq tries again meanwhile
================================ ==============================================================

libzmq never tries again after REFUSED and BROKEN. It frees such a connection, but keeps its address under the
endpoint, so that the engine disconnects at once and before it connects again.

A search runs in a thread of its own. Its result wakes the engine. A search that finds no trusted key is
reported when three in a row have found none, because one may meet a listener that closes.

The files of keys and permissions are read again by the clock. A connection to a key that is not trusted any
more ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.message import Extras
from oz.security.identity import make_uuid_of
from oz.security.publish_access import Denials, PublishAccess
from oz.subscriber.link import Messages
from oz.transport.arrivals import Arrivals
from oz.transport.credentials import Credentials
from oz.transport.handshakes import Handshakes, Outcome
from oz.transport.key_search import KeySearch
from oz.transport.probing import Probed
from oz.transport.recall import Recall
from oz.wire.extras import REPLY_TO

TEND_INTERVAL = 0.5
"""Seconds between two checks whether the files of keys and permissions have changed."""
LINK, PLAIN = int(zmq.DEALER), int(zmq.SUB)
"""Kinds of socket that try the keys of a listener for links, and of a listener for plain connections."""
HANDSHAKES = int(
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
"""Events of a monitor that report the outcome of a handshake."""
_OUTCOMES = {
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): Outcome.ADMITTED,
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): Outcome.REFUSED,
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): Outcome.FAILED,
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): Outcome.BROKEN,
}
_FAILURES = 2  # Failed handshakes in a row that begin a search: one may meet a listener that closes.
_STRANGERS = 3  # Searches in a row without a trusted key that are reported.
_WITHOUT_KEY = (Probed.STRANGER, Probed.KEYLESS, Probed.SILENT)

_log = peer_logger("oz.security")


def outcome_of(event: int) -> Outcome:
    """Return the outcome of a handshake that an event of a monitor reports."""
    return _OUTCOMES.get(event, Outcome.ENDED)


class _Server:
    """Publisher at one endpoint.

    Attributes:
        link_endpoint: of its links, or None.
        key: public key that the endpoint is connected with.
        kind: LINK or PLAIN, of the last handshake that failed.
        recall: pauses before the next connection.
        failures: handshakes that failed in a row.
        strangers: searches in a row that found no trusted key.
        is_refused: whether a refusal was reported.
        is_ended: whether the engine has no connection to the endpoint.
    """

    __slots__ = ("failures", "is_ended", "is_refused", "key", "kind", "link_endpoint", "recall", "strangers")

    def __init__(self, link_endpoint: str | None, key: str) -> None:
        self.link_endpoint, self.key = link_endpoint, key
        self.kind = PLAIN if link_endpoint is None else LINK
        self.is_ended = False
        self.settle()

    def settle(self) -> None:
        """Record that a handshake has succeeded."""
        self.recall = Recall()
        self.failures = self.strangers = 0
        self.is_refused = False


class ServerKeys:
    """Keys of the publishers that a subscriber connects to.

    Attributes:
        credentials: of the subscriber.
        rights: decides what keys may publish.
    """

    def __init__(
        self,
        credentials: Credentials,
        wake: Callable[[], object],
        report: Callable[[str, str], object],
        reconnect: Callable[[str], object],
        end: Callable[[str], object],
        delimiter: bytes | None = None,
    ) -> None:
        """Start without endpoints.

        Args:
            credentials: of the subscriber.
            wake: makes the engine call `tend`; called in any thread.
            report: called with the endpoint of a refusal and its reason.
            reconnect: called with an endpoint to connect again, with its key of now.
            end: called with an endpoint whose connections end.
            delimiter: bytes behind the subject in plain messages of one frame, or None.
        """
        self.credentials, self._delimiter = credentials, delimiter
        self._report, self._reconnect, self._end = report, reconnect, end
        self._servers: dict[str, _Server] = {}
        self._search = KeySearch(self, wake)
        self._served: dict[zmq.Socket[Any], tuple[Handshakes, Arrivals]] = {}
        self._due_at = 0.0
        self._rights = credentials.rights()
        self._has_permissions = credentials.permissions is not None
        self.denials = Denials()
        self.rights = PublishAccess(credentials.rights, self.denials)

    @property
    def denied(self) -> int:
        """Messages that the key of their publisher may not publish."""
        return self.denials.denied

    def new_session(self) -> bytes:
        """Return a session id that belongs to the own key: publishers refuse it to other keys."""
        return make_uuid_of(self.credentials.public_key, os.urandom)

    # connections

    def find(self, endpoint: str, link_endpoint: str | None, *, is_plain: bool) -> None:
        """Find the key of a publisher. The call waits for handshakes.

        Args:
            endpoint: of the publisher.
            link_endpoint: of its links, or None.
            is_plain: whether a plain connection may serve the endpoint.

        Raises:
            PermissionDenied: one side does not trust the key of the other.
        """
        if endpoint.startswith("inproc:"):
            return
        candidates = self.credentials.candidates(endpoint)
        server = _Server(link_endpoint, candidates[0] if candidates else "")
        self._servers[endpoint] = server
        try:
            found, key = Probed.ABSENT, None
            if link_endpoint is not None:
                found, key = self.probe(endpoint, LINK)
            if found is Probed.ABSENT and is_plain:
                found, key = self.probe(endpoint, PLAIN)
            why = self.credentials.why_not(found, endpoint, key)
            if not candidates:
                why = self.credentials.why_not(Probed.STRANGER, endpoint, None)
            if why is not None:
                raise PermissionDenied(why)
        except BaseException:
            del self._servers[endpoint]
            raise
        if key is not None:
            server.key = key

    def expect(self, endpoint: str) -> None:
        """Begin with the likeliest key of a listener for links, and search for its key meanwhile.

        Args:
            endpoint: for links.

        Raises:
            PermissionDenied: no key is trusted.
        """
        if endpoint.startswith("inproc:"):
            return
        candidates = self.credentials.candidates(endpoint)
        if not candidates:
            raise PermissionDenied(self.credentials.why_not(Probed.STRANGER, endpoint, None) or "")
        server = self._servers[endpoint] = _Server(endpoint, candidates[0])
        if len(candidates) > 1:
            # The search counts only while no handshake has succeeded.
            server.failures = 1
            self._search.begin(endpoint, LINK)

    def probe(self, endpoint: str, kind: int) -> tuple[Probed, str | None]:
        """Try the trusted keys at an endpoint, for `KeySearch`.

        Args:
            endpoint: of the publisher.
            kind: LINK or PLAIN.
        """
        server = self._servers.get(endpoint)
        if server is None:
            return Probed.ABSENT, None
        return self.credentials.probe(endpoint, kind, server.link_endpoint if kind == LINK else None)

    def forget(self, endpoint: str) -> None:
        """Forget an endpoint that the program has disconnected."""
        if self._servers.pop(endpoint, None) is not None:
            self._search.settle(endpoint)

    def key_of(self, endpoint: str) -> str | None:
        """Return the key that an endpoint is connected with; None for inproc and bound endpoints."""
        server = self._servers.get(endpoint)
        return None if server is None else server.key

    def prepare(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Set the keys of a socket for its next connection, which is one to an endpoint."""
        server = self._servers.get(endpoint)
        if server is not None:
            self.credentials.prepare(socket, server.key)

    # bound sockets

    def serve(self, socket: zmq.Socket[Any]) -> None:
        """Demand a trusted key at the endpoint that a socket binds next; log and count callers without one.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        self.credentials.serve(socket)
        handshakes = Handshakes()
        handshakes.begin(socket)
        self._served[socket] = handshakes, Arrivals(self.credentials)

    def end(self, socket: zmq.Socket[Any]) -> None:
        """End the monitor of a bound socket, before it closes."""
        served = self._served.pop(socket, None)
        if served is not None:
            served[0].close(socket)

    # outcomes

    def on_handshake(self, endpoint: str, outcome: Outcome, kind: int, now: float) -> None:
        """Record the outcome of a handshake.

        Args:
            endpoint: of the publisher.
            outcome: of the handshake.
            kind: LINK or PLAIN.
            now: in seconds.
        """
        server = self._servers.get(endpoint)
        if server is None or outcome is Outcome.ENDED:
            return
        if outcome is Outcome.ADMITTED:
            server.settle()
            self._search.settle(endpoint)
            return
        server.kind = kind
        server.failures += 1
        if outcome is Outcome.FAILED:
            if server.failures >= _FAILURES and not self._search.is_searching(endpoint):
                self._search.begin(endpoint, kind)
            return
        self._end_connection(endpoint, server)
        server.recall.plan(now)
        if outcome is Outcome.REFUSED:
            self._refuse(endpoint, server, self.credentials.refused_by(endpoint, server.key))
        else:
            why = self.credentials.why_not(Probed.KEYLESS, endpoint, None)
            self._refuse(endpoint, server, why or "")

    def _refuse(self, endpoint: str, server: _Server, why: str) -> None:
        if not server.is_refused:
            server.is_refused = True
            text = f"{why}. The connection is tried again"
            _log.warning("%s", text)
            self._report(endpoint, text)

    def tend(self, now: float) -> None:
        """Do what is due: connections, results of searches, changes of the files.

        Args:
            now: in seconds of `time.monotonic`.
        """
        for endpoint, server in [*self._servers.items()]:
            if server.recall.is_due(now):
                self._connect(endpoint, server, server.key)
        for found in self._search.take(now):
            at = self._servers.get(found.endpoint)
            if at is None or not at.failures:
                # It was disconnected, or a handshake has succeeded meanwhile.
                continue
            is_new = found.key != at.key or at.is_ended
            if found.outcome is Probed.ADMITTED and found.key is not None and is_new:
                self._connect(found.endpoint, at, found.key)
                continue
            at.strangers = at.strangers + 1 if found.outcome in _WITHOUT_KEY else 0
            why = self.credentials.why_not(found.outcome, found.endpoint, found.key)
            if why is not None and (found.outcome is Probed.REFUSED or at.strangers >= _STRANGERS):
                self._refuse(found.endpoint, at, why)
            self._search.again(found.endpoint, now)
        if now >= self._due_at:
            self._due_at = now + TEND_INTERVAL
            self._check_trust()
            for handshakes, arrivals in self._served.values():
                for one in handshakes.read():
                    arrivals.take(one, now)
                arrivals.look(now)
            self.credentials.log_refused(now)

    def _connect(self, endpoint: str, server: _Server, key: str) -> None:
        # An event does not name a connection, so that one of the connection before may come: it is not enough.
        server.key, server.failures, server.is_ended = key, 0, False
        self._reconnect(endpoint)

    def _end_connection(self, endpoint: str, server: _Server) -> None:
        server.is_ended = True
        self._end(endpoint)

    def _check_trust(self) -> None:
        rights = self.credentials.rights()
        if rights is self._rights:
            return
        self._rights = rights
        for endpoint, server in [*self._servers.items()]:
            if server.key not in rights.trusted:
                server.failures = max(server.failures, 1)
                self._end_connection(endpoint, server)
                if not self._search.is_searching(endpoint):
                    self._search.begin(endpoint, server.kind)

    def next_deadline(self) -> float:
        """Return the time of the next `tend` in seconds of `time.monotonic`."""
        times = [server.recall.again_at for server in self._servers.values()]
        times.append(self._search.next_deadline())
        return min([self._due_at, *(one for one in times if one is not None)])

    # what a key may publish

    def allowed(self, key: str | None, origin: bytes, effect: Messages) -> Iterable[Messages]:
        """Return the messages of a link that its key may publish; count the other messages.

        Args:
            key: of the publisher; None inside the process.
            origin: id of the publisher, which belongs to the first key that uses it.
            effect: of the link.
        """
        rights = self.rights
        rights.key = key
        count = len(effect.positions)
        if not rights.owns(origin, count):
            return ()
        if not self._has_permissions:
            # The messages need not be decoded.
            return (effect,)
        denied = rights.denied(effect.flat[0::3], _inboxes_of(effect.flat[2::3]))
        return (effect,) if not denied else _without(effect, denied)

    def allowed_plain(self, key: str | None, messages: list[list[bytes]]) -> list[list[bytes]]:
        """Return the plain messages that a key may publish; count the other messages."""
        rights = self.rights
        rights.key = key
        delimiter = self._delimiter
        if delimiter is not None:
            return [one for one in messages if rights.allows(one[0].partition(delimiter)[0])]
        return [one for one in messages if rights.allows(one[0])]


def _inboxes_of(extras: list[dict[Any, Any] | None]) -> list[Extras | None] | None:
    """Return the subjects for replies to requests; None if no message is a request."""
    found = [None if one is None else one.get(REPLY_TO) for one in extras]
    if not any(found):
        return None
    return [Extras(reply_to=one) if isinstance(one, str) else None for one in found]


def _without(effect: Messages, denied: list[int]) -> list[Messages]:
    """Return the runs of messages between those at some indexes."""
    found = []
    start = 0
    for stop in (*denied, len(effect.positions)):
        if stop > start:
            found.append(
                effect._replace(
                    sequence=effect.sequence + start,
                    positions=effect.positions[start:stop],
                    content=effect.flat[3 * start : 3 * stop],
                )
            )
        start = stop + 1
    return found
