"""Queue groups at a publisher: which member of a group gets a message.

A group is known by its name; its members may have different patterns, and among those that match a subject
one is picked for each message. Each publisher picks for itself.
Source: docs/decisions/013-queue-groups-by-name.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Protocol

REMEMBERED = 65_536
"""Keys for which the sticky choice is remembered, for each set of members."""

_CONNECTIONS = 1_000
"""Connections with several members whose last turn is remembered."""


class Member(Protocol):
    """A member as its group sees it: one stream of a subscriber."""

    name: bytes
    joined: int
    is_full: bool
    is_gone: bool
    is_closing: bool

    @property
    def share(self) -> bytes:
        """The name of that with which it has a turn together: its connection."""

    def wants(self, subject: bytes) -> bool:
        """Tell whether one of its patterns matches."""


class Group:
    """One queue group.

    Attributes:
        name: what its members call it.
        policy: that of its senior member: `"round_robin"`, `"sticky"` or `"failover"`.
        last: when the senior member of the connection joined that had the last turn.
        last_of: for each connection with several members, when the one joined that had its last turn.
    """

    __slots__ = ("_members", "last", "last_of", "name", "policy")

    def __init__(self, name: str) -> None:
        """Start without members."""
        self.name = name
        self.policy = "round_robin"
        self._members: dict[Any, str] = {}
        self.last = -1
        self.last_of: dict[bytes, int] = {}

    def __bool__(self) -> bool:
        """Whether there is any member."""
        return bool(self._members)

    def __iter__(self) -> Iterator[Any]:
        """Return its members."""
        return iter(self._members)

    def join(self, member: Member, policy: str) -> None:
        """Take a member in; the senior member's policy is the group's."""
        self._members.setdefault(member, policy)
        self._settle()

    def leave(self, member: Member) -> None:
        """Take a member out."""
        self._members.pop(member, None)
        self._settle()

    def remember(self, member: Member) -> None:
        """Remember that a member had the turn of its connection."""
        if len(self.last_of) >= _CONNECTIONS:
            self.last_of.clear()
        self.last_of[member.share] = member.joined

    def _settle(self) -> None:
        if self._members:
            self.policy = self._members[min(self._members, key=lambda one: one.joined)]


class Choice:
    """The members of one group that want a subject.

    It has turns of its own, or else two such sets that are used alternately could leave a member out. All
    members of one connection have one turn together: whoever declares itself 200 times gets no more by that.

    Attributes:
        members: the senior one first.
        is_outdated: interests have changed since.
        sticky: the members that were chosen for subjects lately.
    """

    __slots__ = ("_group", "_groups", "_shares", "_turn", "is_outdated", "members", "sticky")

    def __init__(
        self, group: Group, members: Iterable[Any], groups: Mapping[str, Group] | None = None
    ) -> None:
        """Put them in order.

        Args:
            group: theirs.
            members: those that want the subject.
            groups: all that there are, by name; without members a group is none of them any more.
        """
        self._group = group
        self._groups = {} if groups is None else groups
        self.members = tuple(sorted(members, key=lambda one: one.joined))
        shares: dict[bytes, list[Any]] = {}
        for member in self.members:
            shares.setdefault(member.share, []).append(member)
        for share, last in group.last_of.items():
            if share in shares:
                shares[share].sort(key=lambda one: (one.joined <= last, one.joined))
        self._shares = list(shares.values())
        # Where the group stands: interests that come and go favour nobody.
        self._turn = sum(_senior(share).joined <= group.last for share in self._shares) - 1
        self.sticky: dict[bytes, tuple[Any, ...]] = {}
        self.is_outdated = False

    def now(self, subject: bytes) -> Choice:
        """Return the choice among those who still want a subject.

        A message may be on its way through `publish` while a member is told that nothing more comes for it.
        """
        if not self.is_outdated:
            return self
        group = self._group
        members = [one for one in self.members if one.wants(subject)]
        if not members and (heirs := self._groups.get(group.name)) is not None:
            # Whoever has joined since, before the last of them left.
            group, members = heirs, [one for one in heirs if one.wants(subject)]
        return Choice(group, members) if members else self

    def pick(self, key: bytes) -> Any:
        """Pick the member that gets a message.

        In turn, one that cannot take more is passed over if another can. A sticky or a first member is not:
        whoever relies on one member would see its messages overtaken at another.

        Args:
            key: what a sticky choice goes by: the key given to `publish`, or the subject.
        """
        policy = self._group.policy
        if policy == "sticky":
            return _first_there(self.sticky.get(key) or self._rank(key))
        if policy == "failover":
            return _first_there(self.members)
        shares = self._shares
        self._turn = at = (self._turn + 1) % len(shares)
        if len(shares) == len(self.members) and _is_able(shares[at][0]):
            member = shares[at][0]
        else:
            order = shares[at:] + shares[:at]
            member = next((one for share in order for one in share if _is_able(one)), None)
            member = member or _first_there(tuple(one for share in order for one in share))
            share = next(one for one in order if member in one)
            # The next turn is that of whoever comes after it, or it would have two.
            self._turn = shares.index(share)
            if len(share) > 1:
                share.remove(member)
                share.append(member)
                self._group.remember(member)
        self._group.last = _senior(shares[self._turn]).joined
        return member

    def _rank(self, key: bytes) -> tuple[Any, ...]:
        """Order the members by rendezvous hashing: when one leaves, only its own share moves."""
        shares = sorted(self._shares, key=lambda share: _weight(key, _senior(share).name), reverse=True)
        order = tuple(
            one
            for share in shares
            for one in sorted(share, key=lambda one: _weight(key, one.name), reverse=True)
        )
        if len(self.sticky) >= REMEMBERED:
            self.sticky.clear()
        self.sticky[key] = order
        return order


def _senior(share: list[Any]) -> Any:
    return min(share, key=lambda one: one.joined)


def _is_able(member: Any) -> bool:
    return not (member.is_full or member.is_closing or member.is_gone)


def _first_there(order: tuple[Any, ...]) -> Any:
    """Return the first that is not closing, or else the first that is not gone, or else the first."""
    for member in order:
        if not (member.is_closing or member.is_gone):
            return member
    return next((member for member in order if not member.is_gone), order[0])


def _weight(key: bytes, name: bytes) -> bytes:
    return blake2b(key, digest_size=8, key=name).digest()
