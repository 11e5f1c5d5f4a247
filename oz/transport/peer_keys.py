"""The keys of those at the other end of a socket's connections.

Whoever connected here is named by ZeroMQ. Where this side has connected, the other has the key that the
endpoint was called by: ZeroMQ tells the connection, and the system where that leads to.
docs/decisions/063-whose-key-a-connection-has.md
"""

from __future__ import annotations

import os
import socket as system
from contextlib import suppress
from typing import Any, Protocol

import zmq

from oz.transport.connections import Connection, inode_of
from oz.transport.endpoints import addresses_of

_recv: Any = zmq.backend.Socket.recv
_SOURCE, _USER = int(zmq.SRCFD), "User-Id"
_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)


class KeyedEndpoints(Protocol):
    """The endpoints of a socket with keys, such as `Attachments`."""

    called: dict[str, str]

    @property
    def bound(self) -> list[str]:
        """Those that the socket is bound to."""
        ...

    @property
    def has_bound(self) -> bool:
        """Whether the socket is bound to anything."""
        ...


class PeerKeys:
    """The keys of the peers of one socket."""

    __slots__ = ("_attachments", "_known")

    def __init__(self, attachments: KeyedEndpoints) -> None:
        """Begin for a socket that has keys.

        Args:
            attachments: its endpoints.
        """
        self._attachments = attachments
        # Of connections that have closed since they are asked for too.
        self._known: dict[int, tuple[int | None, str]] = {}

    def receive(self, socket: Any, flags: int) -> tuple[bytes, Connection | None]:
        """Receive one frame, and the connection that it came over, with the key of its peer."""
        frame = _recv(socket, flags, copy=False)
        key = self.key_of(frame)
        if key is None:
            return frame.bytes, None
        descriptor = int(frame.get(_SOURCE))
        return frame.bytes, Connection(descriptor, inode_of(descriptor), key)

    def key_of(self, frame: zmq.Frame) -> str | None:
        """Return the key that sent a frame; None inside the process, empty where it is not known."""
        try:
            descriptor = int(frame.get(_SOURCE))
        except zmq.ZMQError:
            return None
        called = self._attachments.called
        if not called:
            return _admitted_key(frame)
        first = next(iter(called.values()))
        # It ends with the second of those who have keys of their own.
        if not self._attachments.has_bound and all(one == first for one in called.values()):
            return first
        inode, known = inode_of(descriptor), self._known.get(descriptor)
        if known is None or inode not in (None, known[0]):
            known = self._known[descriptor] = (inode, self._look_up(descriptor, frame))
        return known[1]

    def _look_up(self, descriptor: int, frame: zmq.Frame) -> str:
        """Find out the key by where a connection comes from, or leads to; empty where that cannot be told.

        `User-Id` is believed only of connections that came to an endpoint of this socket: a server may name
        whatever it likes so, and only for clients the authenticator has the last word.
        """
        ends = _ends(descriptor)
        if ends is None:
            return ""
        here, there = ends
        if any(
            here[-1] == port for endpoint in self._attachments.bound for *_, port in addresses_of(endpoint)
        ):
            return _admitted_key(frame)
        called = self._attachments.called
        found = {key for endpoint, key in called.items() if there in addresses_of(endpoint)}
        return found.pop() if len(found) == 1 else ""


def _admitted_key(frame: zmq.Frame) -> str:
    """Return the key that the authenticator has told."""
    try:
        return str(frame.get(_USER))
    except zmq.ZMQError:
        return ""


def key_of_client(frame: zmq.Frame) -> str | None:
    """Return the key that sent a frame to a socket that only listens; None inside the process."""
    try:
        frame.get(_SOURCE)
    except zmq.ZMQError:
        return None
    return _admitted_key(frame)


def _socket_of(descriptor: int) -> system.socket:
    """Make a socket of a descriptor, which is closed where it is of none."""
    try:
        return system.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _ends(descriptor: int) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the address of this end of a connection, and that of the other; None once it is closed."""
    with suppress(OSError), _socket_of(os.dup(descriptor)) as connection:
        both = (connection.getsockname(), connection.getpeername())
        here, there = (one[:2] if isinstance(one, tuple) else (one,) for one in both)
        return here, there
    return None
