"""Decisions of a subscriber about received messages. The permissions of the sender's key decide."""

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
"""Maximum length in bytes of a cached subject. Decisions about longer subjects are not cached."""
MAX_CACHED = 65_536
"""Number of cached subjects for one key and action at which these subjects are cleared."""
MAX_NAMES = 1_024
"""Maximum number of origins (ids of publishers) that are kept for one key. Beyond it, the oldest origin is removed."""

_Denied = tuple[str, str, tuple[Action, bytes] | None]
"""Key of a sender, denial in words, and the denied action and subject; None if no permission decided."""


@dataclass(slots=True)
class Denials:
    """Count of the messages that permissions deny.

    Attributes:
        denied: number of denied messages.
    """

    denied: int = 0


class PublisherRules(Protocol):
    """Rules that hold between nodes. No permission file contains them."""

    @staticmethod
    def owns(key: str, origin: bytes) -> bool:
        """Return whether an origin (the id of a publisher) belongs to a key."""

    @staticmethod
    def may_ask(key: str, reply_to: str) -> bool:
        """Return whether a key may name an inbox (a subject for replies) in its requests."""


class PublishAccess:
    """Decisions about the messages that one subscriber receives.

    Attributes:
        key: public key of the current message's sender; None for a sender in this process, which may do everything.
        rules: rules that hold between nodes; None for subscribers that belong to no node.
        allowed: cache of allowed subjects, by key and action.
    """

    __slots__ = (
        "_last", "_names", "_owners", "_read", "_reports", "_rights", "_stats", "allowed", "key", "rules",
    )  # fmt: skip

    def __init__(self, read: Callable[[], Rights], stats: Denials) -> None:
        """Start with an empty cache.

        Args:
            read: function that returns the current rights: the same object while they do not change.
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
        """Return whether the sender's key may publish on a subject. Denials are counted, and the first is logged."""
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
        """Return the indexes of the messages that the sender's key may not publish. They are counted.

        The rights are not read again: the last call of `owns` or `allows` has read them.

        Args:
            subjects: subject of each message.
            extras: optional fields of each message, such as the inbox of a request; None if no message has any.
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
        """Return whether a message is allowed. A denied message is counted."""
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

        The rules between nodes decide. Without such rules, an origin belongs to the key that has used it first.

        Args:
            origin: id of a publisher.
            count: number of messages that count as denied if the origin belongs to another key.
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
        """Return the user, the subject and the rule of the last denied message; None before the first denial."""
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
