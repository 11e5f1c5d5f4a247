"""Something done at an interval."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ticker:
    """Calls something at an interval, in a thread of its own, until it is stopped."""

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        """Start it."""
        self._stopping = threading.Event()
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._call = call
        self._thread = threading.Thread(target=self._run, name="oz-journal-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._call()

    def stop(self) -> None:
        """End it, and wait for the end."""
        self._stopping.set()
        self._thread.join()
