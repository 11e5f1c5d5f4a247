"""Dialling: which peers are dialled when, few at once, and the patience with those that do not answer.

Whom to dial is what others announce, and nobody knows who they are. So peers that were never heard wait in a
queue, and not too many are dialled in a second. A peer that was heard before does not wait there: a link that
was cut is made again at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from oz.security.limits import DEFAULT_LIMITS, Limits

LONGEST_DIAL = 5.0
"""Seconds after which nobody waits for an attempt any more; ZeroMQ gives up then as well."""

FOR_NEWCOMERS = 2
"""Dials at once that are kept for those who were never dialled before: many cannot be reached for ever."""

MOST_UNHEARD = 128
"""Connections that stand, perhaps, to peers that were never heard."""


class Call(NamedTuple):
    """A peer that is to be dialled.

    Attributes:
        endpoint: where.
        name: whose it is.
        origin: the publisher that should be heard there.
        is_again: whether it was dialled before, in vain.
        key: the public key that it announces; None without one.
    """

    endpoint: str
    name: str
    origin: bytes
    is_again: bool = False
    key: str | None = None


class _Begun(NamedTuple):
    """Whom somebody dialled, and when, in monotonic seconds; `-inf` where the connection stands."""

    call: Call
    at: float


class DialQueue:
    """The peers that are to be dialled, and those that were and have not been heard yet."""

    __slots__ = ("_again", "_begun", "_is_heard", "_limits", "_look_at", "_new", "_times")

    def __init__(self, is_heard: Callable[[bytes], object], limits: Limits = DEFAULT_LIMITS) -> None:
        """Start with nobody.

        Args:
            is_heard: tells whether a publisher was ever heard.
            limits: `dials` at once, and `dial_rate` in a second.
        """
        self._is_heard = is_heard
        self._limits = limits
        self._new: dict[str, Call] = {}
        self._again: dict[str, Call] = {}
        self._begun: dict[str, _Begun] = {}
        self._times: deque[float] = deque()
        self._look_at = 0.0

    def __len__(self) -> int:
        """Count those that wait."""
        return len(self._new) + len(self._again)

    def __contains__(self, endpoint: object) -> bool:
        """Tell whether an endpoint waits to be dialled."""
        return endpoint in self._new or endpoint in self._again

    def put(self, call: Call) -> None:
        """Have a peer dialled; one that waits already keeps its place."""
        if call.endpoint not in self:
            (self._again if call.is_again else self._new)[call.endpoint] = call

    def note_admitted(self, endpoint: str) -> None:
        """Record that a connection stands: others may be dialled before its peer is heard."""
        if (begun := self._begun.get(endpoint)) is not None:
            self._begun[endpoint] = begun._replace(at=-inf)

    def drop(self, endpoint: str) -> bool:
        """Forget an endpoint; tell whether it was still waiting."""
        self._begun.pop(endpoint, None)
        return (self._new.pop(endpoint, None) or self._again.pop(endpoint, None)) is not None

    def next_deadline(self) -> float | None:
        """Return when to call `begin` again, in monotonic seconds; None while nobody waits."""
        return self._look_at if len(self) else None

    def begin(self, now: float) -> tuple[list[str], list[Call]]:
        """Say whom to dial now.

        Args:
            now: monotonic seconds.

        Returns:
            The endpoints to hang up on first, where nobody was heard for long, and those to dial.
        """
        if not len(self):
            return [], []
        self._look_at = now + 1.0 / self._limits.dial_rate
        self._settle(now)
        ended: list[str] = []
        calls: list[Call] = []
        while (call := self._next(now)) is not None:
            if len(self._begun) >= MOST_UNHEARD:
                oldest = next(iter(self._begun))
                del self._begun[oldest]
                ended.append(oldest)
            self._begun[call.endpoint] = _Begun(call, now)
            self._times.append(now)
            calls.append(call)
        return ended, calls

    def _next(self, now: float) -> Call | None:
        """Take out the next one, if it may be dialled now."""
        if len(self._times) >= self._limits.dial_rate:
            return None
        trying = [one.call.is_again for one in self._begun.values() if now - one.at < LONGEST_DIAL]
        if len(trying) >= self._limits.dials:
            return None
        if self._new:
            return self._new.pop(next(iter(self._new)))
        if self._again and sum(trying) < max(1, self._limits.dials - FOR_NEWCOMERS):
            return self._again.pop(next(iter(self._again)))
        return None

    def _settle(self, now: float) -> None:
        """Forget those who were heard, and what was begun more than a second ago."""
        for endpoint in [one for one, begun in self._begun.items() if self._is_heard(begun.call.origin)]:
            del self._begun[endpoint]
        while self._times and now - self._times[0] >= 1.0:
            self._times.popleft()


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
