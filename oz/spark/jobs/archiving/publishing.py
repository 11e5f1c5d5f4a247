"""Staged files become visible: decided in the manifest, then renamed, by this run or the next."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from oz.errors import LakeError
from oz.journal.files import sync_directory
from oz.spark.jobs.archiving.exchange import exchange
from oz.spark.jobs.archiving.layout import file_name
from oz.spark.jobs.archiving.manifest import LakeManifest, Move, Swap
from oz.spark.jobs.archiving.staging import StagedFile


def publish(
    lake: Path, manifest: LakeManifest, staging: Path, files: Iterable[StagedFile], then: LakeManifest
) -> list[Path]:
    """Make the files of one step part of the lake.

    A process that is killed in between leaves a decision that the next run carries out: each file is in one
    place or the other, and a reader sees it whole or not at all.

    Args:
        lake: the lake.
        manifest: what is known of it; changed and saved.
        staging: where the files are.
        files: which.
        then: where the lake will end, and what is missing then.

    Returns:
        Where they are now.

    Raises:
        LakeError: a name is taken by a file that nobody knows.
    """
    first, end = manifest.end_offset, then.end_offset
    named = [
        [str(one.path.relative_to(staging)), f"{one.folder}/{file_name(first, end, at)}"]
        for at, one in enumerate(files)
    ]
    for _, target in named:
        if (lake / target).exists():
            raise LakeError(
                f"{lake / target}: is there, and the manifest does not know it; was an old manifest put back?"
            )
    missing = then.missing[len(manifest.missing) :]
    manifest.pending = Move(os.path.relpath(staging, lake), named, end, missing, then.epoch)
    manifest.save(lake)
    finish(lake, manifest)
    return [lake / target for _, target in named]


def finish(lake: Path, manifest: LakeManifest) -> None:
    """Carry out what is decided and perhaps half done; nothing when nothing is.

    Raises:
        LakeError: a file is in neither of its places.
    """
    pending = manifest.pending
    if pending is None:
        return
    if isinstance(pending, Move):
        _move(lake, pending)
        manifest.end_offset = pending.end_offset
        manifest.missing = manifest.missing + pending.missing
        manifest.epoch = pending.epoch
    elif isinstance(pending, Swap):
        _swap(lake, pending)
    manifest.pending = None
    manifest.save(lake)


def _move(lake: Path, pending: Move) -> None:
    touched = {lake}
    for source, target in pending.files:
        path = lake / target
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(lake / pending.staging / source, path)
        except FileNotFoundError:
            _see_that_it_is_there(path, lake / pending.staging / source)
        touched |= {path.parent, path.parent.parent}
    for directory in touched:
        sync_directory(directory)


def _swap(lake: Path, pending: Swap) -> None:
    touched = set()
    for folder, only_in_new in pending.folders:
        path = lake / folder
        staged = lake / pending.staging / folder
        if not (path / only_in_new).exists():
            _see_that_it_is_there(staged / only_in_new, path / only_in_new)
            exchange(staged, path)
        touched.add(path.parent)
    for directory in touched:
        sync_directory(directory)


def _see_that_it_is_there(path: Path, other: Path) -> None:
    if not path.exists():
        raise LakeError(
            f"{path}: gone, and not in {other} either; put it back from a copy, or archive to a new lake"
        )
