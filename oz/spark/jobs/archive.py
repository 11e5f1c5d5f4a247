"""The job `archive`: the records of a journal that can be archived become a Parquet lake, step by step."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oz.errors import JournalError, LakeError
from oz.journal import Journal, files, own
from oz.journal.epochs import history_of
from oz.journal.places import place_of
from oz.journal.reading import why_renumbered
from oz.spark.jobs.archiving.compaction import compact as compact_files
from oz.spark.jobs.archiving.lake import Lake, opened
from oz.spark.jobs.archiving.layout import (
    GAPS,
    LakeLayout,
    day_of_folder,
    is_stored,
    local_path,
    token_of_folder,
)
from oz.spark.jobs.archiving.staging import StagedFile, staged_files
from oz.spark.jobs.archiving.stored import StoredLake, opened_store
from oz.spark.jobs.archiving.writing import (
    rows_of,
    settings_of_archiving,
    take_census,
    with_new_tokens,
    write,
)
from oz.spark.registration import register
from oz.spark.session import is_remote, session

_RAISED = re.compile(r"^oz\.[\w.]*(?:JournalError|RangeGone): (.+)$", re.MULTILINE)


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """Raise what a reader of the journal raised on an executor; other failures stay as Spark reports them.

    Raises:
        JournalError: the journal is damaged, or something of it is gone.
    """
    try:
        yield
    except PySparkException as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        raise JournalError(found[1]) from error


def identity_of(journal: Path) -> str:
    """Find the id of a journal.

    Raises:
        JournalError: nothing tells it.
    """
    found = own.journal_of(journal)
    if found is not None:
        return found
    raise JournalError(f"{journal}: nothing tells which journal this is; see `oz journal repair`")


@dataclass(frozen=True)
class JournalRange:
    """The part of a journal that can be archived now: it does not change any more.

    Attributes:
        first_offset: where the journal begins.
        end_offset: how far it can be archived.
        unsealed: records after that which are acknowledged, and in a segment that is not sealed.
        sizes: the first offset and the bytes of each segment.
    """

    first_offset: int
    end_offset: int
    unsealed: int
    sizes: tuple[tuple[int, int], ...]

    def step(self, start: int, layout: LakeLayout) -> int:
        """Find where a step ends that begins at an offset: at the latest at the end."""
        end = min(start + layout.step_rows, self.end_offset)
        budget = float(layout.step_bytes)
        following = [*(base for base, _ in self.sizes[1:]), self.end_offset]
        for (base, size), next_base in zip(self.sizes, following, strict=True):
            low, high = max(base, start), min(next_base, end)
            if low >= high:
                continue
            each = size / max(1, next_base - base)
            fitting = int(budget / each) if each else high - low
            if fitting < high - low:
                return max(low + fitting, start + 1)
            budget -= each * (high - low)
        return end


def range_of(directory: Path, *, unsealed: bool) -> JournalRange:
    """Look how far a journal can be archived.

    Args:
        directory: the journal.
        unsealed: also what is acknowledged in the segment that grows.

    Raises:
        JournalError: there is no journal, or it is damaged or of another version.
    """
    journal = Journal(directory)
    present = own.segments(directory)
    acknowledged = journal.end_offset
    growing = [segment.base for segment in present if not segment.is_sealed]
    sealed = min([*growing, acknowledged])
    end = acknowledged if unsealed else sealed
    sizes = tuple(
        (segment.base, _size(directory / segment.name)) for segment in present if segment.base < end
    )
    first = min((segment.base for segment in present), default=0)
    return JournalRange(min(first, end), end, acknowledged - end, sizes)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # sealed or removed meanwhile
        return 0


@contextmanager
def held(directory: Path, offset: int) -> Iterator[None]:
    """Keep retention from an offset and all that follow.

    Raises:
        JournalError: the offset is gone already.
    """
    descriptor = None
    while descriptor is None:
        bases = [segment for segment in own.segments(directory) if segment.base <= offset]
        if not bases:
            raise JournalError(f"{directory}: retention removed offset {offset} while it was to be archived")
        descriptor = files.open_held(directory / bases[-1].name)
    try:
        yield
    finally:
        os.close(descriptor)


OnProgress = Callable[[int, int, str], object]
"""Called with the records archived so far, how many there are to archive in this run, and what is next."""


@dataclass
class Archived:
    """The result of a run of `archive`.

    Attributes:
        rows: records that it archived, gaps included.
        gaps: how many of them are no messages, but say that some were lost or damaged.
        files: files that it wrote for them.
        bytes: their size.
        days: the days that the records are of, in UTC, as `2026-03-01`.
        tokens: the values of `first_token` that those that are messages have.
        skipped: records that retention had removed before they were archived: they are in no file.
        unsealed: acknowledged records that were left for a later run, since their segment still grows.
        first_offset: where the journal began when the lake was begun.
        end_offset: how far the journal is in the lake.
        merged: files that a compaction merged.
        merged_into: how many they became.
        seconds: how long it took.
    """

    rows: int = 0
    gaps: int = 0
    files: int = 0
    bytes: int = 0
    days: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    skipped: int = 0
    unsealed: int = 0
    first_offset: int = 0
    end_offset: int = 0
    merged: int = 0
    merged_into: int = 0
    seconds: float = 0.0

    def count(self, file: StagedFile) -> None:
        """Count in a file that is in the lake now."""
        token = token_of_folder(file.folder)
        self.rows += file.rows
        if token == GAPS:
            self.gaps += file.rows
        else:
            self.tokens.add(token)
        self.files += 1
        self.bytes += file.bytes
        self.days.add(day_of_folder(file.folder))


def archive(
    spark: SparkSession | None,
    journal: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    layout: LakeLayout | None = None,
    unsealed: bool = False,
    compact: bool = False,
    fail_on_data_loss: bool = True,
    staging: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Archived:
    """Copy a journal to a lake of Parquet files, each record once, and go on where the last run ended.

    It may be killed at any moment: the next run finishes what was decided and does again what was not.
    Readers see whole files only, and no record twice; docs/spark-jobs.md says more.

    Args:
        spark: where to run; None makes a session on two cores of this machine. Its executors see both paths.
        journal: the journal's directory.
        lake: the lake's directory, made if it is not there; or a URI of a folder that pyarrow reaches, as
            `s3://bucket/lake`, to which this process puts what Spark wrote to `staging`.
        layout: how the lake is laid out.
        unsealed: also archive what is acknowledged in the segment that still grows. A power failure may take
            records from a journal that is not synced at every append, and the lake would keep them.
        compact: afterwards merge small files. A query that runs meanwhile may fail because a file is gone; it
            never sees a record twice or misses one. Not for a lake with a URI.
        fail_on_data_loss: whether it is an error that retention removed records before they were archived.
            Otherwise they are counted.
        staging: a directory for files that are not visible yet, on the lake's file system if it has one; None
            for the lake's path with `.staging` after it, or, for a URI, the journal's with `.archiving`.
        on_progress: called before each step, and at the end.

    Returns:
        What was done.

    Raises:
        LakeError: the lake is in use, damaged or another journal's; one with a URI is to be compacted; or the
            session is one of Spark Connect.
        JournalError: there is no journal, it is damaged, or records are gone that should have been archived;
            or an object store fails.
        JavaMissing: Spark finds no Java.
    """
    if spark is not None and is_remote(spark):
        raise LakeError(
            "archive renames files from the driver, and a session of Spark Connect has its driver elsewhere: "
            "run `oz spark archive` on that machine, or give a session that oz.spark.session made"
        )
    began = time.monotonic()
    source, target = Path(journal).absolute(), os.fspath(lake)
    if compact and is_stored(target):
        raise LakeError(f"{target.split('?')[0]}: compaction exchanges folders, which needs a file system")
    present = range_of(source, unsealed=unsealed)
    apart = None if staging is None else local_path(os.fspath(staging))
    with _lake(target, apart, source, present.first_offset, layout or LakeLayout()) as held_lake:
        engine = spark or session("local[2]")
        register(engine)
        run = _Run(engine, source, held_lake, present, on_progress or (lambda *_: None))
        with settings_of_archiving(engine):
            run.archive(fail_on_data_loss)
            if compact and isinstance(held_lake, Lake):
                run.compact(held_lake)
        held_lake.staging.remove_when_empty()
    run.done.seconds = time.monotonic() - began
    return run.done


def _lake(
    lake: str, staging: Path | None, journal: Path, first_offset: int, layout: LakeLayout
) -> AbstractContextManager[Lake | StoredLake]:
    identity = identity_of(journal)
    if not is_stored(lake):
        return opened(local_path(lake), staging, identity, first_offset, layout)
    apart = staging or journal.with_name(journal.name + ".archiving")
    return opened_store(place_of(lake), apart, identity, first_offset, layout)


class _Run:
    """One run."""

    def __init__(
        self,
        spark: SparkSession,
        journal: Path,
        lake: Lake | StoredLake,
        present: JournalRange,
        on_progress: OnProgress,
    ) -> None:
        self._spark, self._journal, self._lake = spark, journal, lake
        self._present = present
        self._on_progress = on_progress
        known = lake.manifest
        self.done = Archived(first_offset=known.first_offset, end_offset=known.end_offset)
        after = present.end_offset + present.unsealed
        self.done.unsealed = max(0, after - max(known.end_offset, present.end_offset))

    def archive(self, fail_on_data_loss: bool) -> None:
        """Archive step by step to the end of what there is."""
        manifest, end = self._lake.manifest, self._present.end_offset
        self._refuse_a_shorter_journal()
        start = max(manifest.end_offset, self._present.first_offset)
        self.done.skipped = start - manifest.end_offset
        if self.done.skipped and fail_on_data_loss:
            raise JournalError(
                f"{self._journal}: retention removed the records from offset {manifest.end_offset} to "
                f"{start - 1} before they were archived to {self._lake.directory}; archive more often, "
                "retain more, or have them skipped and counted with fail_on_data_loss=False (--skip-lost)"
            )
        total = max(0, end - start)
        while start < end:
            self._on_progress(self.done.rows, total, f"offset {start} on")
            start = self._step(start)
        self._on_progress(self.done.rows, total, "done")

    def _refuse_a_shorter_journal(self) -> None:
        known = self._lake.manifest.end_offset
        last = self._present.end_offset + self._present.unsealed
        if last < known:
            raise LakeError(
                f"{self._lake.directory}: holds records up to offset {known}, and the journal "
                f"{self._journal} ends at {last}. It lost its end, or is an older copy: archive it to a lake "
                "of its own"
            )
        history, epoch = history_of(self._journal, self._lake.manifest.journal), self._lake.manifest.epoch
        if known > self._lake.manifest.first_offset and history.agreed(epoch, known) != known:
            why = why_renumbered(history, epoch, known)
            raise LakeError(f"{self._lake.directory}: {why}; archive {self._journal} to a lake of its own")

    def _step(self, start: int) -> int:
        lake = self._lake
        end = self._present.step(start, lake.layout)
        staging = lake.staging.new()
        with held(self._journal, start), errors_of_executors():
            self._write(start, end, staging)
        files = staged_files(staging)
        self._check(files, start, end)
        skipped = [[lake.manifest.end_offset, start]] if start > lake.manifest.end_offset else []
        epoch = history_of(self._journal, lake.manifest.journal).epoch_before(end)
        missing = lake.manifest.missing + skipped
        then = replace(lake.manifest, end_offset=end, missing=missing, epoch=epoch)
        lake.publish(staging, files, then)
        shutil.rmtree(staging, ignore_errors=True)
        for file in files:
            self.done.count(file)
        self.done.end_offset = end
        return end

    def _write(self, start: int, end: int, staging: Path) -> None:
        lake = self._lake
        rows = rows_of(self._spark, self._journal, start, end)
        census = take_census(rows, lake.layout)
        lake.manifest.tokens = with_new_tokens(lake.manifest.tokens, census.tokens, lake.layout)
        cores = self._spark.sparkContext.defaultParallelism
        write(rows, staging, census, lake.manifest.tokens, lake.layout, cores)

    def _check(self, files: list[StagedFile], start: int, end: int) -> None:
        """See that a step holds its records, before any of them can be seen: offsets have no holes."""
        rows = sum(file.rows for file in files)
        inside = all(start <= file.first_offset and file.end_offset <= end for file in files)
        if rows != end - start or not inside:
            raise JournalError(
                f"{self._journal}: {rows} records came where offsets {start} to {end - 1} are {end - start}; "
                "none of them was archived: `oz journal verify` tells whether it is damaged"
            )

    def compact(self, lake: Lake) -> None:
        """Merge small files."""
        self._on_progress(self.done.rows, self.done.rows, "compaction")
        for merged, into in compact_files(self._spark, lake):
            self.done.merged += merged
            self.done.merged_into += into
        self._on_progress(self.done.rows, self.done.rows, "done")
