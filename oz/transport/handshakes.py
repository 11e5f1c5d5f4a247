"""The handshakes of a socket's connections, as its monitor tells of them, and the ends of connections.

ZeroMQ says nothing at the socket itself of a connection that one of the two sides refuses.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import zmq

from oz.transport.endpoints import addresses_of

_MOST_EVENTS = 100
"""Events that are read in one go."""


class Outcome(enum.Enum):
    """The outcome of a handshake, or what has become of a connection after it."""

    ADMITTED = enum.auto()
    """Each side has the key that the other one expects."""
    REFUSED = enum.auto()
    """The other side does not trust the key of this one; ZeroMQ has given the connection up."""
    FAILED = enum.auto()
    """Nobody there has the key that was called, or the connection ended meanwhile; ZeroMQ tries again."""
    BROKEN = enum.auto()
    """Whoever is there says what makes no sense, as without keys; ZeroMQ has given the connection up."""
    ENDED = enum.auto()
    """The connection has ended, also after a handshake that has failed."""

    @property
    def is_final(self) -> bool:
        """Whether ZeroMQ has given the connection up."""
        return self in (Outcome.REFUSED, Outcome.BROKEN)


_numbers = itertools.count()

_OUTCOMES: dict[int, Outcome] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Outcome.ADMITTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Outcome.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Outcome.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Outcome.BROKEN,
    zmq.EVENT_DISCONNECTED: Outcome.ENDED,
}


_EVENT = struct.Struct("=hi")
"""The number of an event, and what it says. Source: the manual of ZeroMQ, zmq_socket_monitor."""


class Handshake(NamedTuple):
    """The end of one handshake, or of its connection.

    Attributes:
        outcome: what has come of it.
        where: the endpoint that was called; at a listener the one that the other side has come to.
        code: what ZeroMQ says of a handshake that is broken; an error of the system where one failed.
    """

    outcome: Outcome
    where: str
    code: int


class Handshakes:
    """The handshakes of one socket.

    Attributes:
        pair: has something to be read when there is news; None until `begin`.
    """

    __slots__ = ("pair",)

    def __init__(self) -> None:
        """Begin without looking; see `begin`."""
        self.pair: zmq.Socket[Any] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether handshakes are looked at."""
        return self.pair is not None

    def begin(self, socket: zmq.Socket[Any]) -> None:
        """Look at the handshakes of a socket from now on."""
        if self.pair is None:
            # Made first: where there is no room for it, a monitor that nobody reads would hold libzmq up.
            pair = zmq.Socket(socket.context, zmq.PAIR)
            try:
                pair.set(zmq.RCVHWM, 0)
                pair.set(zmq.LINGER, 0)
                # A monitor that has ended may hold its address for a moment, so that none is used twice.
                address = f"inproc://oz-monitor-{next(_numbers)}"
                zmq.Socket.monitor(socket, address, sum(_OUTCOMES))
                self.pair = pair
                pair.connect(address)
            except BaseException:
                self.pair = pair
                self.close(socket)
                raise

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        pair, self.pair = self.pair, None
        if pair is not None:
            with suppress(zmq.ZMQError):
                zmq.Socket.monitor(socket, None, 0)
            pair.close(0)

    def read(self) -> Iterator[Handshake]:
        """Yield what has come of handshakes since the last call."""
        if self.pair is None:
            return
        with suppress(zmq.ZMQError):
            for _ in range(_MOST_EVENTS):
                event, where = self.pair.recv_multipart(zmq.NOBLOCK)
                number, value = _EVENT.unpack(event)
                yield Handshake(_OUTCOMES[number], where.decode(errors="replace"), value)


def named(where: str, called: Iterable[str]) -> str | None:
    """Return which of some endpoints an event is about, which names an address in place of a host."""
    endpoints = list(called)
    if where in endpoints:
        return where
    port = where.rpartition(":")[2]
    found = [one for one in endpoints if one.rpartition(":")[2] == port]
    if len(found) > 1:
        there = set(addresses_of(where))
        found = [one for one in found if there.intersection(addresses_of(one))]
    return found[0] if len(found) == 1 else None


def came_to(where: str, bound: Iterable[str], called: Iterable[str]) -> bool:
    """Tell whether an event is about somebody who has come to a socket, and not about whom that has called.

    Args:
        where: the endpoint of the event.
        bound: those that the socket is bound to.
        called: those that it has connected to.
    """
    port = where.rpartition(":")[2]
    if all(one.rpartition(":")[2] != port for one in bound):
        return False
    there = set(addresses_of(where))
    return not any(there.intersection(addresses_of(one)) for one in called if one.rpartition(":")[2] == port)


def is_clear(one: Handshake) -> bool:
    """Tell whether somebody at a listener has no key; many others only look for that of the listener."""
    return one.outcome is Outcome.BROKEN and one.code != zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


def reason(one: Handshake) -> str:
    """Say in words why a listener has broken off a handshake."""
    if one.outcome is not Outcome.BROKEN:
        return "the caller has gone before it has proved to have a key"
    if one.code == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return "the caller has no key, and this side demands CURVE"
    if one.code == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return "the caller has no key, or takes this side for the holder of another"
    return f"the handshake of the caller makes no sense (error 0x{one.code:x} of ZeroMQ)"
