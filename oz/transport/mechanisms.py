"""The security mechanism of a listener, read from its greeting.

A listener sends its mechanism in its greeting, before the handshake.
Source: ZeroMQ RFC 23 (ZMTP), greeting.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from oz.transport.endpoints import addresses_of

NULL = "NULL"
"""Mechanism of a listener without keys."""

_GREETING_TIMEOUT = 1.0  # seconds

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f" + b"\x03"
"""First bytes of a greeting: signature and version of ZMTP. A listener that has received these bytes sends the
remaining bytes of its own greeting."""

_MECHANISM = slice(12, 32)


def mechanism_at(endpoint: str) -> str | None:
    """Return the mechanism of the listener at a `tcp` or `ipc` endpoint; None if no greeting of ZMTP arrives."""
    ends = time.monotonic() + _GREETING_TIMEOUT
    for address in addresses_of(endpoint):
        with suppress(OSError), socket.socket(_family(address)) as caller:
            caller.settimeout(max(0.01, ends - time.monotonic()))
            caller.connect(address if len(address) > 1 else address[0])
            caller.sendall(_SIGNATURE)
            greeting = b""
            while len(greeting) < _MECHANISM.stop:
                caller.settimeout(max(0.01, ends - time.monotonic()))
                greeting += (received := caller.recv(64))
                if not received:
                    break
            else:
                is_zmtp = greeting[0] == _SIGNATURE[0] and greeting[9] & 1
                name = greeting[_MECHANISM].rstrip(b"\0")
                return name.decode() if is_zmtp and name.isalnum() else None
    return None


def _family(address: tuple[object, ...]) -> socket.AddressFamily:
    if len(address) == 1:
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
