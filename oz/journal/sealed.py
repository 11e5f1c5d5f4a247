"""Sealed segments: Parquet files. A file gets its name when it is complete, and is never written again.

**Row groups** have at most 8,192 rows and 16 MiB. With the statistics of the groups, a reader can skip most of a
file. Groups of 16,384 rows would make a file 4% smaller and a full scan 4% faster. But a read of a few records would
take twice as long.

**Metadata.** After the entries of `Head`, the footer has these entries, in this order:

    oz.end        the offset after the last record
    oz.times      the earliest and the latest time, in microseconds since 1970
    oz.gaps       the number of gap records
    oz.empty      the names of the columns that are null in all rows, separated by commas
    oz.missing    the missing offsets between oz.first and oz.end, as `first-end` separated by commas
    oz.subjects   the subjects of all messages, sorted, as a JSON list; absent if it exceeds 64 KiB. Surrogate
                  escapes stand for bytes that are not UTF-8
    oz.checksums  `crc32:`, then the CRC-32 of each column chunk, row group by row group, 8 digits each

The checksums of Parquet's pages do not cover the headers of the pages. In a test, 16,688 bits of page headers were
flipped one by one. 4 of the flips changed the decoded values without an error (pyarrow 26). Therefore oz adds
checksums of whole column chunks, which are known only when the file is complete. The writer reserves space for the
checksums in the footer, and fills it at the end.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import struct
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oz.journal.format import (
    COLUMNS,
    MESSAGE,
    NULLABLE,
    SCHEMA,
    TEMPORARY,
    TYPES,
    DamageError,
    Head,
    SegmentFile,
    int_scalar,
    sealed_name,
    sync_data,
    sync_directory,
)
from oz.journal.store import Store

GROUP_ROWS = 8192
GROUP_BYTES = 16 << 20
MAX_GROUP_ROWS = 1 << 17  # maximum number of rows in a row group that a reader accepts
MAX_GROUP_BYTES = 256 << 20
"""Maximum uncompressed size of a row group that a reader accepts. `GROUP_BYTES` limits only the payloads."""
MAX_SUBJECTS = 1 << 16  # maximum size of the list of subjects in bytes

_MAGIC = b"PAR1"
_TAIL = 8  # number of bytes after the footer; they contain its length and the magic bytes
_CHECKSUMS = "crc32:"
_ALL = range(len(COLUMNS))
_GROUP_CHECKSUMS = struct.Struct(f">{len(COLUMNS)}I")
_PHYSICAL = ["INT64", "INT64", "INT32", *["BYTE_ARRAY"] * 6, *["INT64"] * 3]
"""The physical Parquet types of the columns. If a column had another type, a read of its statistics would abort the
process (pyarrow 26)."""
_MESSAGES = int_scalar(MESSAGE, pa.int8())
_WRITER_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["kind", "subject", "origin", "reply_to", "subject_raw"],
    "column_encoding": dict.fromkeys(("offset", "time", "sequence", "position"), "DELTA_BINARY_PACKED"),
    "write_statistics": ["offset", "time", "kind", "subject", "subject_raw"],
    "write_page_checksum": True,
    "write_page_index": False,
    "data_page_size": 4 << 20,  # bytes; larger than a column of a row group with small payloads
    "store_schema": False,
}
_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
)
"""Errors that pyarrow and this module raise for a damaged or crafted Parquet file."""


# --- writing ---


class _Summary:
    """The metadata of a file, collected while its row groups are written."""

    def __init__(self, first: int) -> None:
        self.end = first
        self.rows = self.gaps = self.groups = 0
        self.times: tuple[int, int] | None = None
        self.empty = list(NULLABLE)
        self.missing: list[tuple[int, int]] = []
        self.reserved = ""
        self._subjects: set[str] | None = set()
        self._subject_bytes = 0

    def add(self, table: pa.Table) -> None:
        self.groups += 1
        self.rows += table.num_rows
        self.gaps += pc.sum(pc.not_equal(table["kind"], _MESSAGES)).as_py()
        found = pc.min_max(table["time"].cast(pa.int64()))
        low, high = found["min"].as_py(), found["max"].as_py()
        self.times = (
            (low, high) if self.times is None else (min(low, self.times[0]), max(high, self.times[1]))
        )
        self.empty = [name for name in self.empty if table[name].null_count == table.num_rows]
        self._add_subjects(table)

    def add_offsets(self, batch: pa.RecordBatch) -> None:
        first = batch.column(0)[0].as_py()
        if first > self.end:
            self.missing.append((self.end, first))
        self.end = batch.column(0)[-1].as_py() + 1

    def _add_subjects(self, table: pa.Table) -> None:
        if self._subjects is None:
            return
        if pc.count_distinct(table["subject"]).as_py() * 3 > MAX_SUBJECTS:
            self._subjects = None
            return
        new = _subjects_of(table) - self._subjects
        self._subjects |= new
        self._subject_bytes += sum(len(subject) + 4 for subject in new)
        if self._subject_bytes > MAX_SUBJECTS:
            self._subjects = None

    def metadata(self, head: Head) -> dict[str, str]:
        times = self.times or (0, 0)
        entries = {
            **head.metadata(),
            "oz.end": str(self.end),
            "oz.times": f"{times[0]} {times[1]}",
            "oz.gaps": str(self.gaps),
            "oz.empty": ",".join(self.empty),
            "oz.missing": ",".join(f"{first}-{end}" for first, end in self.missing),
        }
        if self._subjects is not None:
            entries["oz.subjects"] = json.dumps(sorted(self._subjects), separators=(",", ":"))
        self.reserved = _CHECKSUMS + secrets.token_hex(4 * self.groups * len(COLUMNS))
        return entries | {"oz.checksums": self.reserved}


def _subjects_of(table: pa.Table) -> set[str]:
    """Return the subjects of the messages in a table. Bytes that are not UTF-8 become surrogate escapes."""
    if pc.max(table["kind"]).as_py() != MESSAGE:
        table = table.filter(pc.equal(table["kind"], _MESSAGES))
    raw = table["subject_raw"]
    if raw.null_count == len(raw):
        return set(pc.unique(table["subject"]).to_pylist())
    texts = pc.unique(table["subject"].filter(pc.is_null(raw))).to_pylist()
    return {
        *texts,
        *(
            subject.decode(errors="surrogateescape")
            for subject in pc.unique(raw).to_pylist()
            if subject is not None
        ),
    }


def write_sealed(
    directory: Path, head: Head, batches: Iterable[pa.RecordBatch], *, sync: bool = True
) -> SegmentFile | None:
    """Write a sealed segment. The file gets its name when it is complete.

    Args:
        directory: the directory of the journal.
        head: the identity of the segment.
        batches: the records of the segment, in the order of offsets.
        sync: whether to wait until the file is on the disk, before it gets its name.

    Returns:
        The sealed file; None if there are no records.

    Raises:
        OSError: the operating system failed to write.
    """
    summary = _Summary(head.first)
    path = directory / f"{head.first:020}-{head.segment}.parquet{TEMPORARY}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with pa.OSFile(str(path), "wb") as sink, pq.ParquetWriter(sink, SCHEMA, **_WRITER_OPTIONS) as writer:
            for group in _row_groups(batches, summary):
                summary.add(group)
                writer.write_table(group, row_group_size=group.num_rows)
                if sync:
                    # One long fsync at the end would delay the next fsync of the active segment.
                    sync_data(descriptor)
            if not summary.rows:
                return None
            writer.add_key_value_metadata(summary.metadata(head))
        crc = _fill_checksums(descriptor, summary.reserved.encode())
        if sync:
            os.fsync(descriptor)
        file = SegmentFile(sealed_name(head.first, summary.end, crc), head.first, summary.end, crc=crc)
        os.rename(path, directory / file.name)
        if sync:
            sync_directory(directory)
        return file
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            path.unlink()


def _row_groups(batches: Iterable[pa.RecordBatch], summary: _Summary) -> Iterator[pa.Table]:
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if kept and (rows + batch.num_rows > GROUP_ROWS or size + batch.nbytes > GROUP_BYTES):
            yield pa.Table.from_batches(kept, SCHEMA)
            kept, rows, size = [], 0, 0
        summary.add_offsets(batch)
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if kept:
        yield pa.Table.from_batches(kept, SCHEMA)


def _fill_checksums(descriptor: int, reserved: bytes) -> int:
    """Write the checksums of the column chunks into the footer, and return the CRC-32 of the footer."""
    size = os.fstat(descriptor).st_size
    footer = bytearray(_read_footer(lambda count, place: os.pread(descriptor, count, place), size))
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    checksums = "".join(
        f"{crc32(os.pread(descriptor, length, place)):08x}"
        for group in range(metadata.num_row_groups)
        for place, length in _chunks(metadata, group)
    )
    place = footer.index(reserved)  # `reserved` is random, so that no subject in the footer is equal to it
    footer[place : place + len(reserved)] = (_CHECKSUMS + checksums).encode()
    os.pwrite(descriptor, footer, size - len(footer))
    return crc32(footer)


def _read_footer(read: Any, size: int) -> bytes:
    """Return the bytes of the footer of a Parquet file, including its length and the magic bytes at the end."""
    tail = read(_TAIL, max(0, size - _TAIL))
    length = int.from_bytes(tail[:4], "little") + _TAIL
    if tail[4:] != _MAGIC or length + len(_MAGIC) > size:
        raise ValueError("it is not a complete Parquet file")
    footer: bytes = read(length, size - length)
    return footer


def _column(row_group: Any, at: int) -> Any:
    column = row_group.column(at)
    if column.physical_type != _PHYSICAL[at]:
        raise ValueError(f"the column {COLUMNS[at]} has the type {column.physical_type}")
    return column


def _chunks(metadata: pq.FileMetaData, group: int, columns: Iterable[int] = _ALL) -> list[tuple[int, int]]:
    """Return the position and the length of each column chunk of a row group, in bytes."""
    row_group = metadata.row_group(group)
    found = []
    for at in columns:
        column = _column(row_group, at)
        place = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        found.append((place, column.total_compressed_size))
    return found


# --- reading ---


class Group(NamedTuple):
    """A row group of a sealed file, described by its statistics.

    Attributes:
        number: the number of the row group in the file, from 0.
        first: the first offset.
        end: the offset after the last record.
        rows: the number of records.
        times: the earliest and the latest time, in microseconds since 1970.
        subjects: the first and the last subject in the order of their bytes; None if they are unknown.
        has_gaps: whether the row group has gap records.
        bytes: the approximate size in memory, in bytes.
    """

    number: int
    first: int
    end: int
    rows: int
    times: tuple[int, int]
    subjects: tuple[bytes, bytes] | None
    has_gaps: bool
    bytes: int


@lru_cache(16)
def _parse(footer: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer))


class Footer:
    """The verified footer of a sealed file. `read_footer` caches footers for the process.

    Attributes:
        file: the parsed name of the file.
        data: the bytes of the footer, including its length and the magic bytes at the end.
        size: the size of the file in bytes.
        head: the identity of the segment.
        times: the earliest and the latest time, in microseconds since 1970.
        gaps: the number of gap records.
        empty: the names of the columns that are null in all rows.
        missing: the ranges of missing offsets inside the segment. Each range is a pair: the first missing offset, and
            the offset after the last missing record.
        subjects: the subjects of all messages, sorted; None if the list was too long for the footer.
    """

    def __init__(self, file: SegmentFile, data: bytes, size: int) -> None:
        """Parse a footer.

        Raises:
            ValueError, or another error in `_ERRORS`: the footer is malformed, or does not belong to the file name.
        """
        if crc32(data) != file.crc:
            raise ValueError("the footer is damaged: its checksum differs from the file name")
        self.file, self.data, self.size = file, data, size
        metadata = self.parse()
        found: dict[bytes, bytes] = metadata.metadata or {}
        self.head = Head.from_metadata(found)
        low, high = found[b"oz.times"].split()
        self.times = int(low), int(high)
        self.gaps = int(found[b"oz.gaps"])
        self.empty = frozenset(filter(None, found[b"oz.empty"].decode().split(",")))
        self.missing = _parse_missing(found[b"oz.missing"].decode())
        listed = found.get(b"oz.subjects")
        self.subjects: list[str] | None = None if listed is None else json.loads(listed)
        prefix, _, digits = found[b"oz.checksums"].decode().partition(":")
        self._checksums = bytes.fromhex(digits)
        if (self.head.first, int(found[b"oz.end"])) != (file.first, file.end):
            raise ValueError("the footer names other offsets than the file name")
        if not metadata.schema.to_arrow_schema().equals(SCHEMA):
            raise ValueError("the file has other columns than a journal")
        expected = 4 * len(COLUMNS) * metadata.num_row_groups
        if prefix + ":" != _CHECKSUMS or len(self._checksums) != expected:
            raise ValueError("the footer has no checksum for each column chunk")

        for group in range(metadata.num_row_groups):
            _chunks(metadata, group)  # the call checks the types of the columns
        self.rows: int = metadata.num_rows

    def parse(self) -> pq.FileMetaData:
        """Parse the bytes of the footer, and return the metadata in the form of pyarrow.

        A parsed footer needs ten times as much memory as its bytes. Therefore only a few parsed footers are cached.
        """
        return _parse(self.data)

    @cached_property
    def groups(self) -> list[Group]:
        """The row groups of the file.

        Raises:
            DamageError: a statistic is absent, or a row group is too large to come from a writer.
        """
        try:
            metadata = self.parse()
            groups = [_group(metadata.row_group(number), number) for number in range(metadata.num_row_groups)]
        except _ERRORS as error:
            raise self.damage(f"the statistics are malformed: {error}") from None
        if any(
            group.rows > MAX_GROUP_ROWS or (group.rows > 1 and group.bytes > MAX_GROUP_BYTES)
            for group in groups
        ):
            raise self.damage("a row group is larger than a writer makes it")
        return groups

    def checksums(self, group: int) -> tuple[int, ...]:
        """Return the checksums of the column chunks of a row group."""
        return _GROUP_CHECKSUMS.unpack_from(self._checksums, _GROUP_CHECKSUMS.size * group)

    def damage(self, reason: str, group: Group | None = None, position: int | None = None) -> DamageError:
        """Return the error for damage of the file, or of one row group."""
        first, end = (self.file.first, self.file.end) if group is None else (group.first, group.end)
        return DamageError(self.file.name, reason, first, end, position)


def _group(row_group: Any, number: int) -> Group:
    offset, time, kind, subject = (_column(row_group, at).statistics for at in range(4))
    subjects = (subject.min_raw, subject.max_raw) if subject is not None and subject.has_min_max else None
    times = time.min_raw, time.max_raw
    has_gaps = (kind.min, kind.max) != (MESSAGE, MESSAGE)
    size, rows = row_group.total_byte_size, row_group.num_rows
    return Group(number, offset.min, offset.max + 1, rows, times, subjects, has_gaps, size)


def _parse_missing(text: str) -> list[tuple[int, int]]:
    ranges = (part.split("-") for part in text.split(",") if part)
    return [(int(first), int(end)) for first, end in ranges]


_CACHE_BYTES = 32 << 20  # maximum size of all cached footers; a segment of 64 MiB has a footer of about 20 KB
_cache: OrderedDict[Hashable, Footer] = OrderedDict()
_cache_lock = threading.Lock()
_cache_size = 0


def read_footer(store: Store, file: SegmentFile, *, is_cached: bool = True) -> Footer:
    """Read and verify the footer of a sealed file.

    Args:
        store: the files of the journal.
        file: the sealed file.
        is_cached: whether a footer in the cache of this process may be returned. A modified file is always read again.

    Raises:
        FileNotFoundError: retention removed the file.
        DamageError: the footer is damaged.
    """
    global _cache_size
    identity = store.identity(file.name)
    with _cache_lock:
        if is_cached and (footer := _cache.get(identity)) is not None:
            _cache.move_to_end(identity)
            return footer
    opened = store.open(file.name)
    try:
        footer = Footer(file, _read_footer(opened.read, opened.size), opened.size)
    except _ERRORS as error:
        raise DamageError(store.path(file.name), str(error), file.first, file.end) from None
    finally:
        opened.close()
    with _cache_lock:
        if identity not in _cache:
            _cache[identity] = footer
            _cache_size += len(footer.data)
        while _cache_size > _CACHE_BYTES:
            _cache_size -= len(_cache.popitem(last=False)[1].data)
    return footer


class SealedFile:
    """An open sealed file, which stays readable if retention removes it.

    Attributes:
        footer: the verified footer of the file.
    """

    def __init__(self, store: Store, file: SegmentFile, *, is_cached: bool = True) -> None:
        """Open a sealed file.

        Raises:
            FileNotFoundError: retention removed the file.
            DamageError: the footer is damaged.
        """
        self.footer = read_footer(store, file, is_cached=is_cached)
        self._path = store.path(file.name)
        self._file = store.open(file.name)
        try:
            self._check_size(self.footer.size)
            self._metadata = self.footer.parse()
            # This buffer has the size of the file. `_load` copies column chunks to their positions in it, and pyarrow
            # decodes them there. The operating system allocates memory only for the pages that are used.
            self._window = mmap.mmap(-1, self.footer.size)
            self._parquet = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(self._window)),
                metadata=self._metadata,
                read_dictionary=["subject"],
                pre_buffer=False,
            )
        except _ERRORS as error:
            self.close()
            raise self._damage(f"it cannot be read: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check_size(self, size: int) -> None:
        if self._file.size != size:
            raise ValueError(f"it has {self._file.size} bytes in place of {size}")

    def _damage(self, reason: str, groups: Sequence[Group] = (), position: int | None = None) -> DamageError:
        first, end = (
            (groups[0].first, groups[-1].end) if groups else (self.footer.file.first, self.footer.file.end)
        )
        return DamageError(self._path, reason, first, end, position)

    def read(self, groups: Sequence[Group], columns: Sequence[str]) -> pa.Table:
        """Read columns of successive row groups. The column `subject` of the result is a dictionary.

        Raises:
            DamageError: a checksum differs, or the columns cannot be decoded.
        """
        stored = [name for name in columns if name not in self.footer.empty]
        places = sorted(map(COLUMNS.index, stored))
        for group in groups:
            self._load(group, places)
        rows = sum(group.rows for group in groups)
        try:
            numbers = [group.number for group in groups]
            # To wake threads would take longer than to decode few rows in this thread.
            table = self._parquet.read_row_groups(numbers, stored, use_threads=rows > 2 * GROUP_ROWS)
            if table.num_rows != rows:
                raise ValueError(f"{table.num_rows} rows in place of {rows}")
            if "subject" in stored:
                table["subject"].validate(full=True)  # Parquet readers do not check UTF-8
        except _ERRORS as error:
            raise self._damage(f"its columns cannot be decoded: {error}", groups) from None
        arrays = [table[name] if name in stored else nulls(name, rows) for name in columns]
        return pa.Table.from_arrays(arrays, list(columns))

    def check(self, group: Group) -> None:
        """Check all bytes of a row group, and decode it.

        Raises:
            DamageError: a byte is wrong.
        """
        self._load(group, _ALL)
        self.read([group], COLUMNS)

    def _load(self, group: Group, columns: Sequence[int]) -> None:
        """Read column chunks into the buffer of the file, and verify their checksums."""
        try:
            chunks = _chunks(self._metadata, group.number, columns)
        except _ERRORS as error:
            raise self._damage(str(error), [group]) from None
        checksums = self.footer.checksums(group.number)
        with memoryview(self._window) as window:
            for begin, end in _runs(chunks):
                if begin < len(_MAGIC) or end > len(window):
                    raise self._damage("the footer names places outside of the file", [group])
                with window[begin:end] as target:
                    if self._file.read_into(target, begin) != end - begin:
                        raise self._damage("the file is cut off", [group], begin)
            for at, (place, length) in zip(columns, chunks, strict=True):
                with window[place : place + length] as chunk:
                    if crc32(chunk) != checksums[at]:
                        raise self._damage(f"the column {COLUMNS[at]} is damaged", [group], place)

    def check_magic(self) -> None:
        """Check the magic bytes at the beginning of the file, which have no checksum.

        Raises:
            DamageError: the magic bytes are wrong.
        """
        if self._file.read(len(_MAGIC), 0) != _MAGIC:
            raise self._damage("the file has bytes of another program", position=0)


@lru_cache(2 * len(NULLABLE))
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)


def nulls(name: str, rows: int) -> pa.Array:
    """Return a column of nulls. All such columns share their memory, because most tables have several of them."""
    size = 1 << max(15, (rows - 1).bit_length())
    return _nulls(TYPES[name], size).slice(0, rows)


def _runs(chunks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent column chunks into ranges of bytes, so that one read loads several chunks."""
    runs: list[tuple[int, int]] = []
    for place, length in chunks:
        if runs and runs[-1][1] == place:
            runs[-1] = runs[-1][0], place + length
        else:
            runs.append((place, place + length))
    return runs


def plain_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table as batches with the types of `SCHEMA`. A dictionary of subjects becomes text."""
    fields = [SCHEMA.field(name) for name in table.schema.names]
    yield from table.cast(pa.schema(fields)).to_batches()
