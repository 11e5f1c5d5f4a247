"""Connections: a wire in each direction between two sessions, and the thread that serves them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from oz.testing.network import Network
from oz.testing.pipes import End, Message


class SessionSocket(Protocol):
    """The socket of a session, as a connection sees it."""

    @property
    def host(self) -> str:
        """Name the host of the socket."""

    @property
    def identity(self) -> bytes:
        """Return the name of the socket for a ROUTER, or nothing."""

    @property
    def public_key(self) -> str:
        """Return what the socket is known by; empty where it has no key."""

    def admits(self, key: str, host: str) -> bool:
        """Tell whether the socket has a connection with the holder of a key, empty for none."""


class WireSession(Protocol):
    """A session, as a connection sees it."""

    has_ended: bool
    identity: bytes

    @property
    def owner(self) -> SessionSocket:
        """Return the socket of the session."""

    def use(self, connection: Connection, identity: bytes) -> None:
        """Have a connection from now on, to a socket that calls itself so."""

    def take(self, message: Message) -> bool:
        """Hand a message to the socket; tell whether there was room."""

    def pump(self) -> None:
        """Send as much as the wire takes."""

    def lost(self) -> None:
        """Take notice that the connection has broken."""

    def refused(self) -> None:
        """Take notice that the keys of both ends do not go together."""


class IoThread:
    """The thread of a context in which its sessions run: it takes notice of all that was posted, in order."""

    __slots__ = ("_commands", "_network")

    def __init__(self, network: Network) -> None:
        """Start with nothing to do."""
        self._network = network
        self._commands: list[Callable[[], None]] = []

    def post(self, command: Callable[[], None]) -> None:
        """Take notice of something in a moment, after all that was posted before."""
        self._commands.append(command)
        if len(self._commands) == 1:
            self._network.call_soon(self._work)

    def _work(self) -> None:
        commands, self._commands = self._commands, []
        for command in commands:
            command()


class Wire:
    """One direction of a connection: messages arrive in the order in which they were put."""

    def __init__(
        self, connection: Connection, source: WireSession, target: WireSession, network: Network
    ) -> None:
        """Begin with nothing on the way."""
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
        """Send what waits in a pipe on its way, as much as there is room for."""
        queue, capacity, read = self._queue, self._capacity, end.read
        while len(queue) < capacity and (message := read()) is not None:
            self.put(message)

    def put(self, message: Message | None) -> None:
        """Send a message on its way, or the end of all messages.

        What is sent at once arrives at once, as libzmq writes it in one piece.
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
        """Hand over what has arrived, as far as there is room for it."""
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
    """A connection between two sessions: a wire in each direction.

    Attributes:
        hosts: where the two are.
        number: what it is known by.
    """

    def __init__(self, network: Network, one: WireSession, other: WireSession) -> None:
        """Begin, before either side knows that there is a connection."""
        self.hosts = frozenset((one.owner.host, other.owner.host))
        self._network = network
        self._sessions = [one, other]
        self._wires = {
            one: Wire(self, one, other, network),
            other: Wire(self, other, one, network),
        }
        self._is_open = True
        self.number = network.add_link(self)

    def wire_from(self, session: WireSession) -> Wire:
        """Return the wire that a side sends by."""
        return self._wires[session]

    def wire_to(self, session: WireSession) -> Wire:
        """Return the wire that a side receives by."""
        one, other = self._wires
        return self._wires[other if session is one else one]

    def shake_hands(self) -> None:
        """Let both sides know of the connection."""
        if not self._is_open or len(self._sessions) < 2:
            # It broke for one side before it was there: the other finds out when it is healed.
            return
        one, other = self._sessions
        if one.has_ended or other.has_ended:
            self.reset()
            return
        if one.owner.public_key or other.owner.public_key:
            if not (_admits(other.owner, one.owner) and _admits(one.owner, other.owner)):
                self._refuse()
                return
            keys: dict[object, str] = {one.owner: other.owner.public_key, other.owner: one.owner.public_key}
            self._network.note_keys(self.number, keys)
        for session, peer in ((other, one), (one, other)):
            session.use(self, peer.identity)

    def _refuse(self) -> None:
        """End for good: who is refused for a key does not call again."""
        self._forget()
        refused, self._sessions = self._sessions, []
        for session in refused:
            session.refused()

    def finish(self, session: WireSession) -> None:
        """Close one side: the other sees it when all has arrived that is on its way."""
        if session in self._sessions:
            self._sessions.remove(session)
            self.wire_to(session).is_dead = True
            if self._sessions:
                self.wire_from(session).put(None)
            else:
                self._forget()

    def reset(self, but: WireSession | None = None) -> None:
        """Break: both ends see that, but for one that is gone, and what is on its way is lost."""
        if not self._is_open:
            return
        self._forget()
        broken, self._sessions = self._sessions, []
        for session in broken:
            if session is not but:
                self._network.call_soon(session.lost)

    def half_open(self, host: str) -> None:
        """Break for the side at one host; the other sees nothing of that."""
        for wire in self._wires.values():
            wire.is_dead = True
        for session in [session for session in self._sessions if session.owner.host == host]:
            self._sessions.remove(session)
            self._network.leave_link(self.number, host)
            self._network.call_soon(session.lost)

    def resume(self) -> None:
        """Go on with what waits; what is half open breaks for the other side too."""
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


def _admits(one: SessionSocket, other: SessionSocket) -> bool:
    return one.admits(other.public_key, other.host)
