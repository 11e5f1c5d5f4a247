"""Ownership: what the holder of a key may have, and say, of the subjects that nodes keep to themselves.

A node's inbox, its announcement and what is said to it alone are on subjects with its uuid, which is made
from its key. Rules of permissions are about the subjects of applications: of these here somebody else has one
only by a rule that begins with `_`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oz.errors import ProtocolError
from oz.protocol.bridge import spanning_tree
from oz.protocol.node import presence
from oz.protocol.node.requests import Request, owner
from oz.protocol.node.reserved_subjects import INBOX, INTEREST, NAMING, OWN, reaches
from oz.security.identity import is_of
from oz.security.permissions import Action, Permissions, User
from oz.subjects.pattern import Pattern
from oz.wire.denials import Denial

_SPECIAL = (INBOX.encode(), OWN.encode())

_BY_RULE = Permissions("deny")
"""Decides by the rules of a user alone."""


class Ownership:
    """Says of one node's peers what is theirs: see `Reserved` and `PublisherRules`."""

    __slots__ = ("_asked", "_clock", "_to_itself")

    def __init__(
        self,
        uuid: bytes,
        asked: Callable[[str], Request | None] = lambda _: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin for one node.

        Args:
            uuid: of the node.
            asked: gives the request that waits for replies in an inbox.
            clock: gives monotonic seconds.
        """
        own = uuid.hex()
        self._to_itself = {f"{NAMING}{own}".encode(), f"{INTEREST}{own}".encode()}
        self._asked = asked
        self._clock = clock

    # subscriptions ---------------------------------------------------------------------------------------

    def reaches(self, pattern: Pattern) -> bool:
        """Tell whether a pattern asks for subjects that are kept here."""
        return reaches(pattern, INBOX) or reaches(pattern, OWN)

    def denial(self, key: str, pattern: Pattern, permissions: Permissions | None) -> Denial | None:
        """Say why somebody may not subscribe to a pattern that `reaches`, if so.

        Args:
            key: the public key of whoever asks.
            pattern: what is asked for.
            permissions: what is allowed to whom; None for everything.
        """
        text = str(pattern.text)
        if _is_own(key, pattern, text):
            return None
        is_for_rules = text.startswith((INBOX, spanning_tree.PREFIX))
        if is_for_rules and (permissions is None or _is_allowed(permissions, key, "subscribe", pattern)):
            return None
        return Denial(f"{text!r:.200} is for a node with another key than {key}", None, None)

    def denial_of_prefix(self, prefix: bytes, permissions: Permissions | None) -> Denial | None:
        """Say why nobody may have a plain subscription, if it lets such subjects through."""
        if permissions is None or not any(
            one.startswith(prefix) or prefix.startswith(one) for one in _SPECIAL
        ):
            return None
        return Denial(f"the prefix {prefix!r:.100} lets through what nodes say to each other")

    # messages --------------------------------------------------------------------------------------------

    def owns(self, key: str, origin: bytes) -> bool:
        """Tell whether a publisher's name is one of the key's."""
        return is_of(origin, key)

    def is_special(self, subject: bytes) -> bool:
        """Tell whether `may_say` decides about a subject, and not a rule about publishing."""
        return subject.startswith(_SPECIAL)

    def may_say(self, key: str, subject: bytes, permissions: Permissions | None) -> bool:
        """Tell whether somebody may publish on a subject that is kept here: a reply, or a word to a node."""
        if not subject.startswith(_SPECIAL[0]):
            return subject in self._to_itself
        if permissions is None:
            return True
        request = self._asked(subject.decode("utf-8", "replace"))
        if request is None:
            # It is passed on to whoever asked, or nobody waits for it any more.
            return _may_reply_at_all(permissions, permissions.user_of(key))
        return request.admits(key, permissions, self._clock())

    def may_ask(self, key: str, reply_to: str, permissions: Permissions | None) -> bool:
        """Tell whether somebody may want an answer in an inbox: in its own, or by a rule in any."""
        uuid = owner(reply_to)
        if permissions is None or (uuid is not None and is_of(uuid, key)):
            return True
        user = _by_rules_for_reserved(permissions.user_of(key))
        subject = reply_to.encode("utf-8", "surrogateescape")
        return uuid is not None and _BY_RULE.allows(user, "publish", subject)


def _is_own(key: str, pattern: Pattern, text: str) -> bool:
    """Tell whether a pattern asks for what a node with a key asks of every peer."""
    if pattern.dialect != "nats":
        return False
    if text.startswith(presence.PREFIX):
        try:
            announced = presence.from_text(text[len(presence.PREFIX) :])
        except ProtocolError:
            return False
        return announced.key == key and is_of(announced.uuid, key)
    if text.startswith(INBOX):
        return text.endswith(".>") and _is_uuid_of(text[len(INBOX) : -len(".>")], key)
    for before in (NAMING, INTEREST):
        if text.startswith(before):
            return _is_uuid_of(text[len(before) :], key)
    return False


def _is_uuid_of(text: str, key: str) -> bool:
    try:
        return len(text) == 32 and is_of(bytes.fromhex(text), key)
    except ValueError:
        return False


def _is_allowed(permissions: Permissions, key: str, action: Action, pattern: Pattern) -> bool:
    """Tell whether a rule that begins with `_` allows a pattern."""
    user = _by_rules_for_reserved(permissions.user_of(key))
    return _BY_RULE.decide(user, action, pattern).granted


def _by_rules_for_reserved(user: User | None) -> User | None:
    """Leave of what a user is allowed the rules that begin with `_`."""
    if user is None:
        return None
    kept = [rule for rule in user.rules if rule.effect == "deny" or _is_for_reserved(rule.pattern)]
    return replace(user, rules=tuple(kept))


def _is_for_reserved(pattern: Pattern) -> bool:
    return all(prefix.startswith(b"_") for prefix in pattern.prefixes)


def _may_reply_at_all(permissions: Permissions, user: User | None) -> bool:
    if user is not None and (user.responses is not None or user.rules_of("reply", "allow")):
        return True
    return permissions.default == "allow"
