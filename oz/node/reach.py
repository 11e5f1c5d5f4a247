"""Rules that decide which announced endpoints a node may dial.

A node dials endpoints from introductions and cards, which come from peers. Without the rules, a hostile peer could make
a node dial multicast groups, sockets of other programs, or its own endpoints.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from oz.wire.links import MAX_CARD_TEXT

_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
# Resolvers read texts such as 0, 127.1 and 0x7f.1 as addresses. In a host name, the last label is never a number.
_NUMBER = re.compile(r"(.*\.)?(0[xX][0-9A-Fa-f]*|[0-9]+)\.?")
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_LOCAL_NAMES = ("localhost", "ip6-localhost")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@lru_cache(4_096)
def may_dial(endpoint: str, local_prefix: str | None) -> bool:
    """Return whether this node may dial an endpoint that a peer has announced.

    Args:
        endpoint: endpoint such as `ipc:///PATH` or `tcp://HOST:PORT`, where HOST is a name or an address.
        local_prefix: common start of the endpoints in the directory of this node; None refuses every `ipc://` endpoint.
    """
    if len(endpoint) > MAX_CARD_TEXT:
        return False
    if endpoint.startswith("ipc://"):
        if local_prefix is None or not endpoint.startswith(local_prefix):
            return False
        name = endpoint[len(local_prefix) :]
        return bool(name) and "/" not in name and "\0" not in name
    found = _TCP.fullmatch(endpoint)
    if found is None or not 0 < int(found[2]) < 65_536:
        return False
    address = _address_of(found[1])
    if address is None:
        return not found[1].startswith("[") and not _NUMBER.fullmatch(found[1])
    return not (address.is_unspecified or address.is_multicast or address == _BROADCAST)


@lru_cache(4_096)
def is_local(endpoint: str) -> bool:
    """Return whether an endpoint can be reached only from its own host."""
    found = _TCP.fullmatch(endpoint)
    if found is None:
        return not endpoint.startswith("tcp://")
    address = _address_of(found[1])
    return found[1].lower() in _LOCAL_NAMES if address is None else address.is_loopback


def _address_of(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    # Sockets treat ::ffff:a.b.c.d as the IPv4 address a.b.c.d.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
