"""Checks of the key of a command against its file of permissions.

The peers decide. But a peer does not answer a denied publisher or requester, so that the command would wait
without a reason. Peers usually have the same file of permissions, so the command checks its own file first.
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

_VERBS = {"publish": "publish on", "request": "request on", "reply": "reply to requests on"}


class OwnRights:
    """Rights of the command's key for one action. Allowed subjects are cached until the file changes."""

    def __init__(self, security: oz.Security | None, action: Action) -> None:
        """Create the check for a command with `security`; None without keys."""
        self._credentials = credentials_of(security)
        self._action = action
        self._permissions: Permissions | None = None
        self._allowed: set[bytes] = set()

    def check(self, subject: bytes) -> None:
        """Check a subject. A file without the command's key allows all subjects, because it concerns other programs.

        Raises:
            PermissionDenied: the file denies the subject to the command's key.
        """
        permissions = None if self._credentials is None else self._credentials.permissions
        if permissions is not self._permissions:
            self._permissions = permissions
            self._allowed.clear()
        if self._credentials is None or permissions is None or subject in self._allowed:
            return
        user = permissions.user_of(self._credentials.public_key)
        if user is None:
            return
        verdict = permissions.decide(user, self._action, exactly(subject))
        if not verdict.granted:
            # The reason ends with a witness, which is needed only for patterns.
            shown, reason = printable(subject), verdict.reason.partition("; ")[0]
            raise oz.PermissionDenied(
                f"{user.name} may not {_VERBS[self._action]} {shown!r}, and peers would drop it: {reason}",
                rule=None if verdict.rule is None else str(verdict.rule),
                subject=shown,
            )
        if len(self._allowed) >= 65_536:
            self._allowed.clear()
        self._allowed.add(subject)

    def hint(self) -> str:
        """Return the hint for a request without a reply; empty without keys."""
        if self._credentials is None:
            return ""
        return "; responders do not answer a denied request: see their log and stats.denied"


def check_subscribed(
    security: oz.Security | None, patterns: Sequence[oz.Pattern], *, is_routed: bool, group: str = ""
) -> None:
    """Check patterns by the rules of a publisher with this file. A file without the command's key allows all patterns.

    Args:
        security: of the command; None without keys.
        patterns: of the subscriptions.
        is_routed: whether publishers receive the patterns. Otherwise they receive prefixes, which match more.
        group: queue group of the subscriptions, or empty.

    Raises:
        PermissionDenied: the file denies a pattern to the command's key.
    """
    credentials = credentials_of(security)
    permissions = None if credentials is None else credentials.permissions
    if credentials is None or permissions is None:
        return
    key = credentials.public_key
    user = permissions.user_of(key)
    if user is None:
        return
    # The dialect decides only how prefixes are read, and no dialect grants more of a prefix than nats.
    access = Access(lambda: Rights((key,), permissions), dialect="nats")
    for pattern in patterns:
        by_pattern = access.denial(key, [pattern], group)
        denied = by_pattern if is_routed else _denial_of_prefixes(access, key, pattern)
        if denied is not None:
            advice = (
                ""
                if by_pattern is not None
                else "; with --filtering publisher, only the pattern must be allowed"
            )
            raise oz.PermissionDenied(
                f"{user.name} may not subscribe to {printable(str(pattern.text))!r}: {denied}{advice}",
                rule=denied.rule,
                subject=denied.subject,
            )


def _denial_of_prefixes(access: Access, key: str, pattern: oz.Pattern) -> Denial | None:
    found = (access.denial_of_key(key, prefix) for prefix in pattern.prefixes)
    return next((item for item in found if item is not None), None)


def of_applications(patterns: Sequence[oz.Pattern]) -> list[oz.Pattern]:
    """Return the patterns without those for subjects of nodes, about which each node decides."""
    return [pattern for pattern in patterns if not (reaches(pattern, INBOX) or reaches(pattern, OWN))]
