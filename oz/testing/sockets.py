"""Model sockets of a test bus. They implement the part of ROUTER, XPUB, SUB and PAIR that the engines of oz use.

A socket has the methods of `zmq.Socket` that the engines call. No method waits: time passes only in the loop of the
bus. As in libzmq, a descriptor is signalled once for several messages. A read of EVENTS ends the signal, and a send may
end it.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from struct import Struct
from typing import TYPE_CHECKING, Any

import zmq

from oz.testing.connections import End, Message
from oz.testing.descriptors import Descriptor

if TYPE_CHECKING:
    from oz.testing.context import Context

_EVENTS, _RCVMORE, _POLLIN, _SNDMORE = (
    int(option) for option in (zmq.EVENTS, zmq.RCVMORE, zmq.POLLIN, zmq.SNDMORE)
)
_EVENT = Struct("=hi")
"""First frame of a monitor event: number and value of the event (manual of libzmq, zmq_socket_monitor)."""

DEFAULTS = {int(zmq.SNDHWM): 1000, int(zmq.RCVHWM): 1000, int(zmq.LINGER): -1, int(zmq.RECONNECT_IVL): 100}
"""Options whose default is not 0. Sockets accept all options of libzmq, and ignore most of them."""


class Again(zmq.Again):
    """Variant of `zmq.Again` that does not call libzmq for its text."""

    errno = errno.EAGAIN
    strerror = "Resource temporarily unavailable"

    def __init__(self) -> None:
        """Create the error."""


class Socket:
    """Base class of the sockets of all types.

    Attributes:
        context: context of the socket.
        network, host: network and host of the context.
        type: ZeroMQ type, such as `zmq.SUB`.
        closed: whether the socket is closed.
        is_signalled: whether the descriptor is readable.
        send_mark, receive_mark: maximum number of queued messages on each connection; 0 means no limit.
        ends: this socket's ends of its connections.
        ready: ends with unread messages. The socket reads one message of each end in turn.
    """

    def __init__(self, context: Context, socket_type: int) -> None:
        self.context = context
        self.network, self.host = context.network, context.host
        self.type = socket_type
        self.closed = self.is_signalled = False
        self.send_mark = self.receive_mark = 1000
        self.ends: dict[End, None] = {}
        self.ready: deque[End] = deque()
        self._draw = self.network.random.random
        self._options: dict[int, int | bytes] = dict(DEFAULTS)
        self._bound: dict[str, tuple[str, str]] = {}
        self._last_endpoint = b""
        self._parts: Message = ()
        self._left: deque[bytes] = deque()
        self._descriptor: Descriptor | None = None
        self._monitor: Pair | None = None
        self._monitored = 0

    @property
    def _closed(self) -> bool:
        # The engines read this attribute of pyzmq sockets, because a read costs less than a read of `closed`.
        return self.closed

    # options ---------------------------------------------------------------------------------------------

    def set(self, option: int, value: int | bytes | str) -> None:
        """Set an option."""
        self._check_open()
        option = int(option)
        self._options[option] = value.encode() if isinstance(value, str) else value
        if option == zmq.SNDHWM:
            self.send_mark = self.number(option)
        elif option == zmq.RCVHWM:
            self.receive_mark = self.number(option)

    setsockopt = set

    def get(self, option: int) -> int | bytes:
        """Return an option. EVENTS is POLLIN or 0. A read of EVENTS ends the signal of the descriptor."""
        if option == _RCVMORE:
            return int(bool(self._left))
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if option == _EVENTS:
            if self.is_signalled:
                self._process()
            return _POLLIN if self._left or self._has_input() else 0
        if option == zmq.FD:
            if self._descriptor is None:
                self._descriptor = Descriptor(lambda: self.is_signalled)
            return self._descriptor.number
        if option == zmq.LAST_ENDPOINT:
            return self._last_endpoint + b"\0"
        return self.type if option == zmq.TYPE else self._options.get(int(option), 0)

    getsockopt = get

    def number(self, option: int) -> int:
        """Return an option as a number; 0 if it is not a number."""
        value = self._options.get(int(option), 0)
        return value if isinstance(value, int) else 0

    @property
    def identity(self) -> bytes:
        """Value of ROUTING_ID; empty if the option is not set."""
        value = self._options.get(int(zmq.ROUTING_ID), b"")
        return value if isinstance(value, bytes) else b""

    # endpoints -------------------------------------------------------------------------------------------

    def bind(self, addr: str) -> None:
        """Listen at an endpoint.

        Raises:
            zmq.ZMQError: the address is in use, or the endpoint is malformed.
        """
        self._check_open()
        transport, address = self._parse(addr)
        if address.endswith((":*", ":0")):
            address = f"{address[: address.rindex(':')]}:{self.network.free_port()}"
        if not self.network.listen(transport, address, self):
            raise zmq.ZMQError(zmq.EADDRINUSE)
        endpoint = f"{transport}://{address}"
        self._bound[endpoint] = transport, address
        self._last_endpoint = endpoint.encode()

    def connect(self, addr: str) -> None:
        """Connect to an endpoint. The socket connects again after each fault.

        Raises:
            zmq.ZMQError: the endpoint is malformed.
        """
        self._check_open()
        target = self._parse(addr)
        endpoint = "://".join(target)
        self._last_endpoint = endpoint.encode()
        end = End(self, endpoint, target)
        self.attach(end)
        if end.is_local:
            end.dial()
        else:
            self.network.call_soon(end.dial)

    def disconnect(self, addr: str) -> None:
        """End all connections to an endpoint, or unbind an endpoint. Unread messages are lost.

        Raises:
            zmq.ZMQError: the socket is neither connected nor bound to the endpoint.
        """
        self._check_open()
        endpoint = "://".join(self._parse(addr))
        bound = self._bound.pop(endpoint, None)
        found = [end for end in self.ends if end.endpoint == endpoint]
        if bound is not None:
            self.network.release(*bound)
        elif not found:
            raise zmq.ZMQError(errno.ENOENT)
        for end in found:
            self._drop(end)
            end.close(self.number(zmq.LINGER))

    unbind = disconnect

    def _parse(self, endpoint: str) -> tuple[str, str]:
        """Return the transport and address of an endpoint. `localhost` and `*` become IP addresses."""
        transport, separator, address = endpoint.partition("://")
        if not separator or not address:
            raise zmq.ZMQError(zmq.EINVAL)
        if transport == "tcp":
            host, separator, port = address.rpartition(":")
            if not separator or not (port == "*" or port.isdigit()):
                raise zmq.ZMQError(zmq.EINVAL)
            host = {"*": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host)
            return transport, f"{host}:{port}"
        if transport == "inproc":
            return transport, f"{self.host}/{address}"
        if transport != "ipc":
            raise zmq.ZMQError(zmq.EPROTONOSUPPORT)
        return transport, address

    # calls of connections --------------------------------------------------------------------------------

    def attach(self, end: End) -> None:
        """Add an end of a connection."""
        self.ends[end] = None
        self.signal()

    def detach(self, end: End) -> None:
        """Remove an end whose connection is lost. Messages that have arrived can still be received."""
        self.ends.pop(end, None)
        self.signal()

    def hiccup(self, end: End) -> None:
        """Handle the loss of a connection that the socket has dialled and will dial again."""

    def arrived(self, end: End, message: Message) -> None:
        """Handle a message that has arrived at an end of this socket."""
        if end.has_ended or self.closed:
            return
        if not end.inbox:
            self.ready.append(end)
            self.signal()
        end.inbox.append(message)

    def signal(self) -> None:
        """Make the descriptor readable."""
        if not self.is_signalled:
            self.is_signalled = True
            if self._descriptor is not None:
                self._descriptor.signal()

    def _process(self) -> None:
        self.is_signalled = False

    def _drop(self, end: End) -> None:
        self.detach(end)
        if end.inbox:
            self.ready.remove(end)
            end.inbox.clear()

    # messages --------------------------------------------------------------------------------------------

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False) -> None:
        """Send a frame. The message is sent with its last frame.

        Raises:
            zmq.Again: the queue is full.
            zmq.ZMQError: a ROUTER has no connection to the receiver.
        """
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        # libzmq processes commands in a send at most once in a millisecond. Therefore a send may end the signal.
        if self.is_signalled and self._draw() < 0.5:
            self._process()
        frame = data if type(data) is bytes else bytes(data)
        parts = self._parts
        if not parts and not self._begin(frame):
            raise Again
        if flags & _SNDMORE:
            self._parts = (*parts, frame)
        else:
            self._parts = ()
            self._send((*parts, frame))

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes:
        """Receive a frame.

        Raises:
            zmq.Again: no message has arrived.
        """
        if self._left:
            return self._left.popleft()
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if not self._has_input():
            if self.is_signalled:
                self._process()
            raise Again
        message = self._receive()
        if len(message) > 1:
            self._left.extend(message[1:])
        return message[0]

    def _read(self) -> tuple[End, Message]:
        """Return the next message, and the end at which it arrived. One message of each end is read in turn."""
        ready = self.ready
        end = ready.popleft()
        message = end.read()
        if end.inbox:
            ready.append(end)
        return end, message

    def _has_input(self) -> bool:
        return bool(self.ready)

    def _receive(self) -> Message:
        return self._read()[1]

    def _begin(self, first: bytes) -> bool:
        """Choose the receivers of a message by its first frame; return whether the message may be sent."""
        raise zmq.ZMQError(errno.ENOTSUP)

    def _send(self, message: Message) -> None:
        """Send a message to the receivers."""

    # monitors --------------------------------------------------------------------------------------------

    def monitor(self, addr: str | None, events: int = 0) -> None:
        """Send events of this socket's connections to a PAIR socket.

        Args:
            addr: address to which the PAIR socket connects; None ends the monitor.
            events: sum of the numbers of the events to send.
        """
        self._monitor, self._monitored = None, int(events)
        if addr is not None:
            self.context.monitored[addr] = self

    def report(self, event: int, endpoint: str) -> None:
        """Send an event of a connection to the monitor."""
        if self._monitor is not None and event & self._monitored:
            self._monitor.put((_EVENT.pack(event, 0), endpoint.encode()))

    # closing ---------------------------------------------------------------------------------------------

    def close(self, linger: int | None = None) -> None:
        """Close the socket. Unsent messages are still sent until LINGER milliseconds have passed."""
        if self.closed:
            return
        self.closed = True
        for bound in self._bound.values():
            self.network.release(*bound)
        for end in [*self.ends]:
            end.close(self.number(zmq.LINGER) if linger is None else linger)

    def die(self) -> None:
        """End the socket without a message to peers, as if its process was killed. Unsent messages are lost."""
        ends = [*self.ends]
        self.close(0)
        for end in ends:
            end.end()

    def _check_open(self) -> None:
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)


class Pair(Socket):
    """PAIR socket, which receives the events of a monitored socket."""

    def __init__(self, context: Context, socket_type: int) -> None:
        super().__init__(context, socket_type)
        self._events: deque[Message] = deque()

    def connect(self, addr: str) -> None:
        """Start receiving the events of the socket whose monitor has this address."""
        self.context.monitored.pop(addr)._monitor = self

    def put(self, event: Message) -> None:
        """Add an event."""
        self._events.append(event)
        self.signal()

    def _has_input(self) -> bool:
        return bool(self._events)

    def _receive(self) -> Message:
        return self._events.popleft()


class Router(Socket):
    """ROUTER socket with ROUTER_MANDATORY and ROUTER_HANDOVER. The first frame of a message is the name of the peer."""

    def __init__(self, context: Context, socket_type: int) -> None:
        super().__init__(context, socket_type)
        self._names: dict[bytes, End] = {}
        self._to: End | None = None

    def attach(self, end: End) -> None:
        """Add an end. It replaces another end with the same name."""
        if end.target is not None:
            end.name = bytes(self._options[int(zmq.CONNECT_ROUTING_ID)])
            if end.name in self._names:
                raise RuntimeError(f"CONNECT_ROUTING_ID {end.name!r} is in use: libzmq ends the process")
        other = self._names.get(end.name)
        if other is not None:
            self._drop(other)
        self._names[end.name] = end
        super().attach(end)
        if self.number(zmq.PROBE_ROUTER):
            end.write((b"",))

    def detach(self, end: End) -> None:
        """Remove an end and its name."""
        if self._names.get(end.name) is end:
            del self._names[end.name]
        super().detach(end)

    def _receive(self) -> Message:
        end, message = self._read()
        return end.name, *message

    def _begin(self, first: bytes) -> bool:
        self._to = end = self._names.get(first)
        if end is None:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        return end.has_room()

    def _send(self, message: Message) -> None:
        if self._to is not None:
            self._to.write(message[1:])


class Xpub(Socket):
    """XPUB socket with XPUB_VERBOSER. It receives each subscription and each unsubscription as a message."""

    def __init__(self, context: Context, socket_type: int) -> None:
        super().__init__(context, socket_type)
        self._topics: dict[End, set[bytes]] = {}
        self._reports: deque[Message] = deque()
        self._to: list[End] = []

    def arrived(self, end: End, message: Message) -> None:
        """Handle a subscription or an unsubscription of a peer."""
        frame, topics = message[0], self._topics.setdefault(end, set())
        (topics.add if frame[0] else topics.discard)(frame[1:])
        self._report(frame)

    def detach(self, end: End) -> None:
        """Remove an end, and report an unsubscription for each of its subscriptions."""
        for topic in sorted(self._topics.pop(end, ())):
            self._report(b"\0" + topic)
        super().detach(end)

    def _report(self, frame: bytes) -> None:
        self._reports.append((frame,))
        self.signal()

    def _has_input(self) -> bool:
        return bool(self._reports)

    def _receive(self) -> Message:
        return self._reports.popleft()

    def _begin(self, first: bytes) -> bool:
        found = [end for end, topics in self._topics.items() if any(map(first.startswith, topics))]
        self._to = [end for end in found if end.has_room()]
        # With XPUB_NODROP, the send is refused if any matching connection is full.
        return len(self._to) == len(found) or not self.number(zmq.XPUB_NODROP)

    def _send(self, message: Message) -> None:
        for end in self._to:
            end.write(message)


class Sub(Socket):
    """SUB socket. After a reconnect, it sends its subscriptions only when its owner next uses the socket."""

    def __init__(self, context: Context, socket_type: int) -> None:
        super().__init__(context, socket_type)
        self._topics: Counter[bytes] = Counter()
        self._hiccups: dict[End, None] = {}

    def set(self, option: int, value: int | bytes | str) -> None:
        """Set an option. The options SUBSCRIBE and UNSUBSCRIBE add or remove a subscription."""
        if option not in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE):
            super().set(option, value)
            return
        topic = value if isinstance(value, bytes) else str(value).encode()
        before = self._topics[topic]
        self._topics[topic] = after = max(0, before + (1 if option == zmq.SUBSCRIBE else -1))
        if not after:
            del self._topics[topic]
        if bool(before) != bool(after):
            for end in self.ends:
                end.write((bytes((not before,)) + topic,))

    setsockopt = set

    def attach(self, end: End) -> None:
        """Add an end, and send all subscriptions to its peer."""
        super().attach(end)
        self._subscribe(end)

    def hiccup(self, end: End) -> None:
        """Drop unsent subscriptions. After the reconnect, the socket sends all subscriptions again."""
        end.outgoing.clear()
        self._hiccups[end] = None
        self.signal()

    def arrived(self, end: End, message: Message) -> None:
        """Keep a message that matches a subscription, and drop any other message."""
        if any(map(message[0].startswith, self._topics)):
            super().arrived(end, message)

    def _process(self) -> None:
        super()._process()
        hiccups, self._hiccups = self._hiccups, {}
        for end in hiccups:
            self._subscribe(end)

    def _subscribe(self, end: End) -> None:
        for topic in sorted(self._topics):
            end.write((b"\1" + topic,))


TYPES: dict[int, type[Socket]] = {
    int(zmq.ROUTER): Router,
    int(zmq.XPUB): Xpub,
    int(zmq.SUB): Sub,
    int(zmq.PAIR): Pair,
}
"""Class of each type of socket."""
