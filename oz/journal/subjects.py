"""The subjects of a sealed segment, kept in its file, so that a reader of few subjects can pass it by.

They stand between the last batch and the footer, where no Arrow program looks: those find batches by the
footer, or stop at the end mark. They have a checksum of their own. One that differs costs time only: the
segment is read. A file with too many subjects has none.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Sequence

import pyarrow as pa

from oz.journal.walk import ReadAhead

MOST_BYTES = 1 << 20
"""The most that the subjects of a segment take before they are compressed; with more there is no summary."""

_MAGIC = b"oz.subj1"
_TRAILER = struct.Struct("<IIII8s")  # subjects, their bytes, those compressed, checksum
_COUNTS = struct.Struct("<III")
_FILE_END = struct.Struct("<I6s")  # the length of the footer, and Arrow's magic
_ARROW = b"ARROW1"
_END_MARK = 8  # bytes, after the last batch
_WIDTH = 4  # bytes of a place in Arrow's arrays


def with_subjects(tail: bytearray, subjects: Sequence[bytes]) -> bytearray:
    """Put subjects into what follows the last batch of a file.

    Args:
        tail: the end mark and the footer.
        subjects: the distinct ones of all messages in the file.

    Returns:
        The tail with them, or as it was when they are too many.
    """
    names = sorted(subjects)
    places = itertools.accumulate(map(len, names), initial=0)
    data = struct.pack(f"<{len(names) + 1}I", *places) + b"".join(names)
    if len(data) > MOST_BYTES:
        return tail
    stored = zlib.compress(data)
    counts = len(names), len(data), len(stored)
    trailer = _TRAILER.pack(*counts, _checksum(counts, stored), _MAGIC)
    return bytearray().join([tail[:_END_MARK], stored, bytes(-len(stored) % 8), trailer, tail[_END_MARK:]])


def has_subjects(source: ReadAhead) -> bool:
    """Tell whether a file has a summary, in whatever condition."""
    return _trailer(source) is not None


def subjects_in(source: ReadAhead) -> pa.Array | None:
    """Read the subjects of a sealed segment.

    Args:
        source: its file.

    Returns:
        They, sorted, as bytes; None when there is no summary, or it is damaged.
    """
    found = _trailer(source)
    if found is None:
        return None
    end, (count, size, length, checksum) = found
    stored = source.fresh(end - length - -length % 8, length)
    if checksum != _checksum((count, size, length), stored) or not (count + 1) * _WIDTH <= size <= MOST_BYTES:
        return None
    try:
        data = zlib.decompressobj().decompress(stored, size + 1)
        if len(data) != size:
            return None
        whole = pa.py_buffer(data)
        buffers = [None, whole.slice(0, (count + 1) * _WIDTH), whole.slice((count + 1) * _WIDTH)]
        array = pa.Array.from_buffers(pa.binary(), count, buffers)
        array.validate(full=True)  # a checksum does not tell that the places are within the bytes
    except (zlib.error, pa.ArrowException, ValueError):
        return None
    return array


def _trailer(source: ReadAhead) -> tuple[int, tuple[int, int, int, int]] | None:
    """Find where the compressed subjects end, padding included, and what is said of them."""
    size = os.fstat(source.descriptor).st_size
    file_end = source.fresh(max(0, size - _FILE_END.size), _FILE_END.size)
    if len(file_end) < _FILE_END.size:
        return None
    footer, magic = _FILE_END.unpack(file_end)
    at = size - _FILE_END.size - footer - _TRAILER.size
    if magic != _ARROW or at < 0:
        return None
    count, length, stored, checksum, mark = _TRAILER.unpack(source.fresh(at, _TRAILER.size))
    is_ours = mark == _MAGIC and stored + -stored % 8 <= at
    return (at, (count, length, stored, checksum)) if is_ours else None


def _checksum(counts: tuple[int, int, int], stored: bytes) -> int:
    return zlib.crc32(stored, zlib.crc32(_COUNTS.pack(*counts)))
