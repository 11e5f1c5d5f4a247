"""A lake on an object store, where an object appears whole when its upload ends, and nothing is renamed.

The manifest names the files of a step before they are put, and says after the last of them that they count.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from oz.errors import LakeError
from oz.journal.lock import ProcessLock
from oz.journal.places import Place
from oz.spark.jobs.archiving.lake import refuse_another
from oz.spark.jobs.archiving.layout import LakeLayout, file_name, range_of
from oz.spark.jobs.archiving.manifest import FOLDER, NAME, LakeManifest, Upload, decoded
from oz.spark.jobs.archiving.staging import StagedFile, Staging

_MANIFEST = f"{FOLDER}/{NAME}"


class StoredLake:
    """A lake on an object store; what a killed run left unfinished is gone.

    Attributes:
        directory: where it is, as the user wrote it.
        manifest: what is known of it.
        staging: where files wait.
        layout: how it is laid out.
    """

    def __init__(self, place: Place, manifest: LakeManifest, staging: Staging, layout: LakeLayout) -> None:
        """Open it.

        Args:
            place: where it is.
            manifest: as it is there now.
            staging: a directory of a file system, held by this process alone.
            layout: how it is to be laid out.

        Raises:
            LakeError: it has files that its manifest does not know.
            JournalError: the object store fails.
        """
        self.directory = place.said
        self.manifest = manifest
        self.staging = staging
        self.layout = layout
        self._place = place
        self._saved = manifest.encoded()
        self._remove_unfinished()

    def publish(self, staging: Path, files: Iterable[StagedFile], then: LakeManifest) -> None:
        """Put the files of one step, then the manifest.

        A process that is killed in between leaves files that the manifest names as unfinished.

        Args:
            staging: where the files are.
            files: which.
            then: the manifest with them.

        Raises:
            LakeError: somebody else changes the lake.
            JournalError: the object store fails.
        """
        first, end = self.manifest.end_offset, then.end_offset
        named = {f"{one.folder}/{file_name(first, end, at)}": one.path for at, one in enumerate(files)}
        self.manifest.pending = Upload(list(named))
        self._save(self.manifest)
        for name, path in named.items():
            _put(self._place.within(name), path)
        self._refuse_what_is_not_whole(named)
        self._save(then)
        self.manifest = then

    def _save(self, manifest: LakeManifest) -> None:
        if _read(self._place.within(_MANIFEST)) != self._saved:
            raise LakeError(
                f"{self.directory}: another archiver is at work on this lake; run one at a time, all with "
                "the same directory for staging"
            )
        content = manifest.encoded()
        with self._place.within(_MANIFEST).writing() as out:
            out.write(content)
        self._saved = content

    def _refuse_what_is_not_whole(self, named: dict[str, Path]) -> None:
        places = [self._place.within(name) for name in named]
        with self._place.errors():
            found = self._place.system.get_file_info([one.path for one in places])
        for place, path, info in zip(places, named.values(), found, strict=True):
            if info.size != path.stat().st_size:
                raise LakeError(f"{place.said}: is not there as it was put; does somebody else write there?")

    def _remove_unfinished(self) -> None:
        """Take away what the manifest names as unfinished.

        What it does not know may have the only copy of a record, where an old manifest was put back.
        """
        pending = self.manifest.pending
        unfinished = set(pending.files) if isinstance(pending, Upload) else set()
        there = set(_names(self._place))
        if strange := {name for name in there if not _is_before(name, self.manifest.end_offset)} - unfinished:
            raise LakeError(
                f"{self._place.within(min(strange)).said}: is there, and the manifest does not know it; was "
                "an old manifest put back?"
            )
        for name in there & unfinished:
            with self._place.errors():
                self._place.system.delete_file(self._place.within(name).path)


class StagingLock(ProcessLock):
    """The right to archive from a directory for staging."""

    def __init__(self, staging: Path) -> None:
        """Take it.

        Raises:
            LakeError: another archiver has it.
        """
        super().__init__(
            staging / "lock",
            lambda holder: LakeError(
                f"{staging}: another archiver is at work here (process {holder}); wait for its end"
            ),
        )


@contextmanager
def opened_store(
    place: Place, staging: Path, journal: str, first_offset: int, layout: LakeLayout
) -> Iterator[StoredLake]:
    """Open a lake on an object store, or begin one, and take away what a killed run left.

    Args:
        place: the lake.
        staging: where files wait; made if it is not there.
        journal: the id of the journal.
        first_offset: where the journal begins.
        layout: how it is to be laid out.

    Raises:
        LakeError: it is in use, damaged, of another journal or another separator, or no lake at all.
        JournalError: the object store fails.
    """
    staged = Staging(staging)
    with StagingLock(staging):
        known = _load(place)
        if known is None:
            _refuse_what_is_no_lake(place)
            known = LakeManifest(journal, layout.separator, first_offset, first_offset)
            with place.within(_MANIFEST).writing() as out:
                out.write(known.encoded())
        refuse_another(place.said, known, journal, layout)
        staged.clear()
        yield StoredLake(place, known, staged, layout)


def stored_files(place: Place) -> list[str] | None:
    """List the files of finished steps; None where there is no lake.

    Raises:
        LakeError: the manifest is damaged.
        JournalError: the object store fails.
    """
    known = _load(place)
    if known is None:
        return None
    names = (name for name in _names(place) if _is_before(name, known.end_offset))
    return [place.within(name).said for name in sorted(names)]


def _load(place: Place) -> LakeManifest | None:
    content = _read(place.within(_MANIFEST))
    return None if content is None else decoded(content, place.within(_MANIFEST).said)


def _read(place: Place) -> bytes | None:
    with place.errors():
        try:
            with place.system.open_input_stream(place.path, compression=None) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None


def _put(place: Place, path: Path) -> None:
    with path.open("rb") as file, place.writing() as out, place.errors():
        shutil.copyfileobj(file, out, 1 << 20)


def _names(place: Place) -> Iterator[str]:
    """Name the data files in a lake, seen from it."""
    for path in _paths(place):
        name = path.removeprefix(place.path.rstrip("/") + "/")
        if range_of(Path(name).name) is not None:
            yield name


def _paths(place: Place) -> Iterator[str]:
    with place.errors():
        selector = fs.FileSelector(place.path, allow_not_found=True, recursive=True)
        found = place.system.get_file_info(selector)
    return (one.path for one in found if one.type == fs.FileType.File)


def _is_before(name: str, end: int) -> bool:
    offsets = range_of(Path(name).name)
    return offsets is not None and offsets[1] <= end


def _refuse_what_is_no_lake(place: Place) -> None:
    if others := list(_paths(place)):
        raise LakeError(
            f"{place.said}: holds {Path(min(others)).name!r} and no manifest of a lake; name an empty folder"
        )
