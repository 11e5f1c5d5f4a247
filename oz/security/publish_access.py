"""Decisions of a subscriber about received messages, according to the permissions of the sender's key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from oz.logs import peer_logger
from oz.message import Extras
from oz.security.access import Rights, denial_of
from oz.security.permissions import Action

_log = peer_logger("oz.subscriber")

MAX_CACHED_LENGTH = 256
"""Maximum length in bytes of a subject whose decision is cached."""
MAX_CACHED = 65_536
"""Maximum number of cached subjects for one key and action. Beyond it, these subjects are removed."""
MAX_NAMES = 1_024
"""Maximum number of recorded origins (ids of publishers) for one key. Beyond it, the oldest origin is removed."""

_Denied = tuple[str, str, tuple[Action, bytes] | None]
"""Key of a sender, text of the denial, and the denied action and subject. The third item is None if permissions are not
the reason."""


@dataclass(slots=True)
class Denials:
    """Counter of denied messages.

    Attributes:
        denied: number of denied messages.
    """

    denied: int = 0


class PublisherRules(Protocol):
    """Rules between nodes that are not in a permission file."""

    @staticmethod
    def owns(key: str, origin: bytes) -> bool:
        """Return whether an origin (the id of a publisher) belongs to a key."""

    @staticmethod
    def may_ask(key: str, reply_to: str) -> bool:
        """Return whether requests of a key may have this inbox (a subject for replies)."""


class PublishAccess:
    """Decisions about the messages that one subscriber receives.

    Attributes:
        key: public key of the sender of the current message; None if the sender is in this process, so that everything
            is allowed.
        rules: rules between nodes; None if the subscriber belongs to no node.
        allowed: cache of allowed subjects, by key and action.
    """

    __slots__ = (
        "_last", "_names", "_owners", "_read", "_reports", "_rights", "_stats", "allowed", "key", "rules",
    )  # fmt: skip

    def __init__(self, read: Callable[[], Rights], stats: Denials) -> None:
        """Start with an empty cache.

        Args:
            read: function that returns the current rights. It returns the same object until the rights change.
            stats: counter of denied messages.
        """
        self._read = read
        self._rights = read()
        self._stats = stats
        self.allowed: dict[tuple[str, Action], set[bytes]] = {}
        self._owners: dict[bytes, str] = {}
        self._names: dict[str, deque[bytes]] = {}
        self._reports = True
        self._last: _Denied | None = None
        self.key: str | None = None
        self.rules: PublisherRules | None = None

    def allows(self, subject: bytes) -> bool:
        """Return whether the sender's key may publish on a subject. Count denials, and log the first denial."""
        self._refresh()
        return not self.denied((subject,))

    def _refresh(self) -> Rights:
        rights = self._read()
        if rights is not self._rights:
            self._rights = rights
            self.allowed.clear()
        return rights

    def denied(self, subjects: Sequence[bytes], extras: Sequence[Extras | None] | None = None) -> list[int]:
        """Return the indexes of the messages that the sender's key may not publish. Count these messages.

        The method uses the rights that the last call of `owns` or `allows` has read.

        Args:
            subjects: subject of each message.
            extras: optional fields of each message, such as the inbox of a request; None if no message has optional
                fields.
        """
        key = self.key
        if key is None:
            return []
        # Nearly all subjects are in the cache. One call of `issuperset` is faster than a loop over the subjects.
        if extras is None and self._cached(key, "publish").issuperset(subjects):
            return []
        inboxes = [None] * len(subjects) if extras is None else [extra and extra.reply_to for extra in extras]
        return [
            index
            for index, (subject, inbox) in enumerate(zip(subjects, inboxes, strict=True))
            if not self._check(key, subject, inbox)
        ]

    def _cached(self, key: str, action: Action) -> set[bytes]:
        return self.allowed.setdefault((key, action), set())

    def _check(self, key: str, subject: bytes, inbox: str | None) -> bool:
        if inbox is not None and self.rules is not None and not self.rules.may_ask(key, inbox):
            self._deny(
                f"sent a request to {subject!r} with {inbox!r:.200}, which is the inbox of another key"
            )
            return False
        action: Action = "publish" if inbox is None else "request"
        allowed = self._cached(key, action)
        if subject in allowed:
            return True
        if not self._decide(key, action, subject):
            what = "publish" if inbox is None else "send requests to"
            self._deny(
                f"may not {what} {subject.decode(errors='backslashreplace')!r}", about=(action, subject)
            )
            return False
        if len(subject) <= MAX_CACHED_LENGTH:
            if len(allowed) >= MAX_CACHED:
                allowed.clear()
            allowed.add(subject)
        return True

    def owns(self, origin: bytes, count: int = 1) -> bool:
        """Return whether an origin belongs to the sender's key.

        If there are rules between nodes, they decide. Otherwise an origin belongs to the first key that has used it.

        Args:
            origin: id of a publisher.
            count: number of messages that are counted as denied if the origin does not belong to the key.
        """
        key = self.key
        if key is None:
            return origin not in self._owners
        if key not in self._refresh().trusted:
            self._deny(
                "is not trusted any more" if key else "is unknown, because its connection has ended", count
            )
            return False
        if self.rules is not None:
            if not self.rules.owns(key, origin):
                self._deny(f"uses the origin {origin.hex()} of a publisher with another key", count)
                return False
            return True
        owner = self._owners.get(origin)
        if owner is None:
            owner = self._owners[origin] = key
            own = self._names.setdefault(key, deque())
            own.append(origin)
            if len(own) > MAX_NAMES:
                # Only an origin of the same key is removed, so that a key cannot remove the origins of another key.
                del self._owners[own.popleft()]
        if owner != key:
            self._deny(f"uses the origin {origin.hex()} of the publisher with the key {owner}", count)
        return owner == key

    def _decide(self, key: str, action: Action, subject: bytes) -> bool:
        rights = self._rights
        if key not in rights.trusted:
            return False
        permissions = rights.permissions
        return permissions is None or permissions.allows(permissions.user_of(key), action, subject)

    def _deny(self, what: str, count: int = 1, about: tuple[Action, bytes] | None = None) -> None:
        self._stats.denied += count
        self._last = self.key or "", what, about
        if self._reports:
            self._reports = False
            text = "%s. The message is dropped, and stats.denied counts further denials"
            _log.warning(text, self._describe(*self._last))

    def last_denial(self) -> str | None:
        """Return a text about the last denied message: its user, subject and rule.

        Return None before the first denial.
        """
        return None if self._last is None else self._describe(*self._last)

    def _describe(self, key: str, what: str, about: tuple[Action, bytes] | None) -> str:
        permissions = self._rights.permissions
        user = None if permissions is None else permissions.user_of(key)
        name = f"key {key or '(none)'}" if user is None else f"user {user.name} with the key {key}"
        denial = None
        if about is not None:
            action, subject = about
            denial = denial_of(permissions, key, action, subject.decode("utf-8", "surrogateescape"))
        return f"{name} {what}" if denial is None else f"{name} {what}: {denial}"
