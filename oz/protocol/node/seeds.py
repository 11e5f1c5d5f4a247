"""Seeds: the endpoints that the user has named, and whether it is known who is there.

A subscriber is not told over which connection something came. So a seed is known by the endpoints that a peer
announces, and where these are written otherwise, by their port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from oz.protocol.node.reach import host_of, is_loopback, is_named
from oz.wire.announcement import Announcement

ANSWER_TIMEOUT = 1.0
"""Seconds for which `wait_ready` waits for a seed that does not answer: the seed may be down."""


class Seeds:
    """The seeds of one node, without those that are its own."""

    __slots__ = ("_own", "_patience", "_since")

    def __init__(
        self, endpoints: Sequence[str], own: Announcement, now: float, patience: float = ANSWER_TIMEOUT
    ) -> None:
        """Begin with nobody known.

        Args:
            endpoints: as the user has written them.
            own: the node's announcement.
            now: monotonic seconds.
            patience: seconds after which a seed that does not answer is passed over.
        """
        self._own = own
        self._patience = patience
        self._since = {one: now for one in endpoints if not self._may_be(one, own)}

    @property
    def endpoints(self) -> Collection[str]:
        """The endpoints of the seeds."""
        return self._since.keys()

    def unsettled(
        self,
        peers: Iterable[Announcement],
        now: float,
        is_absent: Callable[[str], bool] = lambda _: False,
        unsure: Container[str] = (),
    ) -> list[str]:
        """Return the seeds of which it is not known yet whether somebody comes.

        Args:
            peers: those that are known.
            now: monotonic seconds.
            is_absent: tells that nobody listens at an endpoint, or says anything there.
            unsure: those that are not connected to yet, as it is not known by which key: their time begins
                afterwards.
        """
        for one in self._since:
            if one in unsure:
                self._since[one] = now
        return [
            one
            for one in self.unknown(peers)
            if not is_absent(one) and now < self._since[one] + self._patience
        ]

    def next_deadline(self, unsettled: Iterable[str]) -> float | None:
        """Return when one of these is passed over, in monotonic seconds; None without any."""
        return min((self._since[one] + self._patience for one in unsettled), default=None)

    def unknown(self, peers: Iterable[Announcement]) -> list[str]:
        """Return the seeds that are no known peer; each peer stands for one at most."""
        spare = [one for one in peers if self._since.keys().isdisjoint(one.endpoints)]
        known = {endpoint for one in peers for endpoint in one.endpoints}
        unknown = []
        for endpoint in self._since:
            if endpoint in known:
                continue
            found = next((one for one in spare if self._may_be(endpoint, one)), None)
            if found is None:
                unknown.append(endpoint)
            else:
                spare.remove(found)
        return unknown

    def _may_be(self, endpoint: str, peer: Announcement) -> bool:
        """Tell whether a peer may listen at an endpoint, which it may write otherwise."""
        if endpoint in peer.endpoints:
            return True
        port = endpoint.rpartition(":")[2]
        if all(one.rpartition(":")[2] != port for one in peer.endpoints):
            return False
        if is_loopback(endpoint):
            # A node of another directory has another `host_id`, and listens at this host all the same.
            return peer.host == self._own.host
        return is_named(endpoint) and (peer is not self._own or host_of(endpoint) == peer.host)
