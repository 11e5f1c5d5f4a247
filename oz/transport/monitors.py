"""The sockets that tell of connections, and that never hold up libzmq.

libzmq sends the events of a monitor from its I/O thread, and waits for ever where they have no room, or where
nobody is at the other end any more. All sockets of the context stand still then. Seen with libzmq 4.3.5; see
`socket_base_t::monitor_event` there. So an end of oz's has no limit, and ends the monitor before it closes.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import zmq

from oz.errors import OwnershipError
from oz.transport.attachments import refuse_closed
from oz.transport.guard import Guard

_numbers = itertools.count()


class Monitor:
    """The monitor of one socket: a part that engines have. It does not keep the socket."""

    __slots__ = ("__weakref__", "_end_socket", "_guard", "_held", "_pair")

    def __init__(self, guard: Guard, *, is_shared: bool) -> None:
        """Start without one.

        Args:
            guard: of the socket.
            is_shared: whether threads share the socket, so that they wait for each other.
        """
        self._guard = guard
        self._held: AbstractContextManager[object] = guard if is_shared else nullcontext()
        self._pair: zmq.Socket[Any] | None = None
        self._end_socket: weakref.ref[zmq.Socket[Any]] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether the user of the socket watches it."""
        return self._pair is not None and not self._pair.closed

    def socket_for(self, socket: zmq.Socket[Any], events: int | None, addr: str | None) -> Any:
        """Make a socket that receives events of the connections of another; see `oz.Subscriber`."""
        # It is remembered, and the child of a fork would be given it too.
        self._guard.check_owner()
        known = self._pair
        if known is not None and not known.closed:
            return known
        refuse_closed(socket)
        pair, addr = make_pair(socket.context, self._end_of), addr or make_address()
        self._end_socket = weakref.ref(socket)
        try:
            self.begin(socket, addr, zmq.EVENT_ALL if events is None else events)
            pair.connect(addr)
        except BaseException:
            pair.close(0)
            raise
        self._pair = pair
        return pair

    def begin(self, socket: zmq.Socket[Any], addr: Any, events: int) -> None:
        """Send events of the connections of a socket to an endpoint, as `zmq.Socket.monitor` does.

        Raises:
            OwnershipError: the socket was made before a fork.
            zmq.ZMQError: the socket is closed, or the address is in use.
        """
        self._guard.check_owner()
        with self._held:
            zmq.Socket.monitor(socket, addr, events)
        # A socket has one monitor; the one before has ended.
        self._pair = None

    def end(self) -> None:
        """End the monitor that `socket_for` began, while somebody is there."""
        self._end_of(self._pair)

    def _end_of(self, pair: Any) -> None:
        socket = self._end_socket() if self._end_socket is not None else None
        if socket is None or self._pair is None or pair is not self._pair or self._pair.closed:
            return
        # An error: closed by another thread just now, or the context has ended.
        with suppress(zmq.ZMQError, OwnershipError):
            self.begin(socket, None, 0)


def make_pair(context: zmq.Context[Any], end_monitor: Callable[[Any], object]) -> zmq.Socket[Any]:
    """Make the socket that events are read from.

    Args:
        context: of the socket that is watched. One for asyncio makes a socket for asyncio.
        end_monitor: a method of that socket, which is not kept; called with this one before it closes.

    Raises:
        zmq.ZMQError: there are too many sockets.
    """
    kind: Any = context._socket_class
    pair: Any = context.socket(zmq.PAIR, socket_class=_class_for(kind))
    # Of both ends one without a limit is enough.
    pair.set(zmq.RCVHWM, 0)
    pair._end_monitor = weakref.WeakMethod(end_monitor)
    return pair  # type: ignore[no-any-return]


def make_address() -> str:
    """Return an address that no monitor has had: one that has ended may hold its own for a moment."""
    return f"inproc://oz-monitor-{next(_numbers)}"


@cache
def _class_for(kind: Any) -> Any:
    """Make the class from what the context makes its sockets of."""

    class MonitorSocket(kind):  # type: ignore[misc]
        """A PAIR that receives events of connections. Closing it ends the monitor."""

        # zmq.Socket takes attributes that are not declared here for socket options.
        _end_monitor: weakref.WeakMethod[Callable[[Any], object]] | None = None

        def close(self, linger: int | None = None) -> Any:
            """End the monitor, and close; see `zmq.Socket.close`."""
            end = self._end_monitor() if self._end_monitor is not None and not self.closed else None
            if end is not None:
                end(self)
            return super().close(linger)

    return MonitorSocket
