"""The peers and name servers of a node without keys, as some of them demand keys, or come to do so.

All of it is for the I/O side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf

from oz.transport.demands import Demands
from oz.transport.keyless_calls import RETRY
from oz.transport.node.opening import NodeSockets

_LONGEST_BEHIND = 2.0
"""Seconds after which a refusal is told though more comes all the time than is taken in."""


class KeylessPeers:
    """The demands for keys that one node without any meets.

    Attributes:
        refusals: why there is no connection to what the user has named, in words, by endpoint.
        absent: of that, where nobody is.
    """

    __slots__ = (
        "_begin_at",
        "_calls",
        "_demands",
        "_is_awaited",
        "_look_at",
        "_monotonic",
        "_named",
        "_refuse",
        "_sockets",
        "_tell",
        "_untold",
        "absent",
        "refusals",
    )

    def __init__(
        self,
        sockets: NodeSockets,
        named: Collection[str],
        is_registered: Callable[[], bool],
        is_awaited: Callable[[str], bool],
        tell: Callable[[str, str], object],
        refuse: Callable[[str], object],
        wake: Callable[[], object],
        monotonic: Callable[[], float],
    ) -> None:
        """Begin, before anybody is connected to.

        Args:
            sockets: of the node.
            named: the peers that the user has named.
            is_registered: tells whether any name server has the node.
            is_awaited: tells whether it is to be known of one of those peers whether somebody comes.
            tell: is told of somebody who demands keys: in words, and where.
            refuse: is told of a peer that does: in words, once whatever has come before is taken in.
            wake: has the I/O side call `look` soon; called by any thread.
            monotonic: the clock.
        """
        self._sockets, self._named = sockets, frozenset(named)
        self._is_awaited = is_awaited
        self._tell, self._refuse, self._monotonic = tell, refuse, monotonic
        self._untold: dict[str, float] = {}
        self._demands = Demands(
            [*sockets.servers, *named],
            monotonic(),
            is_needed=lambda one: self._is_needed(one) if one in self._named else not is_registered(),
            tell=self._note,
            wake=wake,
        )
        self.refusals, self.absent = self._demands.refusals, self._demands.absent
        self._calls = sockets.sub.connector.watch_keyless(self._demands, self._named)
        self._begin_at = monotonic() if named else inf
        self._look_at = inf
        self._begin(monotonic())

    def told(self) -> list[str]:
        """Return why peers are not connected, as far as that was told."""
        return [why for one, why in self.refusals.items() if one in self._named and why not in self._untold]

    def next_deadline(self) -> float:
        """Return when to call `look` at the latest, in monotonic seconds."""
        asked_at = self._demands.next_deadline()
        return min(self._look_at, self._begin_at, inf if asked_at is None else asked_at)

    def look(self, now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is."""
        self._begin(now)
        self._calls.look(self._sockets.sub.socket, now)
        for why, until in list(self._untold.items()):
            if now >= until or not self._sockets.sub.is_behind:
                del self._untold[why]
                self._refuse(why)
        if self._calls.is_watching:
            self._look_at = now if self._untold else self._calls.next_look(now)

    def _begin(self, now: float) -> None:
        """Watch the connections, once there is room for that."""
        if now < self._begin_at:
            return
        if not self._calls.begin(self._sockets.sub.socket):
            self._begin_at = now + RETRY
            return
        self._begin_at, self._look_at = inf, now
        # Whatever has happened before is told by nobody.
        for endpoint in self._named.intersection(self._sockets.sub.connector.endpoints):
            if self._is_awaited(endpoint):
                self._calls.give_up(self._sockets.sub.socket, endpoint, now)

    def _is_needed(self, endpoint: str) -> bool:
        return self._calls.is_given_up(endpoint) or self._is_awaited(endpoint)

    def _note(self, why: str, endpoint: str) -> None:
        self._tell(why, endpoint)
        if endpoint in self._named:
            self._untold[why] = self._monotonic() + _LONGEST_BEHIND
