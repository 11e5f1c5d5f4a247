"""Monitors of sockets: events of connections, and the outcomes of their handshakes."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from struct import Struct
from typing import Any, NamedTuple

import zmq

from oz.transport.libzmq import option_reader, raw_socket
from oz.transport.runtime import message_reader, runtime_of

MAX_EVENTS = 100
"""Events of a monitor that are read at once."""
HANDSHAKES = int(
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
"""Events that report the outcome of a handshake."""

_FD, _EVENTS, _POLLIN = int(zmq.FD), int(zmq.EVENTS), int(zmq.POLLIN)
_EVENT = Struct("=hi")
"""Number and value of an event (manual of libzmq, zmq_socket_monitor)."""
_numbers = count(1)


class Outcome(enum.Enum):
    """Outcome of a handshake."""

    ADMITTED = enum.auto()
    """Both sides have the expected keys."""
    REFUSED = enum.auto()
    """The other side does not trust the key of this side. libzmq does not connect again."""
    FAILED = enum.auto()
    """The other side has another key, or the connection ended. libzmq connects again."""
    BROKEN = enum.auto()
    """The other side violates the protocol, as without keys. libzmq does not connect again."""


_OUTCOMES = {
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): Outcome.ADMITTED,
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): Outcome.REFUSED,
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): Outcome.FAILED,
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): Outcome.BROKEN,
}


class Event(NamedTuple):
    """Event of a connection.

    Attributes:
        number: of libzmq.
        endpoint: of the connection, with an address in place of a host name. At a listener, its own endpoint.
        value: error of libzmq or of the system after a failure.
    """

    number: int
    endpoint: str
    value: int

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of a handshake; None for other events."""
        return _OUTCOMES.get(self.number)


class Monitor:
    """Events of the connections of one socket.

    A monitor sends its events to a PAIR socket. An I/O thread of libzmq waits for ever if this PAIR is full, or if the
    PAIR or the monitored socket is closed before the monitor is ended. So `close` ends the monitor first, and `_open`
    keeps both sockets from garbage collection.

    Attributes:
        pair: socket that receives the events.
        fd: descriptor that signals events.
    """

    def __init__(self, socket: zmq.Socket[Any], events: int = HANDSHAKES) -> None:
        """Start to monitor a socket."""
        self._socket, runtime = socket, runtime_of(socket.context)
        # Created first: libzmq would wait for ever for a monitor without an end.
        self.pair: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR, socket_class=zmq.Socket)
        _open.add(self)
        # A monitor that has ended may hold its address for a moment.
        address = f"inproc://oz-monitor-{id(self):x}-{next(_numbers)}"
        # Read once: garbage collection may close the socket before its owner.
        self.fd = int(runtime.get(self.pair, _FD))
        self._read = message_reader(self.pair, runtime)
        self._events = option_reader(self.pair, _EVENTS, runtime.get)
        raw = raw_socket(self.pair)
        if raw is not None:
            self.has_events = raw.has_input  # type: ignore[method-assign]
        try:
            self.pair.setsockopt(zmq.RCVHWM, 0)
            self.pair.setsockopt(zmq.LINGER, 0)
            socket.monitor(address, events)
            self.pair.connect(address)
        except BaseException:
            self.close()
            raise

    def has_events(self) -> bool:
        """Return whether `read` yields events. A node calls it at each turn: 0.6 µs with the compiled part."""
        return bool(self._events(self.pair) & _POLLIN)

    def read(self) -> Iterator[Event]:
        """Yield the events since the last call, `MAX_EVENTS` at most."""
        with suppress(zmq.ZMQError):
            for _ in range(MAX_EVENTS):
                # The exception of an empty socket takes longer.
                if not self.has_events():
                    return
                event, *rest = self._read(self.pair)
                number, value = _EVENT.unpack(event)
                yield Event(number, rest[0].decode(errors="replace") if rest else "", value)

    def close(self) -> None:
        """End the monitor, before its socket closes."""
        with suppress(zmq.ZMQError):
            self._socket.monitor(None, 0)
        _open.discard(self)
        self.pair.close(0)


_open: set[Monitor] = set()
"""Kept from garbage collection, which closes sockets before or after the objects that own them."""
