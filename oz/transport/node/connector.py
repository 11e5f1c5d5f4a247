"""The connections of a node's subscriber: where it calls, and what has come of that."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import zmq

from oz.transport import descriptors
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.endpoints import EndpointError
from oz.transport.handshakes import Handshakes, Outcome, named
from oz.transport.peer_keys import key_at
from oz.transport.subscriber.engine import SubscriberEngine

ONCE, FOR_EVER = zmq.RECONNECT_STOP_CONN_REFUSED, 0
"""Values of RECONNECT_STOP: an ephemeral port that refuses is not tried again."""


class Connector:
    """Connects one subscriber, and disconnects it. Only the I/O side of the node touches it."""

    __slots__ = ("_attachments", "_engine", "_handshakes", "_outcomes", "_socket")

    def __init__(self, socket: Any, engine: SubscriberEngine, attachments: Attachments) -> None:
        """Begin with no connection.

        Args:
            socket: the SUB.
            engine: what receives on it.
            attachments: where it is connected to.
        """
        self._socket = socket
        self._engine = engine
        self._attachments = attachments
        self._handshakes = Handshakes()
        self._outcomes: list[tuple[Outcome, str, str]] = []

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that the subscriber is connected to."""
        return self._attachments.endpoints

    def dial(self, endpoint: str, *, stop: int, key: str | None = None) -> None:
        """Connect.

        Args:
            endpoint: where to.
            stop: `ONCE` or `FOR_EVER`.
            key: the public key of whoever listens there, where nodes have keys.

        Raises:
            EndpointError: it is no endpoint, or somebody with another key is called at the same address.
            TransportUnavailable, zmq.ZMQError: as `oz.Subscriber.connect`; file descriptors are short.
        """
        socket = self._socket
        if backend_of(socket).has_handle:
            descriptors.need_for_peer(endpoint)
        self._read_handshakes()
        if key is not None and backend_of(socket).prove is None:
            self._handshakes.begin(socket)
            if (other := key_at(endpoint, self._attachments.called)) not in (None, key):
                raise EndpointError(f"{endpoint} is called as that of key {other}, and not of {key}")
        # It counts for what is connected from now on.
        socket.set(zmq.RECONNECT_STOP, stop)
        # A connection begins with all that is asked for at the time, in order, and not with what was when it
        # was first tried; and nothing is held for those who are not there.
        socket.set(zmq.IMMEDIATE, 1)
        try:
            self._attachments.connect(socket, endpoint, key)
        finally:
            # The connection has its copy. What the socket has it goes by when a connection ends: with 1 it
            # drops all that has come and was not taken yet; see socket_base_t::hiccuped in libzmq 4.3.5.
            socket.set(zmq.IMMEDIATE, 0)

    def hang_up(self, endpoint: str) -> None:
        """Disconnect; what had come and was not taken yet is lost."""
        self._read_handshakes()
        if endpoint in self.endpoints:
            # An error: libzmq has given up on it.
            with suppress(zmq.ZMQError):
                self._engine.end_connections(lambda: self._attachments.disconnect(self._socket, endpoint))
            self._attachments.forget(endpoint)

    def handshakes(self) -> list[tuple[Outcome, str, str]]:
        """Return what has come of calls since the last time: with the endpoint of each, and its key."""
        self._read_handshakes()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _read_handshakes(self) -> None:
        """Take in what has come of calls, before a connection is made or ended; see `Attachments.give_up`."""
        called, give_up = self._attachments.called, partial(self._attachments.give_up, self._socket)
        for one in self._handshakes.read():
            endpoint = named(one.where, called)
            if endpoint is not None:
                self._outcomes.append((one.outcome, endpoint, called[endpoint]))
                if one.outcome.is_final:
                    self._engine.end_connections(partial(give_up, endpoint))

    def close(self) -> None:
        """Hear of no more handshakes: the socket is about to be closed."""
        self._handshakes.close(self._socket)
