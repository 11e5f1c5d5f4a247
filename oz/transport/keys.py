"""Keys of the peers of a publisher or subscriber: the listeners to which it connects, and its callers.

Theory of operation
-------------------
A client of CURVE must know the key of the server before it connects. `find` tries the trusted keys at an
endpoint, 16 keys at once. If nothing listens at the endpoint yet, the socket connects with the likeliest key.

libzmq reports the outcome of a handshake only to the monitor of the socket. The engine passes each outcome to
`on_handshake`:

================================ ==============================================================
outcome                          reaction
================================ ==============================================================
ADMITTED                         none
REFUSED: own key not trusted     connection ends; connect again after 0.2 to 5 s; report
BROKEN: listener without keys    connection ends; connect again after 0.2 to 5 s; report
FAILED: listener has another key libzmq connects again; the second failure in a row begins a search
================================ ==============================================================

After REFUSED and BROKEN, libzmq does not connect again. It frees the connection, but the socket keeps the address of
the connection. Therefore the engine disconnects the endpoint at once, before it connects again.

A search runs in its own thread, and its result wakes the engine. If three searches in a row find no trusted key, the
engine reports the endpoint. One search is not enough, because the listener may close during a search.

Every `TEND_INTERVAL` seconds, `tend` checks the files of keys. `tend` ends each connection to a listener whose key is
no longer trusted. `tend` also reads the monitors of listening sockets, which report callers without a key (`Arrivals`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.transport.arrivals import Arrivals
from oz.transport.backoff import growing
from oz.transport.credentials import Credentials
from oz.transport.key_search import KeySearch
from oz.transport.monitors import Event, Monitor, Outcome
from oz.transport.probing import Probed

TEND_INTERVAL = 0.5
"""Seconds between two checks for changes of the files of keys and permissions."""
CHANGE_INTERVAL = 0.06
"""Seconds between two checks while a file changes. A file is read when it has not changed for 0.05 s."""
LINK = int(zmq.DEALER)
"""Type of the socket that tries trusted keys at a link endpoint. A link is a connection between two sockets of oz."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""First and longest pause between a refusal and the next connection to the endpoint, in seconds."""
_FAILURES = 2  # A search begins after this number of failed handshakes. A closing listener may cause one.
_STRANGERS = 3  # If this number of searches in a row finds no trusted key, the endpoint is reported.
_WITHOUT_KEY = (Probed.STRANGER, Probed.KEYLESS, Probed.SILENT)

_log = peer_logger("oz.security")


class _Server:
    """Listener at one endpoint.

    Attributes:
        link_endpoint: endpoint at which the listener accepts links; None without links.
        key: public key with which the socket connects to the endpoint.
        kind: ZeroMQ type of the socket whose last handshake failed.
        reconnect_at: time of the next connection, in seconds of `time.monotonic`; None if no connection is due.
        pauses: pauses before the next connections, in seconds.
        failures: number of failed handshakes since the last successful handshake or connect.
        strangers: number of searches in a row that found no trusted key.
        is_refused: whether a refusal was reported since the last successful handshake.
        is_ended: whether the engine has disconnected the endpoint and has not connected again.
    """

    __slots__ = (
        "failures", "is_ended", "is_refused", "key", "kind", "link_endpoint", "pauses", "reconnect_at", "strangers",
    )  # fmt: skip

    def __init__(self, link_endpoint: str | None, key: str, kind: int) -> None:
        self.link_endpoint, self.key, self.kind = link_endpoint, key, kind
        self.is_ended = False
        self.reset()

    def reset(self) -> None:
        self.reconnect_at: float | None = None
        self.pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.failures = self.strangers = 0
        self.is_refused = False


class Keys:
    """Keys of the peers of a publisher or subscriber.

    Attributes:
        credentials: credentials of this side.
        plain: type of the socket that tries trusted keys at an endpoint without links.
        name_of: function that returns the name of the listener at an endpoint, for error messages.
        stranger_at: function that returns the public key of the listener at an endpoint if this key is known but not
            trusted, else None.
    """

    plain = int(zmq.SUB)
    name_of: Callable[[str], str] = staticmethod(str)
    stranger_at: Callable[[str], str | None] = staticmethod(lambda endpoint: None)

    def __init__(
        self,
        credentials: Credentials,
        wake: Callable[[], object],
        report: Callable[[str, str], object],
        reconnect: Callable[[str], object],
        end: Callable[[str], object],
    ) -> None:
        """Start without endpoints.

        Args:
            credentials: credentials of this side.
            wake: function that makes the engine call `tend`. Any thread may call it.
            report: function that is called after a refusal with the endpoint and the reason. The reason is the end of
                a sentence that begins with the name of the listener.
            reconnect: function that connects the engine to an endpoint again, with the key from `key_of`.
            end: function that ends the connections of the engine to an endpoint.
        """
        self.credentials = credentials
        self._report, self._reconnect, self._end = report, reconnect, end
        self._servers: dict[str, _Server] = {}
        self._search = KeySearch(self.probe, wake)
        self._monitors: dict[zmq.Socket[Any], tuple[Monitor, Arrivals]] = {}
        self._due_at = 0.0
        self._rights = credentials.rights()

    # monitors

    def watch(self, socket: zmq.Socket[Any], now: float) -> None:
        """Monitor the handshakes of a socket. Call it before each bind and connect.

        If the socket is monitored already, the method reads its events. A refused connection must end before the socket
        connects again.
        """
        found = self._monitors.get(socket)
        if found is None:
            self._monitors[socket] = Monitor(socket), Arrivals(self.credentials.turn_away)
        else:
            self._read(*found, now)

    def unwatch(self, socket: zmq.Socket[Any]) -> None:
        """End the monitor of a socket. Call it before the socket closes."""
        found = self._monitors.pop(socket, None)
        if found is not None:
            found[0].close()

    def _read(self, monitor: Monitor, arrivals: Arrivals, now: float) -> None:
        for event in monitor.read():
            self._on_event(event, arrivals, now)
        arrivals.report_failures(now)

    def _on_event(self, event: Event, arrivals: Arrivals, now: float) -> None:
        arrivals.add(event, now)

    def on_bye(self, now: float) -> None:
        """Record that a caller with a trusted key has sent BYE."""
        for _, arrivals in self._monitors.values():
            arrivals.leave(now)

    # connections

    def find(self, endpoint: str, link_endpoint: str | None, *, is_plain: bool) -> None:
        """Find the key of a listener. The call waits for handshakes. After an error, the endpoint is removed.

        Args:
            endpoint: endpoint of the listener.
            link_endpoint: endpoint at which the listener accepts links; None without links.
            is_plain: whether to try a plain connection if no process listens at the link endpoint.

        Raises:
            PermissionDenied: one of the sides does not trust the key of the other side.
        """
        if endpoint.startswith("inproc:"):
            return
        kind = self.plain if link_endpoint is None else LINK
        server = self._servers[endpoint] = _Server(link_endpoint, self._candidates(endpoint)[0], kind)
        try:
            found, key = Probed.ABSENT, None
            if link_endpoint is not None:
                found, key = self.probe(endpoint, LINK)
            if found is Probed.ABSENT and is_plain:
                found, key = self.probe(endpoint, self.plain)
            why = self._why_not(found, endpoint, key)
            if why is not None:
                raise PermissionDenied(
                    f"{self.name_of(endpoint)} {why}. The endpoint is not connected, and is not tried again"
                )
        except BaseException:
            del self._servers[endpoint]
            raise
        if key is not None:
            server.key = key

    def expect(self, endpoint: str) -> None:
        """Choose the likeliest key of a listener for links, and begin a search if several keys are possible.

        Args:
            endpoint: endpoint at which the listener accepts links.

        Raises:
            PermissionDenied: there is no trusted key that the listener may have.
        """
        if endpoint.startswith("inproc:"):
            return
        candidates = self._candidates(endpoint)
        server = self._servers[endpoint] = _Server(endpoint, candidates[0], LINK)
        if len(candidates) > 1:
            # Begin with one failure, because `tend` ignores search results for endpoints without failures.
            server.failures = 1
            self._search.begin(endpoint, LINK)

    def _candidates(self, endpoint: str) -> list[str]:
        """Return the keys that a listener may have, the likeliest first."""
        candidates = self.credentials.candidates(endpoint)
        if not candidates:
            raise PermissionDenied(
                f"{self.name_of(endpoint)} {self._why_not(Probed.STRANGER, endpoint, None)}"
            )
        return candidates

    def _why_not(self, found: Probed, endpoint: str, key: str | None) -> str | None:
        if found is Probed.STRANGER:
            key = self.stranger_at(endpoint)
        return self.credentials.why_not(found, endpoint, key)

    def probe(self, endpoint: str, kind: int) -> tuple[Probed, str | None]:
        """Try the trusted keys at an endpoint.

        Args:
            endpoint: endpoint of the listener.
            kind: type of the socket that tries: LINK or `plain`.
        """
        server = self._servers.get(endpoint)
        if server is None:
            return Probed.ABSENT, None
        return self.credentials.probe(endpoint, kind, server.link_endpoint if kind == LINK else None)

    def forget(self, endpoint: str) -> None:
        """Forget an endpoint that the program has disconnected."""
        if self._servers.pop(endpoint, None) is not None:
            self._search.reset(endpoint)

    @property
    def by_endpoint(self) -> dict[str, str]:
        """Public key with which this side connects to each endpoint."""
        return {endpoint: server.key for endpoint, server in self._servers.items()}

    def key_of(self, endpoint: str) -> str | None:
        """Return the key with which this side connects to an endpoint; None for inproc and bound endpoints."""
        server = self._servers.get(endpoint)
        return None if server is None else server.key

    def prepare(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Set the keys of a socket before it connects to an endpoint."""
        server = self._servers.get(endpoint)
        if server is not None:
            self.credentials.prepare(socket, server.key)

    def on_handshake(self, endpoint: str, outcome: Outcome, kind: int, now: float) -> None:
        """Record the outcome of a handshake.

        Args:
            endpoint: endpoint of the listener.
            outcome: outcome of the handshake.
            kind: type of the socket that connected: LINK or `plain`.
            now: current time, in seconds of `time.monotonic`.
        """
        server = self._servers.get(endpoint)
        if server is None or server.is_ended:
            # The event belongs to a connection that has ended.
            return
        if outcome is Outcome.ADMITTED:
            server.reset()
            self._search.reset(endpoint)
            return
        server.kind = kind
        server.failures += 1
        if outcome is Outcome.FAILED:
            if server.failures >= _FAILURES and not self._search.is_searching(endpoint):
                self._search.begin(endpoint, kind)
            return
        self._end_connection(endpoint, server)
        if server.reconnect_at is None:
            server.reconnect_at = now + next(server.pauses)
        found = Probed.REFUSED if outcome is Outcome.REFUSED else Probed.KEYLESS
        self._refuse(endpoint, server, self._why_not(found, endpoint, server.key) or "")

    def _refuse(self, endpoint: str, server: _Server, why: str) -> None:
        if not server.is_refused:
            server.is_refused = True
            _log.warning("%s %s. The connection is tried again", self.name_of(endpoint), why)
            self._report(endpoint, why)

    def tend(self, now: float) -> None:
        """Do all work that is due: connect again, apply results of searches, check the files, report refused callers.

        Args:
            now: current time, in seconds of `time.monotonic`.
        """
        for endpoint, server in [*self._servers.items()]:
            if server.reconnect_at is not None and now >= server.reconnect_at:
                server.reconnect_at = None
                self._connect(endpoint, server, server.key)
        for found in self._search.results(now):
            at = self._servers.get(found.endpoint)
            if at is None or not at.failures:
                # The endpoint was disconnected, or a handshake has succeeded since the search began.
                continue
            is_new = found.key != at.key or at.is_ended
            if found.outcome is Probed.ADMITTED and found.key is not None and is_new:
                self._connect(found.endpoint, at, found.key)
                continue
            at.strangers = at.strangers + 1 if found.outcome in _WITHOUT_KEY else 0
            why = self._why_not(found.outcome, found.endpoint, found.key)
            if why is not None and (found.outcome is Probed.REFUSED or self._is_strange(found.endpoint, at)):
                self._refuse(found.endpoint, at, why)
            self._search.begin_later(found.endpoint, now)
        if now >= self._due_at:
            self._due_at = now + TEND_INTERVAL
            for monitor, arrivals in self._monitors.values():
                self._read(monitor, arrivals, now)
            self.credentials.log_refused(now)
            self._check_trust()
            if self.credentials.is_changing:
                self._due_at = now + CHANGE_INTERVAL

    def _is_strange(self, endpoint: str, server: _Server) -> bool:
        # The peer may be a node on this host that also connects to this node and so shows its key. After more searches,
        # the report can name this key.
        may_call = endpoint.startswith("ipc:") and self.stranger_at(endpoint) is None
        return server.strangers >= (2 * _STRANGERS if may_call else _STRANGERS)

    def _connect(self, endpoint: str, server: _Server, key: str) -> None:
        # An event names no connection, so that a later failure may come from the previous connection. Therefore the
        # count begins with 0, and one failure begins no search.
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
        """Return the time at which the engine must call `tend`, in seconds of `time.monotonic`."""
        times = [server.reconnect_at for server in self._servers.values()]
        times.append(self._search.next_deadline())
        return min([self._due_at, *(due for due in times if due is not None)])
