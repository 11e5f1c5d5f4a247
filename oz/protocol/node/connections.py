"""The connections of a node to others: which endpoints it dials, for whom, and when it hangs up.

Nothing here touches a socket or reads a clock. What the node's subscriber has heard and which sockets are in
the directory is asked through ports, and what is to be done comes back as steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oz.protocol.node.dialling import Call, DialQueue, Redials
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.probes import DrainingPeer, Probes
from oz.protocol.node.reach import Reach
from oz.protocol.node.steps import (
    ConnectionStep,
    Dial,
    Directory,
    Forget,
    HangUp,
    Hearing,
    LoseTrack,
    Unreachable,
    Way,
)
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.wire.discovery import Announcement

CHECK_EVERY = 1.0
"""Seconds between two looks at who says nothing."""

MISSES = 4
"""Looks in a row at which nothing new had come of a publisher, after which it counts as silent; its heart
beats every second. Not seconds: while a process stood still itself, nobody else was silent."""

FORGET_AFTER = 60.0
"""Seconds for which it is known where a lost node's messages stood: if it comes back, losses are counted."""

_NEVER = (0, 0)


class _Gone(NamedTuple):
    """Whose publisher it was, and until when that is remembered, in monotonic seconds."""

    peer: Announcement
    until: float


class Connections:
    """The connections of one node. Each call says which steps to take, in order.

    Attributes:
        own: the node's announcement.
        reach: which announced endpoints are connected to.
        silent: the uuids of the peers that said nothing any more when `check` looked last.
        draining: the publishers that are gone and still listened to, by origin.
        probes: tries sockets in the directory; None where there is none.
    """

    __slots__ = (
        "_check_at",
        "_dialled",
        "_dialled_at",
        "_dials",
        "_gone",
        "_hearing",
        "_looks",
        "_redials",
        "_seeds",
        "_ways",
        "draining",
        "own",
        "probes",
        "reach",
        "silent",
    )

    def __init__(
        self,
        own: Announcement,
        hearing: Hearing,
        directory: Directory | None,
        seeds: Sequence[str] = (),
        *,
        reach: Reach | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Start with nothing dialled.

        Args:
            own: the node's announcement.
            hearing: what its subscriber has heard.
            directory: where nodes of this host are looked for; None when they are not.
            seeds: endpoints of peers that are connected to whether they are there or not.
            reach: which announced endpoints are connected to; made of the seeds unless given.
            limits: how many are dialled at once, and in a second.
        """
        self.own = own
        self.reach = Reach(own, seeds) if reach is None else reach
        self._hearing = hearing
        self._dials = DialQueue(hearing.heard_at, limits)
        self._seeds = tuple(seeds)
        self._dialled: dict[str, Announcement] = {}
        self._dialled_at: dict[str, float] = {}
        self._redials = Redials()
        self._looks: dict[bytes, tuple[int, int]] = {}
        self._ways: dict[bytes, tuple[Announcement, list[Way]]] = {}
        self.silent: frozenset[bytes] = frozenset()
        self._check_at = 0.0
        self.draining: dict[bytes, DrainingPeer] = {}
        self._gone: dict[bytes, _Gone] = {}
        self.probes: Probes | None = None
        if directory is not None:
            self.probes = Probes(directory, self._dialled, self._redials, self._hang_up)

    def start(self) -> list[ConnectionStep]:
        """Dial the seeds."""
        return [Dial(seed, "a peer", is_for_ever=True) for seed in self._seeds]

    def next_deadline(self, *, has_peers: bool) -> float | None:
        """Return when something is due, in monotonic seconds; None for never.

        Args:
            has_peers: whether any peer is known, who may fall silent.
        """
        deadlines = [one.next_look for one in self.draining.values()]
        deadlines += [one.until for origin, one in self._gone.items() if origin not in self.draining]
        if self.probes is not None:
            deadlines.append(self.probes.scan_at)
        if has_peers:
            deadlines.append(self._check_at)
        if (dial_at := self._dials.next_deadline()) is not None:
            deadlines.append(dial_at)
        return min(deadlines, default=None)

    # where peers are -------------------------------------------------------------------------------------

    def is_local(self, peer: Announcement) -> bool:
        """Tell whether a peer is connected to by way of this host's directory."""
        return (
            self.own.local_endpoint is not None
            and peer.local_endpoint is not None
            and peer.host_id == self.own.host_id
            and self.reach.is_in_directory(peer.local_endpoint)
        )

    def ways(self, peer: Announcement) -> list[Way]:
        """Return the publishers of a peer that this node hears, and where each is connected to."""
        ways = []
        if peer.local_endpoint is not None and self.is_local(peer):
            ways.append(Way(peer.local_endpoint, local_origin(peer.uuid)))
        # Who listened before at an endpoint that is this node's own now is gone.
        if peer.endpoints and peer.endpoints[0] not in self.own.endpoints:
            ways.append(Way(peer.endpoints[0], network_origin(peer.uuid)))
        return ways

    def _ways_to(self, peer: Announcement) -> list[Way]:
        """Return the same, made at the last `check` if it was."""
        known = self._ways.get(peer.uuid)
        return known[1] if known is not None and known[0] is peer else self.ways(peer)

    # peers that come and go ------------------------------------------------------------------------------

    def connect(self, peer: Announcement, now: float) -> list[ConnectionStep]:
        """See to it that a peer is heard."""
        steps: list[ConnectionStep] = []
        for endpoint, origin in self.ways(peer):
            self._gone.pop(origin, None)
            self.draining.pop(origin, None)
            others = [gone for gone, one in self.draining.items() if one.endpoint == endpoint]
            for gone in others:
                steps += self._part(gone, now)
            if self._has_successor(endpoint, peer):
                # An earlier life of who listens there is looked for again: the connection is not its.
                continue
            if others and endpoint not in self._seeds:
                steps += self._dial(endpoint, origin, peer, now)
            elif endpoint in self._dialled or endpoint in self._seeds or self._is_probed(endpoint):
                # It was here before, or another was; whether that connection stands is seen by what comes.
                self._dialled[endpoint] = peer
                self._dialled_at.setdefault(endpoint, now)
            elif self._is_silent(origin):
                steps += self._dial(endpoint, origin, peer, now)
        return steps + self.begin_dials(now)

    def begin_dials(self, now: float) -> list[ConnectionStep]:
        """Dial those whose turn it is, of those that were never heard."""
        ended, calls = self._dials.begin(now)
        for call in calls:
            self._dialled_at[call.endpoint] = now
        return [*map(HangUp, ended), *(Dial(call.endpoint, call.name, key=call.key) for call in calls)]

    def note_admitted(self, endpoint: str, now: float) -> None:
        """Record that the peer at an endpoint has proved its key, and taken this node's: it can be heard."""
        if endpoint in self._dialled:
            self._redials.admitted.add(endpoint)
            self._dialled_at[endpoint] = now
            self._dials.note_admitted(endpoint)

    def note_ended(self, endpoint: str) -> None:
        """Record that a connection has ended: its peer was perhaps killed before it said a word."""
        self._redials.admitted.discard(endpoint)

    def crowd_patience(self, now: float) -> float:
        """Return the seconds that so many nodes as are known may take to link with each other."""
        return self._redials.crowd_patience(now)

    def is_waiting(self, peer: Announcement) -> bool:
        """Tell whether a peer was not dialled yet, since so many others are."""
        return any(endpoint in self._dials for endpoint, _ in self._ways_to(peer))

    def disconnect(self, peer: Announcement, now: float) -> None:
        """Listen to a peer that is gone for as long as something comes of it."""
        for endpoint, origin in self.ways(peer):
            heard_at = self._hearing.heard_at(origin)
            holder = self._dialled.get(endpoint)
            if endpoint in self._dials and holder is not None and holder.uuid == peer.uuid:
                # It was never dialled: nothing is to come.
                self._hang_up(endpoint)
                continue
            self._gone[origin] = _Gone(peer, now + FORGET_AFTER)
            self._looks[origin] = heard_at, MISSES
            self.draining[origin] = DrainingPeer(peer, endpoint, heard_at, now)

    def drain(self, now: float) -> list[ConnectionStep]:
        """Hang up on those of whom nothing more comes, and forget those who are gone for long."""
        steps: list[ConnectionStep] = []
        for origin, one in list(self.draining.items()):
            if one.is_over(self._hearing.heard_at(origin), now):
                steps += self._part(origin, now)
        for origin in [one for one, gone in self._gone.items() if now >= gone.until]:
            if origin in self.draining:
                continue
            del self._gone[origin]
            self._looks.pop(origin, None)
            steps.append(Forget(origin))
        return steps

    def gone_peer(self, origin: bytes) -> Announcement | None:
        """Return the peer of a publisher that is gone; None once it is forgotten."""
        gone = self._gone.get(origin)
        return None if gone is None else gone.peer

    def _part(self, origin: bytes, now: float) -> list[ConnectionStep]:
        """Hang up on a publisher that is gone; report that something is missing, unless it said goodbye."""
        one = self.draining.pop(origin)
        self._gone[origin] = _Gone(one.peer, now + FORGET_AFTER)
        holder = self._dialled.get(one.endpoint)
        is_its_own = holder is not None and holder.uuid == one.peer.uuid
        if is_its_own:
            self._redials.in_vain.pop(one.endpoint, None)
        return [LoseTrack(origin, is_in_place=False), *(self._hang_up(one.endpoint) if is_its_own else [])]

    def _is_probed(self, endpoint: str) -> bool:
        return self.probes is not None and endpoint in self.probes.probed

    def _has_successor(self, endpoint: str, peer: Announcement) -> bool:
        """Tell whether a process that was started later listens where a peer did: that one is gone.

        A process that is started again on a port of its own is heard of before its last life is given up. Of
        two keys the one that is heard there has it, whatever is announced.
        """
        holder = self._dialled.get(endpoint)
        if holder is None or holder.key == peer.key:
            return holder is not None and holder.started_ns > peer.started_ns
        return not all(self._is_silent(way.origin) for way in self.ways(holder) if way.endpoint == endpoint)

    def _dial(self, endpoint: str, origin: bytes, peer: Announcement, now: float) -> list[Dial]:
        """Dial a peer, or have it dialled by `begin_dials` when its turn comes."""
        self._dialled[endpoint] = peer
        self._dialled_at[endpoint] = now
        if endpoint.startswith("tcp:") and not self._hearing.heard_at(origin):
            is_again = endpoint in self._redials.in_vain
            self._dials.put(Call(endpoint, peer.name, origin, is_again, peer.key))
            return []
        return [Dial(endpoint, peer.name, key=peer.key)]

    def _hang_up(self, endpoint: str) -> list[ConnectionStep]:
        if self.probes is not None:
            self.probes.probed.pop(endpoint, None)
        self._dialled.pop(endpoint, None)
        self._dialled_at.pop(endpoint, None)
        self._redials.admitted.discard(endpoint)
        was_waiting = self._dials.drop(endpoint)
        return [] if was_waiting or endpoint in self._seeds else [HangUp(endpoint)]

    # peers that say nothing ------------------------------------------------------------------------------

    def is_check_due(self, now: float) -> bool:
        """Tell whether it is time for `check`."""
        return now >= self._check_at

    def check(self, peers: Iterable[Announcement], now: float) -> list[ConnectionStep]:
        """Look who says nothing, and connect to them anew.

        Args:
            peers: those who should speak.
            now: monotonic seconds.
        """
        if self._check_at:
            self._redials.note_look(now - self._check_at)
        self._check_at = now + CHECK_EVERY
        heard, looks, seeds = self._hearing.last_heard(), self._looks, self._seeds
        before, self._ways = self._ways, {}
        silent = []
        steps: list[ConnectionStep] = []
        self._redials.crowd = len(before)
        for peer in peers:
            known = before.get(peer.uuid)
            self._ways[peer.uuid] = known = (
                known if known is not None and known[0] is peer else (peer, self.ways(peer))
            )
            speaks = False
            for endpoint, origin in known[1]:
                heard_at = heard.get(origin, 0)
                before_at, misses = looks.get(origin, _NEVER)
                misses = 0 if heard_at != before_at else misses + 1
                if heard_at:
                    looks[origin] = heard_at, misses
                    if misses < MISSES:
                        speaks = True
                        self._redials.in_vain.pop(endpoint, None)
                        if not before_at:
                            self._redials.progress_at = now
                        continue
                if endpoint not in seeds and not self._has_successor(endpoint, peer):
                    steps += self._dial_anew(endpoint, origin, peer, now, was_heard=bool(heard_at))
            if not speaks and any(origin in heard for _, origin in known[1]):
                silent.append(peer.uuid)
        self.silent = frozenset(silent)
        return steps

    def _dial_anew(
        self, endpoint: str, origin: bytes, peer: Announcement, now: float, *, was_heard: bool
    ) -> list[ConnectionStep]:
        if endpoint in self._dials:
            return []
        if not self._redials.is_due(endpoint, self._dialled_at.get(endpoint, 0.0), now):
            return []
        in_vain = self._redials.in_vain.get(endpoint, 0)
        self._redials.in_vain[endpoint] = in_vain + 1
        steps = [*self._hang_up(endpoint), *self._dial(endpoint, origin, peer, now)]
        steps += self.begin_dials(now)
        if in_vain == 1 and not was_heard:
            steps.append(Unreachable(endpoint, peer.name))
        return steps

    def _is_silent(self, origin: bytes) -> bool:
        """Tell whether a publisher has not been heard for long, or never."""
        heard_at = self._hearing.heard_at(origin)
        before, misses = self._looks.get(origin, (heard_at, 0))
        return not heard_at or (heard_at == before and misses >= MISSES)

    def has_fallen_silent(self, peer: Announcement) -> bool:
        """Tell whether a peer was heard, and is heard no more: it stands still, or its link is cut."""
        was_heard = False
        for _, origin in self._ways_to(peer):
            if not self._is_silent(origin):
                return False
            was_heard = was_heard or bool(self._hearing.heard_at(origin))
        return was_heard

    def have_answered(self, origins: Iterable[bytes]) -> bool:
        """Tell whether some publishers have answered everything that this node asks for."""
        return all(map(self._hearing.has_answer, origins))

    def has_answered(self, peer: Announcement) -> bool:
        """Tell whether a peer speaks, and has answered everything that this node asks for."""
        return all(
            self._hearing.has_answer(origin) and not self._is_silent(origin) for _, origin in self.ways(peer)
        )

    # sockets in the directory ----------------------------------------------------------------------------

    def scan(self, linked: Iterable[Announcement], now: float) -> list[ConnectionStep]:
        """Connect to sockets in the directory that nobody told of; see `Probes.scan`."""
        return [] if self.probes is None else self.probes.scan(linked, now)

    def unsettled(self, peers: Iterable[Announcement]) -> list[str]:
        """Return the sockets of this host of which it is not known yet whether anybody listens there."""
        return [] if self.probes is None else self.probes.unsettled(peers)
