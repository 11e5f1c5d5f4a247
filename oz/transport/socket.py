"""The common part of publishers and subscribers: how they are made, bound, connected and closed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import zmq

from oz.errors import ClosedError
from oz.subjects import dialects
from oz.transport import descriptors, endpoints
from oz.transport.attachments import Attachments
from oz.transport.dropin import refuse_green
from oz.transport.ending import CLOSE_TIMEOUT, end_context
from oz.transport.guard import Guard, StrictGuard
from oz.transport.monitors import Monitor
from oz.transport.multicast.group import Group
from oz.transport.option_checks import check_count

HIGH_WATER_MARK = 100_000
"""Messages that may wait on each side for one peer, unless said otherwise; ZeroMQ's own is 1,000."""

_SHOWN = 5
"""Endpoints and patterns that a `repr` shows at most."""

KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 30),
    (zmq.TCP_KEEPALIVE_INTVL, 5),
    (zmq.TCP_KEEPALIVE_CNT, 3),
)
"""Have the system notice within 45 s that the other end of a quiet TCP connection is gone.
docs/decisions/031-leaving-out-one-connection.md"""

# Backend calls by their unbound methods: the attributes of zmq.Socket add 0.3 µs to each.
backend_get = zmq.backend.Socket.get
backend_recv = zmq.backend.Socket.recv
backend_set = zmq.backend.Socket.set


def check_delimiter(delimiter: Any) -> bytes | None:
    """Return the delimiter as bytes.

    Raises:
        ValueError: it is empty.
        TypeError: it is not bytes.
    """
    if delimiter is None:
        return None
    if not isinstance(delimiter, (bytes, bytearray)):
        raise TypeError(f"a delimiter is bytes such as b' ', not {type(delimiter).__name__}: {delimiter!r}")
    if not delimiter:
        raise ValueError("a delimiter cannot be empty: nothing would end the subject")
    return bytes(delimiter)


def keep_tcp_alive(socket: zmq.Socket[Any]) -> None:
    """Notice dead TCP connections, unless the context of a socket says otherwise."""
    chosen = socket.context.sockopts
    for option, value in KEEPALIVE:
        backend_set(socket, option, chosen.get(option, value))


def refuse_to_copy(socket: Any, _memo: Any = None) -> NoReturn:
    """Refuse to copy a socket; pyzmq's copies are shadows, which know no patterns and no guard.

    Raises:
        TypeError: always.
    """
    kind = socket if isinstance(socket, type) else type(socket)
    raise TypeError(
        f"a {kind.__name__} cannot be copied: make another one. zmq.Socket.shadow(…) shares its handle"
    )


class BaseSocket(zmq.Socket[Any]):
    """A ZeroMQ socket with a dialect, a guard and perhaps a context of its own.

    It can be made as an oz socket, `Subscriber("tcp://…")`, or as pyzmq makes sockets,
    `context.socket(zmq.SUB, socket_class=Subscriber)`, which calls it with context and type.
    """

    # zmq.Socket takes attributes that are not declared here for socket options.
    dialect: str
    _guard: Guard
    _attachments: Attachments
    _monitor: Monitor

    _public_name: ClassVar[str]
    """What messages to the user call it."""
    _kind: ClassVar[int]
    _accepted_kinds: ClassVar[tuple[int, ...]]
    _context_class: ClassVar[type[zmq.Context[Any]]] = zmq.Context

    __copy__ = __deepcopy__ = __reduce__ = refuse_to_copy  # type: ignore[assignment]
    shadow = classmethod(refuse_to_copy)  # type: ignore[assignment]

    def _create(self, context: zmq.Context[Any] | None, kind: Any, dialect: str, holder: Guard) -> None:
        """Make the socket itself. `kind` is what pyzmq asks for, or anything else."""
        dialects.find(dialect)
        refuse_green(context)
        if isinstance(kind, int) and kind not in self._accepted_kinds:
            names = " or ".join(zmq.SocketType(one).name for one in self._accepted_kinds)
            raise ValueError(f"{self._public_name} is a {names} socket, not {zmq.SocketType(kind).name}")
        self._attachments = Attachments(holder, None, own_context=context is None)
        self._monitor = Monitor(holder, is_shared=not isinstance(holder, StrictGuard))
        self.dialect = dialect
        self._guard = holder
        # Also where the context is the user's: nobody can ask whether its threads run already.
        descriptors.need(descriptors.CONTEXT, f"a {self._public_name}")
        super().__init__(self._context_class() if context is None else context, self._kind)
        if context is None:
            self.set(zmq.LINGER, round(CLOSE_TIMEOUT * 1000))
        keep_tcp_alive(self)
        # Let `Context.destroy` know of this socket, as `Context.socket` does.
        self.context._add_socket(self)

    @property
    def _own_context(self) -> bool:
        return self._attachments.own_context

    @property
    def _endpoints(self) -> list[str]:
        return self._attachments.endpoints

    @property
    def _connections(self) -> int:
        return self._attachments.connections

    @_connections.setter
    def _connections(self, count: int) -> None:
        self._attachments.connections = count

    @property
    def _group(self) -> Group | None:
        return self._attachments.group

    @_group.setter
    def _group(self, group: Group | None) -> None:
        self._attachments.group = group

    def _set_high_water_mark(self, limit: int | None) -> None:
        """Set the mark where it was asked for, or oz's own on a context of oz's own."""
        set_high_water_mark(self, limit, own_context=self._own_context)

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Leave nothing open behind when the rest of the construction fails."""
        try:
            yield
        except BaseException:
            self.close(0)
            raise

    def _attach(self, bind: object, connect: object) -> None:
        for endpoint in endpoints.as_list(bind):
            self.bind(endpoint)
        for endpoint in endpoints.as_list(connect):
            self.connect(endpoint)

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to; with the port that a `*` became.

        None when there is none: it is neither bound nor connected yet, or closed.
        """
        return None if self.closed else self._attachments.last

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint, as `zmq.Socket.bind` does.

        Args:
            addr: such as `tcp://127.0.0.1:*`, where the system chooses the port, or `tcp://[::1]:*`.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: see `connect`.
            zmq.ZMQError: the address is in use, or not one of this host; or file descriptors are used up.
        """
        manager = self._attachments.bind(self, addr)
        self._endpoints_changed()
        return manager

    def connect(self, addr: str | bytes) -> Any:
        """Connect to an endpoint, as `zmq.Socket.connect` does; the peer may come later.

        Args:
            addr: such as `tcp://127.0.0.1:5555` or `tcp://[::1]:5555`. For a host name that has only an
                IPv6 address set the option `zmq.IPV6` before.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: it is no endpoint, or not a whole one; or a multicast one, and cannot be used here.
            zmq.ZMQError: file descriptors are used up.
        """
        manager = self._attachments.connect(self, addr)
        self._endpoints_changed()
        return manager

    def unbind(self, addr: Any) -> None:
        """Unbind from an endpoint, as `zmq.Socket.unbind` does."""
        self._attachments.unbind(self, addr)

    def disconnect(self, addr: Any) -> None:
        """Disconnect from an endpoint, as `zmq.Socket.disconnect` does."""
        self._attachments.disconnect(self, addr)

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Any:
        """Make a socket that receives events of the connections, as `zmq.Socket.get_monitor_socket` does.

        It has no limit: what you do not read stays in memory. Closing it ends the monitor, and closing this
        socket does too.

        Args:
            events: which events, as a sum of `zmq.EVENT_…`; default all.
            addr: an `inproc://` address to have them sent to; default one of oz's own.

        Returns:
            A PAIR; the same one until it is closed or the monitor ends.

        Raises:
            OwnershipError: the socket was made before a fork.
            zmq.ZMQError: the socket is closed, the address is in use, or there are too many sockets.
        """
        return self._monitor.socket_for(self, events, addr)

    def monitor(self, addr: Any, events: int = zmq.EVENT_ALL) -> None:
        """Send events of the connections to an endpoint, as `zmq.Socket.monitor` does.

        Whoever connects a PAIR to it must read all of them and call `disable_monitor` before closing it:
        otherwise libzmq stands still, with all sockets of the context.

        Args:
            addr: an `inproc://` address; None ends the monitor.
            events: which events, as a sum of `zmq.EVENT_…`.

        Raises:
            OwnershipError: the socket was made before a fork.
            zmq.ZMQError: the socket is closed, or the address is in use.
        """
        self._monitor.begin(self, addr, events)

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option, as `zmq.Socket.set` does.

        Raises:
            ValueError: multicast does not know it, or would end the process.
        """
        if self._group is not None:
            self._group.check_option(option)
        super().set(option, optval)

    setsockopt = set

    def _endpoints_changed(self) -> None:
        """Called when the socket was bound or connected anew."""

    def get(self, option: int) -> Any:
        """Get a socket option, as `zmq.Socket.get` does.

        Raises:
            OwnershipError: the socket was made before a fork.
        """
        self.check_owner()
        return super().get(option)

    getsockopt = get

    def check_owner(self) -> None:
        """Refuse the child of a fork.

        Raises:
            OwnershipError: the socket was made before a fork, in the parent process.
        """
        self._guard.check_owner()

    def __repr__(self) -> str:
        """Show where it is bound or connected to, what it is made for, and whether it is closed."""
        return describe(self, self.described() if "_attachments" in self.__dict__ else [])

    def described(self) -> list[str]:
        """Say for `repr` where it is bound or connected to, and what it is made for."""
        kind = zmq.SocketType(self._accepted_kinds[0]).name
        return [f"zmq.{kind}", *some(self._endpoints)]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"this {self._public_name} is closed")

    def _close_socket(self, linger: int | None, timeout: float | None) -> bool:
        """Close the socket but not its context; tell whether the context is still to be ended."""
        if self.closed or self._guard.is_foreign:
            # The child of a fork leaves alone what belongs to its parent, also at the end of a `with`.
            return False
        if linger is None and timeout is not None:
            linger = round(timeout * 1000)
        elif linger is None and self._own_context:
            linger = round(CLOSE_TIMEOUT * 1000)
        with self._guard:
            if self.closed:
                return False
            # Not any monitor: libzmq tells it, and waits for ever if nobody is there any more.
            self._monitor.end()
            super().close(linger)
            if self._group is not None:
                self._group.release()
        return self._own_context

    def _end_context(
        self, timeout: float, closed_at: float | None = None, given_up: threading.Event | None = None
    ) -> None:
        end_context(self.context, timeout, closed_at, given_up)


def set_high_water_mark(socket: zmq.Socket[Any], limit: int | None, *, own_context: bool) -> None:
    """Set the mark of a socket where it was asked for, or oz's own on a context of oz's own.

    Raises:
        ValueError: it is out of bounds.
    """
    if limit is None and not own_context:
        return
    mark = HIGH_WATER_MARK if limit is None else limit
    check_count("high_water_mark", mark, 0, 2**31 - 1)
    socket.set(zmq.SNDHWM, mark)
    socket.set(zmq.RCVHWM, mark)


def describe(socket: zmq.Socket[Any], parts: Iterable[str]) -> str:
    """Write the `repr` of a socket, by the name that it has in public."""
    module, name = type(socket).__module__, type(socket).__qualname__
    if module.startswith("oz."):
        module = "oz.asyncio" if module.startswith("oz.asyncio") else "oz"
    state = " closed" if socket.closed else ""
    return f"<{' '.join((f'{module}.{name}', *parts))} at {id(socket):#x}{state}>"


def some(texts: Sequence[str]) -> list[str]:
    """Return the first of many, and how many more there are."""
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
