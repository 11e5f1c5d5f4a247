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
"""Maximum number of events that one call reads from a monitor."""
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
    """The other side has another key than expected, or the connection ended. libzmq connects again."""
    BROKEN = enum.auto()
    """The other side violates the protocol, for example because it has no keys. libzmq does not connect again."""


_OUTCOMES = {
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): Outcome.ADMITTED,
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): Outcome.REFUSED,
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): Outcome.FAILED,
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): Outcome.BROKEN,
}


class Event(NamedTuple):
    """Event of a connection.

    Attributes:
        number: number of the event in libzmq, such as `zmq.EVENT_CONNECTED`.
        endpoint: endpoint of the connection, with an address in place of a host name. For an accepted connection, it
            is the endpoint of the listener.
        value: number of the error, from libzmq or the system, if the event is a failure.
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

    A monitor sends its events to a PAIR socket. An I/O thread of libzmq waits for ever if this PAIR socket is full. The
    same happens if it or the monitored socket is closed before the end of the monitor. Therefore `close` ends the
    monitor first, and `_open` keeps both sockets from garbage collection.

    Attributes:
        pair: PAIR socket that receives the events.
        fd: file descriptor of `pair`, which signals new events.
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
        """Return whether `read` yields events. It takes 0.6 µs with the compiled part; a node calls it often."""
        return bool(self._events(self.pair) & _POLLIN)

    def read(self) -> Iterator[Event]:
        """Yield the events that have not been read yet, `MAX_EVENTS` at most."""
        with suppress(zmq.ZMQError):
            for _ in range(MAX_EVENTS):
                # The exception of an empty socket takes longer.
                if not self.has_events():
                    return
                event, *rest = self._read(self.pair)
                number, value = _EVENT.unpack(event)
                yield Event(number, rest[0].decode(errors="replace") if rest else "", value)

    def close(self) -> None:
        """End the monitor. Call this before the monitored socket closes."""
        with suppress(zmq.ZMQError):
            self._socket.monitor(None, 0)
        _open.discard(self)
        self.pair.close(0)


_open: set[Monitor] = set()
"""Open monitors. This set keeps them from garbage collection, which may close a socket before its owner."""
