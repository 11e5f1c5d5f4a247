"""The common part of publishers and subscribers: how they are made, bound, connected and closed."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NoReturn

import zmq

from oz.errors import ClosedError, OwnershipError
from oz.subjects import dialects
from oz.transport import descriptors, endpoints
from oz.transport.dropin import refuse_green
from oz.transport.guard import Guard, refuse
from oz.transport.monitors import make_address, make_pair
from oz.transport.multicast.endpoint import is_multicast
from oz.transport.multicast.group import Group
from oz.transport.option_checks import check_count

_log = logging.getLogger("oz.socket")

HIGH_WATER_MARK = 100_000
"""Messages that may wait on each side for one peer, unless said otherwise; ZeroMQ's own is 1,000."""

_BOUND = "name an address or interface of this host, and a port or *, as in tcp://127.0.0.1:*"
_CONNECTED = "name the host and the port of the other side, as in tcp://127.0.0.1:5555"
_PATIENCE = 3.0
"""Seconds that libzmq's threads have at least to end, on a machine with much else to do."""
_LONGEST_JOIN = 1e6
_SLICE = 0.1

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

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` waits at most for what was published to be sent."""

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
    _own_context: bool
    _endpoints: list[str]
    _connections: int = 0
    _group: Group | None = None

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
        self._own_context = context is None
        self._endpoints = []
        self.dialect = dialect
        self._guard = holder
        # Also where the context is the user's: nobody can ask whether its threads run already.
        descriptors.need(descriptors.CONTEXT, f"a {self._public_name}")
        super().__init__(self._context_class() if context is None else context, self._kind)
        if context is None:
            self.set(zmq.LINGER, round(CLOSE_TIMEOUT * 1000))
        keep_tcp_alive(self)
        self._register()

    def _register(self) -> None:
        """Let `Context.destroy` know of this socket, as `Context.socket` does."""
        self.context._add_socket(self)

    def _set_high_water_mark(self, limit: int | None) -> None:
        """Set the mark where it was asked for, or oz's own on a context of oz's own."""
        if limit is None and not self._own_context:
            return
        mark = HIGH_WATER_MARK if limit is None else limit
        check_count("high_water_mark", mark, 0, 2**31 - 1)
        self.set(zmq.SNDHWM, mark)
        self.set(zmq.RCVHWM, mark)

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
        return self._endpoints[-1] if self._endpoints and not self.closed else None

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint, as `zmq.Socket.bind` does.

        Args:
            addr: such as `tcp://127.0.0.1:*`, where the system chooses the port, or `tcp://[::1]:*`.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: see `connect`.
            zmq.ZMQError: the address is in use, or not one of this host; or file descriptors are used up.
        """
        self._refuse_closed()
        addr = self._admit_endpoint(endpoints.as_text(addr))
        descriptors.need_for_endpoint(addr)
        refused = endpoints.refused_by_libzmq(addr, _BOUND)
        with refused, self._guard, self._no_linger_of_listeners(), self._family_of(addr):
            manager = super().bind(addr)
            last = backend_get(self, zmq.LAST_ENDPOINT)
        self._endpoints.append(last.rstrip(b"\0").decode() if isinstance(last, bytes) else addr)
        self._endpoints_changed()
        return manager

    @contextmanager
    def _no_linger_of_listeners(self) -> Iterator[None]:
        """Set a linger of 0 for endpoints bound meanwhile: they do not wait for peers that are gone.

        A listener copies LINGER when it is made, and goes by its copy for a peer that leaves by itself. One
        that does so just as the socket closes then held up the end of the context for all that time, which
        is for ever unless LINGER was set: nobody reads what is still queued for it. What closing waits for
        is LINGER at that time. Seen with libzmq 4.3.5; see own_t::process_term_req there.
        """
        linger = backend_get(self, zmq.LINGER)
        backend_set(self, zmq.LINGER, 0)
        try:
            yield
        finally:
            backend_set(self, zmq.LINGER, linger)

    @contextmanager
    def _family_of(self, addr: str) -> Iterator[None]:
        """Allow an IPv6 address in a bind or connect meanwhile, if the endpoint names one.

        Listeners and connections copy the option when they are made. Set for good, it would change what a
        `*` and the names of hosts mean from then on.
        """
        if not endpoints.needs_ipv6(addr) or backend_get(self, zmq.IPV6):
            yield
            return
        backend_set(self, zmq.IPV6, 1)
        try:
            yield
        finally:
            backend_set(self, zmq.IPV6, 0)

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
        self._refuse_closed()
        addr = self._admit_endpoint(endpoints.as_text(addr))
        descriptors.need_for_endpoint(addr)
        with endpoints.refused_by_libzmq(addr, _CONNECTED), self._guard, self._family_of(addr):
            manager = super().connect(addr)
        if addr not in self._endpoints:
            # ZeroMQ too makes one connection of the same endpoint given twice.
            self._endpoints.insert(0, addr)
            self._connections += 1
        self._endpoints_changed()
        return manager

    def _refuse_closed(self) -> None:
        """Refuse a call of pyzmq's on a closed socket, as pyzmq does: before anything else is wrong."""
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)

    def _admit_endpoint(self, addr: str) -> str:
        """Refuse an endpoint that this socket cannot have; give the form that libzmq takes."""
        endpoints.check(addr, own_context=self._own_context)
        if self._group is None:
            if is_multicast(addr):
                raise endpoints.EndpointError(
                    f"{addr!r} is for a socket that was made with multicast=oz.Multicast(…)"
                )
            return addr
        if not is_multicast(addr):
            raise endpoints.EndpointError(
                f"{addr!r} is none of multicast, and this socket was made with multicast=…"
            )
        return self._group.admit(self, addr)

    def unbind(self, addr: Any) -> None:
        """Unbind from an endpoint, as `zmq.Socket.unbind` does."""
        addr = endpoints.as_text(addr)
        with self._guard:
            addr = addr if self._group is None else self._group.forget(addr)
            super().unbind(addr)
            self._forget_endpoint(addr)

    def disconnect(self, addr: Any) -> None:
        """Disconnect from an endpoint, as `zmq.Socket.disconnect` does."""
        addr = endpoints.as_text(addr)
        with self._guard:
            addr = addr if self._group is None else self._group.forget(addr)
            super().disconnect(addr)
            if self._forget_endpoint(addr):
                self._connections -= 1

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
        # It is remembered, and the child of a fork would be given it too.
        self.check_owner()
        known = self._monitor_socket
        if known is not None and not known.closed:
            return known
        self._refuse_closed()
        pair, addr = make_pair(self.context, self._end_monitor), addr or make_address()
        try:
            self.monitor(addr, zmq.EVENT_ALL if events is None else events)
            pair.connect(addr)
        except BaseException:
            pair.close(0)
            raise
        self._monitor_socket = pair
        return pair

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
        self.check_owner()
        super().monitor(addr, events)
        # A socket has one monitor; the one before has ended.
        self._monitor_socket = None

    def _end_monitor(self, pair: Any = None) -> None:
        """End the monitor that was given, or any that `get_monitor_socket` began, while somebody is there."""
        known = self._monitor_socket
        if known is None or known.closed or (pair is not None and pair is not known):
            return
        # An error: closed by another thread just now, or the context has ended.
        with suppress(zmq.ZMQError, OwnershipError):
            self.monitor(None, 0)

    def _forget_endpoint(self, addr: str) -> bool:
        """Let `endpoint` not tell what does not hold any more; tell whether it did."""
        is_known = addr in self._endpoints
        if is_known:
            self._endpoints.remove(addr)
        return is_known

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
        if self._guard.is_foreign:
            refuse()

    def __repr__(self) -> str:
        """Show where it is bound or connected to, what it is made for, and whether it is closed."""
        return describe(self, self.described() if "_endpoints" in self.__dict__ else [])

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
            self._end_monitor()
            super().close(linger)
            if self._group is not None:
                self._group.release()
        return self._own_context

    def _end_context(
        self, timeout: float, closed_at: float | None = None, given_up: threading.Event | None = None
    ) -> None:
        end_context(self.context, timeout, closed_at, given_up)


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


def end_context(
    context: zmq.Context[Any],
    timeout: float,
    closed_at: float | None = None,
    given_up: threading.Event | None = None,
) -> None:
    """Wait until all is sent or the linger is over: ending the context is the only way to know.

    Args:
        context: its sockets are closed, or it closes them.
        timeout: seconds of linger that are left; infinite for as long as it takes.
        closed_at: when closing began, by the monotonic clock; None is now.
        given_up: ends the waiting when it is set, where that has no end of its own.
    """
    started = time.monotonic() if closed_at is None else closed_at
    if sys.is_finalizing():
        # Python 3.11 would wait for ever for a thread to start, and later ones start none.
        context.destroy()
        return
    # In a thread: term() takes no timeout, and whatever libzmq waits for, closing has an end. It also closes
    # a monitor that was left open, for which term() would wait for ever.
    ending = threading.Thread(target=context.destroy, name="oz-ending", daemon=True)
    try:
        ending.start()
    except RuntimeError:
        # From 3.12 on that begins before `is_finalizing` tells.
        context.destroy()
        return
    if timeout < _LONGEST_JOIN:
        ending.join(timeout + _PATIENCE)
    else:
        while ending.is_alive() and not (given_up is not None and given_up.is_set()):
            ending.join(_SLICE)
        return
    if ending.is_alive():
        text = "closed, but ZeroMQ has not ended its context %g s after its time; messages may be unsent"
        _log.warning(text, _PATIENCE)
    elif 0 < timeout <= time.monotonic() - started:
        _log.warning("closed after %g s with messages still unsent", timeout)
