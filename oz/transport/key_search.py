"""The search for the keys of listeners, in threads of its own: the caller goes on meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

import zmq

from oz.transport.backoff import growing
from oz.transport.probing import Probed

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
"""Seconds before an endpoint is tried again at which nobody with a trusted key was."""


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        endpoint: where.
        outcome: what was found there.
        key: the public key of the listener, where that is known.
    """

    endpoint: str
    outcome: Probed
    key: str | None


class Prober(Protocol):
    """Finds out which of the trusted keys a listener has."""

    def probe(self, endpoint: str, kind: int) -> tuple[Probed, str | None]:
        """See `Credentials.probe`."""
        ...


class KeySearch:
    """The search for the keys of listeners, each in a thread of its own.

    All but what the threads do is for the I/O side.
    """

    __slots__ = ("_at", "_credentials", "_found", "_kinds", "_pauses", "_running", "_wake")

    def __init__(self, credentials: Prober, wake: Callable[[], object]) -> None:
        """Begin without any.

        Args:
            credentials: whose keys are tried.
            wake: has the I/O side call `take` soon; called by any thread.
        """
        self._credentials = credentials
        self._wake = wake
        self._found: deque[Found] = deque()
        self._at: dict[str, float] = {}
        self._kinds: dict[str, int] = {}
        self._running: set[str] = set()
        self._pauses: dict[str, Iterator[float]] = {}

    def begin(self, endpoint: str, kind: int) -> None:
        """Search for the key of a listener now.

        Args:
            endpoint: where it listens.
            kind: the type of the socket that is to connect.
        """
        self._kinds[endpoint] = kind
        self._running.add(endpoint)
        name = f"oz-keys-{endpoint}"
        threading.Thread(target=self._search, args=(endpoint, kind), name=name, daemon=True).start()

    def again(self, endpoint: str, now: float) -> None:
        """Search again after a while, which grows.

        Args:
            endpoint: that was given to `begin` before.
            now: monotonic seconds.
        """
        pauses = self._pauses.setdefault(endpoint, growing(_FIRST_PAUSE, _LONGEST_PAUSE))
        self._at.setdefault(endpoint, now + next(pauses))

    def is_searching(self, endpoint: str) -> bool:
        """Tell whether a search for the key of a listener goes on, or is to begin again."""
        return endpoint in self._at or endpoint in self._running

    def settle(self, endpoint: str) -> None:
        """Record that a connection stands: the next search comes soon again."""
        self._pauses.pop(endpoint, None)
        self._at.pop(endpoint, None)

    def take(self, now: float) -> list[Found]:
        """Return what was found since the last call, and search where it is time to."""
        for endpoint in [one for one, at in self._at.items() if now >= at]:
            del self._at[endpoint]
            self.begin(endpoint, self._kinds[endpoint])
        found = []
        while self._found:
            found.append(self._found.popleft())
            self._running.discard(found[-1].endpoint)
        return found

    def next_deadline(self) -> float | None:
        """Return when to call `take` at the latest, in monotonic seconds; None for never."""
        return min(self._at.values(), default=None)

    def _search(self, endpoint: str, kind: int) -> None:
        outcome, key = Probed.ABSENT, None
        # An error: its host has no address now, or there are no descriptors left.
        with suppress(zmq.ZMQError, OSError):
            outcome, key = self._credentials.probe(endpoint, kind)
        self._found.append(Found(endpoint, outcome, key))
        self._wake()
