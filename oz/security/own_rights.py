"""Rights of the own key, by the own file of permissions.

Peers decide by their files, which usually have the same content. So the own file is checked first: the error has the
rule, and peers need not report the denial.
"""

from __future__ import annotations

from collections.abc import Callable

from oz.errors import PermissionDenied
from oz.security.access import denial_of
from oz.security.denials import Denial
from oz.security.permissions import Action, Permissions, User

MAX_CACHED = 65_536
"""Number of allowed subjects at which the cache is cleared."""

_VERBS = {"publish": "publish on", "request": "request on", "reply": "reply to requests on"}


class OwnRights:
    """Rights of the own key for one action. Allowed subjects are cached until the file changes."""

    __slots__ = ("_action", "_allowed", "_key", "_permissions", "_read")

    def __init__(self, read: Callable[[], Permissions | None], key: str, action: Action) -> None:
        """Start with an empty cache.

        Args:
            read: returns the current permissions, the same object while they do not change; None allows everything.
            key: own public key.
            action: "publish", "request" or "reply".
        """
        self._read, self._key, self._action = read, key, action
        self._permissions: Permissions | None = None
        self._allowed: set[bytes] = set()

    def check(self, subject: bytes) -> None:
        """Check a subject. A file without the own key allows all subjects, because it is about other programs.

        Raises:
            PermissionDenied: the file denies the subject to the own key.
        """
        permissions = self._read()
        if permissions is not self._permissions:
            self._permissions = permissions
            self._allowed.clear()
        if permissions is None or subject in self._allowed:
            return
        user = permissions.user_of(self._key)
        if user is None:
            return
        denial = self._denial(permissions, user, subject)
        if denial is not None:
            shown = subject.decode(errors="backslashreplace")
            raise PermissionDenied(
                f"{user.name} may not {_VERBS[self._action]} {shown!r}, and peers would drop it: {denial}",
                rule=denial.rule,
                subject=shown,
            )
        if len(self._allowed) >= MAX_CACHED:
            self._allowed.clear()
        self._allowed.add(subject)

    def _denial(self, permissions: Permissions, user: User, subject: bytes) -> Denial | None:
        is_reply = self._action == "reply"
        # `allows` needs less time than a reason, but it does not read `allow_responses`.
        if not is_reply and permissions.allows(user, self._action, subject):
            return None
        denial = denial_of(permissions, self._key, self._action, subject.decode("utf-8", "surrogateescape"))
        return Denial("no rule allows this subject") if denial is None and not is_reply else denial
