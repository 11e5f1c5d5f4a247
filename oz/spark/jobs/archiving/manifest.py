"""The manifest of a lake: how far the journal is in it, and what is about to become visible."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from oz.errors import LakeError
from oz.journal.epochs import UNNAMED
from oz.journal.files import sync_directory

FOLDER = "_oz"
"""Where a lake keeps what is not data: readers pass by names that begin with an underscore."""

NAME = "lake.json"
_FORMAT = "oz.lake"
_VERSION = 1


@dataclass(frozen=True)
class Move:
    """A change that is decided, and is carried out now or by the next run.

    Attributes:
        staging: the directory of the new files, seen from the lake.
        files: their paths there and in the lake, in the order in which they are renamed.
        end_offset: how far the journal is in the lake then.
        missing: ranges of offsets that retention had removed, added by this.
        epoch: the journal's epoch in which the last record before `end_offset` was written.
    """

    staging: str
    files: list[list[str]]
    end_offset: int
    missing: list[list[int]]
    epoch: str


@dataclass(frozen=True)
class Swap:
    """Folders that are exchanged for compacted ones, now or by the next run.

    Attributes:
        staging: the directory of the new folders, seen from the lake.
        folders: the path of each, there and in the lake the same, and a file that only the new one has.
    """

    staging: str
    folders: list[list[str]]


@dataclass(frozen=True)
class Upload:
    """A step whose files are being put on an object store, which the next run takes away if this one fails.

    Attributes:
        files: their paths, seen from the lake.
    """

    files: list[str]


Pending = Move | Swap | Upload


@dataclass
class LakeManifest:
    """The manifest of a lake.

    Attributes:
        journal: the id of its journal.
        separator: what ends the first token of a subject.
        first_offset: where the journal began when the lake was begun.
        end_offset: all records from there to here are in the lake, but for `missing`.
        missing: ranges of offsets that retention removed from the journal before they were archived.
        tokens: the first tokens that have folders of their own.
        generation: how many compactions there were.
        pending: a change that is decided and may be half done.
        epoch: the journal's epoch in which the last record before `end_offset` was written.
    """

    journal: str
    separator: str
    first_offset: int
    end_offset: int
    missing: list[list[int]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    generation: int = 0
    pending: Pending | None = None
    epoch: str = UNNAMED

    def encoded(self) -> bytes:
        """Return what the file has."""
        data = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        data["pending"] = self.pending and {type(self.pending).__name__.lower(): asdict(self.pending)}
        data["crc32"] = _checksum(data)
        return json.dumps(data, indent=1).encode()

    def save(self, lake: Path) -> None:
        """Replace the file, durably and at once."""
        folder = lake / FOLDER
        temporary = folder / (NAME + ".tmp")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(self.encoded())
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, folder / NAME)
        sync_directory(folder)


def load(lake: Path) -> LakeManifest | None:
    """Read the manifest.

    Returns:
        The manifest; None when there is none.

    Raises:
        LakeError: it is damaged, or of another version.
    """
    path = lake / FOLDER / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return decoded(content, str(path))


def decoded(content: bytes, path: str) -> LakeManifest:
    """Read what the file has.

    Args:
        content: all of it.
        path: where it is, for errors.

    Raises:
        LakeError: it is damaged, or of another version.
    """
    try:
        data = json.loads(content)
        version, checksum = data["version"], data.pop("crc32")
        if data["format"] == _FORMAT and version != _VERSION:
            raise LakeError(f"{path}: of version {version}; this oz reads version {_VERSION}")
        if checksum != _checksum(data):
            raise ValueError("its checksum differs")
        del data["format"], data["version"]
        return LakeManifest(**{**data, "pending": _pending(data["pending"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{path}: damaged ({error}); put back a copy of it, or archive to a new lake: without it nobody "
            "knows what is in this one"
        ) from None


def _pending(data: dict[str, Any] | None) -> Pending | None:
    if data is None:
        return None
    [(name, change)] = data.items()
    return _CHANGES[name](**change)


_CHANGES: dict[str, type[Pending]] = {one.__name__.lower(): one for one in (Move, Swap, Upload)}


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True, separators=(',', ':')).encode()):08x}"
