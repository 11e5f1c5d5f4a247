"""The calls of a socket with keys: what becomes of the endpoints that it has connected to.

ZeroMQ gives a connection up for good whose key was refused, and tries one again for ever that has the key of
its server wrong. Neither shows at the socket: its monitor tells. Such an endpoint is called anew, and by
another of the trusted keys where the last was not that of whoever listens: so keys may be exchanged on both
sides while the sockets stay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from oz.errors import PermissionDenied
from oz.logs import peer_logger
from oz.protocol.backoff import growing
from oz.transport.attachments import Attachments
from oz.transport.backend import new_socket
from oz.transport.monitors import make_address

_log = peer_logger("oz.security")

LOOK_EVERY = 0.25
"""Seconds between two looks at what has become of the connections."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds before an endpoint is called anew."""

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)

_MOST_EVENTS = 100
"""Events that are read in one look."""

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

    __slots__ = ("_attachments", "_calls", "_end", "_fail", "_look_at", "_pair")

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
        self._fail = fail
        self._end = end
        self._calls: dict[str, _Call] = {}
        self._look_at = 0.0
        self._pair: zmq.Socket[Any] | None = None

    def begin(self, socket: zmq.Socket[Any]) -> None:
        """Begin to look after the connections of a socket: before the first is made."""
        if self._pair is None and self._attachments.credentials is not None:
            address = make_address()
            zmq.Socket.monitor(socket, address, _EVENTS)
            self._pair = pair = new_socket(socket.context, zmq.PAIR)
            pair.set(zmq.RCVHWM, 0)
            pair.set(zmq.LINGER, 0)
            pair.connect(address)

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        pair, self._pair = self._pair, None
        if pair is not None:
            with suppress(zmq.ZMQError):
                zmq.Socket.monitor(socket, None, 0)
            pair.close(0)

    def next_deadline(self) -> float | None:
        """Return when to look next, in monotonic seconds; None for never."""
        return None if self._pair is None else self._look_at

    def look(self, socket: zmq.Socket[Any], now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is.

        Args:
            socket: the socket.
            now: monotonic seconds.
        """
        if self._pair is None or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        with suppress(zmq.ZMQError):
            for _ in range(_MOST_EVENTS):
                event = parse_monitor_message(self._pair.recv_multipart(zmq.NOBLOCK))
                self._take(event["event"], event["endpoint"].decode(errors="replace"), now)
        for endpoint, call in list(self._calls.items()):
            if endpoint not in self._attachments.called:
                del self._calls[endpoint]
            elif call.again_at is not None and now >= call.again_at:
                call.again_at = None
                self._call_anew(socket, endpoint, call)

    def _take(self, event: int, where: str, now: float) -> None:
        endpoint = self._named(where)
        if endpoint is None:
            return
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._calls.pop(endpoint, None)
            return
        call = self._calls.setdefault(endpoint, _Call())
        call.failures += 1
        is_refused = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        if not is_refused and call.failures < _REFUSALS:
            return
        if call.again_at is None:
            call.again_at = now + next(call.pauses)
        if not is_refused:
            call.has_wrong_key = True
        elif not call.is_reported:
            call.is_reported = True
            credentials = self._attachments.credentials
            assert credentials is not None
            text = (
                f"{endpoint} does not trust the key of this side, {credentials.public_key}; "
                f"it has {self._attachments.called[endpoint]}. It is called again from time to time"
            )
            _log.warning("%s", text)
            self._fail(PermissionDenied(text))

    def _named(self, where: str) -> str | None:
        """Return the endpoint of an event, which names an address in place of a host."""
        called = self._attachments.called
        if where in called:
            return where
        port = where.rpartition(":")[2]
        found = [one for one in called if one.rpartition(":")[2] == port]
        return found[0] if len(found) == 1 else None

    def _call_anew(self, socket: zmq.Socket[Any], endpoint: str, call: _Call) -> None:
        is_next, call.has_wrong_key = call.has_wrong_key, False
        self._end(lambda: self._attachments.call_again(socket, endpoint, is_next=is_next))
