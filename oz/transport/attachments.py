"""The endpoints that a socket is bound and connected to, and the checks before libzmq is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import zmq

from oz.transport import descriptors, endpoints
from oz.transport.backend import backend_of
from oz.transport.credentials import Credentials
from oz.transport.guard import Guard
from oz.transport.ipc_paths import SocketFiles

BIND_HINT = "name an address or interface of this host, and a port or *, as in tcp://127.0.0.1:*"
_CONNECTED = "name the host and the port of the other side, as in tcp://127.0.0.1:5555"


class Attachments:
    """The endpoints of one socket.

    It does not keep the socket, which each call names: a socket may have this as a part of its own.

    Attributes:
        endpoints: what the socket is connected to, and behind that what it is bound to.
        connections: how many of them it is connected to.
        credentials: the keys of the socket, if it has any.
        called: the key of the listener at an endpoint that the socket has connected to, by endpoint.
    """

    __slots__ = (
        "_files",
        "_given_up",
        "_guard",
        "called",
        "connections",
        "credentials",
        "endpoints",
    )

    def __init__(self, guard: Guard, credentials: Credentials | None = None) -> None:
        """Start neither bound nor connected.

        Args:
            guard: of the socket.
            credentials: the keys of the socket, if it has any.
        """
        self.credentials = credentials
        self.called: dict[str, str] = {}
        self._files = SocketFiles()
        self._given_up: set[str] = set()
        self._guard = guard
        self.endpoints: list[str] = []
        self.connections = 0

    @property
    def has_bound(self) -> bool:
        """Whether the socket is bound to anything."""
        return len(self.endpoints) > self.connections

    @property
    def connected(self) -> list[str]:
        """The endpoints that the socket is connected to."""
        return self.endpoints[: self.connections]

    @property
    def may_lack_keys(self) -> bool:
        """Whether the socket has no keys and is connected to a listener that may demand them."""
        return self.credentials is None and not all(map(is_inside, self.connected))

    @property
    def bound(self) -> list[str]:
        """The endpoints that the socket is bound to."""
        return self.endpoints[self.connections :]

    def bind(self, socket: zmq.Socket[Any], addr: str | bytes) -> Any:
        """Bind a socket to an endpoint; give what `zmq.Socket.bind` does.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: see `connect`; or an `ipc://` path is in use, with the errno EADDRINUSE.
            zmq.ZMQError: the address is in use, or not one of this host; or file descriptors are used up.
        """
        refuse_closed(socket)
        addr = self._admit(socket, endpoints.as_text(addr))
        descriptors.need_for_endpoint(addr)
        refused, backend = endpoints.refused_by_libzmq(addr, BIND_HINT), backend_of(socket)
        with refused, self._guard, _no_linger(socket), _family_of(socket, addr):
            if self.credentials is not None and not is_inside(addr):
                self.credentials.serve(socket)
            # The endpoints of a model of ZeroMQ are not files.
            has_files = backend.has_handle
            manager = (
                self._files.bind(socket, addr, backend.bind) if has_files else backend.bind(socket, addr)
            )
            last = backend.get(socket, zmq.LAST_ENDPOINT)
        bound = last.rstrip(b"\0").decode() if isinstance(last, bytes) else addr
        self.endpoints.append(bound)
        return manager

    def connect(self, socket: zmq.Socket[Any], addr: str | bytes, key: str | None = None) -> Any:
        """Connect a socket to an endpoint; give what `zmq.Socket.connect` does.

        Args:
            socket: the socket.
            addr: the endpoint.
            key: with `security`, the public key of whoever listens there; it is found out unless given.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: it is no endpoint, or not a whole one.
            PermissionDenied: with `security`, one side does not trust the key of the other.
            zmq.ZMQError: file descriptors are used up.
        """
        refuse_closed(socket)
        addr = self._admit(socket, endpoints.as_text(addr))
        descriptors.need_for_endpoint(addr)
        with endpoints.refused_by_libzmq(addr, _CONNECTED), self._guard, _family_of(socket, addr):
            if self.credentials is not None and not is_inside(addr):
                if key is None:
                    key = self.credentials.call(socket, addr)
                else:
                    self.credentials.prepare(socket, key)
                self.called[addr] = key
            manager = backend_of(socket).connect(socket, addr)
        if addr not in self.endpoints:
            # ZeroMQ too makes one connection of the same endpoint given twice.
            self.endpoints.insert(0, addr)
            self.connections += 1
        return manager

    def call_again(self, socket: zmq.Socket[Any], endpoint: str, key: str) -> None:
        """Connect a socket with keys anew to an endpoint that it was connected to.

        Args:
            socket: the socket.
            endpoint: which.
            key: the public key of the listener.
        """
        backend = backend_of(socket)
        with self._guard, _family_of(socket, endpoint):
            self._end(socket, endpoint)
            self._given_up.discard(endpoint)
            if self.credentials is not None:
                self.credentials.prepare(socket, key)
                # Not before the last connection has ended: what came by that has the key before.
                self.called[endpoint] = key
            backend.connect(socket, endpoint)

    def give_up(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Record that ZeroMQ has given up a connection, before another is made; see `call_again`.

        libzmq 4.3.5 frees it, and keeps its address under the endpoint. To disconnect that later ends what
        stands at this address by then, such as the connection to somebody else: socket_base_t::term_endpoint.
        """
        with self._guard:
            self._end(socket, endpoint)
            self._given_up.add(endpoint)

    def _end(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        if endpoint not in self._given_up:
            # For what is not sent yet, as subscriptions, the connection would go on to try the key before for
            # as long as LINGER, and its failures look like those of the new one.
            with suppress(zmq.ZMQError), _no_linger(socket):
                backend_of(socket).disconnect(socket, endpoint)

    def disconnect(self, socket: zmq.Socket[Any], addr: Any) -> None:
        """Disconnect a SUB from an endpoint, as `zmq.Socket.disconnect` does."""
        addr = endpoints.as_text(addr)
        with self._guard:
            # As in `call_again`, and a peer that is slow to answer would keep its descriptor all that time.
            with _no_linger(socket):
                if addr not in self._given_up:
                    backend_of(socket).disconnect(socket, addr)
            if self.forget(addr):
                self.connections -= 1

    def remove_files(self) -> None:
        """Remove the socket files of `ipc://` endpoints; to be called before the socket closes."""
        self._files.remove_all()

    def forget(self, addr: str) -> bool:
        """Forget an endpoint; tell whether it was known."""
        self.called.pop(addr, None)
        self._given_up.discard(addr)
        is_known = addr in self.endpoints
        if is_known:
            self.endpoints.remove(addr)
        return is_known

    def _admit(self, socket: zmq.Socket[Any], addr: str) -> str:
        """Refuse an endpoint that this socket cannot have; give the form that libzmq takes."""
        endpoints.check(addr, own_context=False)
        if addr.startswith(("epgm://", "pgm://")):
            raise endpoints.EndpointError(f"{addr!r} is multicast: use oz.Publisher and oz.Subscriber for it")
        return addr


def is_inside(endpoint: str) -> bool:
    """Tell whether an endpoint is of this process, where nobody has to prove anything."""
    return endpoint.startswith("inproc:")


def refuse_closed(socket: zmq.Socket[Any]) -> None:
    """Refuse a call of pyzmq's on a closed socket, as pyzmq does: before anything else is wrong."""
    if socket.closed:
        raise zmq.ZMQError(zmq.ENOTSOCK)


@contextmanager
def _no_linger(socket: zmq.Socket[Any]) -> Iterator[None]:
    """Set a linger of 0 for what is bound or disconnected meanwhile: it waits for no peers that are gone.

    A connection that is ended goes by LINGER as it is then. A listener copies it when it is made, and goes by
    its copy for a peer that leaves by itself. One that does so just as the socket closes then held up the end
    of the context for all that time, which is for ever unless LINGER was set: nobody reads what is still
    queued for it. What closing waits for is LINGER at that time. Seen with libzmq 4.3.5; see
    own_t::process_term_req there.
    """
    backend = backend_of(socket)
    linger = backend.get(socket, zmq.LINGER)
    backend.set(socket, zmq.LINGER, 0)
    try:
        yield
    finally:
        backend.set(socket, zmq.LINGER, linger)


@contextmanager
def _family_of(socket: zmq.Socket[Any], addr: str) -> Iterator[None]:
    """Allow an IPv6 address in a bind or connect meanwhile, if the endpoint names one.

    Listeners and connections copy the option when they are made. Set for good, it would change what a `*` and
    the names of hosts mean from then on.
    """
    backend = backend_of(socket)
    if not endpoints.needs_ipv6(addr) or backend.get(socket, zmq.IPV6):
        yield
        return
    backend.set(socket, zmq.IPV6, 1)
    try:
        yield
    finally:
        backend.set(socket, zmq.IPV6, 0)
