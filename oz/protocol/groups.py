"""Queue groups at a publisher: which member of a group gets a message.

A group is known by its name; its members may have different patterns, and among those that match a subject
one is picked for each message. Each publisher picks for itself. Source: docs/decisions/013-queue-groups.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Protocol

REMEMBERED = 65_536
"""Keys for which the sticky choice is remembered, for each set of members."""


class Member(Protocol):
    """What a group knows of a member: one stream of a subscriber."""

    name: bytes
    joined: int
    is_full: bool


class Group:
    """One queue group.

    Attributes:
        name: what its members call it.
        policy: that of its senior member: `"turn"`, `"sticky"` or `"first"`.
    """

    __slots__ = ("_members", "_turn", "name", "policy")

    def __init__(self, name: str) -> None:
        """Start without members."""
        self.name = name
        self.policy = "turn"
        self._members: dict[Any, str] = {}
        self._turn = 0

    def __bool__(self) -> bool:
        """Whether there is any member."""
        return bool(self._members)

    def join(self, member: Member, policy: str) -> None:
        """Take a member in; the senior member's policy is the group's."""
        self._members.setdefault(member, policy)
        self._settle()

    def leave(self, member: Member) -> None:
        """Take a member out."""
        self._members.pop(member, None)
        self._settle()

    def _settle(self) -> None:
        if self._members:
            self.policy = self._members[min(self._members, key=lambda one: one.joined)]

    def next_turn(self) -> int:
        """Count on."""
        self._turn += 1
        return self._turn


class Choice:
    """The members of one group that want a subject.

    Attributes:
        members: the senior one first.
    """

    __slots__ = ("_group", "_sticky", "members")

    def __init__(self, group: Group, members: Iterable[Any]) -> None:
        """Put them in order."""
        self._group = group
        self.members = tuple(sorted(members, key=lambda one: one.joined))
        self._sticky: dict[bytes, tuple[Any, ...]] = {}

    def pick(self, key: bytes) -> Any:
        """Pick the member that gets a message; one that cannot take more is passed over if another can.

        Args:
            key: what a sticky choice goes by: the key given to `publish`, or the subject.
        """
        policy = self._group.policy
        if policy == "sticky":
            order = self._sticky.get(key) or self._rank(key)
        elif policy == "first":
            order = self.members
        else:
            at = self._group.next_turn() % len(self.members)
            member = self.members[at]
            if not member.is_full:
                return member
            order = self.members[at:] + self.members[:at]
        for member in order:
            if not member.is_full:
                return member
        return order[0]

    def _rank(self, key: bytes) -> tuple[Any, ...]:
        """Order the members by rendezvous hashing: when one leaves, only its own share moves."""
        order = tuple(sorted(self.members, key=lambda one: _weight(key, one.name), reverse=True))
        if len(self._sticky) >= REMEMBERED:
            self._sticky.clear()
        self._sticky[key] = order
        return order


def _weight(key: bytes, name: bytes) -> bytes:
    return blake2b(key, digest_size=8, key=name).digest()
