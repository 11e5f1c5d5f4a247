"""Rights of this program's key, according to its own permission file.

Peers decide by their own permission files, which usually have the same content. A program also checks its file before
it sends. Therefore it gets an error with the rule at once, and a peer does not have to report the denial.
"""

from __future__ import annotations

from collections.abc import Callable

from oz.errors import PermissionDenied
from oz.security.access import denial_of
from oz.security.denials import Denial
from oz.security.permissions import Action, Permissions, User

MAX_CACHED = 65_536
"""Maximum number of cached subjects for one action. Beyond it, the cache of the action is cleared."""

_VERBS: dict[Action, str] = {
    "publish": "publish on",
    "request": "request on",
    "reply": "reply to requests on",
}


class OwnRights:
    """Rights of this program's key. Allowed subjects are cached until the file changes."""

    __slots__ = ("_allowed", "_key", "_permissions", "_read", "_read_again")

    def __init__(
        self,
        read: Callable[[], Permissions | None],
        key: str,
        read_again: Callable[[], Permissions | None],
    ) -> None:
        """Start with an empty cache.

        Args:
            read: function that returns the permissions, or None to allow everything. It returns the same object until
                the permissions change.
            key: public key of this program.
            read_again: function that reads the file again if it has changed, and returns the permissions. It is called
                before a denial, because peers may already use a newer version of the file.
        """
        self._read, self._key, self._read_again = read, key, read_again
        self._permissions: Permissions | None = None
        self._allowed: dict[Action, set[bytes]] = {action: set() for action in _VERBS}

    def check(self, action: Action, subject: bytes) -> None:
        """Check whether this program may use a subject.

        If the file does not contain the program's key, all subjects are allowed.

        Args:
            action: "publish", "request" or "reply".
            subject: subject as bytes.

        Raises:
            PermissionDenied: the file denies the subject to this program's key.
        """
        permissions = self._read()
        if permissions is not self._permissions:
            self._permissions = permissions
            self._allowed = {action: set() for action in _VERBS}
        allowed = self._allowed[action]
        if permissions is None or subject in allowed:
            return
        error = self._error(permissions, action, subject)
        if error is not None and (current := self._read_again()) is not permissions:
            error = self._error(current, action, subject)
        if error is not None:
            raise error
        if len(allowed) >= MAX_CACHED:
            allowed.clear()
        allowed.add(subject)

    def _error(
        self, permissions: Permissions | None, action: Action, subject: bytes
    ) -> PermissionDenied | None:
        user = None if permissions is None else permissions.user_of(self._key)
        if permissions is None or user is None:
            return None
        denial = self._denial(permissions, user, action, subject)
        if denial is None:
            return None
        shown = subject.decode(errors="backslashreplace")
        return PermissionDenied(
            f"{user.name} may not {_VERBS[action]} {shown!r}, and peers would drop it: {denial}",
            rule=denial.rule,
            subject=shown,
        )

    def _denial(self, permissions: Permissions, user: User, action: Action, subject: bytes) -> Denial | None:
        is_reply = action == "reply"
        # `allows` is faster than `denial_of`, but it does not consider `allow_responses`.
        if not is_reply and permissions.allows(user, action, subject):
            return None
        denial = denial_of(permissions, self._key, action, subject.decode("utf-8", "surrogateescape"))
        return Denial("no rule allows this subject") if denial is None and not is_reply else denial
