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
"""Format of the first frame of an event: its number and its value (manual of libzmq, zmq_socket_monitor)."""
_numbers = count(1)


class Outcome(enum.Enum):
    """Outcome of a handshake."""

    ADMITTED = enum.auto()
    """Both sides have the expected keys."""
    REFUSED = enum.auto()
    """The other side does not trust the key of this side. libzmq does not connect again."""
    FAILED = enum.auto()
    """The other side does not have the expected key, or the connection ended. libzmq connects again."""
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
        endpoint: endpoint of the connection, with an address in place of a host name. For an accepted connection, this
            is the endpoint of the listener.
        value: error number of libzmq or of the system, if the event reports a failure.
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

    libzmq sends the events to a PAIR socket. An I/O thread of libzmq waits for ever if the PAIR socket is full.
    Therefore the PAIR socket has no high-water mark. The thread also waits for ever if the PAIR socket or the monitored
    socket is closed before the monitor ends. Therefore `close` ends the monitor first, and `_open` keeps both sockets
    from garbage collection.

    Attributes:
        pair: PAIR socket that receives the events.
        fd: file descriptor of `pair`, which signals new events.
    """

    def __init__(self, socket: zmq.Socket[Any], events: int = HANDSHAKES) -> None:
        """Start to monitor a socket."""
        self._socket, runtime = socket, runtime_of(socket.context)
        # Create the receiving socket before the monitor, because libzmq waits for ever for a missing receiver.
        self.pair: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR, socket_class=zmq.Socket)
        _open.add(self)
        # The number is new for each monitor, because the address of an ended monitor may stay in use for a moment.
        address = f"inproc://oz-monitor-{id(self):x}-{next(_numbers)}"
        # Read the descriptor now, because the garbage collector may close the socket later.
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
        """Return whether `read` yields events. With the compiled part, the call takes only 0.6 µs."""
        return bool(self._events(self.pair) & _POLLIN)

    def read(self) -> Iterator[Event]:
        """Yield the events that were not read yet, at most `MAX_EVENTS`."""
        with suppress(zmq.ZMQError):
            for _ in range(MAX_EVENTS):
                # Without this check, an empty socket would raise an exception, which takes longer.
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
"""Open monitors. The set keeps their sockets from garbage collection; see `Monitor`."""
