"""The rights of a command's own key, as far as its own file of permissions tells: who is asked decides.

Whoever publishes or asks gets no answer to it, and so is not told that others drop it. Files of permissions
are mostly the same for all.
"""

from __future__ import annotations

import oz
from oz.escaping import printable
from oz.protocol.publisher.access import exactly
from oz.security.permissions import Action
from oz.transport.security import credentials_of

_DOES = {"publish": "publish on", "request": "ask on", "reply": "answer what is asked on"}


class OwnRights:
    """The rights of one key; an allowed subject is not looked up again."""

    def __init__(self, security: oz.Security | None, action: Action) -> None:
        """Take in whose rights are asked for.

        Args:
            security: of the command; None without keys.
            action: what it does.
        """
        self._credentials = credentials_of(security)
        self._action = action
        self._allowed: set[bytes] = set()

    def check(self, subject: bytes) -> None:
        """Refuse a subject that the file of permissions denies to the own key.

        A file that does not name the key says nothing: it is about others.

        Raises:
            PermissionDenied: it is denied, by which rule.
        """
        permissions = None if self._credentials is None else self._credentials.permissions
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
        return (
            "; whoever may not ask is told by nobody: the log and stats.denied of who would answer tell of it"
        )
