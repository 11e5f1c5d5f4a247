"""The format of a journal on disk: file names, schema, metadata, checksums and the acknowledged mark.

A journal is a directory:

    <first>-<segment>.arrows       active segment: an Arrow IPC stream. <first> is the first offset in 20 digits.
                                   <segment> is a random id of 16 hexadecimal digits.
    <first>-<end>-<crc>.parquet    sealed segment, never written again. <crc> is the CRC-32 of its footer.
                                   Parquet itself does not check the footer.
    acknowledged                   the acknowledged mark: up to which byte of the active segment readers may read.
                                   44 bytes: segment id (16 digits); first offset, size of the stream in bytes and
                                   end offset (u64 each, little endian); CRC-32. Written at the end of each append.
    writer.lock                    lock file of the writer; it holds the process id of the writer.

**Segment id.** No two streams have the same name, and a writer never continues the stream of another writer. Therefore
an offset and the id of the segment with the previous record identify a position. If that segment has another id now,
the journal was restored from a copy, and its offsets may name other records.

**Checksums.** The metadata of each message of a stream holds the CRC-32 of the message. The segment id is the seed of
the checksum, so that a reader detects a batch of another stream. The footer of a sealed file has the CRC-32 of each
column chunk, and the file name has the CRC-32 of the footer. Parquet pages have checksums for other readers, such as
Spark.

**Offsets** begin at 0 and rise by 1 for each record. No two records get the same offset. Offsets are missing after
retention, and may be missing after damage and after a power cut with `sync="none"`. A reader reports a gap.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from oz.errors import JournalError

VERSION = 1
LOCK = "writer.lock"
MARK = "acknowledged"
TEMPORARY = ".tmp"
"""Suffix of an incomplete file. Readers ignore such files, and the next writer removes them."""
DAMAGED = ".damaged"
"""Suffix of a damaged file that `repair` or a writer has renamed. Readers ignore such files."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Values of errno for a full disk."""

MESSAGE, GAP = 0, 1
"""Values of the column `kind`. A gap record stands for `lost` messages that never reached the recorder."""

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("subject_raw", pa.binary()),
        pa.field("reply_to", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("origin", pa.binary()),
        pa.field("sequence", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("lost", pa.int64()),
    ]
)
"""The columns of active and sealed segments.

- `offset`: the number of the record.
- `time`: the time of receipt, in microseconds.
- `kind`: `MESSAGE` or `GAP`.
- `subject`: the subject as text. If the subject is not UTF-8, U+FFFD replaces the wrong bytes, and `subject_raw`
  has the original bytes. In a gap record, it is a pattern that covers all patterns of the recorder.
- `payload`: the first payload frame of the message.
- `reply_to`: the subject for replies.
- `headers`: the headers, the frames after the payload, and the id of the message, as MessagePack; see
  `oz.journal.records`.
- `origin`: the id of the publisher.
- `sequence`: the number of the message in the session between the publisher and the recorder.
- `position`: the number of the message among all messages of the publisher.
- `lost`: in a gap record, the number of lost messages; null if the number is unknown.
"""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
TYPES: dict[str, pa.DataType] = {field.name: field.type for field in SCHEMA}
NULLABLE: tuple[str, ...] = tuple(field.name for field in SCHEMA if field.nullable)


def int_scalar(value: int, kind: pa.DataType) -> pa.Scalar:
    """Return an Arrow scalar of an integer type, or of a type that is stored as an integer, such as a time.

    `pa.scalar` and `pa.array` are not used: if pandas is installed, they import it, which takes up to a second.

    Raises:
        OverflowError: the value does not fit the type.
    """
    data = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def int_sequence(count: int) -> pa.Array:
    """Return the int64 array 0, 1, 2, …, without an import of pandas."""
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array("q", range(count)))])


_SEALED = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.parquet")
_ACTIVE = re.compile(r"(\d{20})-([0-9a-f]{16})\.arrows")


class SegmentFile(NamedTuple):
    """File of a segment: its name, and the values in the name.

    Attributes:
        name: the file name.
        first: the first offset in the file.
        end: the offset after the last record; None for a stream.
        segment: the id of the segment. It is empty for a sealed file, whose footer has the id.
        crc: the CRC-32 of the footer; 0 for a stream.
    """

    name: str
    first: int
    end: int | None
    segment: str = ""
    crc: int = 0

    @property
    def is_sealed(self) -> bool:
        """Whether the file is a Parquet file."""
        return self.end is not None


def stream_name(first: int, segment: str) -> str:
    """Return the file name of an active segment."""
    return f"{first:020}-{segment}.arrows"


def sealed_name(first: int, end: int, crc: int) -> str:
    """Return the file name of a sealed segment."""
    return f"{first:020}-{end:020}-{crc:08x}.parquet"


@lru_cache(1 << 14)  # a reader lists the directory many times
def parse_name(name: str) -> SegmentFile | None:
    """Parse a file name; return None if it is not the name of a segment."""
    if match := _SEALED.fullmatch(name):
        return SegmentFile(name, int(match[1]), int(match[2]), crc=int(match[3], 16))
    if match := _ACTIVE.fullmatch(name):
        return SegmentFile(name, int(match[1]), None, segment=match[2])
    return None


def sort_segments(names: Iterable[str]) -> list[SegmentFile]:
    """Return the segment files among `names`, sorted by offset.

    If a segment has a stream and a sealed file, only the sealed file is returned. Both exist for a moment when a writer
    seals the segment, or longer if the writer was killed in this moment.
    """
    # Sorted names are in the order of offsets, because each offset is written with 20 digits.
    found = [file for file in map(parse_name, sorted(names)) if file is not None]
    sealed = {file.first for file in found if file.end is not None}
    return [file for file in found if file.end is not None or file.first not in sealed]


def new_id() -> str:
    """Return a random id of a segment or a journal: 16 hexadecimal digits."""
    return secrets.token_hex(8)


class Head(NamedTuple):
    """The identity of a segment. Active and sealed files store it as metadata of their schema.

    Attributes:
        journal: the id of the journal.
        segment: the id of the segment.
        previous: the id of the previous segment; empty for the first segment.
        first: the first offset of the segment.
    """

    journal: str
    segment: str
    previous: str
    first: int

    def metadata(self) -> dict[str, str]:
        """Return the identity as metadata entries."""
        entries = {f"oz.{name}": str(value) for name, value in self._asdict().items()}
        return {"oz.version": str(VERSION), **entries}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> Head:
        """Return the identity from metadata entries.

        Raises:
            ValueError: an entry is absent or malformed, or the version is unknown.
        """
        found = metadata or {}
        try:
            version = found[b"oz.version"].decode()
            if version != str(VERSION):
                raise ValueError(f"the format has version {version}; this oz reads version {VERSION}")
            fields = {name: found[f"oz.{name}".encode()].decode() for name in cls._fields}
            return cls(fields["journal"], fields["segment"], fields["previous"], int(fields["first"]))
        except KeyError as error:
            raise ValueError(f"the metadata has no {error.args[0].decode()}") from None


_MARK = struct.Struct("<16sQQQI")
MARK_SIZE = _MARK.size
_MARK_READS = 3
"""A mark with a wrong checksum is read this number of times, because a read may overlap a write."""


class Mark(NamedTuple):
    """The acknowledged mark: the end of the records that readers may read.

    Attributes:
        segment: the id of the active segment; empty while there is no active segment.
        first: the first offset of the active segment. Without an active segment, it is the offset after the last
            record in the journal. If `end` is greater, the records in between are lost.
        size: the number of acknowledged bytes in the stream of the active segment.
        end: the offset after the last acknowledged record.
    """

    segment: str
    first: int
    size: int
    end: int

    def to_bytes(self) -> bytes:
        """Return the mark as the 44 bytes of the file."""
        data = _MARK.pack(self.segment.encode(), self.first, self.size, self.end, 0)[:-4]
        return data + struct.pack("<I", crc32(data))

    @classmethod
    def from_bytes(cls, data: bytes) -> Mark | None:
        """Return the mark from the bytes of the file; None if the size or the checksum is wrong."""
        if len(data) != _MARK.size or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            return None
        segment, first, size, end, _ = _MARK.unpack(data)
        return cls(segment.rstrip(b"\0").decode("ascii", "replace"), first, size, end)


def read_mark(directory: Path) -> Mark | None:
    """Read the acknowledged mark of a journal; None if the file is absent or damaged."""
    with suppress(OSError):
        for _ in range(_MARK_READS):
            descriptor = os.open(directory / MARK, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mark = Mark.from_bytes(os.read(descriptor, _MARK.size + 1))
            finally:
                os.close(descriptor)
            if mark is not None:
                return mark
    return None


def sync_data(descriptor: int) -> None:
    """Wait until the data of a file is on the disk."""
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync


def sync_directory(directory: Path) -> None:
    """Wait until the file names of a directory are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fault_text(file: str, first: int | None, end: int | None, position: int | None) -> str:
    """Return a text with the file, the position and the offsets of a fault. Unknown values are left out."""
    parts = [file if position is None else f"{file} at byte {position}"]
    if first is not None:
        parts.append(f"from offset {first}" if end is None else f"offsets {first} to {end - 1}")
    return ", ".join(filter(None, parts))


class DamageError(JournalError):
    """A file of a journal was changed or cut off after it was written.

    Attributes:
        file: the path of the file.
        first: the first offset that may be affected; None if it is unknown.
        end: the offset after the last offset that may be affected; None if it is unknown.
        reason: the description of the damage.
        position: the position in the file at which the damage was detected, in bytes; None if it is unknown.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        reason: str,
        first: int | None = None,
        end: int | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(os.fspath(file), reason, first, end, position)
        self.file, self.reason, self.first, self.end, self.position = (
            os.fspath(file),
            reason,
            first,
            end,
            position,
        )

    def __str__(self) -> str:
        place = fault_text(self.file, self.first, self.end, self.position)
        return f"{place}: {self.reason}; run `oz journal verify`, then `oz journal repair`"


def open_regular(path: Path) -> int:
    """Open a regular file for reading, and return its descriptor.

    Raises:
        FileNotFoundError: the file is absent.
        DamageError: the file is not a regular file, or the operating system does not open it.
    """
    try:
        # Without O_NONBLOCK, `open` would wait for ever if the path is a named pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamageError(path, f"it cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamageError(path, "it is not a regular file")
    return descriptor
