"""The place where files wait until they belong to a lake: not in it, as some readers list hidden ones."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq

from oz.errors import LakeError
from oz.journal.files import sync_directory

_RUN = re.compile(r"oz-[0-9a-f]{32}")


@dataclass(frozen=True)
class StagedFile:
    """A file that Spark wrote and closed.

    Attributes:
        path: where it is.
        folder: where it goes, seen from the lake.
        rows: how many records it holds.
        bytes: its size.
        first_offset: the least offset in it.
        end_offset: the offset after the greatest.
    """

    path: Path
    folder: str
    rows: int
    bytes: int
    first_offset: int
    end_offset: int


class Staging:
    """A directory for what is not in the lake yet.

    Attributes:
        root: the directory; each step has one of its own in it.
    """

    def __init__(self, root: Path) -> None:
        """Make it."""
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def refuse_another_system(self, lake: Path) -> None:
        """See that files can be renamed from there into a lake.

        Raises:
            LakeError: they cannot.
        """
        root = self.root
        if root.stat().st_dev != lake.stat().st_dev:
            raise LakeError(
                f"{root}: on another file system than the lake {lake}, and nothing can be renamed into it; "
                "name a directory for staging on the same one"
            )

    def new(self) -> Path:
        """Name a directory for one step; nobody else writes there, not even what is left of a killed run."""
        return self.root / f"oz-{uuid4().hex}"

    def clear(self) -> None:
        """Remove what earlier runs left; tasks of a killed run may still be writing, and are passed by."""
        for path in self.root.iterdir():
            if _RUN.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def remove_when_empty(self) -> None:
        """Remove the directory if nothing is left in it."""
        try:
            self.root.rmdir()
        except OSError:
            return


def staged_files(directory: Path) -> list[StagedFile]:
    """List what Spark wrote, in order, and make it durable.

    Args:
        directory: what the job was told to write to.
    """
    found = [_look_at(path, directory) for path in sorted(directory.glob("*/*/*.parquet"))]
    inside = {path for one in found for path in (one.path.parent, one.path.parent.parent)}
    for path in (*inside, directory, directory.parent):
        sync_directory(path)
    return found


def _look_at(path: Path, directory: Path) -> StagedFile:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        found = pq.read_metadata(file)
    groups = [found.row_group(at) for at in range(found.num_row_groups)]
    at = found.schema.names.index("offset")
    ranges = [group.column(at).statistics for group in groups]
    return StagedFile(
        path,
        str(path.parent.relative_to(directory)),
        found.num_rows,
        path.stat().st_size,
        min(one.min for one in ranges),
        max(one.max for one in ranges) + 1,
    )
