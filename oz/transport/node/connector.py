"""The connections of a node's subscriber: where it calls, and what has come of that."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import zmq

from oz.transport import descriptors
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.demands import Demands
from oz.transport.endpoints import EndpointError
from oz.transport.handshakes import Handshakes, Outcome, named
from oz.transport.keyless_calls import KeylessCalls
from oz.transport.peer_keys import key_at
from oz.transport.subscriber.engine import SubscriberEngine

ONCE, FOR_EVER = zmq.RECONNECT_STOP_CONN_REFUSED, 0
"""Values of RECONNECT_STOP: an ephemeral port that refuses is not tried again."""


class Connector:
    """Connects one subscriber, and disconnects it. Only the I/O side of the node touches it."""

    __slots__ = ("_attachments", "_engine", "_handshakes", "_keyless", "_outcomes", "_socket")

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
        self._keyless: KeylessCalls | None = None

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
        with self._options(stop):
            self._attachments.connect(socket, endpoint, key)

    def call_again(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Connect to an endpoint anew that ZeroMQ has given up.

        Raises:
            zmq.ZMQError: file descriptors are short.
        """
        descriptors.need_for_peer(endpoint)
        with self._options(FOR_EVER):
            self._attachments.call_again(socket, endpoint)

    @contextmanager
    def _options(self, stop: int) -> Iterator[None]:
        """Set the options of what is connected meanwhile."""
        socket = self._socket
        # It counts for what is connected from now on.
        socket.set(zmq.RECONNECT_STOP, stop)
        # A connection begins with all that is asked for at the time, in order, and not with what was when it
        # was first tried; and nothing is held for those who are not there.
        socket.set(zmq.IMMEDIATE, 1)
        try:
            yield
        finally:
            # The connection has its copy. What the socket has it goes by when a connection ends: with 1 it
            # drops all that has come and was not taken yet; see socket_base_t::hiccuped in libzmq 4.3.5.
            socket.set(zmq.IMMEDIATE, 0)

    def watch_keyless(self, demands: Demands, named: Container[str]) -> KeylessCalls:
        """Return what calls those anew that the user has named, where they have demanded keys for a time.

        Args:
            demands: asks those who break a handshake off what they demand.
            named: the endpoints that the user has named.
        """
        self._keyless = calls = KeylessCalls(
            self._attachments,
            demands,
            self._engine.end_connections,
            call=self.call_again,
            is_recalled=named.__contains__,
        )
        return calls

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
        if self._keyless is not None:
            self._keyless.read(self._socket, self._engine.monotonic())
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
        if self._keyless is not None:
            self._keyless.close(self._socket)
