"""A place in a journal, as Spark keeps it in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from oz.errors import JournalError
from oz.journal.epochs import UNNAMED


class Position(NamedTuple):
    """A place in a journal.

    Attributes:
        journal: the journal's id, so that a checkpoint is not taken for one of another journal.
        offset: the offset of the record that comes next.
        lost: how many records retention had removed before the query came to them, since it began.
        epoch: the journal's epoch in which the record before the offset was written, so that offsets which
            have been given to other records since are told apart; empty before the first append.
    """

    journal: str
    offset: int
    lost: int = 0
    epoch: str = UNNAMED

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return self._asdict()

    @classmethod
    def from_data(cls, data: dict[str, Any], directory: object, journal: str) -> Position:
        """Read what `as_data` returned.

        Args:
            data: what was returned.
            directory: the journal that is read, for the error.
            journal: its id.

        Raises:
            JournalError: it is a place in another journal, or none at all.
        """
        try:
            position = cls(str(data["journal"]), int(data["offset"]), int(data["lost"]), str(data["epoch"]))
        except (KeyError, TypeError, ValueError):
            raise JournalError(f"a checkpoint of another source, or a damaged one: {data!r}") from None
        if position.journal != journal:
            raise JournalError(
                f"{directory}: this journal has the id {journal}, and the checkpoint is one of journal "
                f"{position.journal}: give the journal that the query began with, or a new checkpointLocation"
            )
        return position


_SEVERAL = "journals"


def positions_as_data(positions: Mapping[str, Position], *, are_several: bool) -> dict[str, Any]:
    """Return positions, one of each journal, as JSON can hold them.

    Args:
        positions: by the ids of the journals.
        are_several: whether there may be several; one alone is written as `Position.as_data` does.
    """
    if not are_several:
        [position] = positions.values()
        return position.as_data()
    return {_SEVERAL: [one.as_data() for one in positions.values()]}


def are_several_in(data: dict[str, Any]) -> bool:
    """Tell whether a checkpoint is one of a query that read several journals."""
    return _SEVERAL in data


def positions_of(data: dict[str, Any]) -> dict[str, Position]:
    """Read positions, of one journal or of several, by the ids of the journals.

    Raises:
        JournalError: it is none of oz, or damaged.
    """
    several = data.get(_SEVERAL, [data])
    try:
        return {str(each["journal"]): Position.from_data(each, "", str(each["journal"])) for each in several}
    except (KeyError, TypeError):
        raise JournalError(f"a checkpoint of another source, or a damaged one: {data!r}") from None
