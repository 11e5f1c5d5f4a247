"""Archives: the records of a journal as Parquet files by day and first token, written by Spark.

    <path>/batch=<first>-<end>-<segment>/day=2026-03-01/first_token=flight/part-….parquet
    <path>.staging/        batches that are not complete yet, and the lock file

Theory of operation. A batch has the records of a range of offsets. Spark writes a batch to the staging
directory, and a rename makes it visible, so that readers find only complete files. The names of the batches are the
only state of an archive: the next batch starts at the highest end offset. If a process is killed, only the batch in the
staging directory may be lost, and the next run writes this batch again.

A first rename moves a finished batch to the directory `ready`, and a second rename makes the batch visible. Between the
two renames, visible batches inside the range of the new batch are moved away: earlier versions of the batch, or small
batches that a compaction has merged. If the process is killed between the two renames, the next run completes the batch
(`recover`). No record is ever visible twice. While a compaction replaces batches, a running query may fail or miss the
records of these batches.

`<segment>` is the id of the journal's segment with the last record of the batch. If another segment of the journal has
this offset now, the journal was restored or replaced, and its offsets name other records. Batches of a DataFrame that
was not read from a known journal have no `<segment>`.

The staging directory is a sibling of `<path>`, because DuckDB and Polars read every `**/*.parquet` below `<path>`.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from oz.errors import JournalError, OzError
from oz.journal.format import GAP
from oz.journal.ranges import Checkpoint, checkpoint, range_end, resume
from oz.spark.columns import token
from oz.spark.reading import read
from oz.spark.registration import register
from oz.spark.session import is_remote

GAPS, OTHER = "@gaps", "@other"
"""Values of the column `first_token`: GAPS for gap records, OTHER for tokens without their own directory."""

MAX_TOKEN_BYTES = 64
"""Maximum length in bytes of a token that gets its own directory. In the name of the directory, Spark writes up to
three bytes for each byte of the token. The system allows 255 bytes.
"""

ROW_GROUP_ROWS = 20_000
_BATCH = re.compile(r"batch=(\d{20})-(\d{20})(?:-([0-9a-f]+))?")
_WRITE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "parquet.block.row.count.limit": ROW_GROUP_ROWS,
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": False,
}

Path = str | os.PathLike[str]
OnProgress = Callable[[int, int], object]
"""Function that `archive` calls with two numbers: how many offsets are archived so far, and how many this run has."""


class ArchiveError(OzError):
    """An archive cannot be read or written, for example because another process writes to it."""


@dataclass
class ArchiveResult:
    """Result of a call of `archive`.

    Attributes:
        rows: number of records that the call wrote, including gap records.
        batches: number of batches that the call wrote.
        first_offset: the first offset that the call copied.
        end_offset: the offset after the last record in the archive.
        merged: number of batches that the compaction replaced.
        merged_into: number of batches that the compaction wrote in their place.
    """

    rows: int = 0
    batches: int = 0
    first_offset: int = 0
    end_offset: int = 0
    merged: int = 0
    merged_into: int = 0


class Batch(NamedTuple):
    """A batch of an archive: its first offset, its end offset, and the id of the segment with its last record."""

    first: int
    end: int
    segment: str = ""

    @property
    def name(self) -> str:
        """The name of the directory of the batch."""
        return f"batch={self.first:020}-{self.end:020}" + (f"-{self.segment}" if self.segment else "")


@dataclass(frozen=True)
class Layout:
    """Distribution of rows to directories.

    Attributes:
        separator: text that ends the first token.
        max_tokens: maximum number of first tokens that get their own directory in a batch. These are the most frequent
            tokens. All other tokens share the directory `@other`.
    """

    separator: str = "."
    max_tokens: int = 100


def archive(
    spark: SparkSession,
    journal: Path,
    path: Path,
    *,
    separator: str = ".",
    max_tokens: int = 100,
    batch_rows: int = 4_000_000,
    compact: bool = False,
    fail_on_loss: bool = True,
    on_progress: OnProgress | None = None,
) -> ArchiveResult:
    """Copy the new records of a journal to an archive, each record once.

    The next call continues at the end of the archive, even if the process was killed.

    Args:
        spark: a Spark session. Its executors must see the journal and the archive under the same paths.
        journal: directory of the journal.
        path: directory of the archive, or a URI to which Spark can write.
        separator: text that ends the first token of a subject.
        max_tokens: maximum number of first tokens that get their own directory in a batch. These are the most frequent
            tokens. All other tokens share the directory `@other`.
        batch_rows: maximum number of offsets in a batch.
        compact: whether to merge small neighbouring batches at the end. A query that runs during the merge may fail or
            miss records.
        fail_on_loss: whether to raise an error if retention removed records before they were archived. With False,
            these records are skipped.
        on_progress: function that is called before each batch and at the end; see `OnProgress`.

    Returns:
        The numbers of records and batches that the call wrote.

    Raises:
        ArchiveError: another process writes to the archive, or the session is a session of Spark Connect.
        JournalError: the directory is not the journal of this archive, a file is damaged, or records are lost.
    """
    layout, report = Layout(separator, max_tokens), on_progress or (lambda *_: None)
    with _open_archive(spark, path) as store:
        start = _start(store, journal, fail_on_loss)
        end = checkpoint(journal).offset
        done = ArchiveResult(first_offset=start, end_offset=start)
        while done.end_offset < end:
            report(done.end_offset - start, end - start)
            first = done.end_offset
            stop = range_end(journal, first, end, max_records=batch_rows)
            batch = Batch(first, stop, checkpoint(journal, stop).segment)
            done.rows += store.write(
                read(spark, journal, start=first, end=stop, gaps=True, fail_on_loss=fail_on_loss),
                layout,
                batch,
            )
            done.batches += 1
            done.end_offset = stop
        if compact:
            done.merged, done.merged_into = _compact(store, layout, batch_rows)
    report(done.end_offset - start, done.end_offset - start)
    return done


def archive_batch(
    path: Path, *, separator: str = ".", max_tokens: int = 100, journal: Path | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that archives the micro-batches of a stream, each record once.

    Rows with an offset before the end of the archive are left out. Therefore neither a repeated micro-batch nor a query
    with a new checkpoint writes a record twice. The stream must read one journal, in the order of offsets, with all
    columns.

    Args:
        path: directory of the archive, or a URI to which Spark can write.
        separator: text that ends the first token of a subject, as for `archive`.
        max_tokens: maximum number of first tokens that get their own directory, as for `archive`.
        journal: directory of the journal that the stream reads. If it is given, a later run can detect that the journal
            was replaced.

    Returns:
        A function with two parameters: a DataFrame and the number of the micro-batch. The function raises the errors of
        `archive`.
    """
    layout = Layout(separator, max_tokens)

    def write(rows: DataFrame, batch_id: int) -> None:
        with _open_archive(rows.sparkSession, path) as store:
            store.append(rows, layout, journal)

    return write


def archive_stream(
    spark: SparkSession,
    journal: Path,
    path: Path,
    *,
    separator: str = ".",
    max_tokens: int = 100,
    interval: float = 10.0,
    fail_on_loss: bool = True,
) -> Any:
    """Start a streaming query that archives new records of a journal until it is stopped.

    The query starts at the end of the archive. It keeps no checkpoint from an earlier query, because the archive itself
    contains the position.

    Args:
        spark: a Spark session, as for `archive`.
        journal: directory of the journal.
        path: directory or URI of the archive.
        separator: text that ends the first token of a subject, as for `archive`.
        max_tokens: maximum number of first tokens that get their own directory, as for `archive`.
        interval: seconds between the starts of two micro-batches.
        fail_on_loss: whether lost records are an error, as for `archive`.

    Returns:
        The `StreamingQuery` of Spark, which runs until it is stopped.

    Raises:
        ArchiveError, JournalError: for the same reasons as in `archive`.
    """
    register(spark)
    with _open_archive(spark, path) as store:
        start = _start(store, journal, fail_on_loss)
        store.delete(store.checkpoint)
    options: dict[str, Any] = {"journal": os.fspath(journal), "startingOffset": start, "gaps": True}
    stream = spark.readStream.format("oz").options(**options, failOnDataLoss=fail_on_loss).load()
    sink = archive_batch(path, separator=separator, max_tokens=max_tokens, journal=journal)
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", store.checkpoint)
    return writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds").start()


def read_archive(spark: SparkSession, path: Path) -> DataFrame:
    """Return the records of an archive.

    The columns `batch`, `day` and `first_token` follow the columns of the journal.

    Raises:
        ArchiveError: the directory is not an archive.
    """
    if not is_remote(spark) and not is_archive(spark, path):
        raise ArchiveError(f"{os.fspath(path)}: there is no archive; `oz spark archive` writes one")
    return spark.read.parquet(os.fspath(path))


def is_archive(spark: SparkSession, path: Path) -> bool:
    """Return whether a directory has batches of an archive; False in a session of Spark Connect."""
    return not is_remote(spark) and bool(_Files(spark, path).batches())


class _Files:
    """The directories of an archive, on any file system that Spark can use."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        if is_remote(spark):
            raise ArchiveError(
                "an archive needs the JVM of this process, and a session of Spark Connect has none; run "
                "`oz spark archive` on the machine of the server"
            )
        self._jvm: Any = spark._jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        root = self._hadoop(os.fspath(path).rstrip("/"))
        self._system = root.getFileSystem(configuration)
        root = self._system.makeQualified(root)
        self.path = str(root)
        self.staging = f"{self.path}.staging"
        self.checkpoint = f"{self.staging}/stream"
        self.is_local = self._system.getUri().getScheme() == "file"
        self.local_staging = f"{root.toUri().getPath()}.staging"

    def _hadoop(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names of the batches in a directory; an empty list if the directory does not exist."""
        if not self._system.exists(self._hadoop(directory)):
            return []
        names = (entry.getPath().getName() for entry in self._system.listStatus(self._hadoop(directory)))
        return sorted(name for name in names if _BATCH.fullmatch(name))

    def batches(self) -> list[Batch]:
        """Return the visible batches, sorted by offset.

        Raises:
            ArchiveError: the ranges of two batches overlap.
        """
        found = [_parse(name) for name in self.names(self.path)]
        for first, other in pairwise(found):
            if other.first < first.end:
                raise ArchiveError(
                    f"{self.path}: {first.name} and {other.name} hold the same records; remove one"
                )
        return found

    def make(self, directory: str) -> None:
        self._system.mkdirs(self._hadoop(directory))

    def move(self, source: str, target: str) -> None:
        """Rename a directory. The target must not exist.

        Raises:
            ArchiveError: the file system did not rename the directory.
        """
        self.make(target.rpartition("/")[0])
        if not self._system.rename(self._hadoop(source), self._hadoop(target)):
            raise ArchiveError(
                f"{source} cannot be renamed to {target}; check the permissions of the directories"
            )

    def delete(self, directory: str) -> None:
        self._system.delete(self._hadoop(directory), True)


class _Store(_Files):
    """An archive to which this process writes."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        super().__init__(spark, path)
        self._spark = spark

    @property
    def last(self) -> Batch:
        """The batch with the highest end offset. In an empty archive, it is an empty batch at offset 0."""
        return max(self.batches(), key=lambda batch: batch.end, default=Batch(0, 0))

    def write(self, rows: DataFrame, layout: Layout, batch: Batch) -> int:
        """Write a batch in place of the batches inside its range, and return the number of rows."""
        staged = f"{self.staging}/writing/{batch.name}"
        count = self._stage(rows, layout, staged).rows
        self._publish(staged, batch)
        return count

    def append(self, rows: DataFrame, layout: Layout, journal: Path | None) -> None:
        staged = f"{self.staging}/writing/stream"
        found = self._stage(rows.where(F.col("offset") >= self.last.end), layout, staged)
        if found.rows:
            segment = "" if journal is None else checkpoint(journal, found.end).segment
            self._publish(staged, Batch(found.first, found.end, segment))

    def read(self, batches: list[Batch]) -> DataFrame:
        paths = [f"{self.path}/{batch.name}" for batch in batches]
        # Without this option, Spark would add columns from the names of the directories.
        return self._spark.read.option("recursiveFileLookup", True).parquet(*paths)

    def recover(self) -> None:
        """Make the batches visible that are in the directory `ready`, and delete incomplete batches."""
        for name in self.names(f"{self.staging}/ready"):
            self._complete(_parse(name))
        for directory in ("writing", "replaced"):
            self.delete(f"{self.staging}/{directory}")

    def _stage(self, rows: DataFrame, layout: Layout, staged: str) -> _Written:
        laid_out = _lay_out(rows, layout)
        with _settings(self._spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
            writer = (
                laid_out.write.mode("overwrite").partitionBy("day", "first_token").options(**_WRITE_OPTIONS)
            )
            writer.parquet(staged)
        # The rows are counted in the files, because a count during the write would be wrong if Spark repeats a task.
        written = self._spark.read.schema("offset bigint").option("recursiveFileLookup", True).parquet(staged)
        (found,) = written.agg(F.count("*"), F.min("offset"), F.max("offset") + 1).collect()
        return _Written(*found)

    def _publish(self, staged: str, batch: Batch) -> None:
        self.move(staged, f"{self.staging}/ready/{batch.name}")
        self._complete(batch)

    def _complete(self, batch: Batch) -> None:
        for old in map(_parse, self.names(self.path)):
            if batch.first <= old.first and old.end <= batch.end:
                self.delete(f"{self.staging}/replaced/{old.name}")
                self.move(f"{self.path}/{old.name}", f"{self.staging}/replaced/{old.name}")
        self.move(f"{self.staging}/ready/{batch.name}", f"{self.path}/{batch.name}")
        self.delete(f"{self.staging}/replaced")


class _Written(NamedTuple):
    rows: int
    first: int
    end: int


def _parse(name: str) -> Batch:
    match = _BATCH.fullmatch(name)
    assert match is not None
    return Batch(int(match[1]), int(match[2]), match[3] or "")


@contextmanager
def _open_archive(spark: SparkSession, path: Path) -> Iterator[_Store]:
    """Lock and recover an archive. Only an archive in a local directory is locked."""
    store = _Store(spark, path)
    store.make(store.staging)
    if not store.is_local:
        store.recover()
        yield store
        return
    descriptor = os.open(f"{store.local_staging}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(
                f"{store.path}: another process writes to this archive; wait for its end"
            ) from None
        store.recover()
        yield store
    finally:
        os.close(descriptor)


def _start(store: _Store, journal: Path, fail_on_loss: bool) -> int:
    last = store.last
    segment = last.segment or checkpoint(journal, last.end).segment
    gap = resume(journal, Checkpoint(last.end, segment))
    if gap is None:
        return last.end
    if fail_on_loss and last.end > 0:
        raise JournalError(
            f"{os.fspath(journal)}: retention removed the offsets {gap.first} to {gap.end - 1} before they "
            f"were archived to {store.path}; archive more often, or skip them with fail_on_loss=False "
            "(--skip-lost)"
        )
    return gap.end


def _compact(store: _Store, layout: Layout, batch_rows: int) -> tuple[int, int]:
    """Merge neighbouring batches into batches of at most `batch_rows` offsets.

    Returns:
        The number of batches that were merged, and the number of batches that were written for them.
    """
    groups: list[list[Batch]] = []
    for batch in store.batches():
        if groups and batch.end - groups[-1][0].first <= batch_rows:
            groups[-1].append(batch)
        else:
            groups.append([batch])
    groups = [group for group in groups if len(group) > 1]
    for group in groups:
        store.write(store.read(group), layout, Batch(group[0].first, group[-1].end, group[-1].segment))
    return sum(map(len, groups)), len(groups)


def _lay_out(rows: DataFrame, layout: Layout) -> DataFrame:
    first_token = _first_token(layout)
    common = rows.groupBy(first_token.alias("name")).count().orderBy(F.desc("count"), "name")
    names = [row.name for row in common.limit(layout.max_tokens + 1).collect()]
    if len(names) > layout.max_tokens:
        kept = [*names[: layout.max_tokens], GAPS]
        first_token = F.when(first_token.isin(kept), first_token).otherwise(OTHER)
    # The result of `to_date` would depend on the time zone of the session.
    day = F.expr("date_from_unix_date(cast(unix_micros(time) div 86400000000 as int))")
    placed = rows.withColumns({"day": day, "first_token": first_token})
    # With this hint, Spark splits and merges partitions by size, so that files are neither tiny nor huge.
    balanced = placed.hint("rebalance", "day", "first_token")
    return balanced.sortWithinPartitions("day", "first_token", "subject", "offset")


def _first_token(layout: Layout) -> Column:
    first = token("subject", 1, separator=layout.separator)
    is_short = F.octet_length(first).between(1, MAX_TOKEN_BYTES)
    return F.when(F.col("kind") == GAP, GAPS).when(is_short, first).otherwise(OTHER)


@contextmanager
def _settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
