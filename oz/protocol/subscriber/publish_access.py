"""The messages that one subscriber takes from keys: those that these may publish."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from oz.logs import peer_logger
from oz.protocol.publisher.access import Rights
from oz.protocol.stats import SubscriberStats

_log = peer_logger("oz.subscriber")

MOST_REMEMBERED = 65_536
"""Subjects of one key that are remembered as allowed; then all are forgotten."""

MOST_NAMES = 1_024
"""Names of publishers that are remembered of one key; then its oldest is forgotten."""


class PublishAccess:
    """The subjects that the publishers of one subscriber may publish.

    Attributes:
        key: the public key that sent what is looked at; None inside the process, where all is allowed.
        has_denied: something of what was looked at last was denied.
    """

    __slots__ = (
        "_allowed",
        "_names",
        "_owners",
        "_read",
        "_reports",
        "_rights",
        "_stats",
        "has_denied",
        "key",
    )

    def __init__(self, read: Callable[[], Rights], stats: SubscriberStats) -> None:
        """Start without an answer.

        Args:
            read: gives the rights as they are now, the same object as long as they are the same.
            stats: where to count.
        """
        self._read = read
        self._rights = read()
        self._stats = stats
        self._allowed: dict[str, set[bytes]] = {}
        self._owners: dict[bytes, str] = {}
        self._names: dict[str, deque[bytes]] = {}
        self.has_denied = False
        self._reports = True
        self.key: str | None = None

    def allows(self, subject: bytes) -> bool:
        """Tell whether the key may publish a subject; count and log it if not."""
        return not self.denied((subject,))

    def denied(self, subjects: Sequence[bytes]) -> list[int]:
        """Return the places of the subjects that the key may not publish; count and log them."""
        key = self.key
        if key is None:
            return []
        rights = self._read()
        if rights is not self._rights:
            self._rights = rights
            self._allowed.clear()
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = self._allowed[key] = set()
        # Of nearly all the answer is known, and good: this looks at them without a step of Python's for each.
        if allowed.issuperset(subjects):
            return []
        return [place for place, subject in enumerate(subjects) if not self._knows(key, subject, allowed)]

    def _knows(self, key: str, subject: bytes, allowed: set[bytes]) -> bool:
        if subject in allowed:
            return True
        if not self._decide(key, subject):
            self._deny(f"publishes {subject!r}, which it may not")
            return False
        if len(allowed) >= MOST_REMEMBERED:
            allowed.clear()
        allowed.add(subject)
        return True

    def owns(self, origin: bytes) -> bool:
        """Tell whether a publisher's name belongs to the key: to the first that uses it."""
        key, self.has_denied = self.key, False
        if key is None:
            return origin not in self._owners
        if key not in self._read().trusted:
            self._deny("is not trusted any more")
            return False
        owner = self._owners.get(origin)
        if owner is None:
            owner = self._owners[origin] = key
            own = self._names.setdefault(key, deque())
            own.append(origin)
            if len(own) > MOST_NAMES:
                # Its own, whatever it does: nobody has others forgotten.
                del self._owners[own.popleft()]
        if owner != key:
            self._deny(f"speaks in the name of publisher {origin.hex()}, which has the key {owner}")
        return owner == key

    def _decide(self, key: str, subject: bytes) -> bool:
        rights = self._rights
        if key not in rights.trusted:
            return False
        permissions = rights.permissions
        return permissions is None or permissions.allows(permissions.user_of(key), "publish", subject)

    def _deny(self, what: str) -> None:
        self.has_denied = True
        self._stats.denied += 1
        if self._reports:
            self._reports = False
            _log.warning("key %s %s; it is dropped: see stats.denied", self.key or "(none)", what)
