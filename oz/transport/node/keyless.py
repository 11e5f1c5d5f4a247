"""The peers and name servers of a node without keys, as some of them demand keys, or come to do so.

All of it is for the I/O side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Any

import zmq

from oz.transport.demands import Demands
from oz.transport.keyless_calls import RETRY, KeylessCalls
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
        "_demands",
        "_is_awaited",
        "_is_registered",
        "_look_at",
        "_monotonic",
        "_named",
        "_refuse",
        "_sockets",
        "_tell",
        "_untold",
        "_watched",
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
        self._is_awaited, self._is_registered = is_awaited, is_registered
        self._tell, self._refuse, self._monotonic = tell, refuse, monotonic
        self._untold: dict[str, float] = {}
        self._demands = Demands(
            [*sockets.servers, *named],
            monotonic(),
            is_needed=self._is_needed,
            tell=self._note,
            wake=wake,
        )
        self.refusals, self.absent = self._demands.refusals, self._demands.absent
        self._watched: list[tuple[zmq.Socket[Any], KeylessCalls]] = [
            (dealer, sockets.watch_server(one, self._demands)) for one, dealer in sockets.servers.items()
        ]
        if named:
            calls = sockets.sub.connector.watch_keyless(self._demands, self._named)
            self._watched.append((sockets.sub.socket, calls))
        self._begin_at = self._look_at = inf
        self._begin(monotonic(), is_late=False)

    def standing_refusals(self) -> list[str]:
        """Return why peers are not connected, as far as that was told."""
        return [why for one, why in self.refusals.items() if one in self._named and why not in self._untold]

    def next_deadline(self) -> float:
        """Return when to call `look` at the latest, in monotonic seconds."""
        asked_at = self._demands.next_deadline()
        return min(self._look_at, self._begin_at, inf if asked_at is None else asked_at)

    def look(self, now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is."""
        if now >= self._begin_at:
            self._begin(now, is_late=True)
        self._demands.look(now)
        for socket, calls in self._watched:
            calls.look(socket, now)
        for why, until in list(self._untold.items()):
            if now >= until or not self._sockets.sub.is_behind:
                del self._untold[why]
                self._refuse(why)
        self._look_at = now if self._untold else min(self._next_looks(now), default=inf)

    def read(self, now: float) -> None:
        """Take in what has become of the connections."""
        for socket, calls in self._watched:
            calls.read(socket, now)

    def _next_looks(self, now: float) -> list[float]:
        return [calls.next_look(now) for _, calls in self._watched if calls.is_watching]

    def _begin(self, now: float, *, is_late: bool) -> None:
        """Watch the connections, where there is room for that."""
        self._begin_at = inf
        for socket, calls in self._watched:
            if calls.is_watching:
                continue
            if not calls.begin(socket):
                self._begin_at = now + RETRY
            elif is_late:
                # Whatever has happened before is told by nobody.
                for endpoint in filter(self._is_needed, calls.connected):
                    calls.give_up(socket, endpoint, now)
        self._look_at = min(self._next_looks(now), default=inf)

    def _is_needed(self, endpoint: str) -> bool:
        if any(calls.is_given_up(endpoint) for _, calls in self._watched):
            return True
        return self._is_awaited(endpoint) if endpoint in self._named else not self._is_registered()

    def _note(self, why: str, endpoint: str) -> None:
        self._tell(why, endpoint)
        if endpoint in self._named:
            self._untold[why] = self._monotonic() + _LONGEST_BEHIND
