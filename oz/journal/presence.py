"""The files of a journal that are still there after somebody took some from under its writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal import own
from oz.journal.manifest import Manifest, load
from oz.journal.record import Kind
from oz.journal.segment import OpenSegment, open_segment, runs
from oz.journal.walk import Frame


def messages_there(directory: Path, journal: str, first: int, end: int) -> int:
    """Count the messages of a range that are intact where readers look for them.

    Args:
        directory: the journal, or what is left of it.
        journal: its id; files of another count nothing.
        first: the first offset.
        end: the offset after the last.
    """
    total = 0
    known = load(directory)
    known = known if known is not None and known.journal == journal else Manifest(journal)
    for segment in own.segments(directory, known):
        entry = known.entry_of(directory, segment)
        if entry is not None and (entry.end_offset <= first or entry.first_offset >= end):
            continue
        if entry is not None and first <= entry.first_offset and entry.end_offset <= end:
            total += entry.end_offset - entry.first_offset - entry.gaps
            continue
        try:
            opened = open_segment(directory, segment, journal)
        except JournalError:
            continue
        if opened is not None:
            with opened:
                total += _messages_in(opened, first, end)
    return total


def _messages_in(opened: OpenSegment, first: int, end: int) -> int:
    total = 0
    for run in runs(piece for piece in opened.survey() if isinstance(piece, Frame)):
        if run[-1].stamp.end <= first or run[0].stamp.first >= end:
            continue
        table = opened.decode_checked(run)
        offsets = table.column("offset")
        wanted = pc.and_(
            pc.and_(
                pc.greater_equal(offsets, pa.scalar(first, pa.int64())),
                pc.less(offsets, pa.scalar(end, pa.int64())),
            ),
            pc.equal(table.column("kind"), pa.scalar(int(Kind.MESSAGE), pa.int8())),
        )
        total += pc.sum(wanted).as_py() or 0
    return total
