"""Decisions of a subscriber about messages, by the permissions of the keys of their senders."""

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
"""Bytes of the longest subject in the cache."""
MAX_CACHED = 65_536
"""Number of allowed subjects of one key at which the cache is cleared."""
MAX_NAMES = 1_024
"""Maximum number of origins that are kept for one key; beyond it the oldest is removed."""

_Denied = tuple[str, str, tuple[Action, bytes] | None]
"""Key, denial in words, and the action and subject if permissions decided."""


@dataclass(slots=True)
class Denials:
    """Count of the messages that permissions deny.

    Attributes:
        denied: so far.
    """

    denied: int = 0


class PublisherRules(Protocol):
    """Rules for nodes. They are in no file of permissions."""

    @staticmethod
    def owns(key: str, origin: bytes) -> bool:
        """Return whether the origin of a publisher belongs to a key."""

    @staticmethod
    def may_ask(key: str, reply_to: str) -> bool:
        """Return whether the replies to a request may go to an inbox."""


class PublishAccess:
    """Decisions about the messages that one subscriber receives.

    Attributes:
        key: public key of the sender of the current message; None inside the process, where all is allowed.
        rules: of nodes; None for other programs.
        allowed: subjects that are known to be allowed, by key and action.
    """

    __slots__ = (
        "_last", "_names", "_owners", "_read", "_reports", "_rights", "_stats", "allowed", "key", "rules",
    )  # fmt: skip

    def __init__(self, read: Callable[[], Rights], stats: Denials) -> None:
        """Start with an empty cache.

        Args:
            read: returns the current rights, the same object while they do not change.
            stats: counter.
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
        """Return whether the key may publish a subject. A denial is counted and logged."""
        self._refresh()
        return not self.denied((subject,))

    def _refresh(self) -> Rights:
        """Return the current rights, and forget decisions by earlier rights."""
        rights = self._read()
        if rights is not self._rights:
            self._rights = rights
            self.allowed.clear()
        return rights

    def denied(self, subjects: Sequence[bytes], extras: Sequence[Extras | None] | None = None) -> list[int]:
        """Return the indexes of the subjects that the key may not publish; count and log them.

        The rights are those of the last call of `owns` or `allows`.

        Args:
            subjects: of messages.
            extras: extras of each message or None; None if all messages have none.
        """
        key = self.key
        if key is None:
            return []
        # Nearly all subjects are in the cache: one comparison of sets, without a step of Python for each.
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
        """Return whether a message is allowed; count and log it if not."""
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
        """Return whether the origin of a publisher belongs to the key: the key that used it first.

        Args:
            origin: of the publisher.
            count: number of messages that count as denied otherwise.
        """
        key = self.key
        if key is None:
            return origin not in self._owners
        if key not in self._refresh().trusted:
            self._deny("is not trusted any more" if key else "is unknown, as its connection has ended", count)
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
                # An origin of the same key: a key cannot remove the origins of another key.
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
        """Return the user, the subject and the rule of the last denied message; None without one."""
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
