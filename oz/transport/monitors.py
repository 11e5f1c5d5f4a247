"""The sockets that tell of connections, and that never hold up libzmq.

libzmq sends the events of a monitor from its I/O thread, and waits for ever where they have no room, or where
nobody is at the other end any more. All sockets of the context stand still then. Seen with libzmq 4.3.5; see
`socket_base_t::monitor_event` there. So an end of oz's has no limit, and ends the monitor before it closes.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import zmq

_numbers = itertools.count()


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
