"""Checks of the key of a command against its file of permissions.

The peers decide about permissions. But a peer does not answer a denied publisher or requester, and the command would
not know why it waits. Peers usually have the same file of permissions. So the command checks its own file first.
"""

from __future__ import annotations

from collections.abc import Sequence

import oz
from oz.escaping import printable
from oz.node.subjects import INBOX, OWN, reaches
from oz.security.access import Access, Rights
from oz.security.denials import Denial
from oz.security.permissions import Action
from oz.transport.security import credentials_of


def check_right(publisher: oz.Publisher | oz.Node, action: Action, subject: bytes) -> None:
    """Check the rights to a subject, before the command waits for a peer; see `oz.security.own_rights`.

    Raises:
        PermissionDenied: the file of permissions denies the subject to the key of the command.
    """
    engine = publisher._node.publisher if isinstance(publisher, oz.Node) else publisher._engine
    if engine._own_rights is not None:
        engine._own_rights.check(action, subject)


def check_subscribed(
    security: oz.Security | None, patterns: Sequence[oz.Pattern], *, is_routed: bool, group: str = ""
) -> None:
    """Check patterns as a publisher with the same file of permissions would check them.

    If the file does not contain the key of the command, all patterns are allowed.

    Args:
        security: keys of the command; None without keys.
        patterns: patterns of the subscriptions.
        is_routed: whether publishers receive the patterns. Otherwise they receive prefixes, which match more subjects.
        group: queue group of the subscriptions; empty without a group.

    Raises:
        PermissionDenied: the file of permissions denies a pattern to the key of the command.
    """
    credentials = credentials_of(security)
    permissions = None if credentials is None else credentials.permissions
    if credentials is None or permissions is None:
        return
    key = credentials.public_key
    user = permissions.user_of(key)
    if user is None:
        return
    # The dialect only matters for prefixes. No dialect allows more subjects of a prefix than nats.
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
    """Return the patterns for subjects of applications. Each node itself decides about the other patterns."""
    return [pattern for pattern in patterns if not (reaches(pattern, INBOX) or reaches(pattern, OWN))]
