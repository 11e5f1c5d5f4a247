"""Streams that receive a request: choice among the matching subscriptions of the peers.

Theory of operation
-------------------
A request goes to one of the *choices* of its subject, in turn:

=============================== =======================================================================
subscription                    choice
=============================== =======================================================================
plain                           its stream
in a group with "round_robin"   each member
in a sticky or failover group   the group as a whole, whose policy picks the member
=============================== =======================================================================

A session is a choice only once by its plain streams and its members of one group, so that a peer with several
subscriptions does not receive a larger share. A choice has *room* if its session is UP and was heard lately,
and its stream has no backlog. If no choice has room, the request goes to a session that is UP. If no session
is UP, it waits in a session that is DOWN for the link of the peer. A stream whose backlog is full receives no request,
because the request would be dropped without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from oz.errors import WouldBlock
from oz.node.requests import Content
from oz.publisher.groups import Group
from oz.publisher.routing import Route

if TYPE_CHECKING:
    from oz.publisher.session import Stream

MAX_CACHED = 1_024
"""Routes whose choices are kept."""

Choice = Any
"""A stream, or a group and its matching members."""


class StreamResponders:
    """Choice of streams for requests, as `oz.node.requests.Responders` describes it.

    Attributes:
        greets: returns whether a link may bring subscriptions that are not known yet.
        name: returns the name of a peer.
    """

    def __init__(
        self,
        find: Callable[[str, bytes], Route | None],
        greets: Callable[[], bool],
        name: Callable[[bytes], str],
    ) -> None:
        """Start with the interest of a publisher.

        Args:
            find: returns the route of a subject among the sessions of nodes. It returns the same object until
                the interest changes.
            greets: returns whether a link may bring subscriptions that are not known yet.
            name: returns the name of a peer.
        """
        self._find, self.greets, self.name = find, greets, name
        self._choices: dict[str, tuple[Route, Sequence[Choice]]] = {}
        self._turn = 0

    @property
    def is_greeting(self) -> bool:
        """Whether a link may bring subscriptions that are not known yet."""
        return self.greets()

    def pick(self, content: Content, excluded: Collection[bytes], now: float) -> Stream | None:
        """Return a stream with a matching subscription, None without one.

        Args:
            content: of the request.
            excluded: ids of peers that were lost with the request.
            now: in seconds.

        Raises:
            WouldBlock: each matching stream is full.
        """
        route = self._find(content.subject, content.raw)
        if route is None:
            return None
        choices = self._choices_of(content.subject, route)
        if excluded:
            choices = list(_without(choices, excluded))
        key = content.raw if content.key is None else content.key
        count, turn = len(choices), self._turn
        kept: Stream | None = None
        is_full = False
        for step in range(1, count + 1):
            choice = choices[(turn + step) % count]
            stream = _pick_member(choice, key, now) if type(choice) is tuple else choice
            if stream is None or stream.session.has_ended:
                continue
            if stream.pending >= stream.limit:
                is_full = True
            elif not stream.pending and stream.session.is_responsive(now):
                self._turn = (turn + step) % count
                return _counted(stream)
            elif kept is None or (stream.session.is_up and not kept.session.is_up):
                kept = stream
        if kept is not None:
            self._turn = turn + 1
            return _counted(kept)
        if is_full:
            raise _full(content)
        return None

    def all(self, content: Content, now: float) -> Sequence[Stream]:
        """Return all matching plain streams, and one of each group.

        Args:
            content: of the request.
            now: in seconds.

        Raises:
            WouldBlock: each matching stream is full.
        """
        route = self._find(content.subject, content.raw)
        if route is None:
            return ()
        key = content.raw if content.key is None else content.key
        members = [_pick_member(choice, key, now) for choice in route.groups]
        found = [one for one in (*route.plain, *members) if one is not None and not one.session.has_ended]
        accepting = [_counted(one) for one in found if one.pending < one.limit]
        if found and not accepting:
            raise _full(content)
        return accepting

    def _choices_of(self, subject: str, route: Route) -> Sequence[Choice]:
        cached = self._choices.get(subject)
        if cached is not None and cached[0] is route:
            return cached[1]
        found = _find_choices(route)
        if len(self._choices) >= MAX_CACHED:
            self._choices.clear()
        self._choices[subject] = route, found
        return found


def _find_choices(route: Route) -> list[Choice]:
    plain: dict[Any, Choice] = {}
    for stream in route.plain:
        plain.setdefault(stream.session, stream)
    found = list(plain.values())
    for group, members in route.groups:
        if group.policy == "round_robin":
            found += members
        else:
            found.append((group, members))
    return found


def _without(choices: Sequence[Choice], excluded: Collection[bytes]) -> list[Choice]:
    """Return the choices without the streams of some peers."""
    found: list[Choice] = []
    for choice in choices:
        if type(choice) is tuple:
            group, members = choice
            left = tuple(one for one in members if one.session.member not in excluded)
            if left:
                found.append((group, left))
        elif choice.session.member not in excluded:
            found.append(choice)
    return found


def _pick_member(choice: tuple[Group, Sequence[Stream]], key: bytes, now: float) -> Stream | None:
    group, members = choice
    stream = group.pick(members, key, now)
    if stream is not None:
        # `_counted` counts the request only if it goes to this member.
        stream.load -= 1
    return stream


def _counted(stream: Stream) -> Stream:
    """Return a stream that receives a request. A member of a group counts it at once, as `Group.pick` does."""
    if stream.group is not None:
        stream.load += 1
    return stream


def _full(content: Content) -> WouldBlock:
    return WouldBlock(
        f"the request to {content.subject!r} was not sent: each node that has a subscription for it is full"
    )
