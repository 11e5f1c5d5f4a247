"""ROUTER sockets of links: their options, names and endpoints.

A link is a connection between a publisher and a subscriber of oz. A publisher listens with one ROUTER socket. A
subscriber makes all its links with another ROUTER socket. The options follow from facts of libzmq (`docs/libzmq.md`):

- With ROUTER_MANDATORY, a send raises an error if the peer has no connection (EHOSTUNREACH) or the pipe to it is full
  (EAGAIN). Without this option libzmq drops the message in both cases.
- EAGAIN is rare: the flow control of a link allows fewer unacknowledged batches than the high-water marks.
- The TCP keepalive finds dead hosts, but does not run while sent data is unacknowledged. TCP_MAXRT covers this case.
  ZMTP heartbeats are off, because some failures of a heartbeat make libzmq abort the process.
- IMMEDIATE stays 0, and each message is one frame. Otherwise libzmq aborts if a pipe ends within a message.
- A handle (CONNECT_ROUTING_ID) is never used twice, because libzmq aborts on a duplicate. A name (ROUTING_ID) is
  random. If two peers had the same name, ROUTER_HANDOVER would leave the first peer connected without any messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any

import zmq

from oz.transport.errors import EndpointError

PORT_DISTANCE = 10_000
"""Difference between the port of a publisher and its link port, at which the publisher accepts links."""
_HIGHEST = 55_535  # Up to this port, the difference is added. For higher ports, it is subtracted.
LOCAL, REMOTE = b"\x03", b"\x01"
"""First byte of the name of the connecting side: LOCAL on an ipc or inproc endpoint, REMOTE on any other transport."""
FRAME_SPACE = 64 << 10
"""Maximum number of bytes in a frame beside its messages."""
_HANDLES = count(1)


def link_endpoint(endpoint: str) -> str:
    """Return the endpoint at which a publisher listens for links.

    Args:
        endpoint: endpoint of the publisher. A `tcp://` endpoint has a port number.

    Raises:
        EndpointError: the transport has no links, or the port is not a number.
    """
    scheme, _, address = endpoint.partition("://")
    if scheme in ("ipc", "inproc"):
        return f"{endpoint}.links"
    if scheme != "tcp":
        raise EndpointError(
            f"{endpoint!r}: links need tcp://, ipc:// or inproc://; subscribe with filtering='prefix' here"
        )
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= 65_535):
        raise EndpointError(f"{endpoint!r}: the link port follows from the port, which must be a number")
    number = int(port)
    number += PORT_DISTANCE if number <= _HIGHEST else -PORT_DISTANCE
    return f"tcp://{host}:{number}"


def listening_router(context: zmq.Context[Any], *, message_bytes: int, window: int) -> zmq.Socket[bytes]:
    """Create the ROUTER socket of a publisher. It is not bound yet.

    Args:
        context: context of the socket.
        message_bytes: size of the largest message, in bytes.
        window: maximum number of unacknowledged batches on one link.
    """
    router = _router(context, message_bytes, window)
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)
    router.setsockopt(zmq.PROBE_ROUTER, 1)
    return router


def dialling_router(context: zmq.Context[Any], *, message_bytes: int, window: int) -> zmq.Socket[bytes]:
    """Create the ROUTER socket of a subscriber. It is not connected yet. `listening_router` explains the arguments."""
    return _router(context, message_bytes, window)


def _router(context: zmq.Context[Any], message_bytes: int, window: int) -> zmq.Socket[bytes]:
    router: zmq.Socket[bytes] = context.socket(zmq.ROUTER, socket_class=zmq.Socket)
    high_water_mark = 4 * window + 100
    for option, value in (
        (zmq.LINGER, 0),
        (zmq.ROUTER_MANDATORY, 1),
        (zmq.IPV6, 1),
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, 5),
        (zmq.TCP_KEEPALIVE_INTVL, 2),
        (zmq.TCP_KEEPALIVE_CNT, 3),
        (zmq.TCP_MAXRT, 10_000),
        (zmq.MAXMSGSIZE, message_bytes + FRAME_SPACE),
        (zmq.SNDHWM, high_water_mark),
        (zmq.RCVHWM, high_water_mark),
    ):
        router.setsockopt(option, value)
    return router


def dial(
    router: zmq.Socket[bytes], endpoint: str, random_bytes: Callable[[int], bytes] = os.urandom
) -> bytes:
    """Connect a subscriber's ROUTER socket to a link endpoint; return the routing id of the link.

    The routing id is new for each call. To replace a connection, first read all messages that have arrived, then call
    `router.disconnect(endpoint)`.
    """
    handle = b"\x02%d" % next(_HANDLES)
    router.setsockopt(zmq.CONNECT_ROUTING_ID, handle)
    origin = LOCAL if endpoint.startswith(("ipc:", "inproc:")) else REMOTE
    router.setsockopt(zmq.ROUTING_ID, origin + random_bytes(15))
    router.connect(endpoint)
    return handle
