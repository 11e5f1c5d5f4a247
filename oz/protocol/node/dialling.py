"""The patience of a node with peers that do not answer, before it connects to them anew."""

from __future__ import annotations

from math import inf

REDIAL_AFTER = 2.0
"""Seconds without an answer after which a peer is connected to anew: what refused once is not tried.

Connecting anew costs both sides more than waiting: a host on which many begin at once is slow, and would be
slower for each who has lost patience. docs/decisions/046-patience-with-a-crowd.md
"""

LONGEST_REDIAL = 4.0
"""Seconds from the second time in vain on."""

PAIR_SECONDS, LONGEST_CROWD = 0.002, 30.0
"""Seconds that two cores need for each two nodes of a host that begin at the same time, as measured; and the
most that is waited for that reason."""

PROGRESS = 4
"""So many times as long is waited while others are heard for the first time: the host is busy with them."""

CROWD_PROGRESS = 10.0
"""Seconds since somebody was heard for the first time, for which many are taken to be joining."""

MOST_LATE = 8.0
"""Seconds that count at most of those by which a look comes late: a process that stood still is not slow."""


class Redials:
    """The endpoints that were dialled in vain, and what else tells a node how busy its host is.

    Attributes:
        in_vain: how often each endpoint was dialled since somebody was heard there, where that was in vain.
        admitted: the endpoints whose connections stand, as far as that is told: with keys.
        crowd: how many peers the node knew when it looked last.
        sockets: how many sockets of others were in the directory.
        progress_at: when somebody was heard for the first time, in monotonic seconds.
    """

    __slots__ = ("_late", "admitted", "crowd", "in_vain", "progress_at", "sockets")

    def __init__(self) -> None:
        """Begin with nobody."""
        self.in_vain: dict[str, int] = {}
        self.admitted: set[str] = set()
        self.crowd = self.sockets = 0
        self.progress_at = -inf
        self._late = 0.0

    def note_look(self, late: float) -> None:
        """Take in by how many seconds a look came late, of those that come every second.

        A node that is slow itself does not blame others. Often they are as slow, as they share its processor.
        """
        self._late = max(min(late, MOST_LATE), self._late / 2)

    def is_due(self, endpoint: str, dialled_at: float, now: float) -> bool:
        """Tell whether to connect anew to an endpoint at which nobody is heard.

        Args:
            endpoint: the endpoint.
            dialled_at: when it was dialled, in monotonic seconds.
            now: monotonic seconds.
        """
        patience = max(LONGEST_REDIAL if endpoint in self.in_vain else REDIAL_AFTER, self._crowd_seconds)
        if endpoint in self.admitted:
            # It is slow to speak, and slower if it is connected to once more.
            patience = LONGEST_CROWD
        return now - dialled_at >= patience * self._slowness(now)

    def crowd_patience(self, now: float) -> float:
        """Return the seconds that many nodes which begin at once may take to link with each other.

        None where nobody was heard for the first time of late: whoever announces many that are not there
        gains no time for them.
        """
        if now - self.progress_at >= CROWD_PROGRESS:
            return 0.0
        return self._crowd_seconds * PROGRESS * (1.0 + self._late)

    @property
    def _crowd_seconds(self) -> float:
        return min(max(self.crowd, self.sockets) ** 2 * PAIR_SECONDS, LONGEST_CROWD)

    def _slowness(self, now: float) -> float:
        is_progressing = now - self.progress_at < REDIAL_AFTER
        return (PROGRESS if is_progressing else 1) * (1.0 + self._late)
