"""Endpoints: which this installation can use, and which stay on this host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import cast

from oz.transport.capabilities import check_transport

Endpoints = str | bytes | Iterable[str | bytes]
"""One endpoint, such as `tcp://127.0.0.1:5555`, or several."""

MAX_PORT = 65_535


def as_list(endpoints: object) -> list[str]:
    """Give one endpoint, several or none as a list."""
    if endpoints is None:
        return []
    if isinstance(endpoints, str) or not isinstance(endpoints, (list, tuple, set, frozenset)):
        # What is no endpoint is refused by `check`, with a sentence.
        return [cast("str", endpoints)]
    return list(endpoints)


def check(endpoint: str, *, own_context: bool) -> None:
    """Refuse an endpoint that cannot work here, and say why.

    Args:
        endpoint: such as `tcp://127.0.0.1:5555`.
        own_context: whether the socket made a context for itself, in which no other socket can be.

    Raises:
        TransportUnavailable: libzmq was built without the transport.
        ValueError: the text is no endpoint, or inproc without a shared context.
        TypeError: not a string.
    """
    if not isinstance(endpoint, str):
        raise TypeError(f"an endpoint is a str, not {type(endpoint).__name__}: {endpoint!r}")
    scheme, separator, address = endpoint.partition("://")
    if not separator or not address:
        raise ValueError(f"{endpoint!r} is no endpoint; one looks like tcp://127.0.0.1:5555")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port.isdecimal() and int(port) > MAX_PORT:
        raise ValueError(f"{endpoint!r} names port {port}; the highest is {MAX_PORT}")
    check_transport(scheme, endpoint)
    if scheme == "inproc" and own_context:
        raise ValueError(f"{endpoint!r} joins sockets of one context; give both sockets context=…")


def is_local(endpoint: str) -> bool:
    """Tell whether what is sent there stays on this host."""
    scheme, _, address = endpoint.partition("://")
    if scheme in ("inproc", "ipc"):
        return True
    if scheme not in ("tcp", "ws", "wss"):
        return False
    # A source address may stand before the one that is connected to: tcp://source;destination.
    host = address.rpartition(";")[2].partition("/")[0].rpartition(":")[0].strip("[]")
    if host in ("localhost", "lo"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
