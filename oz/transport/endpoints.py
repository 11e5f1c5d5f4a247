"""Endpoints: which this installation can use, which stay on this host, and under which others reach it."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import zmq

from oz.errors import OzError
from oz.logs import peer_logger
from oz.transport.capabilities import check_transport

Endpoints = str | bytes | Iterable[str | bytes]
"""One endpoint, such as `tcp://127.0.0.1:5555`, or several."""

MAX_PORT = 65_535
_ANY_PORT = ("*", "!")

_ADDRESSED = ("tcp", "ws", "wss")
"""Transports whose endpoints have a host and a port."""


class EndpointError(OzError, ValueError, zmq.ZMQError):
    """A text that is no endpoint, or an endpoint that this socket cannot use.

    `errno` is EINVAL for a text that is no endpoint, else that of libzmq, such as EADDRINUSE.
    """

    def __init__(self, text: str, code: int = zmq.EINVAL) -> None:
        """Set the message and the errno."""
        zmq.ZMQError.__init__(self, code, text)


_REFUSALS = {
    zmq.EADDRINUSE: "another socket is bound to it; close that socket, or bind to another endpoint",
    zmq.EADDRNOTAVAIL: "the address is not one of this host; bind to an address of this host, or to tcp://*:PORT",
    errno.ENODEV: "this host has no such network interface; `ip addr` lists them",
    errno.ENOENT: "a directory of the path is missing; create it first",
    errno.EACCES: "this user may not create the path; bind to another one",
    zmq.EPROTONOSUPPORT: "libzmq has no such transport; use tcp, ipc, inproc or epgm",
    zmq.ENOCOMPATPROTO: "publishers and subscribers have no such transport; use tcp, ipc, inproc or epgm",
    errno.ENAMETOOLONG: f"the path has more than {zmq.IPC_PATH_MAX_LEN} bytes; bind to a shorter one",
}


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


def check_destination(endpoint: str) -> None:
    """Raise EndpointError for an endpoint of TCP that only `bind` can use, such as `tcp://*:5555`."""
    address = endpoint.removeprefix("tcp://").rpartition(";")[2]
    if endpoint.startswith("tcp://") and (address.startswith("*:") or address.endswith(":*")):
        raise EndpointError(
            f"{endpoint!r} is an endpoint for bind; to connect, name the host and the port of the other side"
        )


def _names_no_port(address: str) -> bool:
    host, _, port = address.rpartition(";")[2].rpartition(":")
    # The last colon may be one within an IPv6 address: [::1], or ::1.
    return not host or not port or "]" in port or (host.endswith(":") and not host.endswith("::"))


@contextmanager
def refused_by_libzmq(endpoint: str, hint: str) -> Iterator[None]:
    """Raise `EndpointError` if libzmq refuses the endpoint of a bind or connect.

    Args:
        endpoint: what is bound or connected meanwhile.
        hint: what to name instead, in an endpoint of tcp.
    """
    try:
        yield
    except zmq.ZMQError as error:
        if isinstance(error, EndpointError):
            raise
        if error.errno in _REFUSALS:
            text = f"{endpoint!r} cannot be used here: {_REFUSALS[error.errno]}"
            raise EndpointError(text, error.errno) from error
        if error.errno != zmq.EINVAL:
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
        # An abstract name begins with a null byte, and is told as bytes.
        return [(b"\0" + address[1:].encode() if address.startswith("@") else address,)]
    host, _, port = address.rpartition(";")[2].rpartition(":")
    with suppress(OSError, UnicodeError):
        return [one[4][:2] for one in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
    return []


_log = peer_logger("oz.node")

_SOMEWHERE = (("192.0.2.1", 9), ("2001:db8::1", 9))
"""Addresses that are nobody's (RFC 5737 and 3849): the way there is the way out of this host."""

_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]+|\*)")
_ANY = ("*", "0.0.0.0", "[::]", "::")


def address_towards(endpoints: Iterable[str]) -> str:
    """Return the address of this host that the peers at some endpoints see it come from.

    Args:
        endpoints: `tcp://host:port` each; the first that can be resolved counts. Nothing is sent there.
    """
    for endpoint in endpoints:
        found = _TCP.fullmatch(endpoint)
        if found is None or not found["port"].isdecimal():
            continue
        address = _way_to((found["host"].strip("[]"), int(found["port"])))
        if address is not None:
            return address
    return next((way for way in map(_way_to, _SOMEWHERE) if way is not None), "127.0.0.1")


def _way_to(peer: tuple[str, int]) -> str | None:
    # As ZeroMQ does, which takes an IPv6 address only where one is written.
    wanted = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    try:
        found = socket.getaddrinfo(*peer, family=wanted, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            own: str = probe.getsockname()[0]
    except OSError:
        return None
    return f"[{own}]" if ":" in own else own


def advertised(bound: Iterable[str], address: str, *, is_advertised: bool = False) -> tuple[str, ...]:
    """Return the endpoints to announce: those bound to, with an address in place of all of them.

    Args:
        bound: where the node is bound.
        address: what others find this host by.
        is_advertised: whether the user said so: then it stands in place of an address that was bound to, too,
            as behind a NAT.
    """
    announced = []
    for endpoint in bound:
        found = _TCP.fullmatch(endpoint)
        if found is not None:
            host = address if is_advertised or found["host"] in _ANY else found["host"]
            announced.append(f"tcp://{host}:{found['port']}")
    return tuple(announced)


def warn_of_strangers(bound: Iterable[str]) -> None:
    """Warn, once for a node, of a TCP address that other hosts reach, where nobody has to prove anything."""
    reached = [one for one in bound if one.startswith("tcp://") and not is_loopback(one)]
    if reached:
        _log.warning(
            "anybody who reaches %s can subscribe to everything and publish anything: this node has no keys. "
            "Give it security=, or bind it to 127.0.0.1; see docs/security.md",
            ", ".join(reached),
        )


def host_of(endpoint: str) -> str | None:
    """Return the host of a `tcp://` endpoint, without brackets; None for other endpoints."""
    found = _TCP.fullmatch(endpoint)
    return None if found is None else found[1].removeprefix("[").removesuffix("]")


def is_loopback(endpoint: str) -> bool:
    """Return whether only processes of its host reach a `tcp://` endpoint."""
    host = host_of(endpoint) or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
