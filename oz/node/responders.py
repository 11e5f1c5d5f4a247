"""Choice of the streams that receive a request.

Subscriptions of one peer with the same options share a stream (`oz.publisher.session.Stream`). A stream without a queue
group is a *plain* stream.

Like a published message, a request is sent in each plain stream that matches the subject, and to one member of each
group. Therefore a program that only observes the bus receives requests too. `oz.publisher.groups.Group` picks the
member of a group. A stream whose backlog is full receives no request, because a full stream drops messages silently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from oz.errors import WouldBlock
from oz.node.requests import Content
from oz.publisher.groups import Group
from oz.publisher.routing import Route

if TYPE_CHECKING:
    from oz.publisher.session import Stream


class StreamResponders:
    """Choice of the streams that receive a request; see `oz.node.requests.Responders`."""

    def __init__(
        self,
        find: Callable[[str, bytes], Route | None],
        greets: Callable[[], bool],
        name: Callable[[bytes], str],
        lock: AbstractContextManager[Any],
        cached: Callable[[str], Route | None] = lambda subject: None,
    ) -> None:
        """Create the choice for one node.

        Args:
            find: function that returns the route of a subject among the sessions of nodes.
            greets: function that returns whether a new peer may still declare subscriptions.
            name: function that returns the name of a peer.
            lock: lock of the publisher. Other threads change the load of a stream under this lock.
            cached: function that returns the cached route of a subject; None without a cached route. It needs no lock.
        """
        self._lock, self._cached = lock, cached
        self._find, self.greets, self.name = find, greets, name

    @property
    def is_greeting(self) -> bool:
        """Whether a new peer may still declare subscriptions."""
        return self.greets()

    def all(self, content: Content, excluded: Collection[bytes], now: float) -> Sequence[Stream]:
        """Return the streams that receive a request: all matching plain streams, and one stream of each group.

        Args:
            content: content of the request.
            excluded: ids of peers that were lost while they had the request.
            now: time in seconds.

        Raises:
            WouldBlock: each member of the matching groups is full; without groups, each matching stream is full.
        """
        route = self._cached(content.subject) if content.route is None else None
        if route is not None and not route.groups and not excluded:
            # Without groups, this method changes no load and needs no lock. With the lock, the caller would wait while
            # another thread sends.
            streams = [item for item in route.plain if item.session.card and not item.session.has_ended]
            if all(item.pending < item.limit for item in streams):
                return streams
        with self._lock:
            route = content.route or self._find(content.subject, content.raw)
            if route is None:
                return ()
            found: list[Stream] = [stream for stream in route.plain if stream.session.member not in excluded]
            key = content.raw if content.key is None else content.key
            for group, members in route.groups:
                member = _pick_member(group, members, key, excluded, now)
                if member is not None:
                    found.append(member)
            found = [stream for stream in found if not stream.session.has_ended]
            accepting = [stream for stream in found if stream.pending < stream.limit]
            if len(accepting) < len(found):
                _check_space(content, found, accepting)
            for stream in accepting:
                if stream.group is not None:
                    # Count the request in the load of the member at once, as `Group.pick` does.
                    stream.load += 1
            return accepting


def _check_space(content: Content, found: list[Stream], accepting: list[Stream]) -> None:
    """Raise WouldBlock if each picked member of a group is full; without groups, if each stream is full."""
    # If a group matches, plain streams belong to programs that only observe.
    wanted = [stream for stream in found if stream.group is not None] or found
    if not any(stream in accepting for stream in wanted):
        raise WouldBlock(
            f"the request to {content.subject!r} was not sent: each node that has a subscription for it is full"
        )


def _pick_member(
    group: Group, members: Sequence[Stream], key: bytes, excluded: Collection[bytes], now: float
) -> Stream | None:
    """Pick a member of a group. In a round-robin group, prefer a member with space in its backlog."""
    if excluded:
        members = tuple(member for member in members if member.session.member not in excluded)
    if not members:
        return None
    picked = group.pick(members, key, now)
    if picked is None:
        return None
    # `pick` has added the request to the load. Subtract it, because `all` adds each request that is sent.
    picked.load -= 1
    if picked.pending >= picked.limit and group.policy == "round_robin":
        return next(
            (member for member in members if member.pending < member.limit and member.session.is_up), picked
        )
    return picked
