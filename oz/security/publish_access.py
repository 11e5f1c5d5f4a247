"""The messages that one subscriber takes from keys: those that these may publish."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from oz.logs import peer_logger
from oz.message import Extras
from oz.security.access import Rights
from oz.security.permissions import Action, Permissions

_log = peer_logger("oz.subscriber")

LONGEST_REMEMBERED = 256
"""Bytes of the longest subject that is remembered."""

MOST_REMEMBERED = 65_536
"""Subjects of one key that are remembered as allowed; then all are forgotten. Long ones are not."""

MOST_NAMES = 1_024
"""Names of publishers that are remembered of one key; then its oldest is forgotten."""


@dataclass(slots=True)
class Denials:
    """Count of the messages that their publisher may not publish.

    Attributes:
        denied: so far.
    """

    denied: int = 0


class PublisherRules(Protocol):
    """Decides what rules of permissions are not about, such as what nodes say to each other."""

    def owns(self, key: str, origin: bytes) -> bool:
        """Tell whether a publisher's name is one of the key's."""

    def is_special(self, subject: bytes) -> bool:
        """Tell whether `may_say` decides about a subject."""

    def may_say(self, key: str, subject: bytes, permissions: Permissions | None) -> bool:
        """Tell whether the holder of a key may publish on such a subject."""

    def may_ask(self, key: str, reply_to: str, permissions: Permissions | None) -> bool:
        """Tell whether it may want an answer there."""


class PublishAccess:
    """The subjects that the publishers of one subscriber may publish.

    Attributes:
        key: the public key that sent what is looked at; None inside the process, where all is allowed.
        has_denied: something of what was looked at last was denied.
        last_denied: text of the last denial; empty without one.
        rules: decides about names and subjects that permissions are not about; None where there are none.
        allowed: the subjects that are known to be allowed, by key and action.
    """

    __slots__ = (
        "_names",
        "_owners",
        "_read",
        "_reports",
        "_rights",
        "_stats",
        "allowed",
        "has_denied",
        "key",
        "last_denied",
        "rules",
    )

    def __init__(self, read: Callable[[], Rights], stats: Denials) -> None:
        """Start without an answer.

        Args:
            read: gives the rights as they are now, the same object as long as they are the same.
            stats: where to count.
        """
        self._read = read
        self._rights = read()
        self._stats = stats
        self.allowed: dict[tuple[str, Action], set[bytes]] = {}
        self._owners: dict[bytes, str] = {}
        self._names: dict[str, deque[bytes]] = {}
        self.has_denied = False
        self._reports = True
        self.key: str | None = None
        self.last_denied = ""
        self.rules: PublisherRules | None = None

    def allows(self, subject: bytes) -> bool:
        """Tell whether the key may publish a subject; count and log it if not."""
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
        """Return the places of the subjects that the key may not publish; count and log them.

        By the rights as they were when `owns` or `allows` was asked last, of the same frame.

        Args:
            subjects: of messages.
            extras: of each, or None; None where none has any.
        """
        key = self.key
        if key is None:
            return []
        # Of nearly all the answer is known, and good: this looks at them without a step of Python's for each.
        if extras is None and self._of(key, "publish").issuperset(subjects):
            return []
        inboxes = [None] * len(subjects) if extras is None else [one and one.reply_to for one in extras]
        return [
            place
            for place, (subject, inbox) in enumerate(zip(subjects, inboxes, strict=True))
            if not self._knows(key, subject, inbox)
        ]

    def _of(self, key: str, action: Action) -> set[bytes]:
        """Return the subjects that are known to be allowed."""
        return self.allowed.setdefault((key, action), set())

    def _knows(self, key: str, subject: bytes, inbox: str | None) -> bool:
        action: Action = "publish" if inbox is None else "request"
        if self.rules is not None and not self._is_by_rules(self.rules, key, subject, inbox):
            return False
        allowed = self._of(key, action)
        if subject in allowed or (self.rules is not None and self.rules.is_special(subject)):
            return True
        if not self._decide(key, action, subject):
            what = "publish" if inbox is None else "send requests to"
            self._deny(f"may not {what} {subject.decode(errors='backslashreplace')!r}")
            return False
        if len(subject) <= LONGEST_REMEMBERED:
            if len(allowed) >= MOST_REMEMBERED:
                allowed.clear()
            allowed.add(subject)
        return True

    def _is_by_rules(self, rules: PublisherRules, key: str, subject: bytes, inbox: str | None) -> bool:
        """Tell whether nothing is wrong with a message that permissions do not know of."""
        permissions = self._rights.permissions
        if rules.is_special(subject) and not rules.may_say(key, subject, permissions):
            self._deny(f"may not reply or publish on {subject!r:.200}")
            return False
        if inbox is not None and not rules.may_ask(key, inbox, permissions):
            self._deny(
                f"sent a request to {subject!r} with {inbox!r:.200}, which is the inbox of another key"
            )
            return False
        return True

    def owns(self, origin: bytes, count: int = 1) -> bool:
        """Tell whether a publisher's name belongs to the key: to the first that uses it.

        Args:
            origin: the name.
            count: the messages that come in it, which are denied if not; 1 for a record.
        """
        key, self.has_denied = self.key, False
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
            if len(own) > MOST_NAMES:
                # Its own, whatever it does: nobody has others forgotten.
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

    def _deny(self, what: str, count: int = 1) -> None:
        self.has_denied = True
        self._stats.denied += count
        self.last_denied = f"key {self.key or '(none)'} {what}"
        if self._reports:
            self._reports = False
            _log.warning("%s: the message is dropped. stats.denied counts further ones", self.last_denied)
