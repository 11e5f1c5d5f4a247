"""The epochs of a journal: who comes back can tell whether offsets stand for the same records yet.

Each writer begins an epoch with its first append, at the offset where it goes on. When something is lost and
the journal does not know it, as when a backup takes its place, the next epoch begins before an offset
that a reader has read in an earlier one; or the epoch of the reader is none of the journal at all.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from oz.journal import files
from oz.journal.manifest import check_number
from oz.journal.mark import Mark, read_mark

FORMAT = "oz.journal.epochs"
UNNAMED = ""
"""Epoch before the first append, and of records whose epoch is lost with a damaged file of epochs."""

_MOST = 4096


class Epoch(NamedTuple):
    """One epoch.

    Attributes:
        id: 16 random hexadecimal digits, or `UNNAMED`.
        first_offset: the offset at which it began.
    """

    id: str
    first_offset: int


@dataclass(frozen=True)
class History:
    """The epochs of a journal, in order; always one at least.

    Attributes:
        epochs: the epochs; each ends where the next begins.
    """

    epochs: tuple[Epoch, ...] = (Epoch(UNNAMED, 0),)

    @property
    def present(self) -> Epoch:
        """The latest."""
        return self.epochs[-1]

    def epoch_before(self, offset: int) -> str:
        """Say in which epoch the record before an offset was written: the last that a reader has read."""
        return next((one.id for one in reversed(self.epochs) if one.first_offset < offset), self.epochs[0].id)

    def agreed(self, epoch: str, offset: int) -> int | None:
        """Say how far this journal holds what a reader has read.

        Args:
            epoch: the epoch of the last record that was read.
            offset: the offset after it.

        Returns:
            The offset, or where its epoch ended in this journal if that is before it; None when this journal
            has no such epoch.
        """
        for one, following in zip(self.epochs, (*self.epochs[1:], None), strict=True):
            if one.id == epoch:
                return offset if following is None else min(offset, following.first_offset)
        return None

    def begun(self, offset: int, first_kept: int) -> History:
        """Begin an epoch.

        Args:
            offset: where.
            first_kept: epochs that ended before this offset are forgotten: retention has removed them.
        """
        new = Epoch(secrets.token_hex(8), offset)
        ends = [one.first_offset for one in (*self.epochs[1:], new)]
        kept = [one for one, end in zip(self.epochs, ends, strict=True) if end >= first_kept]
        return History((*kept[1 - _MOST :], new))

    def save(self, directory: Path, journal: str) -> None:
        """Replace the file, durably and at once."""
        data: dict[str, Any] = {"format": FORMAT, "version": 1, "journal": journal, "epochs": self.epochs}
        data["crc32"] = _checksum(data)
        with files.replacing(directory / files.EPOCHS) as descriptor:
            files.write_all(descriptor, json.dumps(data).encode() + b"\n")


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True, separators=(',', ':')).encode()):08x}"


def history_of(directory: Path, journal: str | None = None) -> History:
    """Read the epochs of a journal, from their file and from the note of what is acknowledged.

    Args:
        directory: the journal.
        journal: its id; what another journal has left here does not count. None for any.
    """
    mark = read_mark(directory)
    return _with_present(_saved(directory, journal), mark, journal)


def must_reach(directory: Path, journal: str | None = None) -> int:
    """Say how far a journal must reach, going by the notes of what was acknowledged.

    Args:
        directory: the journal.
        journal: its id; what another journal has left here does not count. None for any.
    """
    mark = read_mark(directory, journal)
    return max(mark.end if mark is not None else 0, history_of(directory, journal).present.first_offset)


def _with_present(saved: History | None, mark: Mark | None, journal: str | None) -> History:
    growing = mark.growing if mark is not None else None
    if growing is None or not growing.epoch or journal not in (None, growing.journal):
        return saved or History()
    present = Epoch(growing.epoch, growing.epoch_first)
    if saved is None:
        return History((present,))
    if any(one.id == present.id for one in saved.epochs):
        return saved
    # The mark was written after the file.
    earlier = [one for one in saved.epochs if one.first_offset <= present.first_offset]
    return History((*earlier, present))


def _saved(directory: Path, journal: str | None) -> History | None:
    found = _read(directory)
    return None if found is None or journal not in (None, found[0]) else found[1]


def _read(directory: Path) -> tuple[str, History] | None:
    try:
        data = json.loads(files.read_note(directory / files.EPOCHS))
        checksum = data.pop("crc32", None)
        if checksum != _checksum(data) or data["format"] != FORMAT or not data["epochs"]:
            return None
        epochs = tuple(Epoch(str(name), check_number(first)) for name, first in data["epochs"])
        return str(data["journal"]), History(epochs)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def journal_in(directory: Path) -> str | None:
    """Say which journal the file of epochs is of; None when there is none that can be read."""
    found = _read(directory)
    return None if found is None else found[0]


def is_saved(directory: Path) -> bool:
    """Whether there is a file of epochs that can be read."""
    return _saved(directory, None) is not None


def is_damaged(directory: Path) -> bool:
    """Whether there is a file of epochs, and it cannot be read."""
    return os.path.lexists(directory / files.EPOCHS) and _saved(directory, None) is None
