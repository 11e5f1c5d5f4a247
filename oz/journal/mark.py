"""How far a journal has been acknowledged, for readers in other processes.

A reader must not see what the writer may still take back: after a full disk or a crash the same offset may be
given to another record. So the writer notes the end of each append that has returned, and readers stop there.

The note is not made durable. It holds for the machine's run in which it was written and for that very file;
otherwise, and when it is not there, whatever is intact counts.
"""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path
from zlib import crc32

from oz.journal import files

_NOTE = struct.Struct("<4sIqQ32s")
_CRC = struct.Struct("<I")
_MAGIC = b"OZAK"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def _this_run() -> bytes:
    try:
        return _BOOT_ID.read_bytes().strip().replace(b"-", b"")[:32]
    except OSError:
        return b""


class AcknowledgedMark:
    """The writer's side."""

    def __init__(self, directory: Path) -> None:
        """Open the file, or make it."""
        self._descriptor = os.open(directory / files.MARK, os.O_RDWR | os.O_CREAT, 0o666)
        self._inode = os.fstat(self._descriptor).st_ino
        self._run = _this_run()

    def set(self, end_offset: int) -> None:
        """Note that everything before an offset is acknowledged."""
        note = _NOTE.pack(_MAGIC, 1, end_offset, self._inode, self._run)
        os.pwrite(self._descriptor, note + _CRC.pack(crc32(note)), 0)

    def close(self) -> None:
        """Close the file; the note stays."""
        os.close(self._descriptor)


def acknowledged(directory: Path) -> int | None:
    """Read how far the journal is acknowledged.

    Returns:
        The offset after the last acknowledged record; None when no note holds.
    """
    try:
        descriptor = os.open(directory / files.MARK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(descriptor, _NOTE.size + _CRC.size, 0)
        inode = os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)
    if len(data) < _NOTE.size + _CRC.size or _CRC.unpack_from(data, _NOTE.size) != (
        crc32(data[: _NOTE.size]),
    ):
        return None
    magic, version, end_offset, own, run = _NOTE.unpack_from(data)
    holds = magic == _MAGIC and version == 1 and own == inode and run == _this_run() and run.strip(b"\0")
    return end_offset if holds else None
