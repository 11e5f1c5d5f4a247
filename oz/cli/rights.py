"""Checks of a command's permissions, before it waits for peers.

Each peer decides with its own permission file. A peer does not answer a denied publisher or requester, so that the
command could not report why no answer comes. Usually all programs have the same file. Therefore a command first checks
its key against its own file.
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
    """Check whether the command may do an action on a subject; see `oz.security.own_rights`.

    Raises:
        PermissionDenied: the file of permissions denies the subject to the key of the command.
    """
    engine = publisher._node.publisher if isinstance(publisher, oz.Node) else publisher._engine
    if engine._own_rights is not None:
        engine._own_rights.check(action, subject)


def check_subscribed(
    security: oz.Security | None, patterns: Sequence[oz.Pattern], *, is_routed: bool, group: str = ""
) -> None:
    """Check whether a publisher with the same permission file would allow subscriptions.

    If the file does not contain the key of the command, all patterns are allowed.

    Args:
        security: keys of the command; None without keys.
        patterns: patterns of the subscriptions.
        is_routed: whether the publishers get the patterns. Otherwise they get prefixes, which match more subjects.
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
    # The dialect matters only for prefixes. No dialect allows more subjects with a prefix than nats.
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
    """Return the patterns that match no subjects of oz itself. The nodes decide about the other patterns."""
    return [pattern for pattern in patterns if not (reaches(pattern, INBOX) or reaches(pattern, OWN))]
