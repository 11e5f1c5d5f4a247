"""The progress of a stream in one of its journals, and how far its next micro-batch goes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oz.spark.source.batch import wanted_of
from oz.spark.source.journal import PlannedJournal
from oz.spark.source.options import Options
from oz.spark.source.planning import Share
from oz.spark.source.position import Position


class Ahead(NamedTuple):
    """The records that lie before a stream in a journal.

    Attributes:
        first: the offset to begin with.
        end: the offset to stop before, without a limit.
        lost: how many records are lost to the query, in all.
    """

    first: int
    end: int
    lost: int


class JournalProgress:
    """Plans what a stream reads of one journal.

    Attributes:
        journal: the journal.
        directory: where it is.
        reached: how far the last micro-batch went; None before there is one.
    """

    def __init__(self, options: Options) -> None:
        """Look at the journal.

        Raises:
            JournalError: there is none, it is damaged, or of a newer version.
        """
        self.journal = PlannedJournal(options, wanted_of(options))
        self.directory = options.journal
        self.reached: Position | None = None
        self._target: int | None = None
        self._late = 0

    def stop_at_the_end(self) -> None:
        """Note the end, which the query is to reach and not to pass."""
        self._target = self.journal.end

    def ahead(self, position: Position) -> Ahead:
        """Tell what lies before a position.

        Raises:
            JournalError: retention has removed what is to be read next, or other records have the offsets
                now, and that is an error.
        """
        first = self.journal.going_on(position)
        if self._target is None:
            lost = self.journal.pass_by(first)
            end = self.journal.end
        else:
            # Who followed a retention that is quicker than the query would never come to an end.
            end = max(first, self._target)
            lost = min(self.journal.pass_by(first), end - first) if first < end else 0
        return Ahead(first + lost, max(first + lost, end), position.lost + lost + self._late)

    def go_to(self, end: int, lost: int) -> Position:
        """Note where a micro-batch ends."""
        self.reached = self.journal.position(end, lost)
        self._late = 0
        return self.reached

    def shares(self, first: Position, last: Position) -> Sequence[Share]:
        """Share out what a micro-batch has of it.

        Raises:
            JournalError: retention has removed some of it, and that is an error.
        """
        begins, ends = self.journal.going_on(first), self.journal.going_on(last)
        gone = self.journal.pass_by(begins)
        # Of a batch that was planned before, and whose records have gone since.
        self._late += max(0, min(gone, ends - begins) - (last.lost - first.lost))
        self.reached = last
        return self.journal.shares(min(begins + gone, ends), ends)

    def report(self) -> dict[str, str | int]:
        """Say where it ends, and how many records lie between that and the last micro-batch."""
        end, reached = self.journal.end, self.reached
        lag = {} if reached is None else {"lag": max(0, end - reached.offset), "lost": reached.lost}
        return {"journal": self.journal.id, "offset": end, **lag}
