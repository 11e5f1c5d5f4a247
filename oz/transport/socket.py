"""The common part of the sockets of publishers and subscribers: marks, keepalive, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import zmq

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
