"""Connections: a wire for each direction between two sessions, and their I/O thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from oz.testing.network import Network
from oz.testing.pipes import End, Message


class SessionSocket(Protocol):
    """Socket of a session, as a connection sees it."""

    @property
    def host(self) -> str:
        """Return the host of the socket."""

    @property
    def identity(self) -> bytes:
        """Return ROUTING_ID, or nothing."""


class WireSession(Protocol):
    """Session, as a connection sees it."""

    has_ended: bool
    identity: bytes

    @property
    def owner(self) -> SessionSocket:
        """Return the socket of the session."""

    def use(self, connection: Connection, identity: bytes) -> None:
        """Use a connection to a socket with a name."""

    def take(self, message: Message) -> bool:
        """Pass a message to the socket; return whether there was space."""

    def pump(self) -> None:
        """Send messages until the wire is full."""

    def lost(self) -> None:
        """Handle that the connection has broken."""


class IoThread:
    """I/O thread of a context. It calls the commands of sessions in order."""

    __slots__ = ("_commands", "_network")

    def __init__(self, network: Network) -> None:
        """Create a thread without commands."""
        self._network = network
        self._commands: list[Callable[[], None]] = []

    def post(self, command: Callable[[], None]) -> None:
        """Add a command, to be called after a short delay and after all earlier ones."""
        self._commands.append(command)
        if len(self._commands) == 1:
            self._network.call_soon(self._work)

    def _work(self) -> None:
        commands, self._commands = self._commands, []
        for command in commands:
            command()


class Wire:
    """One direction of a connection. Messages arrive in order."""

    def __init__(
        self, connection: Connection, source: WireSession, target: WireSession, network: Network
    ) -> None:
        """Create a wire without messages."""
        self._connection = connection
        self._source, self._target = source, target
        self._network = network
        self._queue: deque[tuple[float, Message | None]] = deque()
        self._capacity = network.choose_capacity()
        self._hosts = connection.hosts
        self._last = network.now
        self._put_at = -1.0
        self.is_dead = False

    def fill(self, end: End) -> None:
        """Send messages of a pipe until the wire is full."""
        queue, capacity, read = self._queue, self._capacity, end.read
        while len(queue) < capacity and (message := read()) is not None:
            self.put(message)

    def put(self, message: Message | None) -> None:
        """Send a message, or None for the end of the connection.

        Messages that are sent together arrive together, because libzmq writes them in one call.
        """
        network = self._network
        now = network.clock.now
        if now == self._put_at and self._last > now and not network.is_throttled(self._hosts):
            self._queue.append((self._last, message))
            return
        self._put_at, self._last = now, network.delay(self._hosts, self._last)
        self._queue.append((self._last, message))
        if not self.is_dead:
            network.clock.add(self._last, self.deliver)

    def deliver(self) -> None:
        """Pass arrived messages to the session while it has space."""
        queue, network, has_moved = self._queue, self._network, False
        if self.is_dead or network.is_stalled(self._hosts):
            return
        take, now = self._target.take, network.clock.now
        while queue:
            arrived, message = queue[0]
            if arrived > now:
                break
            if message is None:
                self._connection.reset()
                return
            if not take(message):
                break
            queue.popleft()
            has_moved = True
        if has_moved:
            self._source.pump()


class Connection:
    """Connection between two sessions: a wire for each direction.

    Attributes:
        hosts: of the two sockets.
    """

    def __init__(self, network: Network, one: WireSession, other: WireSession) -> None:
        """Create a connection before the handshake."""
        self.hosts = frozenset((one.owner.host, other.owner.host))
        self._network = network
        self._sessions = [one, other]
        self._wires = {
            one: Wire(self, one, other, network),
            other: Wire(self, other, one, network),
        }
        self._is_open = True
        network.add_link(self)

    def wire_from(self, session: WireSession) -> Wire:
        """Return the outgoing wire of a session."""
        return self._wires[session]

    def wire_to(self, session: WireSession) -> Wire:
        """Return the incoming wire of a session."""
        one, other = self._wires
        return self._wires[other if session is one else one]

    def shake_hands(self) -> None:
        """Finish the handshake of both sessions."""
        if not self._is_open or len(self._sessions) < 2:
            # It broke for one end during the handshake. The other end notices at `heal`.
            return
        one, other = self._sessions
        if one.has_ended or other.has_ended:
            self.reset()
            return
        for session, peer in ((other, one), (one, other)):
            session.use(self, peer.identity)

    def finish(self, session: WireSession) -> None:
        """Close one end. The other end closes when all messages in transit have arrived."""
        if session in self._sessions:
            self._sessions.remove(session)
            self.wire_to(session).is_dead = True
            if self._sessions:
                self.wire_from(session).put(None)
            else:
                self._forget()

    def reset(self, but: WireSession | None = None) -> None:
        """Break the connection for both ends, but `but`. Messages in transit are lost."""
        if not self._is_open:
            return
        self._forget()
        broken, self._sessions = self._sessions, []
        for session in broken:
            if session is not but:
                self._network.call_soon(session.lost)

    def half_open(self, host: str) -> None:
        """Break the connection for the end at one host only."""
        for wire in self._wires.values():
            wire.is_dead = True
        for session in [session for session in self._sessions if session.owner.host == host]:
            self._sessions.remove(session)
            self._network.call_soon(session.lost)

    def resume(self) -> None:
        """Deliver waiting messages. A half-open connection breaks for the other end too."""
        if all(wire.is_dead for wire in self._wires.values()):
            self.reset()
            return
        for wire in self._wires.values():
            self._network.call_soon(wire.deliver)

    def _forget(self) -> None:
        self._is_open = False
        self._network.remove_link(self)
        for wire in self._wires.values():
            wire.is_dead = True
