"""Status of the links of one node, for its snapshots.

Theory of operation
-------------------
A publisher with 50 subscribers has most links idle at the time of a sample. `LinkRows` keeps the status of idle links,
and makes it again only if the session has changed: six comparisons in place of the sums of its streams. A change of
drops makes all of it again, because drops are in the streams.

`links` is the same tuple as long as no status changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oz.node.snapshot import LinkStatus
from oz.publisher.session import DOWN, UP, Session
from oz.publisher.stats import REASONS

_NO_DROPS = [0] * len(REASONS)
_NO_COUNTS: Mapping[str, int] = {}


class LinkRows:
    """Status of each link.

    Attributes:
        links: status of each link, unordered.
    """

    def __init__(self) -> None:
        self.links: tuple[LinkStatus, ...] = ()
        # Revision that the session had applied; None for a link with pending messages.
        self._known: dict[Session, tuple[LinkStatus, int | None]] = {}
        self._drops: Mapping[str, int] = {}

    def clear(self) -> None:
        """Forget the sessions, because no sample may follow."""
        self._known = {}

    def update(
        self,
        sessions: Iterable[Session],
        drops: Mapping[str, int],
        name_of: Callable[[bytes], str],
        now: float,
    ) -> None:
        """Compare the sessions with the last sample.

        Args:
            sessions: of the publisher, under its lock.
            drops: messages dropped for all sessions since the start, by reason.
            name_of: returns the name of a peer.
            now: in seconds.
        """
        old, new = self._known, {}
        is_same, has_drops = True, drops != self._drops
        for session in sessions:
            known = old.get(session)
            if (
                known is not None
                and known[1] == session.applied
                and session.following == session.acked
                and not session.bytes
                and session.is_up == (known[0].state == UP)
                and len(session.patterns) == known[0].patterns
                and known[0].peer
                and not has_drops
            ):
                new[session] = known
                continue
            status = _link_status(session, name_of(session.member), now)
            is_idle = not (status.pending or status.pending_bytes or any(status.groups.values()))
            new[session] = status, session.applied if is_idle else None
            is_same = is_same and known is not None and known[0] == status
        if not is_same or len(new) != len(old):
            self.links = tuple(status for status, _ in new.values())
        self._known, self._drops = new, drops


def _link_status(session: Session, name: str, now: float) -> LinkStatus:
    pending, drops = session.unreceived, _NO_DROPS
    groups: dict[str, int] = {}
    for stream in session.streams.values():
        if stream.drops != _NO_DROPS:
            drops = [one + other for one, other in zip(drops, stream.drops, strict=True)]
        if stream.group is not None and stream.patterns:
            groups[stream.group.name] = groups.get(stream.group.name, 0) + stream.load
    oldest = session.oldest if pending else None
    return LinkStatus(
        name,
        session.member.hex(),
        UP if session.is_up else DOWN,
        len(session.patterns),
        pending,
        session.bytes,
        None if oldest is None else max(0.0, now - oldest),
        _NO_COUNTS if drops is _NO_DROPS else dict(zip(REASONS, drops, strict=True)),
        groups,
    )
