"""Model sockets: the part of pyzmq's `Socket` that oz calls, on a virtual network.

A call that waits lets virtual time pass. As in libzmq a socket takes notice of what happened (connections,
subscriptions, room in a pipe) only when it processes its commands: when it is asked for EVENTS or polled,
when it receives and has nothing, and now and then when it sends.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import zmq

from oz.testing.behaviours import BEHAVIOURS, DEFAULTS, ONCE, parse
from oz.testing.connections import PipeSession, Port
from oz.testing.network import Network
from oz.testing.pipes import End, Message, join
from oz.testing.wires import IoThread
from oz.transport.backend import Backend

_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
_POLLIN, _POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)

_EVENTS = int(zmq.EVENTS)
_MARKS = int(zmq.SNDHWM), int(zmq.RCVHWM)


class Again(zmq.Again):
    """Stands for what pyzmq raises, which asks libzmq for the text of its error each time."""

    errno = errno.EAGAIN
    strerror = "Resource temporarily unavailable"

    def __init__(self) -> None:
        """Say no more than that."""


class Process(Protocol):
    """The context of a socket, as the socket sees it."""

    network: Network
    host: str

    @property
    def io(self) -> IoThread:
        """Return the thread in which its sockets' connections are served."""

    @property
    def backend(self) -> Backend:
        """Return what its sockets are called by."""

    def bind_name(self, name: str, socket: Socket) -> None:
        """Register a name of a socket within the context."""

    def unbind_name(self, name: str) -> None:
        """Free a name."""

    def connect_name(self, name: str, socket: Socket) -> None:
        """Join a socket to the one of a name, now or when there is one."""


class ModelFrame:
    """A frame that was received, as `recv(copy=False)` gives it.

    Attributes:
        bytes: what is in it.
        more: whether another frame of the message follows.
    """

    __slots__ = ("_key", "_source", "bytes", "more")

    def __init__(self, data: bytes, more: bool, source: int | None, key: str = "") -> None:
        """Put it together.

        Args:
            data: what is in it.
            more: whether another frame of the message follows.
            source: the number of the connection that it came by.
            key: the public key of who sent it; empty where the sockets have none.
        """
        self.bytes = data
        self.more = more
        self._source = source
        self._key = key

    def get(self, option: int | str) -> int | str:
        """Return by what it came: SRCFD is the number of a connection, and all is called one host.

        Raises:
            zmq.ZMQError: nobody knows, or it is another property.
        """
        if option == "User-Id" and self._key:
            return self._key
        if self._source is None or option not in (zmq.SRCFD, "Peer-Address"):
            raise zmq.ZMQError(zmq.EINVAL)
        return self._source if option == zmq.SRCFD else "127.0.0.1"


class Undoing:
    """The result of `bind` and `connect`: the end of a `with` block undoes it.

    Attributes:
        socket: what the block is given.
    """

    def __init__(self, socket: Any, undo: Callable[[], None]) -> None:
        """Keep what is to be done."""
        self.socket = socket
        self._undo = undo

    def __enter__(self) -> Any:
        """Return the socket."""
        return self.socket

    def __exit__(self, *_: object) -> None:
        """Undo it."""
        self._undo()


class Socket:
    """A socket on a virtual network, with the methods of `zmq.Socket` that oz calls.

    Attributes:
        context: what it was made by.
        type: its type, as a number.
        closed: whether it is closed.
        notify: called when there may be something to do, as the descriptor of a ZeroMQ socket says it: ask
            for EVENTS then until nothing is left.
        public_key: what it is known by; empty where it has no key.
    """

    def __init__(self, context: Process, socket_type: int) -> None:
        """Make a socket; use `Context.socket`."""
        if socket_type not in BEHAVIOURS:
            raise zmq.ZMQError(zmq.EINVAL)
        self.context = context
        self.network = context.network
        self.host = context.host
        self.type = socket_type
        self.closed = False
        self.notify: Callable[[], None] | None = None
        self.public_key = ""
        self._trusts: Callable[[str, str], bool] | None = None
        self._draw = self.network.random.random
        self._behaviour = BEHAVIOURS[socket_type]()
        self._options = dict(DEFAULTS)
        if socket_type in (zmq.SUB, zmq.XSUB):
            self._options[int(zmq.LINGER)] = 0
        self._commands: deque[Callable[[], None]] = deque()
        self._ports: dict[str, Port] = {}
        self._names: list[str] = []
        self._sessions: dict[str, PipeSession] = {}
        self._lingering: dict[PipeSession, None] = {}
        self._ends: dict[End, str] = {}
        self._last_endpoint = b""
        self._parts: list[bytes] = []
        self._left: deque[bytes] = deque()

    @property
    def backend(self) -> Backend:
        """Return what it is called by."""
        return self.context.backend

    @property
    def io(self) -> IoThread:
        """Return the thread that its sessions run in."""
        return self.context.io

    @property
    def _closed(self) -> bool:
        # As pyzmq's sockets have it, in which it costs less than `closed`.
        return self.closed

    # options ---------------------------------------------------------------------------------------------

    def set(self, option: int, value: int | bytes | str) -> None:
        """Set an option.

        Raises:
            zmq.ZMQError: the model does not know the option.
        """
        if self.closed:
            self._refuse()
        option = int(option)
        value = value.encode() if isinstance(value, str) else value
        if option in self._options:
            self._options[option] = value
            if option in _MARKS:
                for end in self._ends:
                    end.set_marks(*self.marks())
        elif not self._behaviour.set_option(option, value):
            raise zmq.ZMQError(zmq.EINVAL)

    def get(self, option: int) -> int | bytes:
        """Return an option; EVENTS has the socket take notice of all that happened.

        Raises:
            zmq.ZMQError: the model does not know the option.
        """
        if self.closed:
            self._refuse()
        if option == _EVENTS:
            return self._events()
        if option == zmq.RCVMORE:
            return int(bool(self._left))
        if option == zmq.LAST_ENDPOINT:
            return self._last_endpoint + b"\0"
        if option == zmq.TYPE:
            return self.type
        if option == zmq.TOPICS_COUNT:
            self.process_commands()
            return self._behaviour.topics_count()
        try:
            return self._options[int(option)]
        except KeyError:
            raise zmq.ZMQError(zmq.EINVAL) from None

    setsockopt = set
    getsockopt = get

    def getsockopt_string(self, option: int) -> str:
        """Return an option that is text."""
        value = self.get(option)
        return value.rstrip(b"\0").decode() if isinstance(value, bytes) else str(value)

    get_string = getsockopt_string

    @property
    def last_endpoint(self) -> bytes:
        """The endpoint that was bound or connected last."""
        return self._last_endpoint

    def subscribe(self, topic: bytes | str) -> None:
        """Subscribe to what begins so."""
        self.set(zmq.SUBSCRIBE, topic)

    def unsubscribe(self, topic: bytes | str) -> None:
        """End a subscription."""
        self.set(zmq.UNSUBSCRIBE, topic)

    def _number(self, option: int) -> int:
        value = self._options[int(option)]
        return value if isinstance(value, int) else 0

    # endpoints -------------------------------------------------------------------------------------------

    def bind(self, addr: str) -> Undoing:
        """Listen at an endpoint: `tcp://host:port`, with `*` for any port, `ipc://name` or `inproc://name`.

        Raises:
            zmq.ZMQError: somebody else does, or it is no endpoint.
        """
        if self.closed:
            self._refuse()
        transport, address = parse(addr)
        if transport == "inproc":
            self.context.bind_name(address, self)
            self._names.append(address)
        else:
            if address.endswith((":*", ":0")):
                address = f"{address[: address.rindex(':')]}:{self.network.free_port()}"
            port = Port(self)
            if not self.network.listen(transport, address, port):
                raise zmq.ZMQError(zmq.EADDRINUSE)
            self._ports[f"{transport}://{address}"] = port
        endpoint = f"{transport}://{address}"
        self._last_endpoint = endpoint.encode()
        return Undoing(self, lambda: self.unbind(endpoint))

    def connect(self, addr: str) -> Undoing:
        """Connect to an endpoint, and again after each fault.

        Raises:
            zmq.ZMQError: it is no endpoint.
        """
        if self.closed:
            self._refuse()
        transport, address = parse(addr)
        if transport == "inproc":
            self.context.connect_name(address, self)
        elif f"{transport}://{address}" not in self._sessions or self.type not in ONCE:
            session = PipeSession(
                self,
                target=(transport, address),
                is_immediate=bool(self._number(zmq.IMMEDIATE)),
                repeats_itself=self.type in (zmq.SUB, zmq.XSUB),
                intervals=(
                    self._number(zmq.RECONNECT_IVL) / 1000,
                    self._number(zmq.RECONNECT_IVL_MAX) / 1000,
                ),
                stops_when_refused=bool(
                    self._number(zmq.RECONNECT_STOP) & int(zmq.RECONNECT_STOP_CONN_REFUSED)
                ),
            )
            self._sessions[f"{transport}://{address}"] = session
            session.start()
        self._last_endpoint = f"{transport}://{address}".encode()
        return Undoing(self, lambda: self.disconnect(addr))

    def disconnect(self, addr: str) -> None:
        """End a connection: what has come by it and is not read yet is lost.

        Raises:
            zmq.ZMQError: there is none to that endpoint.
            RuntimeError: libzmq would end the process, or join the frames of two messages.
        """
        if self.closed:
            self._refuse()
        transport, address = parse(addr)
        name = f"{transport}://{address}"
        session = self._sessions.get(name)
        ends = [end for end, at in self._ends.items() if at == name]
        if session is None and not ends:
            raise zmq.ZMQError(errno.ENOENT)
        if session is not None:
            ends += [end for end in self._ends if end.peer.owner is session]
        if any(self._behaviour.has_begun(end) for end in ends):
            raise RuntimeError(
                f"a poll has announced a message of several frames from {addr!r}: libzmq ends the process, "
                "or joins it with another; receive it before you disconnect"
            )
        if session is not None:
            del self._sessions[name]
            self._end_session(session)
        self._close_ends(ends)

    def unbind(self, addr: str) -> None:
        """Listen no more at an endpoint, and end what was accepted there.

        Raises:
            zmq.ZMQError: nothing is bound there.
        """
        if self.closed:
            self._refuse()
        transport, address = parse(addr)
        if transport == "inproc" and address in self._names:
            self._names.remove(address)
            self.context.unbind_name(address)
            return
        port = self._ports.pop(f"{transport}://{address}", None)
        if port is None:
            raise zmq.ZMQError(errno.ENOENT)
        sessions = list(port.sessions)
        ends = [end for end in self._ends if end.peer.owner in sessions]
        for session in sessions:
            self._lingering[session] = None
        port.close(self._number(zmq.LINGER) / 1000)
        self._close_ends(ends)

    def _end_session(self, session: PipeSession) -> None:
        if not session.has_ended:
            self._lingering[session] = None
        session.close(self._number(zmq.LINGER) / 1000)

    def _close_ends(self, ends: Sequence[End]) -> None:
        for end in ends:
            end.close()
            self.terminated(end)

    def join(self, name: str, other: Socket) -> None:
        """Join this socket to another of the same context."""
        mark, peers_mark = _sum(self.marks()[0], other.marks()[1]), _sum(other.marks()[0], self.marks()[1])
        mine = End(self, mark=mark, peers_mark=peers_mark)
        its = End(other, mark=peers_mark, peers_mark=mark)
        join(mine, its)
        mine.identity, its.identity = other.identity, self.identity
        self._ends[mine] = f"inproc://{name}"
        other._ends[its] = ""
        self.attach(mine)
        other.post(lambda: other.attach(its))

    # for sessions and pipes ------------------------------------------------------------------------------

    @property
    def identity(self) -> bytes:
        """Return the name of this socket for a ROUTER, or nothing."""
        value = self._options[int(zmq.ROUTING_ID)]
        return value if isinstance(value, bytes) else b""

    def marks(self) -> tuple[int, int]:
        """Return the high-water marks for sending and for receiving."""
        return self._number(zmq.SNDHWM), self._number(zmq.RCVHWM)

    def new_end(self) -> End:
        """Make this side's end of a pipe to a session."""
        mark, peers_mark = self.marks()
        return End(self, mark=mark, peers_mark=peers_mark)

    def post(self, command: Callable[[], None]) -> None:
        """Take notice of something when commands are processed."""
        if self.closed:
            return
        self._commands.append(command)
        if self.notify is not None and len(self._commands) == 1:
            self.notify()

    def attach(self, end: End) -> None:
        """Begin to use a pipe."""
        if self.closed or end.is_closed:
            end.close()
            return
        self._ends.setdefault(end, "")
        self._behaviour.attach(end)

    def readable(self, end: End) -> None:
        """Take notice that there is something to read."""
        self._behaviour.readable(end)

    def writable(self, end: End) -> None:
        """Take notice that there is room again."""
        self._behaviour.writable(end)

    def hiccuped(self, end: End) -> None:
        """Say all again that the other side is to know."""
        self._behaviour.hiccuped(end)

    def terminated(self, end: End) -> None:
        """Forget a pipe."""
        if self._ends.pop(end, None) is not None:
            self._behaviour.terminated(end)

    def session_ended(self, session: PipeSession) -> None:
        """Forget a session."""
        self._lingering.pop(session, None)

    def process_commands(self) -> None:
        """Take notice of all that happened."""
        commands = self._commands
        while commands:
            commands.popleft()()

    # messages --------------------------------------------------------------------------------------------

    def send(self, data: bytes, flags: int = 0, copy: bool = True, track: bool = False) -> None:
        """Send a frame; the message goes when its last frame is there.

        Raises:
            zmq.Again: there is no room, and NOBLOCK or SNDTIMEO says not to wait longer.
        """
        if self.closed:
            self._refuse()
        # libzmq looks at most once in about a millisecond here: it may know of room that has come, or not.
        if self._draw() < 0.5 and self._commands:
            self.process_commands()
        frame = data if type(data) is bytes else bytes(data)
        parts = self._parts
        if not parts and not self._behaviour.begin(frame):
            self._wait_to_begin(frame, int(flags))
        if flags & _SNDMORE:
            parts.append(frame)
        elif parts:
            self._parts = []
            self._behaviour.send((*parts, frame))
        else:
            self._behaviour.send((frame,))

    def _wait_to_begin(self, first: bytes, flags: int) -> None:
        timeout = 0 if flags & _NOBLOCK else self._number(zmq.SNDTIMEO)
        if not timeout or not self._let_pass(lambda: self._behaviour.begin(first), timeout):
            raise Again

    def send_multipart(
        self, msg_parts: Sequence[bytes], flags: int = 0, copy: bool = True, track: bool = False
    ) -> None:
        """Send the frames of one message, all or none.

        Raises:
            zmq.Again: there is no room, and NOBLOCK or SNDTIMEO says not to wait longer.
        """
        for frame in msg_parts[:-1]:
            self.send(frame, flags | _SNDMORE)
        self.send(msg_parts[-1], flags)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Receive a frame: bytes, or without `copy` a `ModelFrame`.

        Raises:
            zmq.Again: there is none, and NOBLOCK or RCVTIMEO says not to wait longer.
        """
        if self.closed:
            self._refuse()
        if not self._left:
            self._left.extend(self._receive(int(flags)))
        data = self._left.popleft()
        return (
            data
            if copy
            else ModelFrame(data, bool(self._left), source := self._source(), self._key_of(source))
        )

    def _source(self) -> int | None:
        """Return the number of the connection that the message came by which is being received."""
        end = self._behaviour.came_from
        return None if end is None else end.came_by

    def _key_of(self, source: int | None) -> str:
        """Return the key at the other end of a connection; empty where this socket has none itself."""
        return self.network.key_beyond(source, self) if self.public_key and source is not None else ""

    def prove(self, key: str, trusts: Callable[[str, str], bool]) -> None:
        """Be known by a public key, and have connections only with those whose keys are trusted."""
        self.public_key, self._trusts = key, trusts

    def admits(self, key: str, host: str) -> bool:
        """Tell whether it has a connection with the holder of a key, empty for none."""
        return not key if self._trusts is None else self._trusts(key, host)

    def _receive(self, flags: int) -> Message:
        if (message := self._behaviour.receive()) is not None:
            return message
        found: list[Message] = []

        def has_found() -> bool:
            message = self._behaviour.receive()
            if message is not None:
                found.append(message)
            return message is not None

        timeout = 0 if flags & _NOBLOCK else self._number(zmq.RCVTIMEO)
        if not self._let_pass(has_found, timeout):
            raise Again
        return found[0]

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> list[bytes]:
        """Receive all frames of a message.

        Raises:
            zmq.Again: there is none, and NOBLOCK or RCVTIMEO says not to wait longer.
        """
        if self.closed:
            self._refuse()
        frames = list(self._left) or list(self._receive(int(flags)))
        self._left.clear()
        return frames

    def poll(self, timeout: float | None = None, flags: int = _POLLIN) -> int:
        """Wait until there is something to receive, or room to send.

        Args:
            timeout: milliseconds of virtual time; None or less than 0 waits without end.
            flags: POLLIN, POLLOUT or both.
        """
        self._let_pass(lambda: bool(self._events() & flags), -1 if timeout is None else timeout)
        return self._events() & flags

    def _events(self) -> int:
        events = _POLLIN if self.has_in() else 0
        return events | _POLLOUT if self._behaviour.has_out() else events

    def has_in(self) -> bool:
        """Take notice of all that happened; tell whether there is a message: what EVENTS says, for less."""
        if self._commands:
            self.process_commands()
        return bool(self._left) or self._behaviour.has_in()

    def _let_pass(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Let time pass until something is so, for so many milliseconds.

        Raises:
            zmq.ZMQError: with EDEADLK, nothing is left to happen that could make it so.
        """

        def is_so() -> bool:
            self.process_commands()
            return condition()

        if timeout == 0:
            return is_so()
        found = self.network.wait(is_so, None if timeout < 0 else self.network.now + timeout / 1000)
        if not found and timeout < 0:
            raise zmq.ZMQError(errno.EDEADLK)
        return found

    # ending ----------------------------------------------------------------------------------------------

    def close(self, linger: int | None = None) -> None:
        """Close; what is still to be sent is, for as long as LINGER says (milliseconds)."""
        if self.closed:
            return
        if linger is not None:
            self._options[int(zmq.LINGER)] = linger
        for name in self._names:
            self.context.unbind_name(name)
        for endpoint in list(self._ports):
            self.unbind(endpoint)
        for session in self._sessions.values():
            self._end_session(session)
        self._sessions.clear()
        self.closed = True
        self._close_ends(list(self._ends))
        # What is about to be attached belongs to nobody then.
        self.process_commands()

    def die(self) -> None:
        """End as a process that is killed: nothing more is sent."""
        sessions = [*self._sessions.values(), *self._lingering]
        for port in self._ports.values():
            self.network.listen_no_more(port)
            sessions += port.sessions
        self.closed = True
        self._sessions.clear()
        for session in sessions:
            session.die()

    def is_busy(self) -> bool:
        """Tell whether this keeps a context from being terminated."""
        return not self.closed or bool(self._lingering)

    def _refuse(self) -> NoReturn:
        raise zmq.ZMQError(zmq.ENOTSOCK)

    def __enter__(self) -> Socket:
        """Return the socket itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _sum(mark: int, other: int) -> int:
    """Return what fits in a pipe within a context: what both sides allow together."""
    return mark + other if mark and other else 0
