"""Endpoints: which this installation can use, and which stay on this host."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import zmq

from oz.errors import OzError
from oz.transport.capabilities import check_transport

Endpoints = str | bytes | Iterable[str | bytes]
"""One endpoint, such as `tcp://127.0.0.1:5555`, or several."""

MAX_PORT = 65_535
_ANY_PORT = ("*", "!")

_ADDRESSED = ("tcp", "ws", "wss")
"""Transports whose endpoints have a host and a port."""


class EndpointError(OzError, ValueError, zmq.ZMQError):
    """A text that is no endpoint, or one that this socket cannot have; `errno` is EINVAL, as in pyzmq."""

    def __init__(self, text: str) -> None:
        """Say what is wrong with it."""
        zmq.ZMQError.__init__(self, zmq.EINVAL, text)


def as_text(endpoint: str | bytes) -> str:
    """Return an endpoint as text; what is neither text nor bytes stays, to be refused by `check`.

    Raises:
        EndpointError: the bytes are no text.
    """
    if not isinstance(endpoint, bytes):
        return endpoint
    try:
        # As ZeroMQ tells them, a zero byte may stand at the end.
        return endpoint.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise EndpointError(f"{endpoint!r} is no endpoint; one looks like tcp://127.0.0.1:5555") from None


def needs_ipv6(endpoint: str) -> bool:
    """Tell whether an endpoint names an IPv6 address, for which a socket needs `zmq.IPV6`.

    A name of a host does not count: ZeroMQ would look for its IPv6 address only.
    """
    scheme, _, address = endpoint.partition("://")
    # A source address may stand before the one that is connected to: tcp://source;destination.
    return scheme in _ADDRESSED and any(
        ":" in part.partition("/")[0].rpartition(":")[0] for part in address.split(";")
    )


def as_list(endpoints: object) -> list[str]:
    """Return one endpoint, several or none as a list of texts."""
    if endpoints is None:
        return []
    if isinstance(endpoints, str) or not isinstance(endpoints, (list, tuple, set, frozenset)):
        # What is no endpoint is refused by `check`, with a sentence.
        return [as_text(cast("str", endpoints))]
    return [as_text(one) for one in endpoints]


def check(endpoint: str | bytes, *, own_context: bool) -> None:
    """Refuse an endpoint that cannot work here, and say why.

    Args:
        endpoint: such as `tcp://127.0.0.1:5555`.
        own_context: whether the socket made a context for itself, in which no other socket can be.

    Raises:
        TransportUnavailable: libzmq was built without the transport.
        EndpointError: the text is no endpoint, or inproc without a shared context.
        TypeError: neither text nor bytes.
    """
    endpoint = as_text(endpoint)
    if not isinstance(endpoint, str):
        raise TypeError(f"an endpoint is a str or bytes, not {type(endpoint).__name__}: {endpoint!r}")
    try:
        endpoint.encode()
    except UnicodeEncodeError:
        # As the names of files that are not UTF-8 come from the system.
        raise EndpointError(f"{endpoint!r} is no endpoint: libzmq is told of them in UTF-8") from None
    scheme, separator, address = endpoint.partition("://")
    if not separator or not address:
        raise EndpointError(f"{endpoint!r} is no endpoint; one looks like tcp://127.0.0.1:5555")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port.isdecimal() and int(port) > MAX_PORT:
        raise EndpointError(f"{endpoint!r} names port {port}; the highest is {MAX_PORT}")
    if scheme == "tcp" and _names_no_port(address):
        raise EndpointError(
            f"{endpoint!r} names no port; one looks like tcp://127.0.0.1:5555 or tcp://[::1]:5555"
        )
    if scheme == "tcp" and port not in _ANY_PORT and not (port.isascii() and port.isdecimal()):
        # libzmq would take the digits that it begins with.
        raise EndpointError(f"{endpoint!r} names port {port!r}; a port is a number up to {MAX_PORT}, or *")
    check_transport(scheme, endpoint)
    if scheme == "inproc" and own_context:
        raise EndpointError(f"{endpoint!r} joins sockets of one context; give both sockets context=…")


def _names_no_port(address: str) -> bool:
    host, _, port = address.rpartition(";")[2].rpartition(":")
    # The last colon may be one within an IPv6 address: [::1], or ::1.
    return not host or not port or "]" in port or (host.endswith(":") and not host.endswith("::"))


@contextmanager
def refused_by_libzmq(endpoint: str, hint: str) -> Iterator[None]:
    """Raise `EndpointError` where libzmq calls an argument of a bind or connect invalid.

    Args:
        endpoint: what is bound or connected meanwhile.
        hint: what to name instead, in an endpoint of tcp.
    """
    try:
        yield
    except zmq.ZMQError as error:
        if error.errno != zmq.EINVAL or isinstance(error, EndpointError):
            raise
        what = f"; {hint}" if endpoint.startswith("tcp://") else ""
        raise EndpointError(f"{endpoint!r} is no endpoint that libzmq takes here{what}") from error


def is_local(endpoint: str) -> bool:
    """Tell whether what is sent there stays on this host."""
    scheme, _, address = endpoint.partition("://")
    if scheme in ("inproc", "ipc"):
        return True
    if scheme not in _ADDRESSED:
        return False
    # A source address may stand before the one that is connected to: tcp://source;destination.
    host = address.rpartition(";")[2].partition("/")[0].rpartition(":")[0].strip("[]")
    if host in ("localhost", "lo"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def addresses_of(endpoint: str) -> list[tuple[Any, ...]]:
    """Return the addresses of an endpoint, as the system tells them, if it has any."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "ipc":
        return [(address,)]
    host, _, port = address.rpartition(";")[2].rpartition(":")
    with suppress(OSError, UnicodeError):
        return [one[4][:2] for one in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
    return []
