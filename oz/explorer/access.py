"""Rejection of requests that a page of another site sends to the explorer through the user's browser.

The browser names the other site in the header `Origin`. An attacker can avoid this with DNS rebinding: the name of the
other site then resolves to the address of the explorer, and the browser treats both as one origin. But the header
`Host` still has the name of the other site. Therefore only known names are accepted in `Host`. An IP address in `Host`
is accepted too, because DNS rebinding needs a name.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def refusal(host: str | None, origin: str | None, names: Collection[str]) -> str:
    """Return why a request is rejected; empty if the request is accepted.

    Args:
        host: value of the header `Host`, or None.
        origin: value of the header `Origin`, or None.
        names: host names that are accepted in addition to `localhost` and IP addresses.
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
    """Return whether only this host can reach an address `HOST:PORT`."""
    name = _name_of(address)
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)
