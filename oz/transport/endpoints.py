"""Endpoints: checks before a bind or connect, addresses of this host and of peers, and announced endpoints."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import zmq

from oz.logs import peer_logger
from oz.transport.capabilities import check_transport
from oz.transport.errors import EndpointError

Endpoints = str | bytes | Iterable[str | bytes]
"""One endpoint, such as `tcp://127.0.0.1:5555`, or several."""

MAX_PORT = 65_535
_ANY_PORT = ("*", "!")

_ADDRESSED = ("tcp", "ws", "wss")
"""Transports whose endpoints have a host and a port."""


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
    """Return an endpoint as text. An object of another type is returned unchanged, and `check` raises TypeError for it.

    Raises:
        EndpointError: the bytes are not UTF-8.
    """
    if not isinstance(endpoint, bytes):
        return endpoint
    try:
        # libzmq returns endpoints with a zero byte at the end.
        return endpoint.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise EndpointError(f"{endpoint!r} is no endpoint; one looks like tcp://127.0.0.1:5555") from None


def needs_ipv6(endpoint: str) -> bool:
    """Return whether an endpoint has an IPv6 address, for which a socket needs `zmq.IPV6`.

    For a host name the result is False: with `zmq.IPV6`, libzmq would resolve only the IPv6 address of the name.
    """
    scheme, _, address = endpoint.partition("://")
    # A source address may come before the address of the peer: tcp://source;destination.
    return scheme in _ADDRESSED and any(
        ":" in part.partition("/")[0].rpartition(":")[0] for part in address.split(";")
    )


def as_list(endpoints: object) -> list[str]:
    """Return the argument of a bind or connect as a list of texts; empty for None."""
    if endpoints is None:
        return []
    if isinstance(endpoints, str) or not isinstance(endpoints, (list, tuple, set, frozenset)):
        # `check` raises TypeError for other types.
        return [as_text(cast("str", endpoints))]
    return [as_text(endpoint) for endpoint in endpoints]


def check(endpoint: str | bytes, *, own_context: bool) -> None:
    """Raise an error for an endpoint that cannot be used.

    Args:
        endpoint: endpoint to check, such as `tcp://127.0.0.1:5555`.
        own_context: whether only this socket uses the context. Such a socket cannot use inproc.

    Raises:
        EndpointError: the text is no endpoint; it names inproc, but the context is not shared; or libzmq was built
            without the transport.
        TypeError: the endpoint is neither text nor bytes.
    """
    endpoint = as_text(endpoint)
    if not isinstance(endpoint, str):
        raise TypeError(f"an endpoint is a str or bytes, not {type(endpoint).__name__}: {endpoint!r}")
    try:
        endpoint.encode()
    except UnicodeEncodeError:
        # The text contains surrogates, because the path came from the system and is not UTF-8.
        raise EndpointError(f"{endpoint!r} is no endpoint: libzmq needs UTF-8") from None
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
        # libzmq would use the digits at the beginning as the port.
        raise EndpointError(f"{endpoint!r} names port {port!r}; a port is a number up to {MAX_PORT}, or *")
    check_transport(scheme, endpoint)
    if scheme == "inproc" and own_context:
        raise EndpointError(f"{endpoint!r} joins sockets of one context; give both sockets context=…")


def check_destination(endpoint: str) -> None:
    """Raise EndpointError for a `tcp://` endpoint that only `bind` can use, such as `tcp://*:5555`."""
    address = endpoint.removeprefix("tcp://").rpartition(";")[2]
    if endpoint.startswith("tcp://") and (address.startswith("*:") or address.endswith(":*")):
        raise EndpointError(
            f"{endpoint!r} is an endpoint for bind; to connect, name the host and the port of the other side"
        )


def _names_no_port(address: str) -> bool:
    host, _, port = address.rpartition(";")[2].rpartition(":")
    # The last colon may belong to an IPv6 address, as in [::1] and ::1.
    return not host or not port or "]" in port or (host.endswith(":") and not host.endswith("::"))


@contextmanager
def refused_by_libzmq(endpoint: str, hint: str) -> Iterator[None]:
    """Raise `EndpointError` if libzmq refuses the endpoint of a bind or connect within the `with` block.

    Args:
        endpoint: endpoint of the bind or connect.
        hint: remedy for the error message, if libzmq rejects a `tcp://` endpoint.
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
        raise EndpointError(f"{endpoint!r} is no endpoint that libzmq accepts here{what}") from error


def is_local(endpoint: str) -> bool:
    """Return whether messages to an endpoint stay on this host."""
    scheme, _, address = endpoint.partition("://")
    if scheme in ("inproc", "ipc"):
        return True
    if scheme not in _ADDRESSED:
        return False
    # A source address may come before the address of the peer: tcp://source;destination.
    host = address.rpartition(";")[2].partition("/")[0].rpartition(":")[0].strip("[]")
    if host.lower() in ("localhost", "lo"):
        return True
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def addresses_of(endpoint: str) -> list[tuple[Any, ...]]:
    """Return the addresses of an endpoint in the format of the `socket` module; empty if the endpoint has none."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "ipc":
        # The system returns an abstract socket name as bytes that begin with a zero byte.
        return [(b"\0" + address[1:].encode() if address.startswith("@") else address,)]
    host, _, port = address.rpartition(";")[2].rpartition(":")
    with suppress(OSError, UnicodeError):
        return [found[4][:2] for found in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
    return []


_log = peer_logger("oz.node")

_OUTSIDE = (("192.0.2.1", 9), ("2001:db8::1", 9))
"""Addresses reserved for documentation (RFC 5737 and 3849). Packets to these addresses take the default route, so that
a connected UDP socket reports this host's address on that route."""

_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]+|\*)")
_ANY = ("*", "0.0.0.0", "[::]", "::")


def address_towards(endpoints: Iterable[str]) -> str:
    """Return the address of this host from which the system sends packets to a peer. No packet is sent.

    Args:
        endpoints: endpoints of peers, as `tcp://host:port`. The first endpoint whose host name has an address is
            used. If no host name has an address, the function returns the address on the default route.
    """
    for endpoint in endpoints:
        found = _TCP.fullmatch(endpoint)
        if found is None or not found["port"].isdecimal():
            continue
        address = _source_address((found["host"].strip("[]"), int(found["port"])))
        if address is not None:
            return address
    return next((address for address in map(_source_address, _OUTSIDE) if address is not None), "127.0.0.1")


def _source_address(peer: tuple[str, int]) -> str | None:
    # As in libzmq, a host name stands for its IPv4 address.
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
    """Return the TCP endpoints that a node announces.

    Args:
        bound: endpoints that the node has bound.
        address: address of this host. It replaces a wildcard address.
        is_advertised: whether the program has set `address`, for example because of a NAT. Then `address` replaces
            the host of every endpoint.
    """
    announced = []
    for endpoint in bound:
        found = _TCP.fullmatch(endpoint)
        if found is not None:
            host = address if is_advertised or found["host"] in _ANY else found["host"]
            announced.append(f"tcp://{host}:{found['port']}")
    return tuple(announced)


def warn_of_strangers(bound: Iterable[str]) -> None:
    """Log a warning if other hosts can reach TCP endpoints of a node without keys."""
    reached = [endpoint for endpoint in bound if endpoint.startswith("tcp://") and not is_local(endpoint)]
    if reached:
        _log.warning(
            "every host that reaches %s can subscribe to everything and publish anything: this node has no keys. "
            "Give it security=, or bind it to 127.0.0.1; see docs/security.md",
            ", ".join(reached),
        )


def host_of(endpoint: str) -> str | None:
    """Return the host of a `tcp://` endpoint, without brackets; None for other endpoints."""
    found = _TCP.fullmatch(endpoint)
    return None if found is None else found[1].removeprefix("[").removesuffix("]")
