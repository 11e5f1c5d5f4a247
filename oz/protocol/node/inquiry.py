"""The inquiry of a node that waits: what each peer had asked for when the waiting began.

A question to a peer has a number, and the answer repeats it. The answer names the streams of the peer, each
with the newest chunk that stood then; where that chunk has arrived, all before it have.
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST_PATIENCE, LONGEST_PATIENCE = 0.25, 2.0
"""Seconds for an answer before the question is put again; doubled each time."""


class Inquiry:
    """One wait.

    Attributes:
        number: that of its questions; 0 before the first one.
    """

    __slots__ = ("__weakref__", "_asked", "_statements", "number")

    def __init__(self) -> None:
        """Start with nobody asked."""
        self.number = 0
        self._asked: dict[bytes, tuple[float, float]] = {}
        self._statements: dict[bytes, dict[bytes, int]] = {}

    def is_due(self, uuid: bytes, now: float) -> bool:
        """Tell whether a peer is to be asked, or asked again."""
        at, patience = self._asked.get(uuid, (now, 0.0))
        return now - at >= patience

    def next_deadline(self) -> float | None:
        """Return when a peer that was asked is to be asked again, in monotonic seconds; None for never."""
        return min((at + patience for at, patience in self._asked.values()), default=None)

    def asked(self, uuid: bytes, now: float) -> None:
        """Record that a peer was asked."""
        _, patience = self._asked.get(uuid, (now, 0.0))
        self._asked[uuid] = now, min(LONGEST_PATIENCE, 2 * patience) or FIRST_PATIENCE

    def take(self, uuid: bytes, number: int, chunks: Mapping[bytes, int]) -> None:
        """Take an answer, of this wait or a later one; what that does not name any more has ended."""
        if not self.number or number < self.number:
            return
        before = self._statements.get(uuid, chunks)
        self._statements[uuid] = {name: min(before[name], chunks[name]) for name in before if name in chunks}

    def statement(self, uuid: bytes) -> dict[bytes, int] | None:
        """Return what a peer had asked for: the newest chunks by stream; None as long as it is not known."""
        return self._statements.get(uuid)
