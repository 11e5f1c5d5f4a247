"""Reach: which of the endpoints that others announce a node connects to at all.

Anybody may announce anything, and a node connects to what is announced. So it connects to addresses of single
hosts, to names that its user has written, and to sockets of its own bus directly in its own directory.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache

from oz.security.identity import is_of
from oz.wire.announcement import Announcement

_TCP = re.compile(r"tcp://(.*):[0-9]+")
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_NO_NAMES = re.compile(r"[/\0]")
_REMEMBERED = 1_024

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Reach:
    """The endpoints that a node connects to, of all that others announce."""

    __slots__ = ("_directory", "_has_key", "_has_loopback", "_host_id", "_names", "_own", "_trusts")

    def __init__(
        self,
        own: Announcement,
        configured: Iterable[str] = (),
        directory: str | None = None,
        trusts: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Take in what the user has said.

        Args:
            own: the node's announcement.
            configured: the endpoints that its user has written, of peers and of name servers.
            directory: what the endpoints begin with at which nodes of this bus and host listen; None for any.
            trusts: tells whether a public key is trusted; of no matter to a node without one.
        """
        self._has_key = own.key is not None
        self._trusts = trusts
        hosts = {host for one in (*configured, *own.endpoints) if (host := host_of(one)) is not None}
        self._own = own.endpoints
        self._names = {host.lower() for host in hosts if _address(host) is None}
        addresses = [address for address in map(_address, hosts) if address is not None]
        self._has_loopback = "localhost" in self._names or any(one.is_loopback for one in addresses)
        self._host_id = own.host_id
        self._directory = directory

    def refusal(self, peer: Announcement) -> str | None:
        """Say why a peer is not connected to; None if nothing speaks against it."""
        if (why := self._refusal_of_key(peer)) is not None:
            return why
        if not peer.endpoints or peer.endpoints[0] in self._own:
            return None
        host = host_of(peer.endpoints[0]) or ""
        kind = _kind_of(host)
        if kind is _Kind.NAME:
            if host.lower() in self._names:
                return None
            return f"{host!r} is a name, and stands in no peers= or nameserver= of this node"
        if kind is _Kind.MANY:
            return f"{host} is not the address of one host"
        if kind is _Kind.LOOPBACK and not (self._has_loopback or peer.host_id == self._host_id):
            return f"{host} is an address of its own host only, which is another"
        return None

    def _refusal_of_key(self, peer: Announcement) -> str | None:
        """Say why a peer is not who it says, or may not come in; None if its key says nothing against it."""
        if not self._has_key:
            return None if peer.key is None else "it demands keys, and this node has none"
        if peer.key is None:
            return "it has no key, and this node demands one"
        if not is_of(peer.uuid, peer.key):
            return f"its uuid is not made from its key {peer.key}"
        return None if self._trusts(peer.key) else f"its key {peer.key} is not trusted"

    def is_in_directory(self, endpoint: str) -> bool:
        """Tell whether an `ipc://` endpoint is one of this bus, directly in this node's directory."""
        if self._directory is None:
            return True
        name = endpoint.removeprefix(self._directory)
        return len(name) < len(endpoint) and bool(name) and not _NO_NAMES.search(name)


def is_loopback(endpoint: str) -> bool:
    """Tell whether only processes of its own host can come to a `tcp://` endpoint."""
    host = host_of(endpoint) or ""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_named(endpoint: str) -> bool:
    """Tell whether a `tcp://` endpoint has the name of a host, and no address."""
    host = host_of(endpoint)
    return host is not None and _address(host) is None


def host_of(endpoint: str) -> str | None:
    """Return the host of a `tcp://` endpoint, without brackets; None if it is none."""
    found = _TCP.fullmatch(endpoint)
    return None if found is None else found[1].removeprefix("[").removesuffix("]")


class _Kind(Enum):
    """The form of a host: a name, an address that is of no single host, one of its own, or another."""

    NAME = "name"
    MANY = "many"
    LOOPBACK = "loopback"
    SINGLE = "single"


@lru_cache(_REMEMBERED)
def _kind_of(host: str) -> _Kind:
    address = _address(host)
    if address is None:
        return _Kind.NAME
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        return _Kind.MANY
    return _Kind.LOOPBACK if address.is_loopback else _Kind.SINGLE


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
