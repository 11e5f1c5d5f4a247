"""The calls of a socket with keys: what becomes of the endpoints that it has connected to, and who comes.

ZeroMQ gives a connection up for good whose key was refused, and tries one again for ever that has the key of
its server wrong. Neither shows at the socket: its monitor tells. Such an endpoint is called anew, and by
another of the trusted keys where the last was not that of whoever listens: so keys may be exchanged on both
sides while the sockets stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.protocol.backoff import growing
from oz.transport.arrivals import Arrivals
from oz.transport.attachments import Attachments
from oz.transport.handshakes import Handshakes, Outcome, came_to, named

_log = peer_logger("oz.security")

LOOK_EVERY = 0.25
"""Seconds between two looks at what has become of the connections."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds before an endpoint is called anew."""

_REFUSALS = 2
"""Handshakes that fail one after another before another key is tried: one may fail as its server ends."""


class _Call:
    """The state of one endpoint."""

    __slots__ = ("again_at", "failures", "has_wrong_key", "is_reported", "pauses")

    def __init__(self) -> None:
        self.failures = 0
        self.is_reported = self.has_wrong_key = False
        self.again_at: float | None = None
        self.pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)


class Calls:
    """The endpoints that one socket with keys has connected to."""

    __slots__ = (
        "_arrivals",
        "_attachments",
        "_calls",
        "_end",
        "_fail",
        "_handshakes",
        "_look_at",
        "_outcomes",
    )

    def __init__(
        self,
        attachments: Attachments,
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
        self._outcomes: list[tuple[Outcome, str]] = []

    def begin(self, socket: zmq.Socket[Any]) -> None:
        """Look after the connections of a socket; to be called before one is made or ended."""
        if self._attachments.credentials is not None:
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
            elif call.again_at is not None and now >= call.again_at:
                call.again_at = None
                self._call_anew(socket, endpoint, call)

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
        if outcome is Outcome.ADMITTED:
            self._calls.pop(endpoint, None)
            return
        call = self._calls.setdefault(endpoint, _Call())
        call.failures += 1
        if not outcome.is_final and call.failures < _REFUSALS:
            return
        if call.again_at is None:
            call.again_at = now + next(call.pauses)
        if outcome is Outcome.FAILED:
            call.has_wrong_key = True
        elif outcome is Outcome.REFUSED and not call.is_reported:
            call.is_reported = True
            credentials = self._attachments.credentials
            assert credentials is not None
            text = (
                f"{credentials.refused_by(endpoint, self._attachments.called[endpoint])}. It is called again"
            )
            _log.warning("%s", text)
            self._fail(PermissionDenied(text))

    def _call_anew(self, socket: zmq.Socket[Any], endpoint: str, call: _Call) -> None:
        is_next, call.has_wrong_key = call.has_wrong_key, False
        # An event does not say by which key: one of the call before may still come, and is not enough then.
        call.failures = 0
        self._end(lambda: self._attachments.call_again(socket, endpoint, is_next=is_next))
