"""Copies of sealed segments as Parquet, in a folder on any file system, each of them once.

The name of a file says which offsets it has. Each is written whole or not at all, and one that is there is
never written again; so there is nothing to lock, to rename or to clean up, which object stores do badly.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pyarrow.parquet as pq

from oz.errors import JournalError
from oz.journal import own
from oz.journal.archived import Archived
from oz.journal.epochs import History, history_of
from oz.journal.places import Place, place_of
from oz.journal.ranges import read_range
from oz.journal.reading import why_renumbered
from oz.journal.schema import SCHEMA

_FILE = re.compile(r"(\d{20})-(\d{20})\.parquet")
_JOURNAL, _EPOCH = b"oz.journal.id", b"oz.journal.epoch"


def archive(directory: Path, lake: str) -> Archived:
    """Copy each sealed segment that is not there yet; see `Journal.archive`."""
    found = own.sorted_files(directory)
    if found.journal is None or found.known is None or not found.known.entries:
        raise JournalError(f"{directory}: no segment of it is sealed; see `oz journal seal`")
    folder, history = place_of(lake), history_of(directory, found.journal)
    there = _ranges_in(folder)
    if there:
        _compare(folder, there[-1], found.journal, history, directory)
    written = []
    folder.make_folder()
    for segment in found.segments:
        entry = found.known.entry_of(directory, segment)
        if entry is None:
            continue
        span = entry.first_offset, entry.end_offset
        if span not in there:
            _refuse_overlap(folder, span, there)
            _copy(directory, found.journal, span, history.epoch_before(span[1]), folder)
            written.append(_name(span))
            there.append(span)
    return Archived(tuple(written), len(there) - len(written), max(there, default=(0, 0))[1], _holes(there))


def _name(span: tuple[int, int]) -> str:
    return f"{span[0]:020d}-{span[1]:020d}.parquet"


def _ranges_in(folder: Place) -> list[tuple[int, int]]:
    matches = map(_FILE.fullmatch, folder.files())
    return sorted((int(one[1]), int(one[2])) for one in matches if one is not None)


def _holes(there: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """List what lies between the files: before the first of them nothing was copied on purpose."""
    spans = sorted(there)
    return tuple(
        (one[1], following[0]) for one, following in itertools.pairwise(spans) if one[1] < following[0]
    )


def _refuse_overlap(folder: Place, span: tuple[int, int], there: list[tuple[int, int]]) -> None:
    for other in there:
        if other[0] < span[1] and span[0] < other[1]:
            raise JournalError(
                f"{folder.said}: {_name(other)} has some of the offsets from {span[0]} to {span[1] - 1}, "
                "which are one segment of this journal; take another folder"
            )


def _compare(folder: Place, last: tuple[int, int], journal: str, history: History, directory: Path) -> None:
    """See that the latest file is of this journal, as it is now."""
    place = folder.within(_name(last))
    with place.errors():
        said = pq.read_schema(place.path, filesystem=place.system).metadata or {}
    if said.get(_JOURNAL) != journal.encode():
        raise JournalError(f"{place.said}: of another journal than {directory}; take another folder")
    epoch = said.get(_EPOCH, b"").decode()
    if last[1] <= history.epochs[0].first_offset:
        return  # so old that the journal no longer knows
    if history.agreed(epoch, last[1]) != last[1]:
        raise JournalError(f"{folder.said}: {why_renumbered(history, epoch, last[1])}; take another folder")


def _copy(directory: Path, journal: str, span: tuple[int, int], epoch: str, folder: Place) -> None:
    schema = SCHEMA.with_metadata({_JOURNAL: journal.encode(), _EPOCH: epoch.encode()})
    place = folder.within(_name(span))
    with (
        place.writing() as out,
        place.errors(),
        pq.ParquetWriter(out, schema, compression="zstd") as writer,
    ):
        for table in read_range(directory, *span, journal=journal):
            writer.write_table(table.replace_schema_metadata(schema.metadata))
