"""Reports that a service is ready: a file for probes, and a message to systemd.

A probe of Kubernetes checks the file with `test -e PATH`. systemd waits for the message if the unit has `Type=notify`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

_TIMEOUT = 1.0  # Seconds for which a message to systemd may wait.


class Readiness:
    """State that probes read."""

    def __init__(self, path: Path | None) -> None:
        """Start as not ready.

        Args:
            path: file that exists while the service is ready, or None. The file of an earlier process that was killed
                is removed.
        """
        self._path = path
        self._is_ready = self._has_ended = False
        self._remove()

    @property
    def is_ready(self) -> bool:
        """State that was reported last."""
        return self._is_ready

    def report(self, *, is_ready: bool) -> None:
        """Report whether the service is ready, if that has changed.

        Raises:
            OSError: the file cannot be written.
        """
        if is_ready == self._is_ready:
            return
        self._is_ready = is_ready
        if not is_ready:
            self._remove()
            return
        if self._path is not None:
            self._path.write_text(f"{os.getpid()}\n")
        notify_systemd("READY=1")

    def end(self) -> None:
        """Report the end of the service. A second call has no effect."""
        if not self._has_ended:
            self._has_ended = True
            self.report(is_ready=False)
            notify_systemd("STOPPING=1")

    def _remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def notify_systemd(state: str) -> None:
    """Send a state to systemd, as sd_notify(3) does, if systemd started this process. Errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TIMEOUT)
        # An @ stands for the zero byte of an abstract address.
        sender.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
