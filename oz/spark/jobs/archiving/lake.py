"""A lake that is open to be archived to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oz.errors import LakeError
from oz.journal.lock import ProcessLock
from oz.spark.jobs.archiving import manifest as manifests
from oz.spark.jobs.archiving.layout import LakeLayout, folders, range_of
from oz.spark.jobs.archiving.manifest import FOLDER, LakeManifest
from oz.spark.jobs.archiving.publishing import finish
from oz.spark.jobs.archiving.staging import Staging


class LakeLock(ProcessLock):
    """The right to change a lake."""

    def __init__(self, path: Path) -> None:
        """Take it.

        Args:
            path: the lock's file, in a directory of the lake's.

        Raises:
            LakeError: another archiver has it.
        """
        super().__init__(
            path,
            lambda holder: LakeError(
                f"{path.parent.parent}: another archiver is at work on this lake (process {holder}); wait "
                "for its end"
            ),
        )


@dataclass
class Lake:
    """A lake, locked; what an earlier run decided is done.

    Attributes:
        directory: where it is.
        manifest: what is known of it.
        staging: where files wait.
        layout: how it is laid out.
    """

    directory: Path
    manifest: LakeManifest
    staging: Staging
    layout: LakeLayout


@contextmanager
def opened(
    directory: Path, staging: Path | None, journal: str, first_offset: int, layout: LakeLayout
) -> Iterator[Lake]:
    """Open a lake, or begin one, and finish what a killed run left.

    Args:
        directory: the lake.
        staging: where files wait; None for the directory beside it with `.staging` after its name.
        journal: the id of the journal.
        first_offset: where the journal begins.
        layout: how it is to be laid out.

    Raises:
        LakeError: it is in use, damaged, of another journal or another separator, or no lake at all.
    """
    _refuse_what_is_no_lake(directory)
    (directory / FOLDER).mkdir(parents=True, exist_ok=True)
    with LakeLock(directory / FOLDER / "lock"):
        known = manifests.load(directory)
        if known is None:
            known = LakeManifest(journal, layout.separator, first_offset, first_offset)
            known.save(directory)
        _refuse_another(directory, known, journal, layout)
        staged = Staging(staging or directory.with_name(directory.name + ".staging"), directory)
        finish(directory, known)
        staged.clear()
        yield Lake(directory, known, staged, layout)


def _refuse_what_is_no_lake(directory: Path) -> None:
    if directory.exists() and manifests.load(directory) is None:
        others = [path.name for path in directory.iterdir() if path.name != FOLDER]
        if others:
            raise LakeError(
                f"{directory}: holds {min(others)!r} and no manifest of a lake; name an empty directory, or "
                "one that is not there"
            )


def _refuse_another(directory: Path, known: LakeManifest, journal: str, layout: LakeLayout) -> None:
    if known.journal != journal:
        raise LakeError(
            f"{directory}: the lake of another journal, {known.journal}; this one is {journal}: archive it "
            "to a lake of its own"
        )
    if known.separator != layout.separator:
        raise LakeError(
            f"{directory}: its subjects are separated by {known.separator!r}, not {layout.separator!r}; go "
            "on with that, or archive to a new lake"
        )


def lake_files(lake: str | Path) -> list[str]:
    """List the files of a lake that belong to finished steps, for readers that want no others.

    Args:
        lake: a lake made by `archive`.

    Returns:
        The paths, in order. Each record up to `LakeManifest.end_offset` is in one of them, and in no other.

    Raises:
        LakeError: it is no lake, or damaged.
    """
    directory = Path(lake)
    known = manifests.load(directory)
    if known is None:
        raise LakeError(
            f"{directory}: no lake of oz: there is no {FOLDER} in it; `oz spark archive` makes one"
        )
    return [str(path) for folder in folders(directory) for path in lake_folder(folder, known.end_offset)]


def lake_folder(folder: Path, end_offset: int) -> list[Path]:
    """List the files in one folder that hold nothing but offsets before one."""
    ranges = {path: range_of(path.name) for path in folder.iterdir()}
    return sorted(path for path, offsets in ranges.items() if offsets and offsets[1] <= end_offset)
