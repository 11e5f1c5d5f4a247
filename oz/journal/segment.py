"""One segment, opened: its head checked, its batches found and read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from oz.errors import JournalError
from oz.journal import messages
from oz.journal.files import Segment, open_held
from oz.journal.runs import BadBatch, Run, fault_in, grouped, runs_in
from oz.journal.schema import COLUMNS, VERSION
from oz.journal.stamp import MAX_HEAD, PREFIX, read_stamp
from oz.journal.walk import Frame, Hole, ReadAhead, head_at, survey


class SegmentHead(NamedTuple):
    """The head of a segment.

    Attributes:
        version: of the format.
        journal: the id of its journal.
        first: the offset of its first record; None when the head is of another version, or damaged but for
            version and journal.
        end: where the first batch begins.
    """

    version: int
    journal: str
    first: int | None
    end: int


class Known(NamedTuple):
    """The name and size of a segment, known before it is opened.

    Attributes:
        journal: the id that it must have; None for any.
        takes_damaged: whether it is opened even when its head is damaged.
    """

    journal: str | None = None
    takes_damaged: bool = False


def read_head(source: ReadAhead, segment: Segment) -> SegmentHead | None:
    """Read the head of a segment in its form; None when it is damaged."""
    start = len(messages.FILE_MAGIC) if segment.is_sealed else 0
    found = head_at(source, start, salt=0)
    if isinstance(found, Frame):
        said = messages.IDENTITY.search(source.at(start, found.head))
        return (
            None
            if said is None
            else SegmentHead(int(said[1]), said[2].decode(), found.stamp.first, found.end)
        )
    said = messages.IDENTITY.search(source.at(start, MAX_HEAD))
    # Another version may have other heads; a flipped bit in the version is damage.
    if said is not None and int(said[1]) != VERSION and not _is_flipped(source, start, said):
        return SegmentHead(int(said[1]), said[2].decode(), None, 0)
    return None


def _is_flipped(source: ReadAhead, start: int, said: re.Match[bytes]) -> bool:
    """Return whether the checksum of a head is right if the version is the one that this oz writes."""
    prefix = source.at(start, PREFIX.size)
    head = source.at(start, min(PREFIX.size + PREFIX.unpack(prefix)[1], MAX_HEAD))
    begin, end = said.span(1)
    return read_stamp(head[:begin] + b"%d" % VERSION + head[end:], salt=0) is not None


class OpenSegment:
    """A segment that is read. It is held against retention until it is closed.

    Attributes:
        segment: which one it is.
        path: where it is.
        source: its bytes.
        first_batch: where its first batch begins.
        journal: the id of its journal.
        salt: what its checksums start from.
    """

    def __init__(self, path: Path, segment: Segment, descriptor: int, known: Known) -> None:
        """For `open_segment`."""
        self.path = path
        self.segment = segment
        self.source = ReadAhead(descriptor)
        head = read_head(self.source, segment)
        if head is not None and known.journal in (None, head.journal):
            self._check_version(head)
        if head is not None and known.journal not in (None, head.journal):
            raise DamagedHead(
                f"{path}: a file of another journal, {head.journal}, is in its place; see `oz journal repair`"
            )
        if head is not None and head.first == segment.base:
            self.first_batch, self.journal = head.end, head.journal
        elif known.takes_damaged and known.journal is not None:
            # Found to mean nothing when it is surveyed, as far as the first batch.
            self.first_batch, self.journal = 0, known.journal
        else:
            is_copy = head is not None and head.first is not None
            what = (
                f"it is a copy of the one of offset {head.first}"
                if head and is_copy
                else "its head is damaged"
            )
            raise DamagedHead(
                f"{path}: {what}, of the records from offset {segment.base} on; see `oz journal repair`"
            )
        self.salt = messages.salt_of(self.journal)

    def _check_version(self, head: SegmentHead) -> None:
        if head.version != VERSION:
            raise JournalError(f"{self.path}: format version {head.version}; this oz reads version {VERSION}")

    def is_in_place(self) -> bool:
        """Whether it is the file that has its name, still."""
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self.source.descriptor)
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

    def frames(self, position: int, offset: int) -> Iterator[Frame | Hole]:
        """Go through the heads of the batches from a position on, without looking at their bodies.

        Args:
            position: where to begin, at the start of a batch.
            offset: the offset that comes next there.

        Yields:
            Each batch; and a `Hole`, last, where what follows is none, or not the one that comes next.
        """
        while (found := head_at(self.source, position, self.salt)) is not None:
            if isinstance(found, Frame) and found.stamp.first != offset:
                found = Hole(position, position, f"offset {found.stamp.first} where {offset} should be")
            yield found
            if isinstance(found, Hole):
                return
            position, offset = found.end, found.stamp.end

    def survey(self) -> Iterator[Frame | Hole]:
        """Check every byte as `walk.survey` does, and that what the bytes say can be read."""
        for piece in survey(self.source, self.first_batch, self.salt, self.segment.base):
            fault = fault_in(piece, self._read([piece])) if isinstance(piece, Frame) else None
            yield piece if fault is None else Hole(piece.position, piece.end, fault)

    def runs(self, frames: Iterable[Frame]) -> Iterator[Run]:
        """Read batches, as many together as follow one another and fit in bounded memory."""
        for group in grouped(frames):
            yield from runs_in(group, self._read(group))

    def decode(self, run: Run, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Decode batches.

        Args:
            run: the batches.
            columns: what to decode of them.

        Raises:
            JournalError: a checksum differs, or a batch is no good though its checksum is right.
        """
        try:
            return run.decode(columns)
        except BadBatch as error:
            raise self._damage(error) from error

    def decode_checked(self, run: Run) -> pa.Table:
        """Decode batches as `decode` does, all columns, that `survey` has just found intact."""
        try:
            return run.decode_checked()
        except BadBatch as error:  # it was changed since
            raise self._damage(error) from error

    def _damage(self, bad: BadBatch) -> JournalError:
        stamp = bad.frame.stamp
        return damage(self.path, bad.frame.position, str(bad), stamp.first, stamp.end)

    def _read(self, group: Sequence[Frame]) -> bytes:
        return self.source.fresh(group[0].position, group[-1].end - group[0].position)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.source.descriptor)

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DamagedHead(JournalError):
    """The head of a segment cannot be read."""


def damage(path: Path, position: int, reason: str, first: int, end: int | None = None) -> JournalError:
    """Make the error for damage that a reader came upon.

    Args:
        path: the segment.
        position: the byte at which it begins.
        reason: what is wrong, in words.
        first: the first offset that it costs.
        end: the offset after the last that it costs; None when that is not known.
    """
    which = f"from offset {first} on" if end is None else f"from offset {first} to {end - 1}"
    return JournalError(
        f"{path}, byte {position}: {reason}, of the records {which}; `oz journal repair` keeps what is intact"
    )


def open_segment(
    directory: Path, segment: Segment, journal: str | None, *, takes_damaged: bool = False
) -> OpenSegment | None:
    """Open a segment and hold it.

    Args:
        directory: the journal.
        segment: which one, in which form.
        journal: the journal's id; None for any.
        takes_damaged: open the segment even when its head is damaged, if the id is known.

    Returns:
        The segment, or None when it is no longer there in this form.

    Raises:
        JournalError: its head is damaged, or of another journal, or of another version.
    """
    path = directory / segment.name
    descriptor = open_held(path)
    if descriptor is None:
        return None
    try:
        return OpenSegment(path, segment, descriptor, Known(journal, takes_damaged))
    except BaseException:
        os.close(descriptor)
        raise
