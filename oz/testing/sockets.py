"""Model sockets: the part of pyzmq's `Socket` that oz calls, on a virtual network.

A call that waits lets virtual time pass. As in libzmq, connections, subscriptions and free space of a pipe reach a
socket as commands. A socket processes its commands when EVENTS is read, in `poll`, in `recv` without a message, and in
some calls of `send`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct

import zmq

from oz.testing.behaviours import BEHAVIOURS, DEFAULTS
from oz.testing.connections import PipeSession
from oz.testing.descriptors import Descriptor
from oz.testing.endpoints import ModelEndpoints, Process, Undoing
from oz.testing.pipes import Again, End, Message

_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
_POLLIN, _POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)

_EVENTS = int(zmq.EVENTS)
_MARKS = int(zmq.SNDHWM), int(zmq.RCVHWM)
_FD = int(zmq.FD)
_EVENT = Struct("=hi")
"""Number and value of a monitor event (manual of libzmq, zmq_socket_monitor)."""


class Socket:
    """Socket on a virtual network, with the methods of `zmq.Socket` that oz calls.

    Attributes:
        context: of the socket.
        type: as a number.
        closed: whether it is closed.
        notify: called when a first command arrives, as a descriptor of libzmq becomes readable.
        io: thread of its sessions.
        endpoints: bound and connected endpoints.
    """

    def __init__(self, context: Process, socket_type: int) -> None:
        """Create a socket; `Context.socket` calls this."""
        if socket_type not in BEHAVIOURS:
            raise zmq.ZMQError(zmq.EINVAL)
        self.context = context
        self.network = context.network
        self.host, self.io = context.host, context.io
        self.type = socket_type
        self.closed = False
        self.notify: Callable[[], None] | None = None
        self._draw = self.network.random.random
        self._behaviour = behaviour = BEHAVIOURS[socket_type]()
        # Called by its pipes: there is a message, there is space again, the peer has lost all subscriptions.
        self.readable, self.writable = behaviour.readable, behaviour.writable
        self.hiccuped = behaviour.hiccuped
        self._has_in, self._take_message = behaviour.has_in, behaviour.receive
        self._options = dict(DEFAULTS)
        if socket_type in (zmq.SUB, zmq.XSUB):
            self._options[int(zmq.LINGER)] = 0
        self._commands: deque[Callable[[], None]] = deque()
        self.endpoints = ModelEndpoints(self)
        self._ends = self.endpoints.ends
        self._parts: list[bytes] = []
        self._left: deque[bytes] = deque()
        self._descriptor: Descriptor | None = None
        self._monitor: Socket | None = None
        self._monitored = 0

    @property
    def _closed(self) -> bool:
        # Sockets of pyzmq have this attribute, because it costs less than `closed`.
        return self.closed

    # options ---------------------------------------------------------------------------------------------

    def set(self, option: int, value: int | bytes | str) -> None:
        """Set an option.

        Raises:
            zmq.ZMQError: the model does not know the option.
        """
        self._check_open()
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
        """Return an option. EVENTS processes all commands first.

        Raises:
            zmq.ZMQError: the model does not know the option.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if option == _EVENTS:
            return self._events()
        if option == _FD:
            return self._open_descriptor().number
        if option == zmq.RCVMORE:
            return int(bool(self._left))
        if option == zmq.LAST_ENDPOINT:
            return self.endpoints.last_endpoint + b"\0"
        if option == zmq.TYPE:
            return self.type
        if option == zmq.TOPICS_COUNT:
            self.process_commands()
            return self._behaviour.topics_count()
        try:
            return self._options[int(option)]
        except KeyError:
            raise zmq.ZMQError(zmq.EINVAL) from None

    def setsockopt(self, option: int, value: int | bytes | str) -> None:
        """Set an option."""
        self.set(option, value)

    def getsockopt(self, option: int) -> int | bytes:
        """Return an option."""
        return self.get(option)

    def getsockopt_string(self, option: int) -> str:
        """Return a text option."""
        value = self.get(option)
        return value.rstrip(b"\0").decode() if isinstance(value, bytes) else str(value)

    def subscribe(self, topic: bytes | str) -> None:
        """Subscribe to a prefix."""
        self.set(zmq.SUBSCRIBE, topic)

    def unsubscribe(self, topic: bytes | str) -> None:
        """End one subscription to a prefix."""
        self.set(zmq.UNSUBSCRIBE, topic)

    def number(self, option: int) -> int:
        """Return an option as a number; 0 if it is not a number."""
        value = self._options[int(option)]
        return value if isinstance(value, int) else 0

    # endpoints -------------------------------------------------------------------------------------------

    def bind(self, addr: str) -> Undoing:
        """Listen at an endpoint: `tcp://host:port`, with `*` for any port, `ipc://name` or `inproc://name`.

        Raises:
            zmq.ZMQError: the address is in use, or the endpoint is malformed.
        """
        self._check_open()
        endpoint = self.endpoints.bind(addr)
        return Undoing(self, lambda: self.unbind(endpoint))

    def connect(self, addr: str) -> Undoing:
        """Connect to an endpoint, and again after each fault.

        Raises:
            zmq.ZMQError: the endpoint is malformed.
        """
        self._check_open()
        self.endpoints.connect(addr)
        return Undoing(self, lambda: self.disconnect(addr))

    def disconnect(self, addr: str) -> None:
        """End a connection. Unread messages of the connection are lost.

        Raises:
            zmq.ZMQError: the endpoint is not connected.
            RuntimeError: libzmq would end the process, or join the frames of two messages.
        """
        self._check_open()
        self.endpoints.disconnect(addr, self._behaviour.has_begun)

    def unbind(self, addr: str) -> None:
        """Unbind an endpoint, and end its connections.

        Raises:
            zmq.ZMQError: nothing is bound there.
        """
        self._check_open()
        self.endpoints.unbind(addr)

    # for sessions and pipes ------------------------------------------------------------------------------

    @property
    def identity(self) -> bytes:
        """Return ROUTING_ID, or nothing."""
        value = self._options[int(zmq.ROUTING_ID)]
        return value if isinstance(value, bytes) else b""

    def marks(self) -> tuple[int, int]:
        """Return the high-water marks for sending and for receiving."""
        return self.number(zmq.SNDHWM), self.number(zmq.RCVHWM)

    def new_end(self) -> End:
        """Create the end of the socket for a pipe to a session."""
        mark, peers_mark = self.marks()
        return End(self, mark=mark, peers_mark=peers_mark)

    def post(self, command: Callable[[], None]) -> None:
        """Add a command, to be called when commands are processed."""
        if self.closed:
            return
        self._commands.append(command)
        if self.notify is not None and len(self._commands) == 1:
            self.notify()

    def attach(self, end: End) -> None:
        """Add a pipe."""
        if self.closed or end.is_closed:
            end.close()
            return
        self._ends.setdefault(end, "")
        self._behaviour.attach(end)

    def terminated(self, end: End) -> None:
        """Remove a pipe."""
        if self._ends.pop(end, None) is not None:
            self._behaviour.terminated(end)

    def session_ended(self, session: PipeSession) -> None:
        """Remove a session."""
        self.endpoints.lingering.pop(session, None)

    def process_commands(self) -> None:
        """Process all commands."""
        commands = self._commands
        while commands:
            commands.popleft()()

    def _open_descriptor(self) -> Descriptor:
        if self._descriptor is None:
            self._descriptor = Descriptor(lambda: bool(self._commands))
            self.notify = self._descriptor.signal
        return self._descriptor

    # monitors --------------------------------------------------------------------------------------------

    def monitor(self, addr: str | None, events: int = int(zmq.EVENT_ALL)) -> None:
        """Send events of connections that this socket makes to an `inproc` endpoint; None ends that."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close(0)
        if addr is not None:
            self._monitored = int(events)
            self._monitor = monitor = Socket(self.context, int(zmq.PAIR))
            monitor.set(zmq.SNDHWM, 0)
            monitor.bind(addr)

    def report(self, event: int, endpoint: str) -> None:
        """Send an event of a connection to the monitor, if it wants the event."""
        if self._monitor is not None and event & self._monitored:
            self._monitor.process_commands()
            with suppress(zmq.Again):
                self._monitor.send_multipart([_EVENT.pack(event, 0), endpoint.encode()], _NOBLOCK)

    # messages --------------------------------------------------------------------------------------------

    def send(self, data: bytes, flags: int = 0, copy: bool = True, track: bool = False) -> None:
        """Send a frame. The message is sent with its last frame.

        Raises:
            zmq.Again: there is no space within SNDTIMEO, or NOBLOCK is given.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        # libzmq processes commands here once in a millisecond at most, so that it may know of free space or not.
        if self._draw() < 0.5 and self._commands:
            self.process_commands()
        frame = data if type(data) is bytes else bytes(data)
        parts = self._parts
        if not parts and not self._behaviour.begin(frame):
            timeout = 0 if flags & _NOBLOCK else self.number(zmq.SNDTIMEO)
            if not timeout or not self._let_pass(lambda: self._behaviour.begin(frame), timeout):
                raise Again
        if flags & _SNDMORE:
            parts.append(frame)
        elif parts:
            self._parts = []
            self._behaviour.send((*parts, frame))
        else:
            self._behaviour.send((frame,))

    def send_multipart(
        self, msg_parts: Sequence[bytes], flags: int = 0, copy: bool = True, track: bool = False
    ) -> None:
        """Send all frames of one message, or none.

        Raises:
            zmq.Again: there is no space within SNDTIMEO, or NOBLOCK is given.
        """
        for frame in msg_parts[:-1]:
            self.send(frame, flags | _SNDMORE)
        self.send(msg_parts[-1], flags)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes:
        """Receive a frame.

        Raises:
            zmq.Again: there is no message within RCVTIMEO, or NOBLOCK is given.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if not self._left:
            self._left.extend(self._receive(int(flags)))
        return self._left.popleft()

    def _receive(self, flags: int) -> Message:
        if (message := self._take_message()) is not None:
            return message
        found: list[Message] = []

        def has_found() -> bool:
            message = self._behaviour.receive()
            if message is not None:
                found.append(message)
            return message is not None

        timeout = 0 if flags & _NOBLOCK else self.number(zmq.RCVTIMEO)
        if not self._let_pass(has_found, timeout):
            raise Again
        return found[0]

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> list[bytes]:
        """Receive all frames of a message.

        Raises:
            zmq.Again: there is no message within RCVTIMEO, or NOBLOCK is given.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if not self._left:
            message = self._take_message()
            return list(self._receive(int(flags)) if message is None else message)
        frames = list(self._left)
        self._left.clear()
        return frames

    def poll(self, timeout: float | None = None, flags: int = _POLLIN) -> int:
        """Wait until the socket can receive or send.

        Args:
            timeout: milliseconds of virtual time; None or a negative number waits for ever.
            flags: POLLIN, POLLOUT or both.
        """
        self._let_pass(lambda: bool(self._events() & flags), -1 if timeout is None else timeout)
        return self._events() & flags

    def _events(self) -> int:
        events = _POLLIN if self.has_in() else 0
        return events | _POLLOUT if self._behaviour.has_out() else events

    def has_in(self) -> bool:
        """Process all commands; return whether there is a message. It costs less than EVENTS."""
        commands = self._commands
        while commands:
            # As `process_commands`, without a call.
            commands.popleft()()
        return bool(self._left) or self._has_in()

    def _let_pass(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Advance the virtual time until a condition holds, for `timeout` milliseconds at most.

        Raises:
            zmq.ZMQError: with EDEADLK, no event is left.
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

    def close(self, linger: int | None = None) -> None:
        """Close. Unsent messages are sent for LINGER milliseconds."""
        if self.closed:
            return
        if linger is not None:
            self._options[int(zmq.LINGER)] = linger
        self.monitor(None)
        self.endpoints.end()
        self.closed = True
        self.endpoints.close_ends(list(self._ends))
        # Pipes that wait to be attached are closed.
        self.process_commands()

    def die(self) -> None:
        """End as a killed process does. Unsent messages are lost."""
        self.monitor(None)
        self.closed = True
        self.endpoints.die()

    def is_busy(self) -> bool:
        """Return whether the socket delays the end of its context."""
        return not self.closed or bool(self.endpoints.lingering)

    def _check_open(self) -> None:
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)

    def __enter__(self) -> Socket:
        """Return the socket."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
