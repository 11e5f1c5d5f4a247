"""Many small files of a folder become few large ones, and no reader sees a record twice or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from oz.errors import LakeError
from oz.journal.files import sync_directory
from oz.spark.jobs.archiving.exchange import try_exchange
from oz.spark.jobs.archiving.lake import Lake
from oz.spark.jobs.archiving.layout import DAY, FIRST_TOKEN, file_name, folders, range_of
from oz.spark.jobs.archiving.manifest import Swap
from oz.spark.jobs.archiving.publishing import finish
from oz.spark.jobs.archiving.staging import StagedFile, staged_files
from oz.spark.jobs.archiving.writing import SCHEMA, address, write_sorted

# Spark would take a folder named 007 for the number 7.
_SCHEMA = f"{SCHEMA}, {DAY} string, {FIRST_TOKEN} string"
_GLOB = re.compile(r"([\\\[\]{}*?])")


@dataclass(frozen=True)
class Merge:
    """Files of one folder that are to be merged.

    Attributes:
        folder: the folder, seen from the lake.
        small: the files.
        kept: all others in the folder.
        bytes: the size of the small ones.
        into: how many files they become.
    """

    folder: str
    small: Sequence[Path]
    kept: Sequence[Path]
    bytes: int
    into: int

    @property
    def offsets(self) -> tuple[int, int]:
        """The first offset and the end that the names of the small files say."""
        ranges = [offsets for path in self.small if (offsets := range_of(path.name))]
        return min(first for first, _ in ranges), max(end for _, end in ranges)


def compact(spark: SparkSession, lake: Lake) -> Iterator[tuple[int, int]]:
    """Merge what is small.

    Args:
        spark: where to run.
        lake: the lake, locked.

    Yields:
        After each step how many files were merged, and into how many.

    Raises:
        LakeError: the file system cannot exchange directories.
    """
    merges = list(_merges(lake))
    if merges:
        try_exchange(lake.staging.new())
    for batch in _batches(merges, lake.layout.step_bytes):
        yield sum(len(one.small) for one in batch), _compact(spark, lake, batch)


def _merges(lake: Lake) -> Iterator[Merge]:
    for folder in folders(lake.directory):
        sizes = {path: path.stat().st_size for path in sorted(folder.iterdir())}
        small = [
            path for path, size in sizes.items() if range_of(path.name) and 2 * size < lake.layout.file_bytes
        ]
        total = sum(sizes[path] for path in small)
        into = max(1, total // lake.layout.file_bytes)
        if len(small) > into and not any(path.is_dir() for path in sizes):
            kept = [path for path in sizes if path not in small]
            yield Merge(str(folder.relative_to(lake.directory)), small, kept, total, into)


def _batches(merges: Iterable[Merge], most_bytes: int) -> Iterator[list[Merge]]:
    """Put folders together that become one file each; one that becomes several stays alone."""
    batch: list[Merge] = []
    for merge in merges:
        if merge.into > 1:
            yield [merge]
            continue
        if batch and sum(one.bytes for one in batch) + merge.bytes > most_bytes:
            yield batch
            batch = []
        batch.append(merge)
    if batch:
        yield batch


def _compact(spark: SparkSession, lake: Lake, batch: Sequence[Merge]) -> int:
    staging = lake.staging.new()
    _write(spark, lake, batch, staging)
    staged = staged_files(staging)
    manifest = lake.manifest
    manifest.generation += 1
    swaps = [
        [merge.folder, _prepare(lake, staging, merge, [one for one in staged if one.folder == merge.folder])]
        for merge in batch
    ]
    manifest.pending = Swap(os.path.relpath(staging, lake.directory), swaps)
    manifest.save(lake.directory)
    finish(lake.directory, manifest)
    # The old folders stay until the next run: a reader may be listing one of them at this moment.
    return len(staged)


def _write(spark: SparkSession, lake: Lake, batch: Sequence[Merge], to: Path) -> None:
    paths = [_literal(address(path)) for merge in batch for path in merge.small]
    reading = spark.read.schema(_SCHEMA).option("basePath", address(lake.directory))
    rows = reading.parquet(*paths)
    if batch[0].into > 1:
        placed = rows.repartitionByRange(batch[0].into, "subject", "offset")
    else:
        cores = spark.sparkContext.defaultParallelism
        tasks = max(cores, sum(merge.bytes for merge in batch) // lake.layout.file_bytes)
        # A folder is never split: it is to become one file.
        placed = rows.repartition(min(len(batch), tasks), DAY, FIRST_TOKEN)
    write_sorted(placed, to, lake.layout)


def _literal(address: str) -> str:
    return _GLOB.sub(r"\\\1", address)


def _prepare(lake: Lake, staging: Path, merge: Merge, staged: Sequence[StagedFile]) -> str:
    """Make the new folder; return the name of a file that only the new one has."""
    rows = sum(pq.read_metadata(path).num_rows for path in merge.small)
    made = sum(one.rows for one in staged)
    if made != rows:
        raise LakeError(f"{lake.directory / merge.folder}: {rows} records became {made}; nothing was changed")
    folder = staging / merge.folder
    names = [file_name(*merge.offsets, at, generation=lake.manifest.generation) for at in range(len(staged))]
    for one, name in zip(staged, names, strict=True):
        os.rename(one.path, folder / name)
    for path in folder.iterdir():
        if path.name not in names:  # Hadoop's checksums, of the names before
            path.unlink()
    for path in merge.kept:
        os.link(path, folder / path.name)
    sync_directory(folder)
    return names[0]
