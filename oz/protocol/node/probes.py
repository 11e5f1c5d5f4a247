"""The connections of a node beside those to its peers: to who may become one, and to who was one.

Sockets in the directory of its host are tried that nobody told of: whether anybody listens there, and who.
A publisher of a peer that is gone is listened to until nothing more comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from oz.protocol.node.dialling import Redials
from oz.protocol.node.steps import ConnectionStep, Dial, Directory
from oz.wire.discovery import Announcement

SCAN_EVERY = 1.0
"""Seconds between two looks at the directory where nodes of one host meet."""

PROBE_AGAIN = 2.0
"""Seconds after which a socket in the directory that did not answer is looked at anew."""

MUTE_AFTER = 4.0
"""Seconds for which somebody who listens and says nothing is waited for: a process that stands still may do
so for ever, and must not hold up those who have only just begun."""

_A_NODE = "a node of this host"


class Probes:
    """Tries sockets in the directory, and hangs up on those where nobody listens.

    Attributes:
        probed: the sockets that are tried, and since when, in monotonic seconds.
        scan_at: when to look again, in monotonic seconds.
    """

    __slots__ = ("_dialled", "_directory", "_hang_up", "_mute", "_redials", "_seen_at", "probed", "scan_at")

    def __init__(
        self,
        directory: Directory,
        dialled: Container[str],
        redials: Redials,
        hang_up: Callable[[str], list[ConnectionStep]],
    ) -> None:
        """Start with none.

        Args:
            directory: where nodes of this host are looked for.
            dialled: the endpoints that are dialled for a peer.
            redials: say when to try again.
            hang_up: says what it takes to end a connection.
        """
        self._directory = directory
        self._dialled = dialled
        self._redials = redials
        self._hang_up = hang_up
        self._seen_at: dict[str, float] = {}
        self._mute: set[str] = set()
        self.probed: dict[str, float] = {}
        self.scan_at = 0.0

    def scan(self, linked: Iterable[Announcement], now: float) -> list[ConnectionStep]:
        """Connect to sockets in the directory that nobody told of, and remove dead ones.

        Args:
            linked: the peers whose links stand.
            now: monotonic seconds.
        """
        if now < self.scan_at:
            return []
        self.scan_at = now + SCAN_EVERY
        there = self._directory.others()
        self._redials.sockets = len(there)
        strange = there - {peer.local_endpoint for peer in linked}
        self._seen_at = {one: self._seen_at.get(one, now) for one in strange}
        self._mute = {one for one, at in self._seen_at.items() if now - at >= MUTE_AFTER}
        steps: list[ConnectionStep] = []
        # In one order, whatever the hashes: a run of the simulation is to be the same again.
        for endpoint in sorted(strange):
            steps += self._probe(endpoint, now)
        for endpoint in sorted(self.probed.keys() - there):
            if endpoint in self._dialled:
                # It is a peer's, and what it sent last may be on its way.
                del self.probed[endpoint]
            else:
                steps += self._hang_up(endpoint)
        return steps

    def _probe(self, endpoint: str, now: float) -> list[ConnectionStep]:
        """See whether anybody listens on a socket in the directory."""
        probed_at = self.probed.get(endpoint)
        if probed_at is None and endpoint not in self._dialled:
            self.probed[endpoint] = now
            return [Dial(endpoint, _A_NODE)]
        if probed_at is None or now - probed_at < PROBE_AGAIN:
            return []
        is_dead = self._directory.clear(endpoint)
        if endpoint in self._dialled:
            # It is a peer's, and what it sent last may be on its way.
            return []
        if not is_dead and not self._redials.is_due(endpoint, probed_at, now):
            # It listens, and has much to do.
            return []
        steps = self._hang_up(endpoint)
        if not is_dead:
            # Nobody may have listened there yet when it was tried.
            self.probed[endpoint] = now
            steps.append(Dial(endpoint, _A_NODE))
        return steps

    def unsettled(self, peers: Iterable[Announcement]) -> list[str]:
        """Return the sockets of this host of which it is not known yet whether anybody listens there.

        Args:
            peers: those who are known.
        """
        local = {peer.local_endpoint for peer in peers}
        return [one for one in self.probed if one not in local and one not in self._mute]


DRAIN_EVERY = 0.5
"""Seconds between two looks at whether anything has come of a peer that is gone."""

DRAINED_AFTER = 4
"""Looks in a row at which nothing new had come, after which nothing more does. Not seconds: a process that
stood still itself has not read yet what had come to it."""

LONGEST_DRAIN = 60.0
"""Seconds for which a peer that is not linked any more is listened to at most, though something comes."""


class DrainingPeer:
    """One publisher of a peer that is gone: its last messages are on their way.

    Attributes:
        peer: whose it is.
        endpoint: where it was connected to.
        next_look: when `is_over` looks next, in monotonic seconds.
    """

    __slots__ = ("_ends_at", "_heard_at", "_misses", "endpoint", "next_look", "peer")

    def __init__(self, peer: Announcement, endpoint: str, heard_at: int, now: float) -> None:
        """Begin to listen for what is left.

        Args:
            peer: whose publisher it is.
            endpoint: where it was connected to.
            heard_at: when it was heard last.
            now: monotonic seconds.
        """
        self.peer = peer
        self.endpoint = endpoint
        self.next_look = now + DRAIN_EVERY
        self._heard_at = heard_at
        self._misses = 0
        self._ends_at = now + LONGEST_DRAIN

    def is_over(self, heard_at: int, now: float) -> bool:
        """Tell whether nothing more comes, as far as one can know.

        Args:
            heard_at: when it was heard last.
            now: monotonic seconds.
        """
        if now < self.next_look:
            return False
        self.next_look = now + DRAIN_EVERY
        self._misses = self._misses + 1 if heard_at == self._heard_at else 0
        self._heard_at = heard_at
        return self._misses >= DRAINED_AFTER or now >= self._ends_at
