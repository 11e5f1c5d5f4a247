"""Searches for the public keys of listeners. Each search runs in its own thread, so that no engine waits for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import zmq

from oz.transport.backoff import growing
from oz.transport.probing import Probed

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
"""Seconds between two searches for the key of one endpoint: the first pause and the longest pause."""


class Found(NamedTuple):
    """Result of a search.

    Attributes:
        endpoint: endpoint of the listener.
        outcome: outcome of the search.
        key: public key of the listener; None if it is unknown.
    """

    endpoint: str
    outcome: Probed
    key: str | None


class KeySearch:
    """Searches for the keys of listeners. Only the engine calls the methods."""

    __slots__ = ("_at", "_found", "_kinds", "_pauses", "_probe", "_running", "_wake")

    def __init__(
        self, probe: Callable[[str, int], tuple[Probed, str | None]], wake: Callable[[], object]
    ) -> None:
        """Start without searches.

        Args:
            probe: function that searches for a key and returns the outcome and the key, as `probe` of
                `oz.transport.probing`. Its arguments are the endpoint of a listener and the ZeroMQ type of the socket
                that connects.
            wake: function that makes the engine call `results` soon. Any thread may call it.
        """
        self._probe = probe
        self._wake = wake
        self._found: deque[Found] = deque()
        self._at: dict[str, float] = {}
        self._kinds: dict[str, int] = {}
        self._running: set[str] = set()
        self._pauses: dict[str, Iterator[float]] = {}

    def begin(self, endpoint: str, kind: int) -> None:
        """Search for the key of a listener now.

        Args:
            endpoint: endpoint of the listener.
            kind: ZeroMQ type of the socket that connects.
        """
        self._kinds[endpoint] = kind
        self._running.add(endpoint)
        name = f"oz-keys-{endpoint}"
        threading.Thread(target=self._search, args=(endpoint, kind), name=name, daemon=True).start()

    def begin_later(self, endpoint: str, now: float) -> None:
        """Search again after a pause, which grows with each call.

        Args:
            endpoint: endpoint of an earlier search.
            now: current time, in seconds of `time.monotonic`.
        """
        pauses = self._pauses.setdefault(endpoint, growing(_FIRST_PAUSE, _LONGEST_PAUSE))
        self._at.setdefault(endpoint, now + next(pauses))

    def is_searching(self, endpoint: str) -> bool:
        """Return whether a search for the key of a listener runs or is planned."""
        return endpoint in self._at or endpoint in self._running

    def reset(self, endpoint: str) -> None:
        """Record a successful connection: cancel the next search, and reset the pause to the shortest one."""
        self._pauses.pop(endpoint, None)
        self._at.pop(endpoint, None)

    def results(self, now: float) -> list[Found]:
        """Return the results since the last call, and begin the searches that are due."""
        for endpoint in [endpoint for endpoint, at in self._at.items() if now >= at]:
            del self._at[endpoint]
            self.begin(endpoint, self._kinds[endpoint])
        found = []
        while self._found:
            found.append(self._found.popleft())
            self._running.discard(found[-1].endpoint)
        return found

    def next_deadline(self) -> float | None:
        """Return the time of the next due search, in seconds of `time.monotonic`; None if none is due.

        The engine calls `results` at this time.
        """
        return min(self._at.values(), default=None)

    def _search(self, endpoint: str, kind: int) -> None:
        outcome, key = Probed.ABSENT, None
        # An error means that the host has no address now, or that no descriptors are free.
        with suppress(zmq.ZMQError, OSError):
            outcome, key = self._probe(endpoint, kind)
        self._found.append(Found(endpoint, outcome, key))
        self._wake()
