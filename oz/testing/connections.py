"""Sessions: what libzmq's I/O thread does between the pipe of a socket and a connection.

A `PipeSession` is one side. It connects, and again after a fault, moves messages between its pipe and the
`Wire`, and decides what a broken connection means for the pipe.
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
    """The socket, as a session sees it."""

    @property
    def host(self) -> str:
        """Name the host of the socket."""

    @property
    def network(self) -> Network:
        """Return the network of the socket."""

    @property
    def identity(self) -> bytes:
        """Return the name of the socket for a ROUTER, or nothing."""

    @property
    def public_key(self) -> str:
        """Return what the socket is known by; empty where it has no key."""

    def admits(self, key: str, host: str) -> bool:
        """Tell whether the socket has a connection with the holder of a key, empty for none."""

    @property
    def io(self) -> IoThread:
        """Return the thread that its sessions run in."""

    def new_end(self) -> End:
        """Make the socket's end of a pipe, with its high-water marks."""

    def marks(self) -> tuple[int, int]:
        """Return the high-water marks for sending and for receiving."""

    def post(self, command: Callable[[], None]) -> None:
        """Take notice of something later."""

    def attach(self, end: End) -> None:
        """Begin to use a pipe."""

    def session_ended(self, session: PipeSession) -> None:
        """Forget a session."""

    def report(self, event: int, endpoint: str) -> None:
        """Send an event of a connection to the monitor of the socket."""


class Port(Listener):
    """A place that a socket is bound to: it makes sessions for those who connect."""

    def __init__(self, owner: SessionOwner) -> None:
        """Listen for a socket."""
        self.owner = owner
        self.host = owner.host
        self.sessions: list[PipeSession] = []

    def close(self, linger: float) -> None:
        """Listen no more, and end what was accepted here."""
        self.owner.network.listen_no_more(self)
        for session in list(self.sessions):
            session.close(linger)


class PipeSession:
    """One side of a connection, between a pipe and the wires.

    Attributes:
        owner: the socket.
        is_closing: nothing more comes from the socket; what it has written is still sent.
        identity: name of the socket for a ROUTER when the session was made, or nothing.
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
        """Make a side without a connection.

        Args:
            owner: the socket.
            port: where the connection was accepted, or None for a side that connects.
            target: the transport and address to connect to.
            is_immediate: whether the pipe lasts only as long as the connection.
            repeats_itself: whether the socket says all again after a fault, as a SUB does.
            intervals: seconds before it connects again: at first, and at most (0 to keep the first).
            stops_when_refused: whether it gives up when nobody listens.
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
        """Take notice of something in a moment, after all that was posted before."""

    # for the pipe ----------------------------------------------------------------------------------------

    def readable(self, end: End) -> None:
        """Send what the socket has written."""
        if end is not self._end or self._connection is None or self._out is None:
            return
        # As `pump`, without a call for each message.
        if end.incoming:
            self._out.fill(end)
        if end.is_ending:
            end.forget_if_read()

    def writable(self, end: End) -> None:
        """Go on receiving."""
        if end is self._end and self._connection is not None and self._in is not None:
            self._in.deliver()

    def hiccuped(self, end: End) -> None:
        """Do nothing: only a session begins a queue anew."""

    def terminated(self, end: End) -> None:
        """Close the connection when all is sent that the socket wrote before it went."""
        if end is self._end:
            self._end = None
            self._finish()

    # connecting ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect."""
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
        """Have a connection from now on, to a socket that calls itself so."""
        self._connection = connection
        self._out, self._in = connection.wire_from(self), connection.wire_to(self)
        if self._end is None:
            self._make_pipe(at_once=False, identity=identity)
        else:
            self._end.peer.identity = identity
        self._report(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.pump()

    def refused(self) -> None:
        """Take notice that the keys of both ends do not go together."""
        if not self.has_ended:
            self._give_up()

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
        """Send as much as the wire takes."""
        end = self._end
        if self._connection is None or end is None or self._out is None:
            return
        if end.incoming:
            self._out.fill(end)
        if end.is_ending:
            end.forget_if_read()

    def take(self, message: Message) -> bool:
        """Hand a message to the socket; tell whether there was room."""
        end, connection = self._end, self._connection
        if end is None or self.is_closing:
            # Nobody reads what comes for a socket that has gone.
            return True
        if not end.write(message):
            return False
        if connection is not None:
            end.peer.sources.append(connection.number)
        return True

    # ending ----------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """Take notice that the connection has broken, and connect again if this side had connected."""
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
        """End, when what the socket has written is sent or after so many seconds; below 0 is for ever."""
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
        """End without a word: what has not been sent is lost."""
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
