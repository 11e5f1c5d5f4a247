"""Check whether a process listens at an endpoint, after the connection of a link has ended.

The kernel refuses new connections to the endpoint of a killed process. If the network has failed, or if the process is
only suspended, new connections are not refused.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from errno import ECONNREFUSED, ENOENT


class DialCheck:
    """One attempt to connect, without waiting. For an endpoint of another host, the result takes a round trip."""

    def __init__(self, endpoint: str) -> None:
        """Begin to connect.

        Args:
            endpoint: `ipc://` with a path, or `tcp://` with an address and a port. A host name is not resolved, because
                a lookup takes time. For an endpoint with a host name, `is_refused` returns False.
        """
        self._error = 0
        self._socket: socket.socket | None = None
        found = _address_of(endpoint)
        if found is None:
            return
        family, address = found
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            # No descriptor is free.
            return
        self._socket.setblocking(False)
        self._error = self._socket.connect_ex(address)

    def is_refused(self) -> bool:
        """Return whether the attempt was refused, because no process listens. False if the result is not known yet."""
        pending = 0 if self._socket is None else self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if pending:
            self._error = pending
        return self._error in (ECONNREFUSED, ENOENT)

    def close(self) -> None:
        """End the attempt."""
        if self._socket is not None:
            self._socket.close()


def _address_of(endpoint: str) -> tuple[int, bytes | tuple[str, int]] | None:
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc":
        return None if rest.startswith("@") else (socket.AF_UNIX, os.fsencode(rest))
    host, _, port = rest.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if scheme != "tcp" or not port.isdecimal():
        return None
    return (socket.AF_INET if address.version == 4 else socket.AF_INET6), (str(address), int(port))
