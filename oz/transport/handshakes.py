"""The handshakes of a socket's connections, as its monitor tells of them.

ZeroMQ says nothing at the socket itself of a connection that one of the two sides refuses.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from oz.transport.backend import new_socket
from oz.transport.monitors import make_address

_MOST_EVENTS = 100
"""Events that are read in one go."""


class Outcome(enum.Enum):
    """The outcome of a handshake."""

    ADMITTED = enum.auto()
    """Each side has the key that the other one expects."""
    REFUSED = enum.auto()
    """The other side does not trust the key of this one; ZeroMQ has given the connection up."""
    FAILED = enum.auto()
    """Nobody there has the key that was called, or the connection ended meanwhile; ZeroMQ tries again."""
    BROKEN = enum.auto()
    """Whoever is there says what makes no sense, as without keys; ZeroMQ has given the connection up."""

    @property
    def is_final(self) -> bool:
        """Whether ZeroMQ has given the connection up."""
        return self in (Outcome.REFUSED, Outcome.BROKEN)


_OUTCOMES: dict[int, Outcome] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Outcome.ADMITTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Outcome.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Outcome.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Outcome.BROKEN,
}


class Handshakes:
    """The handshakes of one socket."""

    __slots__ = ("_pair",)

    def __init__(self) -> None:
        """Begin without looking; see `begin`."""
        self._pair: zmq.Socket[Any] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether handshakes are looked at."""
        return self._pair is not None

    def begin(self, socket: zmq.Socket[Any]) -> None:
        """Look at the handshakes of a socket from now on."""
        if self._pair is None:
            address = make_address()
            zmq.Socket.monitor(socket, address, sum(_OUTCOMES))
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

    def read(self) -> Iterator[tuple[Outcome, str]]:
        """Yield what has come of handshakes since the last call, with the endpoint of each."""
        if self._pair is None:
            return
        with suppress(zmq.ZMQError):
            for _ in range(_MOST_EVENTS):
                event = parse_monitor_message(self._pair.recv_multipart(zmq.NOBLOCK))
                yield _OUTCOMES[int(event["event"])], event["endpoint"].decode(errors="replace")


def named(where: str, called: Iterable[str]) -> str | None:
    """Return which of some endpoints an event is about, which names an address in place of a host."""
    endpoints = list(called)
    if where in endpoints:
        return where
    port = where.rpartition(":")[2]
    found = [one for one in endpoints if one.rpartition(":")[2] == port]
    return found[0] if len(found) == 1 else None
