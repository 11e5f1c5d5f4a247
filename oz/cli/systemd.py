"""Messages to systemd, for units with `Type=notify`."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_TIMEOUT = 1.0  # maximum seconds for which a send waits


def notify_systemd(state: str) -> None:
    """Send a state to systemd in the protocol of sd_notify(3), if systemd has started this process. Ignore errors."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TIMEOUT)
        # systemd writes the zero byte at the beginning of an abstract address as @.
        sender.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
