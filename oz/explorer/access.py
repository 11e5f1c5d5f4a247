"""Check of requests to the explorer: it rejects requests of other sites, also if their names resolve to this machine.

A page of another site can send requests to the explorer through the browser of its reader. The browser names the site
in the header `Origin`. After DNS rebinding, the name of the site resolves to the explorer, and the browser reports no
other origin. The header `Host` then still has the name of the site. DNS rebinding needs a name, so a `Host` that is an
address is accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def refusal(host: str | None, origin: str | None, names: Collection[str]) -> str:
    """Return the reason for which a request is rejected; empty if the request is accepted.

    Args:
        host: value of the header `Host`, or None.
        origin: value of the header `Origin`, or None.
        names: names of this server that are accepted in addition to `localhost` and all addresses.
    """
    name = _name_of(host or "")
    if not (name == "localhost" or name in names or _is_address(name)):
        return f"the host {host!r} is not a name of this explorer; see --host-name"
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return f"requests of the origin {origin!r} are rejected"
    return ""


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_local(address: str) -> bool:
    """Return whether an address `HOST:PORT` can be reached from this host only."""
    name = _name_of(address)
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)
