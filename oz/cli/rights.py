"""The rights of a command's own key, as far as its own file of permissions tells: who is asked decides.

Whoever publishes, asks, or subscribes by prefixes gets no answer to it, and so is not told that others drop
it. Files of permissions are mostly the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import oz
from oz.escaping import printable
from oz.node.subjects import INBOX, OWN, reaches
from oz.security.access import Access, Rights, exactly
from oz.security.denials import Denial
from oz.security.permissions import Action, Permissions
from oz.transport.security import credentials_of

_DOES = {"publish": "publish on", "request": "ask on", "reply": "answer what is asked on"}


class OwnRights:
    """The rights of one key; an allowed subject is not looked up again while the file stays the same."""

    def __init__(self, security: oz.Security | None, action: Action) -> None:
        """Take in whose rights are asked for.

        Args:
            security: of the command; None without keys.
            action: what it does.
        """
        self._credentials = credentials_of(security)
        self._action = action
        self._permissions: Permissions | None = None
        self._allowed: set[bytes] = set()

    def check(self, subject: bytes) -> None:
        """Refuse a subject that the file of permissions denies to the own key.

        A file that does not name the key says nothing: it is about others.

        Raises:
            PermissionDenied: it is denied, by which rule.
        """
        permissions = None if self._credentials is None else self._credentials.permissions
        if permissions is not self._permissions:
            # The file has changed, and takes hold with others too.
            self._permissions = permissions
            self._allowed.clear()
        if self._credentials is None or permissions is None or subject in self._allowed:
            return
        user = permissions.user_of(self._credentials.public_key)
        if user is None:
            return
        verdict = permissions.decide(user, self._action, exactly(subject))
        if not verdict.granted:
            # It asks for one subject, and needs no witness.
            shown, reason = printable(subject), verdict.reason.partition("; ")[0]
            raise oz.PermissionDenied(
                f"{user.name} may not {_DOES[self._action]} {shown!r}, and others drop it: {reason}",
                rule=None if verdict.rule is None else str(verdict.rule),
                subject=shown,
            )
        if len(self._allowed) >= 65_536:
            self._allowed.clear()
        self._allowed.add(subject)

    def hint(self) -> str:
        """Return what to add where nobody has answered: empty without keys."""
        if self._credentials is None:
            return ""
        return "; nobody tells a program that it may not ask: see the log and stats.denied of the responders"


def check_subscribed(
    security: oz.Security | None, patterns: Sequence[oz.Pattern], *, is_routed: bool, group: str = ""
) -> None:
    """Refuse patterns that the file of permissions denies to the own key, as a publisher would by this file.

    A file that does not name the key says nothing: it is about others.

    Args:
        security: of the command; None without keys.
        patterns: of its subscriptions.
        is_routed: publishers are told the patterns; otherwise their prefixes, which let more through.
        group: the queue group that it joins, or empty.

    Raises:
        PermissionDenied: one is denied, by which rule, and a subject that shows why.
    """
    credentials = credentials_of(security)
    permissions = None if credentials is None else credentials.permissions
    if credentials is None or permissions is None:
        return
    key = credentials.public_key
    user = permissions.user_of(key)
    if user is None:
        return
    # A publisher of another dialect grants no more of a prefix than one of nats.
    access = Access(lambda: Rights((key,), permissions), dialect="nats")
    for pattern in patterns:
        by_pattern = access.denial(key, [pattern], group)
        denied = by_pattern if is_routed else _denial_of_prefixes(access, key, pattern)
        if denied is not None:
            advice = "" if by_pattern is not None else "; --filtering publisher asks for no more than it"
            raise oz.PermissionDenied(
                f"{user.name} may not subscribe to {printable(str(pattern.text))!r}: {denied}{advice}",
                rule=denied.rule,
                subject=denied.subject,
            )


def _denial_of_prefixes(access: Access, key: str, pattern: oz.Pattern) -> Denial | None:
    found = (access.denial_of_key(key, prefix) for prefix in pattern.prefixes)
    return next((one for one in found if one is not None), None)


def of_applications(patterns: Sequence[oz.Pattern]) -> list[oz.Pattern]:
    """Leave out what a node decides about by itself: advisories, and what it refuses to everybody."""
    return [one for one in patterns if not (reaches(one, INBOX) or reaches(one, OWN))]
