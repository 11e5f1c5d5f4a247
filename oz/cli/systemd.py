"""Messages to systemd, for units with `Type=notify`."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_TIMEOUT = 1.0  # seconds for which sending may wait


def notify_systemd(state: str) -> None:
    """Send a state to systemd, as sd_notify(3) does, if systemd started this process. Errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TIMEOUT)
        # An @ at the beginning stands for the zero byte of an abstract address.
        sender.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
