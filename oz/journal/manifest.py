"""The manifest: what each sealed segment holds.

A summary of its subjects lets a reader pass it by when a pattern matches none of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes
from zlib import crc32

from oz.errors import JournalError, PatternTimeout, SubjectError
from oz.journal import files
from oz.journal.schema import VERSION
from oz.subjects.pattern import Pattern

MOST = 64
LONGEST = 128
_SAFE = "".join(chr(code) for code in range(33, 127) if chr(code) != "%")


class SubjectSummary(NamedTuple):
    """A summary of the subjects of a segment.

    Attributes:
        prefixes: every subject begins with one of them.
        complete: whether they are the subjects themselves, all of them.
    """

    prefixes: tuple[bytes, ...]
    complete: bool

    def may_match(self, pattern: Pattern) -> bool:
        """Tell whether the pattern may match a subject; False is certain, True is not."""
        if self.complete:
            return any(may_match(pattern, subject) for subject in self.prefixes)
        return any(
            ours.startswith(theirs) or theirs.startswith(ours)
            for ours in self.prefixes
            for theirs in pattern.prefixes
        )

    def as_data(self) -> dict[str, object]:
        """Return it as JSON can hold it; bytes beyond printable ASCII are percent-encoded."""
        return {
            "complete": self.complete,
            "prefixes": [quote_from_bytes(one, safe=_SAFE) for one in self.prefixes],
        }

    @classmethod
    def from_data(cls, data: dict[str, object]) -> SubjectSummary:
        """Read what `as_data` returned.

        Raises:
            ValueError, TypeError: it is something else.
        """
        prefixes = data["prefixes"]
        if not isinstance(prefixes, list) or not all(isinstance(one, str) for one in prefixes):
            raise ValueError("prefixes are a list of texts")
        return cls(tuple(map(unquote_to_bytes, prefixes)), bool(data["complete"]))


def may_match(pattern: Pattern, subject: bytes) -> bool:
    """Tell whether a pattern matches, taking one that ran out of time for a match."""
    try:
        return pattern.matches(subject)
    except SubjectError:  # not UTF-8, in a dialect of text
        return False
    except PatternTimeout:
        return True


def summarise(subjects: Iterable[bytes]) -> SubjectSummary:
    """Summarise subjects: themselves when they are few, otherwise their longest prefixes that are few."""
    distinct = sorted(set(subjects))
    longest = max(map(len, distinct), default=0)
    if len(distinct) <= MOST and longest <= LONGEST:
        return SubjectSummary(tuple(distinct), complete=True)
    low, high = 0, min(longest, LONGEST)
    while low < high:
        middle = (low + high + 1) // 2
        if len({subject[:middle] for subject in distinct}) <= MOST:
            low = middle
        else:
            high = middle - 1
    return SubjectSummary(tuple(sorted({subject[:low] for subject in distinct})), complete=False)


FORMAT = "oz.journal"

MOST_OFFSET = 2**63 - 1


def check_number(value: object, least: int = 0) -> int:
    """Refuse what is no number of 64 bits; anybody may have written a note, with its checksum.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not least <= value <= MOST_OFFSET:
        raise ValueError(f"give a whole number from {least} to {MOST_OFFSET}, not {value!r:.100}")
    return value


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
        tail_crc: the checksum of what follows its last batch, which is for other programs; None where
            the file was damaged when the entry was written.
    """

    first_offset: int
    end_offset: int
    bytes: int
    min_time_ns: int
    max_time_ns: int
    gaps: int
    lost: int
    subjects: SubjectSummary
    tail_crc: int | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        data = {**vars(self), "subjects": self.subjects.as_data()}
        return {name: value for name, value in data.items() if value is not None}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Entry:
        """Read what `as_data` returned.

        Raises:
            ValueError, TypeError: it is something else.
        """
        numbers = {name: value for name, value in data.items() if name != "subjects"}
        for name, value in numbers.items():
            # Times may lie before 1970, and a sum of losses may be of any size.
            if name != "lost":
                check_number(value, least=-MOST_OFFSET - 1 if name.endswith("_time_ns") else 0)
            elif type(value) is not int:
                raise ValueError("lost is a whole number")
        return cls(**numbers, subjects=SubjectSummary.from_data(data["subjects"]))


@dataclass
class Manifest:
    """The manifest of a journal.

    Attributes:
        journal: its id.
        entries: the entries of all sealed segments, by first offset.
        first: retention has removed the records before this offset, and no others.
    """

    journal: str
    entries: dict[int, Entry] = field(default_factory=dict)
    first: int = 0

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
            size = os.lstat(f"{directory}/{segment.name}").st_size  # a path takes longer than the look
        except (FileNotFoundError, NotADirectoryError):
            return None
        return entry if size == entry.bytes else None


def load(directory: Path) -> Manifest | None:
    """Read the manifest.

    Returns:
        The manifest; None when it is not there or damaged, and must be made again from the segments.

    Raises:
        JournalError: it is of another version.
    """
    try:
        data = json.loads(files.read_note(directory / files.MANIFEST))
        checksum = data.pop("crc32", None)
        # Before the version: a flipped bit in the version is damage.
        if checksum != _checksum(data):
            return None
        version = data["version"]
        if data["format"] == FORMAT and isinstance(version, int) and version != VERSION:
            raise JournalError(f"{directory}: format version {version}; this oz reads version {VERSION}")
        entries = [Entry.from_data(entry) for entry in data["segments"]]
        first = check_number(data["first_offset"])
        journal = bytes.fromhex(data["journal"]).hex()
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Manifest(journal, {entry.first_offset: entry for entry in entries}, first)


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True, separators=(',', ':')).encode()):08x}"
