"""The acknowledged end of a journal, for readers in other processes and for the next writer.

A reader must not see what the writer may still take back: after a full disk or a crash the same offset may be
given to another record. So the writer notes the end of each append that has returned, and readers stop there.
Whoever opens the journal next learns from the same note what must be there, and reports what is not.

The note is not made durable by itself. As an upper bound for readers it holds for the machine's run in which
it was written and for that very file; otherwise whatever is intact counts. As a lower bound, what must be
there, it always holds: it is written after the records.
"""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from oz.journal import files

_NOTE = struct.Struct("<4sIqQ32s16s8sqqq")
_CRC = struct.Struct("<I")
_VERSION = 1
_MAGIC = b"OZAK"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOOKS = 5  # at a note that is being written


@functools.cache
def _this_run() -> bytes:
    try:
        return _BOOT_ID.read_bytes().strip().replace(b"-", b"")[:32]
    except OSError:
        return b""


class Growing(NamedTuple):
    """The rest of the note beside the acknowledged end: the segment that grows, and the epoch.

    Attributes:
        journal: the journal's id.
        epoch: the present epoch's id; empty when the journal has none yet.
        epoch_first: the offset at which it began.
        base: the offset of the growing segment's first record.
        size: how many bytes of the growing segment are acknowledged; -1 when that is not known.
    """

    journal: str
    epoch: str
    epoch_first: int
    base: int
    size: int = -1


class Mark(NamedTuple):
    """A note that is intact.

    Attributes:
        end: everything before this offset was acknowledged.
        holds: whether nothing after it was, so that readers stop there.
        growing: the growing segment and the epoch.
    """

    end: int
    holds: bool
    growing: Growing


class AcknowledgedMark:
    """Writes the note of how far a journal is acknowledged, for its writer.

    Attributes:
        end: what was noted last; None before anything was.
    """

    end: int | None = None

    def __init__(self, directory: Path) -> None:
        """Open the file, or make it."""
        self._path = directory / files.MARK
        self._run = _this_run()
        self._open()

    def _open(self) -> None:
        self._descriptor = files.open_to_write(self._path)
        self._inode = os.fstat(self._descriptor).st_ino

    def set(self, end: int, growing: Growing) -> None:
        """Note that everything before an offset is acknowledged."""
        journal, epoch, *rest = growing
        ids = bytes.fromhex(journal), bytes.fromhex(epoch)
        note = _NOTE.pack(_MAGIC, _VERSION, end, self._inode, self._run, *ids, *rest)
        os.pwrite(self._descriptor, note + _CRC.pack(crc32(note)), 0)
        self.end = end

    def keep(self, end: int, growing: Growing) -> bool:
        """Make the file again if it is gone or is another; tell whether it was."""
        try:
            if os.lstat(self._path).st_ino == self._inode:
                return False
        except FileNotFoundError:
            pass
        before = self._descriptor
        self._open()
        os.close(before)
        self.set(end, growing)
        return True

    def close(self) -> None:
        """Close the file; the note stays."""
        os.close(self._descriptor)


def read_mark(directory: Path, journal: str | None = None) -> Mark | None:
    """Read the note.

    Args:
        directory: the journal.
        journal: its id; the note of another does not count. None for any.

    Returns:
        What it says; None when there is none, or it is damaged.
    """
    descriptor = files.open_regular(directory / files.MARK)
    if descriptor is None:
        return None
    try:
        inode = os.fstat(descriptor).st_ino
        found: Mark | None = None
        for _ in range(_LOOKS):  # a look may fall into the middle of a write
            found = _read(os.pread(descriptor, _NOTE.size + _CRC.size, 0), inode)
            if found is not None:
                break
        if found is not None and journal not in (None, found.growing.journal):
            return None
        return found
    finally:
        os.close(descriptor)


def _read(data: bytes, inode: int) -> Mark | None:
    if len(data) != _NOTE.size + _CRC.size or _CRC.unpack_from(data, _NOTE.size) != (
        crc32(data[: _NOTE.size]),
    ):
        return None
    magic, version, end, own, run, journal, epoch, *rest = _NOTE.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or end < 0:
        return None
    growing = Growing(journal.hex(), epoch.hex() if epoch.strip(b"\0") else "", *rest)
    return Mark(end, bool(own == inode and run == _this_run() and run.strip(b"\0")), growing)


def acknowledged(directory: Path) -> int | None:
    """Read how far readers may read.

    Returns:
        The offset after the last acknowledged record; None when no note holds.
    """
    mark = read_mark(directory)
    return mark.end if mark is not None and mark.holds else None


def is_damaged(directory: Path) -> bool:
    """Whether there is a note, and it cannot be read."""
    return os.path.lexists(directory / files.MARK) and read_mark(directory) is None
