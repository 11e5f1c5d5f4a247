"""The membership of the bus as one node sees it: by name servers, and by the links that stand.

It reads no clock and touches no socket: each call gives what is to be done and told. Peers that a node
misses, as nobody said goodbye for them, are looked for again, ever less often: a link may be cut between two
nodes only, or a key be trusted later at one of them, and then nobody else tells either of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import NamedTuple

from oz.transport.backoff import growing
from oz.wire.discovery import Announcement

MOST = 65_536
"""Peers that one node knows at most."""

MOST_INTRODUCED = 1_024
"""Peers that one node knows by the word of other peers only; of more, those are forgotten that came first."""

TRIES = 12
"""Times that one peer is looked for before it is forgotten: with 3 s between the first two, three hours."""

MOST_MISSED = 1_024
"""Peers that are looked for; of more, those are forgotten that were missed first."""

_LONGEST = 3_600.0
"""Seconds between two tries."""


class _PeerSearch(NamedTuple):
    """The search for one peer.

    Attributes:
        peer: who.
        pauses: seconds until each further try.
        tries: how many are left.
        at: when to try, in monotonic seconds; None while it is tried.
    """

    peer: Announcement
    pauses: Iterator[float]
    tries: int
    at: float | None


class Missing:
    """The peers that one node looks for again."""

    __slots__ = ("_first", "_searches")

    def __init__(self, first: float) -> None:
        """Start with nobody.

        Args:
            first: seconds until the first try.
        """
        self._first = first
        self._searches: dict[bytes, _PeerSearch] = {}

    def __contains__(self, uuid: object) -> bool:
        """Tell whether a node is looked for."""
        return uuid in self._searches

    def miss(self, peer: Announcement, now: float) -> None:
        """Record that a peer does not answer, or does not any more."""
        if not peer.endpoints:
            # It is found by its socket in the directory, or not at all.
            return
        one = self._searches.pop(peer.uuid, None)
        if one is None:
            one = _PeerSearch(peer, growing(self._first, _LONGEST), TRIES, None)
        if one.tries:
            if len(self._searches) >= MOST_MISSED:
                del self._searches[next(iter(self._searches))]
            self._searches[peer.uuid] = _PeerSearch(peer, one.pauses, one.tries - 1, now + next(one.pauses))

    def find(self, uuid: bytes) -> None:
        """Record that a node is there, or has said goodbye."""
        self._searches.pop(uuid, None)

    def due(self, now: float) -> list[Announcement]:
        """Return those whose time it is to be tried."""
        due = [one for one in self._searches.values() if one.at is not None and now >= one.at]
        for one in due:
            self._searches[one.peer.uuid] = one._replace(at=None)
        return [one.peer for one in due]

    def next_deadline(self) -> float | None:
        """Return when to call `due`, in monotonic seconds; None for never."""
        return min((one.at for one in self._searches.values() if one.at is not None), default=None)


class Act(Enum):
    """A step to take about a peer, or to report of it; `BACK` is one whose link stands again."""

    CONNECT = "connect"
    DISCONNECT = "disconnect"
    UP = "up"
    BACK = "back"
    LEFT = "left"
    LOST = "lost"


class Step(NamedTuple):
    """An act, and the peer that it is about."""

    act: Act
    peer: Announcement


class _Known:
    """One peer.

    Attributes:
        announced: who it is.
        vouched: the name servers that have it.
        is_up: it was told of as up, and not as down since.
        linked: whether its link stands now.
        since: when that last changed, or something was last heard of it.
    """

    __slots__ = ("announced", "is_up", "linked", "since", "vouched")

    def __init__(self, announced: Announcement, now: float) -> None:
        self.announced = announced
        self.vouched: set[str] = set()
        self.is_up = self.linked = False
        self.since = now


class Membership:
    """The peers of one node.

    Attributes:
        crowd_patience: seconds more for a peer whose link has never stood, as many may begin at once.
    """

    __slots__ = ("_gone", "_introduced", "_known", "_lost_after", "_missing", "_own", "crowd_patience")

    def __init__(self, own: Announcement, lost_after: float) -> None:
        """Start alone.

        Args:
            own: the node's own announcement.
            lost_after: seconds for which a link may be down before its peer counts as lost.
        """
        self._own = own
        self._lost_after = lost_after
        self.crowd_patience = 0.0
        self._known: dict[bytes, _Known] = {}
        self._gone: dict[bytes, tuple[float, Act]] = {}
        self._introduced: dict[bytes, None] = {}
        self._missing = Missing(lost_after)

    @property
    def up(self) -> list[Announcement]:
        """The peers that are up, those that came first before others."""
        return [one.announced for one in self._known.values() if one.is_up]

    @property
    def known(self) -> list[Announcement]:
        """All that were heard of."""
        return [one.announced for one in self._known.values()]

    @property
    def count(self) -> int:
        """The number of those heard of."""
        return len(self._known)

    def is_linked(self, uuid: bytes) -> bool:
        """Tell whether a peer's link stands."""
        one = self._known.get(uuid)
        return one is not None and one.linked

    @property
    def expected(self) -> list[Announcement]:
        """Those that were heard of, without those that did not answer the last time."""
        return [one.announced for uuid, one in self._known.items() if one.linked or uuid not in self._missing]

    def knows(self, peer: Announcement) -> bool:
        """Tell whether a peer is known, by the same announcement."""
        one = self._known.get(peer.uuid)
        return one is not None and (one.announced is peer or one.announced == peer)

    def refuses(self, peer: Announcement) -> bool:
        """Tell whether an announcement contradicts that of a peer that is linked, or a name server's word."""
        one = self._known.get(peer.uuid)
        if one is None or one.announced is peer:
            return False
        return one.announced != peer and (one.linked or bool(one.vouched))

    def hear(self, peer: Announcement, now: float, *, by: str | None = None) -> list[Step]:
        """Record that there is such a node.

        Args:
            peer: who.
            now: monotonic seconds.
            by: the name server that vouches for it; None when a peer said so.
        """
        if peer.uuid == self._own.uuid or peer.bus != self._own.bus:
            return []
        one = self._known.get(peer.uuid)
        if one is None:
            if by is None and self._has_left(peer.uuid):
                # Others may not have noticed yet that it is gone, and say that it is there.
                return []
            steps = self._make_room(is_introduced=by is None)
            if len(self._known) >= MOST:
                return steps
            one = self._known[peer.uuid] = _Known(peer, now)
            if by is None:
                self._introduced[peer.uuid] = None
            steps.append(Step(Act.CONNECT, peer))
        else:
            steps = []
        if by is not None:
            one.vouched.add(by)
            self._introduced.pop(peer.uuid, None)
        return steps

    def _has_left(self, uuid: bytes) -> bool:
        return uuid in self._gone and self._gone[uuid][1] is Act.LEFT

    def _make_room(self, *, is_introduced: bool) -> list[Step]:
        """Forget, of too many of whom only peers have told, the one that came first."""
        if not is_introduced or len(self._introduced) < MOST_INTRODUCED:
            return []
        uuid = next(iter(self._introduced))
        del self._introduced[uuid]
        return [Step(Act.DISCONNECT, self._known.pop(uuid).announced)]

    def forsake(self, server: str) -> None:
        """Record that a name server does not answer: it vouches for nobody any more."""
        for one in self._known.values():
            one.vouched.discard(server)

    def leave(self, uuid: bytes, now: float, *, by: str) -> list[Step]:
        """Record that a node said goodbye to a name server.

        A link that stands tells by itself when the last messages have come; without one there are none.
        """
        one = self._known.get(uuid)
        if one is None:
            return []
        # Also of one that is linked: its link may break before it tells, and nobody says it once more.
        one.vouched.discard(by)
        return [] if one.linked else self._end(uuid, now, Act.LEFT)

    def lose(self, uuid: bytes, now: float, *, by: str) -> list[Step]:
        """Record that a name server misses a node; as long as its link stands it is there."""
        one = self._known.get(uuid)
        if one is None:
            return []
        one.vouched.discard(by)
        if one.linked or one.vouched:
            return []
        steps = self._end(uuid, now, Act.LOST)
        # The name server tells when it comes back.
        self._missing.find(uuid)
        return steps

    def link(
        self, there: Iterable[Announcement], whole: AbstractSet[bytes], cut: AbstractSet[bytes], now: float
    ) -> list[Step]:
        """Record which links stand.

        Args:
            there: the nodes of which any presence announcement stands. One that knows but one endpoint of
                this node learns of the others when it is connected to.
            whole: the uuids of those whose presence announcements stand at every publisher where they should.
            cut: the uuids of those whose connection broke; a presence announcement that is in neither was
                taken back.
            now: monotonic seconds.
        """
        steps: list[Step] = []
        for peer in there:
            # Of one that takes its leave, the last presence announcement goes a moment later.
            if peer.uuid in whole or self._gone.get(peer.uuid, (now, Act.LOST))[1] is Act.LOST:
                self._gone.pop(peer.uuid, None)
            steps += self._replace(peer)
            steps += self.hear(peer, now)
            one = self._known.get(peer.uuid)
            if one is not None and not one.linked and peer.uuid in whole:
                one.linked, one.since = True, now
                self._introduced.pop(peer.uuid, None)
                self._missing.find(peer.uuid)
                steps.append(Step(Act.BACK if one.is_up else Act.UP, one.announced))
                one.is_up = True
        for uuid, one in list(self._known.items()):
            if one.linked and uuid not in whole:
                one.linked, one.since = False, now
                if uuid not in cut:
                    steps += self._end(uuid, now, Act.LEFT)
        return steps

    def _replace(self, peer: Announcement) -> list[Step]:
        """Forget what others said of a peer that says something else itself."""
        one = self._known.get(peer.uuid)
        if one is None or one.announced is peer or one.announced == peer:
            return []
        self._introduced.pop(peer.uuid, None)
        del self._known[peer.uuid]
        return [Step(Act.LOST, one.announced)] * one.is_up + [Step(Act.DISCONNECT, one.announced)]

    def tick(self, now: float, is_waiting: Callable[[Announcement], bool] = lambda _: False) -> list[Step]:
        """See who has been without a link for too long.

        Args:
            now: monotonic seconds.
            is_waiting: tells of a peer whether it was not even dialled yet.
        """
        steps: list[Step] = []
        for uuid, one in list(self._known.items()):
            if one.linked:
                continue
            if not one.is_up and is_waiting(one.announced):
                one.since = now
                continue
            if now >= self._lost_at(one) and (one.is_up or not one.vouched):
                if one.vouched:
                    one.is_up = False
                    steps.append(Step(Act.LOST, one.announced))
                else:
                    steps += self._end(uuid, now, Act.LOST)
        for peer in self._missing.due(now):
            steps += self.hear(peer, now)
        for uuid in [uuid for uuid, (at, _) in self._gone.items() if now >= at + 4 * self._lost_after]:
            del self._gone[uuid]
        return steps

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do, in monotonic seconds; None for never."""
        deadlines = [at + 4 * self._lost_after for at, _ in self._gone.values()]
        if (look_at := self._missing.next_deadline()) is not None:
            deadlines.append(look_at)
        deadlines += [
            self._lost_at(one)
            for one in self._known.values()
            if not one.linked and (one.is_up or not one.vouched)
        ]
        return min(deadlines, default=None)

    def _lost_at(self, one: _Known) -> float:
        return one.since + self._lost_after + (0.0 if one.is_up else self.crowd_patience)

    def _end(self, uuid: bytes, now: float, act: Act) -> list[Step]:
        one = self._known.pop(uuid, None)
        if one is None:
            return []
        self._introduced.pop(uuid, None)
        self._gone[uuid] = now, act
        if act is Act.LOST:
            self._missing.miss(one.announced, now)
        else:
            self._missing.find(uuid)
        steps = [Step(act, one.announced)] if one.is_up else []
        return [*steps, Step(Act.DISCONNECT, one.announced)]
