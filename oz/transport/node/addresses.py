"""The addresses of a node: under which others reach it, and what it announces of where it is bound."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from oz.logs import peer_logger
from oz.protocol.node.reach import is_loopback

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
            "whoever reaches %s can subscribe to everything and publish anything: this node has no keys. "
            "Give it security=, or bind it to 127.0.0.1; see docs/security.md",
            ", ".join(reached),
        )
