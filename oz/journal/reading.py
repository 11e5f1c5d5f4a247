"""The reading of a journal, segment by segment, while a writer appends, seals and removes segments.

**The end.** The acknowledged mark (`oz.journal.format.Mark`) names the active segment and its acknowledged size. A
reader reads the stream of this segment up to this size. A stream that begins at or after the acknowledged end has no
acknowledged record yet. Every other stream is complete, and ends with an end mark that the writer has written. A
reader reads the acknowledged mark before it lists the directory. Therefore the list contains the files of all
acknowledged records, except files that retention removed.

**The segment of a record.** A reader at an offset opens the segment that contains this offset. If the file no longer
exists, the segment was sealed or removed, and the reader lists the directory again. An open file stays readable after
its removal. A list may contain neither the stream nor the sealed file of a segment that is sealed during the listing.
Therefore a reader lists the directory a second time before it reports a gap.

**Damage.** A damaged file raises `DamageError`. If a damaged stream was sealed or removed since the reader opened it,
the reader lists the directory again and raises no error.
"""

from __future__ import annotations

import bisect
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from oz.errors import JournalError
from oz.journal.format import DamageError, Mark, SegmentFile, int_scalar, read_mark
from oz.journal.records import BATCH_BYTES, JournalGap, missing_gap
from oz.journal.sealed import Footer, Group, SealedFile, nulls, read_footer
from oz.journal.selection import Selection, microseconds
from oz.journal.store import LocalStore, Store
from oz.journal.stream import END, ActiveStream, Frame, Scan

_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 0.05  # seconds between two reads of the mark at the end of the journal
_UNIT_ROWS = 32_768  # maximum number of rows that one call decodes, because more rows would need more memory
_UNIT_BYTES = 16 << 20
_THREADS = min(4, os.cpu_count() or 1)


def acknowledged_mark(store: Store) -> Mark | None:
    """Return the acknowledged mark; None if its file is absent or damaged, or if the journal is not local."""
    return read_mark(store.directory) if isinstance(store, LocalStore) else None


def end_offset(store: Store) -> int:
    """Return the offset after the last acknowledged record.

    Raises:
        JournalError: the acknowledged mark is absent, and the first bytes of the last stream are damaged.
    """
    while True:
        mark, files = acknowledged_mark(store), store.segments()
        sealed = next((file.end for file in reversed(files) if file.end is not None), 0)
        if mark is not None:
            return max(mark.end, sealed)
        if not files or files[-1].is_sealed or not isinstance(store, LocalStore):
            return sealed
        try:
            stream = ActiveStream(store.directory / files[-1].name, files[-1].segment)
        except FileNotFoundError:
            continue
        try:
            scan = Scan(stream, stream.size)
            for _ in scan:
                pass
            return max(scan.reached, sealed)
        finally:
            stream.close()


class Reading:
    """One read of a journal: `parts` yields tables of selected records, and gaps of missing offsets."""

    def __init__(self, store: Store, selection: Selection, *, follow: bool) -> None:
        """Prepare the reading.

        Args:
            store: the files of the journal.
            selection: the records to read. Without `follow`, the constructor limits it to the records that are
                acknowledged now.
            follow: whether to wait for further records at the end of the journal.
        """
        self._store, self._selection, self._follow = store, selection, follow
        if not follow:
            selection.limit(end_offset(store))
        self._at = selection.first
        self._reports_gaps = selection.is_from_offset
        self._files: list[SegmentFile] = []
        self._list()
        self._ended: SegmentFile | None = None  # the stream that was read to its end mark
        self._journal = ""
        self._seen = 0  # the offset after the last acknowledged record that was read
        self._pause = _SHORTEST_WAIT

    def parts(self) -> Iterator[pa.Table | JournalGap]:
        """Yield tables and gaps in the order of offsets. No table is empty.

        The column `subject` may be dictionary-encoded.

        Raises:
            DamageError: a file is damaged.
            JournalError: a file belongs to another journal, or the journal was replaced.
        """
        while not self._is_done():
            mark = acknowledged_mark(self._store)
            file = self._find()
            if file is None or file.first > self._at:
                self._list()
                file = self._find()
            if file is not None and file.first <= self._at:
                self._reports_gaps = True
                try:
                    yield from self._sealed(file) if file.is_sealed else self._stream(file)
                except FileNotFoundError:
                    self._list()
                continue
            # The directory was listed after the mark was read, so the records before `reached` are missing.
            reached = file.first if file is not None else max(mark.end if mark else 0, self._at)
            if self._selection.end is not None:
                reached = min(reached, self._selection.end)
            if mark is not None and max(mark.end, *(file.end or 0 for file in self._files), 0) < self._seen:
                raise JournalError(
                    f"{self._store.path('')}: the journal ends at offset {mark.end} and had records up to "
                    f"{self._seen}: it was replaced or restored from a copy"
                )
            if reached > self._at:
                if self._reports_gaps:
                    yield missing_gap(self._at, reached, self._reason())
                self._at = reached
                self._reports_gaps = True
            elif not self._wait():
                return

    def _is_done(self) -> bool:
        return self._selection.end is not None and self._at >= self._selection.end

    def _reason(self) -> str:
        return "missing" if any(file.first < self._at for file in self._files) else "retention"

    def _wait(self) -> bool:
        """Wait a short time for new records; return False if the reading ends at the present end of the journal."""
        until = self._selection.until
        if not self._follow or (until is not None and microseconds(datetime.now(UTC)) >= until):
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_WAIT)
        return True

    def _find(self) -> SegmentFile | None:
        """Return the segment that contains the position, or the next segment after the position."""
        place = bisect.bisect_right(self._files, self._at, key=lambda file: file.first)
        for file in self._files[max(0, place - 1) : place + 1]:
            if file == self._ended or (file.end is not None and file.end <= self._at):
                continue
            return file
        return None

    def _list(self) -> None:
        self._files = self._store.segments()
        for file, following in pairwise(self._files):
            if file.end is not None and following.first < file.end:
                raise JournalError(
                    f"{self._store.path(following.name)}: its records overlap those of {file.name}: "
                    "two journals were mixed; move the files of one of them away"
                )

    def _check_journal(self, journal: str, name: str) -> None:
        # The id may change before the first record is read. If a writer is killed before its first record, it leaves a
        # stream with a journal id, and the next writer takes a new id.
        if self._seen and journal != (self._journal or journal):
            raise JournalError(f"{self._store.path(name)}: the file belongs to another journal; move it away")
        self._journal = journal

    # --- sealed files ---

    def _sealed(self, file: SegmentFile) -> Iterator[pa.Table | JournalGap]:
        assert file.end is not None
        footer = read_footer(self._store, file)
        self._check_journal(footer.head.journal, file.name)
        self._selection.first = self._at
        gaps = deque(self._missing(footer))
        groups = []
        if self._selection.wants_file(footer):
            groups = [group for group in footer.groups if self._selection.wants_group(footer, group)]
        if groups:
            opened = SealedFile(self._store, file)
            try:
                for unit, table in self._read_units(opened, list(_units(groups))):
                    self._at = unit[-1].end
                    yield from _with_gaps(table, gaps, self._at)
            finally:
                opened.close()
        yield from gaps
        self._at = self._seen = file.end

    def _missing(self, footer: Footer) -> Iterator[JournalGap]:
        end = footer.file.end if self._selection.end is None else self._selection.end
        for first, last in footer.missing:
            low, high = max(first, self._at), min(last, end or 0)
            if low < high:
                yield missing_gap(low, high, "missing")

    def _read_units(
        self, opened: SealedFile, units: Sequence[Sequence[Group]]
    ) -> Iterator[tuple[Sequence[Group], pa.Table | None]]:
        """Read units in several threads, and yield them in order. pyarrow decodes a column in one thread only."""
        if len(units) == 1:
            yield units[0], self._read_unit(opened, units[0])
            return
        with ThreadPoolExecutor(_THREADS, "oz-journal-reader") as pool:
            pending: deque[tuple[Sequence[Group], Future[pa.Table | None]]] = deque()
            try:
                for unit in units:
                    pending.append((unit, pool.submit(self._read_unit, opened, unit)))
                    if len(pending) > _THREADS:
                        done, future = pending.popleft()
                        yield done, future.result()
                for done, future in pending:
                    yield done, future.result()
            finally:
                for _, future in pending:
                    future.cancel()

    def _read_unit(self, opened: SealedFile, unit: Sequence[Group]) -> pa.Table | None:
        """Read the columns that decide the selection; then the other columns, if a row group has a selected record."""
        selection = self._selection
        deciding = selection.deciding_columns(unit)
        if not deciding:
            return opened.read(unit, selection.columns)
        table = opened.read(unit, deciding)
        mask = selection.mask(table)
        if mask is not None:
            kept, begin = [], 0
            for group in unit:
                if pc.any(mask.slice(begin, group.rows)).as_py():
                    kept.append((group, begin))
                begin += group.rows
            if not kept:
                return None
            if len(kept) < len(unit):
                table = pa.concat_tables(table.slice(begin, group.rows) for group, begin in kept)
                parts = [mask.slice(begin, group.rows) for group, begin in kept]
                mask = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.bool_())
                unit = [group for group, _ in kept]
        stored = [name for name in selection.columns if name not in opened.footer.empty]
        columns = dict(zip(deciding, table.columns, strict=True))
        if rest := [name for name in stored if name not in deciding]:
            columns |= zip(rest, opened.read(unit, rest).columns, strict=True)
        if stored:
            made = pa.Table.from_arrays([columns[name] for name in stored], stored)
            made = made if mask is None else made.filter(mask)
            columns, rows = dict(zip(stored, made.columns, strict=True)), made.num_rows
        else:
            rows = table.num_rows if mask is None else pc.sum(mask).as_py()
        arrays = [columns[name] if name in stored else nulls(name, rows) for name in selection.columns]
        return pa.Table.from_arrays(arrays, selection.columns)

    # --- streams ---

    def _stream(self, file: SegmentFile) -> Iterator[pa.Table]:
        assert isinstance(self._store, LocalStore)
        stream = ActiveStream(self._store.directory / file.name, file.segment)
        try:
            self._check_journal(stream.head.journal, file.name)
            place = stream.begin
            while True:
                mark = read_mark(self._store.directory)
                is_growing = mark is None or mark.segment == file.segment or mark.end <= file.first
                if mark is None or not is_growing:
                    limit = stream.size
                else:
                    limit = mark.size if mark.segment == file.segment else stream.begin
                outcome = _Outcome.MORE
                while outcome is _Outcome.MORE:
                    first = self._at
                    batches, place, outcome = self._next_batches(stream, place, limit)
                    if batches:
                        yield from self._select(pa.Table.from_batches(batches), first)
                if outcome is _Outcome.ENDED:
                    self._ended = file
                    return
                if self._is_done():
                    return
                if stream.is_removed:
                    self._list()
                    return
                is_partial = mark is None and stream.find_intact(place + 1, limit) is None
                if not is_partial and (outcome is _Outcome.DAMAGED or not is_growing):
                    raise self._damage(stream, place, limit, mark)
                if not self._wait():
                    self._ended = file
                    return
        finally:
            stream.close()

    def _next_batches(
        self, stream: ActiveStream, place: int, limit: int
    ) -> tuple[list[pa.RecordBatch], int, _Outcome]:
        """Read successive batches up to a total size; return them with the position after the last batch."""
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < _UNIT_ROWS and size < BATCH_BYTES:
            if place >= limit or self._is_done():
                return batches, place, _Outcome.LIMIT
            frame = stream.frame(place, limit)
            if frame == END:
                return batches, place, _Outcome.ENDED
            if not isinstance(frame, Frame):
                return batches, place, _Outcome.DAMAGED
            if frame.end > self._at:
                batch = stream.read(frame)
                if batch is None:
                    return batches, place, _Outcome.DAMAGED
                if not frame.has_head:
                    raise DamageError(stream.path, "the head of the stream is damaged", self._at, position=0)
                batches.append(batch)
                rows, size = rows + frame.rows, size + frame.size
                self._at = self._seen = frame.end
            place += frame.size
            self._pause = _SHORTEST_WAIT
        return batches, place, _Outcome.MORE

    def _select(self, table: pa.Table, first: int) -> Iterator[pa.Table]:
        skip = max(0, first - table["offset"][0].as_py())
        surplus = 0 if self._selection.end is None else max(0, self._at - self._selection.end)
        table = table.slice(skip, max(0, table.num_rows - skip - surplus))
        mask = self._selection.mask(table.drop_columns("offset")) if table.num_rows else None
        if mask is not None:
            table = table.filter(mask)
        if table.num_rows:
            yield table.select(self._selection.columns)

    def _damage(self, stream: ActiveStream, place: int, limit: int, mark: Mark | None) -> DamageError:
        found = stream.find_intact(place + 1, limit)
        following = [file.first for file in self._files if file.first > stream.head.first]
        end = (
            found.first
            if found is not None
            else min([*following, *([mark.end] if mark else [])], default=None)
        )
        return DamageError(stream.path, "the stream is damaged", self._at, end, place)


class _Outcome(Enum):
    """The result of reading batches of a stream."""

    MORE = auto()  # further batches may follow before the limit
    LIMIT = auto()  # all batches before the limit were read
    ENDED = auto()  # the end mark follows
    DAMAGED = auto()  # the bytes that follow are no intact batch


def _units(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Split row groups into units. One call decodes one unit."""
    unit: list[Group] = []
    rows = size = 0
    for group in groups:
        if unit and (rows + group.rows > _UNIT_ROWS or size + group.bytes > _UNIT_BYTES):
            yield unit
            unit, rows, size = [], 0, 0
        unit.append(group)
        rows, size = rows + group.rows, size + group.bytes
    if unit:
        yield unit


def _with_gaps(table: pa.Table | None, gaps: deque[JournalGap], end: int) -> Iterator[pa.Table | JournalGap]:
    """Yield the records of a table, and between them the gaps before the offset `end`."""
    while gaps and gaps[0].first < end:
        gap = gaps.popleft()
        # If the caller has not selected the column of offsets, the table is not split, and the gap comes before it.
        if table is not None and table.num_rows and "offset" in table.schema.names:
            before = pc.less(table["offset"], int_scalar(gap.first, pa.int64()))
            if pc.any(before).as_py():
                yield table.filter(before)
            table = table.filter(pc.invert(before))
        yield gap
    if table is not None and table.num_rows:
        yield table
