"""Sessions between the pipe of a socket and a connection, as in the I/O thread of libzmq.

A `PipeSession` is one end of a connection. It connects, also after faults, moves messages between its pipe and the
`Wire`, and handles broken connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import zmq

from oz.testing.clock import Timer
from oz.testing.network import Listener, Network
from oz.testing.pipes import End, Message, join
from oz.testing.wires import Connection, IoThread, Wire


class SessionOwner(Protocol):
    """Socket, as a session sees it."""

    @property
    def host(self) -> str:
        """Return the host of the socket."""

    @property
    def network(self) -> Network:
        """Return the network of the socket."""

    @property
    def identity(self) -> bytes:
        """Return ROUTING_ID, or nothing."""

    @property
    def io(self) -> IoThread:
        """Return the I/O thread of its sessions."""

    def new_end(self) -> End:
        """Create the end of the socket for a pipe, with its high-water marks."""

    def marks(self) -> tuple[int, int]:
        """Return the high-water marks for sending and for receiving."""

    def post(self, command: Callable[[], None]) -> None:
        """Add a command, to be called later."""

    def attach(self, end: End) -> None:
        """Add a pipe."""

    def session_ended(self, session: PipeSession) -> None:
        """Remove a session."""

    def report(self, event: int, endpoint: str) -> None:
        """Send an event of a connection to the monitor of the socket."""


class Port(Listener):
    """Bound endpoint of a socket. It has a session for each connection."""

    def __init__(self, owner: SessionOwner) -> None:
        """Create the endpoint of a socket."""
        self.owner = owner
        self.host = owner.host
        self.sessions: list[PipeSession] = []

    def close(self, linger: float) -> None:
        """Close the endpoint and its connections."""
        self.owner.network.listen_no_more(self)
        for session in list(self.sessions):
            session.close(linger)


class PipeSession:
    """One end of a connection, between a pipe and the wires.

    Attributes:
        owner: socket of the session.
        is_closing: whether the socket has closed the session, which still sends messages.
        identity: ROUTING_ID of the socket at the creation of the session, or nothing.
    """

    def __init__(
        self,
        owner: SessionOwner,
        *,
        port: Port | None = None,
        target: tuple[str, str] | None = None,
        is_immediate: bool = False,
        repeats_itself: bool = False,
        intervals: tuple[float, float] = (0.1, 0.0),
        stops_when_refused: bool = False,
    ) -> None:
        """Create a session without a connection.

        Args:
            owner: socket of the session.
            port: bound endpoint that accepted the connection; None for a session that connects.
            target: transport and address to connect to.
            is_immediate: whether the pipe ends with the connection.
            repeats_itself: whether the socket sends its subscriptions again after a fault, as a SUB does.
            intervals: seconds before the next attempt to connect: at first, and at most (0 for no growth).
            stops_when_refused: whether a refused connection ends the attempts.
        """
        self.owner = owner
        self.identity = owner.identity
        self.is_closing = False
        self.has_ended = False
        self._network = owner.network
        self._port = port
        self._target = target
        self._is_immediate = is_immediate
        self._repeats_itself = repeats_itself
        self._interval, self._longest = intervals
        self._current = self._interval
        self._stops_when_refused = stops_when_refused
        self._retry: Timer | None = None
        self._linger: Timer | None = None
        self._end: End | None = None
        self._connection: Connection | None = None
        self._out: Wire | None = None
        self._in: Wire | None = None
        self.post = owner.io.post
        """Adds a command, to be called after a short delay and after all earlier ones."""

    # for the pipe ----------------------------------------------------------------------------------------

    def readable(self, end: End) -> None:
        """Send messages of the socket."""
        if end is not self._end or self._connection is None or self._out is None:
            return
        # As `pump`, without a call for each message.
        if end.incoming:
            self._out.fill(end)
        if end.is_ending:
            end.forget_if_read()

    def writable(self, end: End) -> None:
        """Deliver waiting messages."""
        if end is self._end and self._connection is not None and self._in is not None:
            self._in.deliver()

    def hiccuped(self, end: End) -> None:
        """Do nothing: only sessions replace queues."""

    def terminated(self, end: End) -> None:
        """Close the connection when all messages of the socket are sent."""
        if end is self._end:
            self._end = None
            self._finish()

    # connecting ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to connect."""
        if not self._is_immediate:
            self._make_pipe(at_once=True)
        self._network.call_soon(self._connect)

    def _connect(self) -> None:
        if self.has_ended or self._target is None:
            return
        port = self._network.find(*self._target, self.owner.host)
        if not isinstance(port, Port):
            is_refused = self._network.is_refused(*self._target, self.owner.host)
            if is_refused and self._stops_when_refused:
                self._give_up()
                return
            if is_refused:
                self._report(zmq.EVENT_CONNECT_RETRIED)
            self._connect_later()
            return
        if self._network.is_stalled(frozenset((self.owner.host, port.host))):
            self._connect_later()
            return
        self._current = self._interval
        other = PipeSession(port.owner, port=port)
        port.sessions.append(other)
        self._report(zmq.EVENT_CONNECTED)
        connection = Connection(self._network, self, other)
        self._network.call_at(self._network.now + self._network.latency, connection.shake_hands)

    def _report(self, event: int) -> None:
        if self._target is not None:
            self.owner.report(int(event), "://".join(self._target))

    def _connect_later(self) -> None:
        wait = self._current + self._network.random.random() * self._interval
        if self._longest:
            wait = min(wait, self._longest)
            self._current = min(2 * self._current, self._longest)
        self._retry = self._network.call_at(self._network.now + wait, self._connect)

    def _give_up(self) -> None:
        if self._end is not None:
            self._end.close()
        self._end = None
        self._finish()

    def use(self, connection: Connection, identity: bytes) -> None:
        """Use a connection to a socket with a name."""
        self._connection = connection
        self._out, self._in = connection.wire_from(self), connection.wire_to(self)
        if self._end is None:
            self._make_pipe(at_once=False, identity=identity)
        else:
            self._end.peer.identity = identity
        self._report(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.pump()

    def _make_pipe(self, *, at_once: bool, identity: bytes = b"") -> None:
        mark, peers_mark = self.owner.marks()
        mine, its = End(self, mark=peers_mark, peers_mark=mark), self.owner.new_end()
        join(mine, its)
        its.identity = identity
        self._end = mine
        if at_once:
            self.owner.attach(its)
        else:
            self.owner.post(lambda: self.owner.attach(its))

    # moving messages -------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send messages until the wire is full."""
        end = self._end
        if self._connection is None or end is None or self._out is None:
            return
        if end.incoming:
            self._out.fill(end)
        if end.is_ending:
            end.forget_if_read()

    def take(self, message: Message) -> bool:
        """Pass a message to the socket; return whether there was space."""
        end = self._end
        # Messages for a closed socket are lost.
        return end is None or self.is_closing or end.write(message)

    # ending ----------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """Handle that the connection has broken. A session that connects does so again."""
        self._connection = None
        if self.has_ended:
            return
        self._report(zmq.EVENT_DISCONNECTED)
        if self._target is None:
            if self._end is not None:
                self._end.close()
            self._end = None
            self._finish()
            return
        if self._end is not None:
            if self._is_immediate:
                self._end.close()
                self._end = None
                if self.is_closing:
                    self._finish()
                    return
            elif self._repeats_itself:
                self._end.hiccup()
        if self._interval < 0:
            self._give_up()
        else:
            self._connect_later()

    def close(self, linger: float) -> None:
        """End when all messages are sent, or after `linger` seconds; a negative number waits for ever."""
        if self.has_ended or self.is_closing:
            return
        self.is_closing = True
        if linger == 0 or self._end is None:
            self._end = None
            self._finish()
            return
        if linger > 0:
            self._linger = self._network.call_at(self._network.now + linger, self._finish)
        self.pump()

    def die(self) -> None:
        """End as a killed process does. Unsent messages are lost."""
        if self._connection is not None:
            self._connection.reset(but=self)
        self._connection = None
        self._finish()

    def _finish(self) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        for timer in (self._retry, self._linger):
            if timer is not None:
                timer.cancel()
        if self._connection is not None:
            self._connection.finish(self)
            self._connection = None
        if self._port is not None:
            self._port.sessions.remove(self)
        self.owner.session_ended(self)
