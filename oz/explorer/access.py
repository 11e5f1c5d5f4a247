"""Requests that the explorer rejects: from other sites, and from sites whose name resolves to this machine.

A page of another site can send requests to the explorer through the browser of its reader. The browser names the site
in `Origin`. After DNS rebinding the browser takes the site for the explorer, but `Host` has the name of the site. An
address in place of a name cannot be rebound.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def refusal(host: str | None, origin: str | None, names: Collection[str]) -> str:
    """Return why a request is rejected; empty if it is not.

    Args:
        host: value of the header `Host`, or None.
        origin: value of the header `Origin`, or None.
        names: further names of this server, beside `localhost` and all addresses.
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
    """Return whether only this host reaches an address `HOST:PORT`."""
    name = _name_of(address)
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)
