"""The manifest: what each sealed segment holds, so that a reader can pass it by."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from oz.errors import JournalError
from oz.journal import files
from oz.journal.schema import VERSION
from oz.journal.summary import Subjects

FORMAT = "oz.journal"


@dataclass(frozen=True)
class Entry:
    """The contents of a sealed segment.

    Attributes:
        first_offset: the offset of its first record.
        end_offset: the offset after its last.
        bytes: the size of its file.
        min_time_ns: the earliest time in it, in nanoseconds since 1970.
        max_time_ns: the latest.
        gaps: how many of its records are not messages.
        lost: how many messages its gaps stand for, as far as that is known.
        subjects: a summary of its messages' subjects.
    """

    first_offset: int
    end_offset: int
    bytes: int
    min_time_ns: int
    max_time_ns: int
    gaps: int
    lost: int
    subjects: Subjects

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {**vars(self), "subjects": self.subjects.as_data()}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Entry:
        """Read what `as_data` returned."""
        return cls(**{**data, "subjects": Subjects.from_data(data["subjects"])})


@dataclass
class Manifest:
    """The manifest of a journal.

    Attributes:
        journal: its id.
        entries: the entries of all sealed segments, by first offset.
        first: retention has removed what lies before this offset, and nothing else; None in a manifest of an
            older version, which does not say so.
    """

    journal: str
    entries: dict[int, Entry] = field(default_factory=dict)
    first: int | None = None

    def save(self, directory: Path) -> None:
        """Replace the file, durably and at once."""
        entries = [self.entries[base].as_data() for base in sorted(self.entries)]
        data: dict[str, Any] = {"format": FORMAT, "version": VERSION, "journal": self.journal}
        data |= {"first_offset": self.first, "segments": entries}
        data["crc32"] = _checksum(data)
        with files.replacing(directory / files.MANIFEST) as descriptor:
            files.write_all(descriptor, json.dumps(data, indent=1).encode() + b"\n")

    def entry_of(self, directory: Path, segment: files.Segment) -> Entry | None:
        """Return what is known of a segment, unless the file has another size now."""
        entry = self.entries.get(segment.base)
        if entry is None or not segment.is_sealed:
            return None
        try:
            size = os.stat(f"{directory}/{segment.name}").st_size  # a path takes longer than the look
        except (FileNotFoundError, NotADirectoryError):
            return None
        return entry if size == entry.bytes else None


def load(directory: Path) -> Manifest | None:
    """Read the manifest.

    Returns:
        The manifest; None when it is not there or damaged, and must be made again from the segments.

    Raises:
        JournalError: it is of a newer version.
    """
    try:
        data = json.loads(files.read_note(directory / files.MANIFEST))
        checksum = data.pop("crc32", None)
        version = data["version"]
        if data["format"] == FORMAT and isinstance(version, int) and version > VERSION:
            raise JournalError(
                f"{directory}: a journal of format version {version}, and this oz reads no later one than "
                f"{VERSION}: it was written by a newer oz"
            )
        if checksum != _checksum(data):
            return None
        entries = [Entry.from_data(entry) for entry in data["segments"]]
        first = data.get("first_offset")
        journal = bytes.fromhex(data["journal"]).hex()
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Manifest(journal, {entry.first_offset: entry for entry in entries}, first)


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True, separators=(',', ':')).encode()):08x}"
