"""Endpoints of one model socket, with their connections and pipes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import zmq

from oz.testing.behaviours import ONCE, parse
from oz.testing.connections import PipeSession, Port
from oz.testing.network import Network
from oz.testing.pipes import End, join
from oz.testing.wires import IoThread

if TYPE_CHECKING:
    from oz.testing.sockets import Socket


class Process(Protocol):
    """Context of a socket, as the socket sees it."""

    network: Network
    host: str

    @property
    def io(self) -> IoThread:
        """Return the I/O thread of its sockets."""

    def bind_name(self, name: str, socket: Socket) -> None:
        """Register an inproc name of a socket."""

    def unbind_name(self, name: str) -> None:
        """Remove an inproc name."""

    def connect_name(self, name: str, socket: Socket) -> None:
        """Connect a socket to an inproc name, now or when a socket binds it."""


class Undoing:
    """Result of `bind` and `connect`. The end of a `with` block undoes the call.

    Attributes:
        socket: of the call.
    """

    def __init__(self, socket: Any, undo: Callable[[], None]) -> None:
        """Create a result."""
        self.socket = socket
        self._undo = undo

    def __enter__(self) -> Any:
        """Return the socket."""
        return self.socket

    def __exit__(self, *_: object) -> None:
        """Undo the call."""
        self._undo()


class ModelEndpoints:
    """Bound and connected endpoints of one socket.

    Attributes:
        ends: ends of its pipes, each with the inproc endpoint that it is connected to, or an empty text.
        lingering: sessions that have ended for the socket, and still send messages.
        last_endpoint: endpoint that was bound or connected last.
    """

    def __init__(self, socket: Socket) -> None:
        """Create it without endpoints.

        Args:
            socket: of the endpoints.
        """
        self._socket = socket
        self._ports: dict[str, Port] = {}
        self._names: list[str] = []
        self._sessions: dict[str, PipeSession] = {}
        self.ends: dict[End, str] = {}
        self.lingering: dict[PipeSession, None] = {}
        self.last_endpoint = b""

    def bind(self, addr: str) -> str:
        """Bind an endpoint; return it with its port."""
        socket, (transport, address) = self._socket, parse(addr)
        if transport == "inproc":
            socket.context.bind_name(address, socket)
            self._names.append(address)
        else:
            if address.endswith((":*", ":0")):
                address = f"{address[: address.rindex(':')]}:{socket.network.free_port()}"
            port = Port(socket)
            if not socket.network.listen(transport, address, port):
                raise zmq.ZMQError(zmq.EADDRINUSE)
            self._ports[f"{transport}://{address}"] = port
        endpoint = f"{transport}://{address}"
        self.last_endpoint = endpoint.encode()
        return endpoint

    def connect(self, addr: str) -> None:
        """Connect to an endpoint, and again after each fault."""
        socket, (transport, address) = self._socket, parse(addr)
        endpoint = f"{transport}://{address}"
        if transport == "inproc":
            socket.context.connect_name(address, socket)
        elif endpoint not in self._sessions or socket.type not in ONCE:
            stop = socket.number(zmq.RECONNECT_STOP) & int(zmq.RECONNECT_STOP_CONN_REFUSED)
            session = self._sessions[endpoint] = PipeSession(
                socket,
                target=(transport, address),
                is_immediate=bool(socket.number(zmq.IMMEDIATE)),
                repeats_itself=socket.type in (zmq.SUB, zmq.XSUB),
                intervals=(
                    socket.number(zmq.RECONNECT_IVL) / 1000,
                    socket.number(zmq.RECONNECT_IVL_MAX) / 1000,
                ),
                stops_when_refused=bool(stop),
            )
            session.start()
        self.last_endpoint = endpoint.encode()

    def disconnect(self, addr: str, has_begun: Callable[[End], bool]) -> None:
        """End a connection. Unread messages of the connection are lost.

        Args:
            addr: endpoint of the connection.
            has_begun: returns whether a poll has announced a message of several frames of a pipe.
        """
        transport, address = parse(addr)
        name = f"{transport}://{address}"
        session = self._sessions.get(name)
        ends = [end for end, at in self.ends.items() if at == name]
        if session is None and not ends:
            raise zmq.ZMQError(errno.ENOENT)
        if session is not None:
            ends += [end for end in self.ends if end.peer.owner is session]
        if any(map(has_begun, ends)):
            raise RuntimeError(
                f"a poll has announced a message of several frames from {addr!r}: libzmq ends the process, "
                "or joins it with another; receive it before you disconnect"
            )
        if session is not None:
            del self._sessions[name]
            self._end_session(session)
        self.close_ends(ends)

    def unbind(self, addr: str) -> None:
        """Unbind an endpoint, and end its connections."""
        transport, address = parse(addr)
        if transport == "inproc" and address in self._names:
            self._names.remove(address)
            self._socket.context.unbind_name(address)
            return
        port = self._ports.pop(f"{transport}://{address}", None)
        if port is None:
            raise zmq.ZMQError(errno.ENOENT)
        sessions = list(port.sessions)
        ends = [end for end in self.ends if end.peer.owner in sessions]
        for session in sessions:
            self.lingering[session] = None
        port.close(self._socket.number(zmq.LINGER) / 1000)
        self.close_ends(ends)

    def join(self, name: str, other: Socket) -> None:
        """Connect the socket to another one of the same context."""
        socket = self._socket
        sending, receiving = socket.marks()
        others_sending, others_receiving = other.marks()
        mark, peers_mark = _sum(sending, others_receiving), _sum(others_sending, receiving)
        mine = End(socket, mark=mark, peers_mark=peers_mark)
        its = End(other, mark=peers_mark, peers_mark=mark)
        join(mine, its)
        mine.identity, its.identity = other.identity, socket.identity
        self.ends[mine] = f"inproc://{name}"
        other.endpoints.ends[its] = ""
        socket.attach(mine)
        other.post(lambda: other.attach(its))

    def end(self) -> None:
        """Unbind and disconnect all endpoints. Unsent messages are sent for LINGER milliseconds."""
        for name in self._names:
            self._socket.context.unbind_name(name)
        for endpoint in list(self._ports):
            self.unbind(endpoint)
        for session in self._sessions.values():
            self._end_session(session)
        self._sessions.clear()

    def die(self) -> None:
        """End as a killed process does. Unsent messages are lost."""
        sessions = [*self._sessions.values(), *self.lingering]
        for port in self._ports.values():
            self._socket.network.listen_no_more(port)
            sessions += port.sessions
        self._sessions.clear()
        for session in sessions:
            session.die()

    def close_ends(self, ends: Iterable[End]) -> None:
        """Close pipes."""
        for end in ends:
            end.close()
            self._socket.terminated(end)

    def _end_session(self, session: PipeSession) -> None:
        if not session.has_ended:
            self.lingering[session] = None
        session.close(self._socket.number(zmq.LINGER) / 1000)


def _sum(mark: int, other: int) -> int:
    """Return the sum of two high-water marks, which is the mark of an inproc pipe; 0 is no limit."""
    return mark + other if mark and other else 0
