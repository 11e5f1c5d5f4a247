"""The calls of a socket with keys: what becomes of the endpoints that it has connected to, and who comes.

ZeroMQ gives a connection up for good whose key was refused, and tries one again for ever that has the key of
its server wrong. Neither shows at the socket: its monitor tells. Such an endpoint is called anew, by the key
that whoever listens has, if that is trusted. So keys may be exchanged on both sides while the sockets stay,
and nobody needs to listen yet when an endpoint is called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import zmq

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.transport.arrivals import Arrivals
from oz.transport.credentials import Credentials
from oz.transport.handshakes import Handshakes, Outcome, came_to, named
from oz.transport.key_search import Found, KeySearch
from oz.transport.probing import Probed
from oz.transport.recall import Recall

_log = peer_logger("oz.security")

LOOK_EVERY = 0.25
"""Seconds between two looks at what has become of the connections."""

_REFUSALS = 2
"""Handshakes that fail one after another before the key is searched for: one may fail as its server ends."""


_STRANGERS = 3
"""Searches in a row that find a stranger, before it is told: one may find a listener that ends."""

_NOBODYS = (Probed.STRANGER, Probed.KEYLESS, Probed.SILENT)
"""What is found where somebody is, and nobody whose key is trusted."""


class _Call(Recall):
    """The state of one endpoint."""

    __slots__ = ("failures", "is_reported", "strangers")

    def __init__(self) -> None:
        super().__init__()
        self.failures = self.strangers = 0
        self.is_reported = False


class CalledEndpoints(Protocol):
    """The endpoints of a socket with keys, such as `Attachments`."""

    credentials: Credentials | None
    called: dict[str, str]

    @property
    def bound(self) -> list[str]:
        """Those that the socket is bound to."""
        ...

    def give_up(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """See `Attachments`."""
        ...

    def call_again(self, socket: zmq.Socket[Any], endpoint: str, key: str) -> None:
        """See `Attachments`."""
        ...


class Calls:
    """The endpoints that one socket with keys has connected to."""

    __slots__ = (
        "_arrivals",
        "_attachments",
        "_calls",
        "_end",
        "_fail",
        "_handshakes",
        "_kind",
        "_look_at",
        "_outcomes",
        "_search",
    )

    def __init__(
        self,
        attachments: CalledEndpoints,
        fail: Callable[[PermissionDenied], object],
        end: Callable[[Callable[[], object]], object],
    ) -> None:
        """Begin without connections.

        Args:
            attachments: of the socket.
            fail: is told of a refusal; once, until a connection stands again.
            end: ends connections by calling what it is given, once nothing is in the way of that.
        """
        self._attachments = attachments
        credentials = attachments.credentials
        self._arrivals = None if credentials is None else Arrivals(credentials)
        self._fail = fail
        self._end = end
        self._calls: dict[str, _Call] = {}
        self._look_at = 0.0
        self._handshakes = Handshakes()
        # What it finds is looked at soon enough.
        self._search = None if credentials is None else KeySearch(credentials, lambda: None)
        self._outcomes: list[tuple[Outcome, str]] = []
        self._kind = 0

    def begin(self, socket: zmq.Socket[Any]) -> None:
        """Look after the connections of a socket; to be called before one is made or ended."""
        if self._attachments.credentials is not None:
            self._kind = int(socket.get(zmq.TYPE))
            self._handshakes.begin(socket)
            self._read(socket, self._look_at)

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        self._handshakes.close(socket)

    def next_deadline(self) -> float | None:
        """Return when to look next, in monotonic seconds; None for never."""
        return self._look_at if self._handshakes.is_watching else None

    def look(self, socket: zmq.Socket[Any], now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is.

        Args:
            socket: the socket.
            now: monotonic seconds.
        """
        if not self._handshakes.is_watching or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        self._read(socket, now)
        if self._arrivals is not None:
            self._arrivals.look(now)
        outcomes, self._outcomes = self._outcomes, []
        for outcome, endpoint in outcomes:
            self._take(outcome, endpoint, now)
        for endpoint, call in list(self._calls.items()):
            if endpoint not in self._attachments.called:
                del self._calls[endpoint]
            elif call.is_due(now):
                self._call_anew(socket, endpoint, self._attachments.called[endpoint])
        if self._search is not None:
            for found in self._search.take(now):
                self._go_on(socket, found, now)

    def _read(self, socket: zmq.Socket[Any], now: float) -> None:
        attachments = self._attachments
        for one in self._handshakes.read():
            if came_to(one.where, attachments.bound, attachments.called):
                if self._arrivals is not None:
                    self._arrivals.take(one, now)
            elif (endpoint := named(one.where, attachments.called)) is not None:
                self._outcomes.append((one.outcome, endpoint))
                if one.outcome.is_final:
                    self._end(partial(attachments.give_up, socket, endpoint))

    def _take(self, outcome: Outcome, endpoint: str, now: float) -> None:
        assert self._search is not None
        if outcome is Outcome.ENDED:
            # ZeroMQ makes it again, or says why not.
            return
        if outcome is Outcome.ADMITTED:
            self._calls.pop(endpoint, None)
            self._search.settle(endpoint)
            return
        call = self._calls.setdefault(endpoint, _Call())
        call.failures += 1
        if not outcome.is_final and call.failures < _REFUSALS:
            return
        if outcome is Outcome.FAILED:
            if not self._search.is_searching(endpoint):
                self._search.begin(endpoint, self._kind)
        else:
            call.plan(now)
        credentials = self._attachments.credentials
        if outcome is Outcome.REFUSED and credentials is not None:
            self._report(call, credentials.refused_by(endpoint, self._attachments.called[endpoint]))

    def _go_on(self, socket: zmq.Socket[Any], found: Found, now: float) -> None:
        """Call an endpoint by the key that was found there, or look again later."""
        endpoint, key, called = found.endpoint, found.key, self._attachments.called
        if self._search is None or endpoint not in called or endpoint not in self._calls:
            # It was left meanwhile, or stands.
            return
        if found.outcome is Probed.ADMITTED and key is not None and key != called[endpoint]:
            self._call_anew(socket, endpoint, key)
            return
        call, credentials = self._calls[endpoint], self._attachments.credentials
        assert credentials is not None
        call.strangers = call.strangers + 1 if found.outcome in _NOBODYS else 0
        why = credentials.why_not(found.outcome, endpoint, key)
        if why is not None and (found.outcome is Probed.REFUSED or call.strangers >= _STRANGERS):
            self._report(call, why)
        self._search.again(endpoint, now)

    def _report(self, call: _Call, why: str) -> None:
        if not call.is_reported:
            call.is_reported = True
            text = f"{why}. The connection is tried again"
            _log.warning("%s", text)
            self._fail(PermissionDenied(text))

    def _call_anew(self, socket: zmq.Socket[Any], endpoint: str, key: str) -> None:
        # An event does not say by which key: one of the call before may still come, and is not enough then.
        self._calls[endpoint].failures = 0
        self._end(lambda: self._attachments.call_again(socket, endpoint, key))
