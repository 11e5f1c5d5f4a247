"""Keys of the peers of a socket: find the sender of a frame, and the endpoint of a monitor event.

If the peer has connected to this side, the authenticator has attached the key to the frame. If this side has connected
to the peer, the key belongs to the endpoint. To find this endpoint, oz gets the descriptor of the connection from
libzmq, and asks the system for the peer's address on this descriptor (`docs/decisions/063-keys-of-connections.md`).
"""

from __future__ import annotations

import os
import socket as system
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import zmq

from oz.transport.connections import Connection, inode_of
from oz.transport.endpoints import addresses_of

_SOURCE, _USER = int(zmq.SRCFD), "User-Id"


class PeerKeys:
    """Keys of the peers of one socket.

    Attributes:
        bound: endpoints that this socket has bound, to which peers connect.
    """

    def __init__(self) -> None:
        """Start without endpoints."""
        self.bound: list[str] = []
        # Inode and key by descriptor. The entry of an ended connection stays, because the last frames are read later.
        self._known: dict[int, tuple[int | None, str]] = {}

    def connection_of(self, frame: zmq.Frame, called: Mapping[str, str]) -> Connection | None:
        """Return the connection on which a frame came, with the peer's key; None if the sender is in this process.

        If the key is unknown, it is an empty text.

        Args:
            frame: frame that the socket has received.
            called: public key of the listener at each endpoint to which the socket connects.
        """
        try:
            descriptor = int(frame.get(_SOURCE))
        except zmq.ZMQError:
            return None
        inode = inode_of(descriptor)
        if not called:
            return Connection(descriptor, inode, _admitted_key(frame))
        first = next(iter(called.values()))
        if not self.bound and all(endpoint == first for endpoint in called.values()):
            return Connection(descriptor, inode, first)
        known = self._known.get(descriptor)
        if known is None or inode not in (None, known[0]):
            known = self._known[descriptor] = (inode, self._find_key(descriptor, frame, called))
        return Connection(descriptor, inode, known[1])

    def _find_key(self, descriptor: int, frame: zmq.Frame, called: Mapping[str, str]) -> str:
        """Return the key of the peer on a connection; empty if no key or several keys fit its addresses.

        The property `User-Id` of a frame is used only if the peer has connected to this socket. In that case, the
        authenticator has set the property. A listener to which this side connects may set `User-Id` to any value.
        """
        ends = _ends(descriptor)
        if ends is None:
            return ""
        here, there = ends
        if any(here[-1] == port for endpoint in self.bound for *_, port in addresses_of(endpoint)):
            return _admitted_key(frame)
        found = {key for endpoint, key in called.items() if there in addresses_of(endpoint)}
        return found.pop() if len(found) == 1 else ""


def _admitted_key(frame: zmq.Frame) -> str:
    """Return the key that the authenticator has admitted; empty if the peer has no key."""
    try:
        return str(frame.get(_USER))
    except zmq.ZMQError:
        return ""


def key_of_client(frame: zmq.Frame) -> str | None:
    """Return the key of the sender of a frame; None if the sender is in this process. The socket must only listen."""
    try:
        frame.get(_SOURCE)
    except zmq.ZMQError:
        return None
    return _admitted_key(frame)


def _ends(descriptor: int) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the address of this side and the address of the peer; None after the connection is closed."""
    with suppress(OSError):
        copy = os.dup(descriptor)
        try:
            connection = system.socket(fileno=copy)
        except OSError:
            # The descriptor is not a socket any more.
            os.close(copy)
            return None
        with connection:
            both = (connection.getsockname(), connection.getpeername())
        here, there = (address[:2] if isinstance(address, tuple) else (address,) for address in both)
        return here, there
    return None


def called_endpoint(where: str, called: Iterable[str]) -> str | None:
    """Return the endpoint to which an event belongs; None if no endpoint or several endpoints fit.

    Args:
        where: endpoint in the event, which may have an address in place of the host name.
        called: endpoints to which the socket connects.
    """
    endpoints = list(called)
    if where in endpoints:
        return where
    found = [endpoint for endpoint in endpoints if _port_of(endpoint) == _port_of(where)]
    if len(found) > 1:
        there = set(addresses_of(where))
        found = [endpoint for endpoint in found if there.intersection(addresses_of(endpoint))]
    return found[0] if len(found) == 1 else None


def is_of_caller(where: str, bound: Iterable[str], called: Iterable[str]) -> bool:
    """Return whether an event belongs to a connection that a peer has made to this socket.

    Args:
        where: endpoint in the event.
        bound: endpoints that the socket has bound.
        called: endpoints to which the socket connects.
    """
    if all(_port_of(endpoint) != _port_of(where) for endpoint in bound):
        return False
    there = set(addresses_of(where))
    return not any(
        there.intersection(addresses_of(endpoint))
        for endpoint in called
        if _port_of(endpoint) == _port_of(where)
    )


def _port_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]
