"""A lake that is open to be archived to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oz.errors import LakeError
from oz.journal.lock import ProcessLock
from oz.spark.jobs.archiving import manifest as manifests
from oz.spark.jobs.archiving.layout import LakeLayout, range_of
from oz.spark.jobs.archiving.manifest import FOLDER, LakeManifest
from oz.spark.jobs.archiving.publishing import finish, publish
from oz.spark.jobs.archiving.staging import StagedFile, Staging


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

    def publish(self, staging: Path, files: Iterable[StagedFile], then: LakeManifest) -> None:
        """Make the files of one step part of the lake; see `publishing.publish`."""
        publish(self.directory, self.manifest, staging, files, then)


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
        refuse_another(str(directory), known, journal, layout)
        staged = Staging(staging or directory.with_name(directory.name + ".staging"))
        staged.refuse_another_system(directory)
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


def refuse_another(lake: str, known: LakeManifest, journal: str, layout: LakeLayout) -> None:
    """Refuse a lake that is not the one of a journal and a separator.

    Raises:
        LakeError: it is another's.
    """
    if known.journal != journal:
        raise LakeError(
            f"{lake}: the lake of another journal, {known.journal}; this one is {journal}: archive it "
            "to a lake of its own"
        )
    if known.separator != layout.separator:
        raise LakeError(
            f"{lake}: its subjects are separated by {known.separator!r}, not {layout.separator!r}; go "
            "on with that, or archive to a new lake"
        )


def lake_folder(folder: Path, end_offset: int) -> list[Path]:
    """List the files in one folder that hold nothing but offsets before one."""
    ranges = {path: range_of(path.name) for path in folder.iterdir()}
    return sorted(path for path, offsets in ranges.items() if offsets and offsets[1] <= end_offset)
