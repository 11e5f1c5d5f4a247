"""The job `replay`: a journal, a lake or a DataFrame goes back to the bus, through the sink."""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from oz import errors
from oz.errors import JournalError, OptionError, SinkError
from oz.journal import Journal, files
from oz.journal.ranges import identity_of
from oz.spark.columns import compiled_pattern, matches
from oz.spark.jobs.archiving.loading import load_lake
from oz.spark.registration import register
from oz.spark.session import is_remote, session
from oz.spark.sink.columns import find_columns
from oz.spark.sink.settings import read_settings
from oz.spark.source.options import refuse_commas
from oz.subjects.pattern import Pattern

OnProgress = Callable[[int, int | None], object]
"""Called with the messages published so far, and how many there are, or None while that is not known."""

_EVERY = 0.3


@dataclass
class Facts:
    """The state of a batch that is published.

    Attributes:
        published: rows so far.
        rows: how many there are; None while they are staged.
        skipped: rows that cannot be published.
        example: what is wrong with the first of those.
    """

    published: int = 0
    rows: int | None = None
    skipped: int = 0
    example: str | None = None

    def read(self, path: str) -> None:
        """Take in what is written; nothing while there is nothing."""
        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            said = json.load(file)
            self.published, self.rows = said["published"], said["rows"]
            self.skipped, self.example = said["skipped"], said["example"]


@contextmanager
def watched(path: str, before: int, on_progress: OnProgress | None) -> Iterator[Facts]:
    """Tell how a batch goes on while it is published.

    Args:
        path: the report of the sink.
        before: messages published before this batch.
        on_progress: called now and then.
    """
    facts, ended = Facts(), threading.Event()

    def tell() -> None:
        facts.read(path)
        if on_progress is not None:
            on_progress(before + facts.published, None if facts.rows is None else before + facts.rows)

    def watch() -> None:
        while not ended.wait(_EVERY):
            tell()

    watcher = threading.Thread(target=watch, name="oz-replay-progress", daemon=True)
    watcher.start()
    try:
        yield facts
    finally:
        ended.set()
        watcher.join()
        tell()


ROWS = 1_000_000
"""Records of a journal that are staged and published at a time, unless told otherwise."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REASON = re.compile(r"^oz\.errors\.(\w+): (.*)$", re.MULTILINE)
_PLAIN_ERRORS = (SinkError, JournalError)


@dataclass
class Replayed:
    """The result of a run of `replay`.

    Attributes:
        published: messages that were published.
        skipped: rows that cannot be published, with the option `invalid="skip"`.
        example: what was wrong with the first of those.
        batches: how many pieces it was published in.
        seconds: how long it took.
    """

    published: int = 0
    skipped: int = 0
    example: str | None = None
    batches: int = 0
    seconds: float = 0.0


def replay(
    spark: SparkSession | None,
    source: DataFrame | str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    subject: str | Pattern | None = None,
    start: int | datetime | None = None,
    end: int | datetime | None = None,
    rows_per_batch: int = ROWS,
    on_progress: OnProgress | None = None,
    **options: object,
) -> Replayed:
    """Publish what is on record once more, as fast as subscribers take it, in the order of its offsets.

    A journal is published piece by piece; a lake is sorted as a whole, and a DataFrame taken as it is, and
    both are staged as a whole, which takes as much room as they have rows. Records of losses are passed by.

    Args:
        spark: where to run; None makes a session on two cores of this machine.
        source: the directory of a journal or of a lake of Parquet files, or a DataFrame with the columns
            `subject` and `payload`.
        endpoint: where to connect to, such as a hub's `tcp://hub:5555`; or give the option `bind`.
        subject: only what this pattern, or spec of one, matches.
        start: the first offset or the earliest time, which names its zone.
        end: the offset or time to stop before.
        rows_per_batch: records of a journal that are staged and published at a time.
        on_progress: called now and then with the messages published so far, and how many there are, which is
            None until it is known.
        options: further ones of the sink, see docs/spark-sink.md: `bind`, `subscribers`, `timeout`,
            `staging`, `invalid`, `run`, `dialect` (here the default is `zmq`, which allows whatever was
            recorded).

    Returns:
        What was done.

    Raises:
        SinkError: it cannot be published: no such source, wrong columns, nobody to send to, a row that cannot
            be published; or the session is one of Spark Connect, whose server is on another machine.
        OptionError: an option makes no sense.
        JournalError, PatternError: as of the source.
        JavaMissing: Spark finds no Java.
    """
    began = time.monotonic()
    _refuse_without_a_zone("start", start)
    _refuse_without_a_zone("end", end)
    if isinstance(subject, str):
        refuse_commas(subject)
    settings = {"dialect": "zmq", **{name: str(value) for name, value in options.items()}}
    if endpoint is not None:
        settings["endpoint"] = endpoint
    read_settings(settings, is_streaming=False)
    own = spark or session("local[2]")
    register(own)
    wanted = _Wanted(own, subject, start, end, has_run="run" in settings)
    done = Replayed()
    for name, rows in wanted.pieces(source, rows_per_batch):
        _publish(rows, name, settings, done, on_progress)
    done.seconds = time.monotonic() - began
    return done


def _publish(
    rows: DataFrame, name: str, settings: dict[str, str], done: Replayed, on_progress: OnProgress | None
) -> None:
    find_columns(rows.schema)
    more = {"run": f"{settings['run']} {name}"} if "run" in settings else {}
    with tempfile.TemporaryDirectory(prefix="oz-replay-") as directory:
        if is_remote(rows.sparkSession):
            _refuse_another_machine(rows.sparkSession, directory)
        report = os.path.join(directory, "report")
        with watched(report, done.published, on_progress) as facts, _plain_errors():
            writer = rows.write.format("oz").options(**{**settings, **more, "report": report})
            writer.mode("append").save()
    done.published += facts.published
    done.skipped += facts.skipped
    done.example = done.example or facts.example
    done.batches += 1


def _refuse_another_machine(spark: SparkSession, directory: str) -> None:
    """Refuse a server that cannot say in a file of this machine how far it is."""
    seen = Path(directory, "seen")
    seen.touch()
    try:
        spark.read.format("binaryFile").load(seen.as_uri()).count()
    except PySparkException:
        raise SinkError(
            f"the server of Spark Connect does not see {directory}, where it is to say how far it is. Run "
            "`oz spark replay` on its machine, or set TMPDIR to a directory that both see"
        ) from None


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise what oz said in another process, without the traces of two languages around it."""
    try:
        yield
    except PySparkException as error:
        said = _REASON.findall(str(error))
        if not said:
            raise
        kind, text = said[-1]
        found = getattr(errors, kind, SinkError)
        raise (found if found in _PLAIN_ERRORS else SinkError)(text) from None


class _Wanted:
    """The rows of a source to publish."""

    def __init__(
        self,
        spark: SparkSession,
        subject: str | Pattern | None,
        start: int | datetime | None,
        end: int | datetime | None,
        *,
        has_run: bool,
    ) -> None:
        self._spark, self._subject, self._start, self._end = spark, subject, start, end
        self._pattern = None if subject is None else compiled_pattern(subject)
        self._has_run = has_run

    def pieces(
        self, source: DataFrame | str | os.PathLike[str], rows: int
    ) -> Iterator[tuple[str, DataFrame]]:
        """Return the rows in pieces that each are published at once, with a name for each."""
        if isinstance(source, DataFrame):
            yield self._asked_of(""), self._of_frame(source)
            return
        path = os.fspath(source)
        if is_journal(path):
            yield from self._of_journal(os.path.abspath(path), rows)
            return
        try:
            frame = load_lake(self._spark, path)
            columns = frame.columns  # now: Spark Connect looks for the files only when it is asked for these
        except Exception as error:  # Spark's own, or py4j's around one of Java
            thrown = getattr(error, "java_exception", None)
            reason = str(error if thrown is None else thrown.getMessage()).splitlines()[0]
            raise SinkError(f"{path} is neither a journal nor a lake of Parquet files: {reason}") from None
        kept = self._of_frame(frame)
        yield self._asked_of(os.path.abspath(path)), kept.orderBy("offset") if "offset" in columns else kept

    def _asked_of(self, place: str) -> str:
        """Name what is asked for: under one name of a run, other rows must not get the ids of these."""
        pattern = self._pattern and (self._pattern.dialect, self._pattern.text)
        asked = repr((place, pattern, self._start, self._end))
        return blake2b(asked.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    def _of_journal(self, path: str, rows: int) -> Iterator[tuple[str, DataFrame]]:
        journal = Journal(path)
        first, last = journal.first_offset, journal.end_offset
        if isinstance(self._start, int):
            first = max(first, self._start)
        if isinstance(self._end, int):
            last = min(last, self._end)
        reader = self._spark.read.format("oz").option("journal", path)
        if self._has_run:
            # Ids count the rows of a partition, and how many there are hangs on cores and on what is sealed.
            reader = reader.option("numPartitions", 1)
        asked = self._asked_of(identity_of(Path(path)))
        for name, time_ in (("startingTime", self._start), ("endingTime", self._end)):
            if isinstance(time_, datetime):
                reader = reader.option(name, time_.isoformat())
        spec = self._subject if isinstance(self._subject, str) and "\n" not in self._subject else None
        if spec is not None:
            reader = reader.option("subject", spec)
        while first < last:
            # Where pieces end does not hang on where the journal begins, which retention changes.
            end = min(last, (first // rows + 1) * rows)
            frame = reader.option("startingOffset", first).option("endingOffset", end).load()
            if spec is None and self._pattern is not None:
                frame = frame.where(_matching(frame, self._pattern))
            yield f"{asked} {end}", _with_raw_subject(frame)
            first = end

    def _of_frame(self, frame: DataFrame) -> DataFrame:
        kept = frame.where("kind = 0") if "kind" in frame.columns else frame
        for bound, is_start in ((self._start, True), (self._end, False)):
            if bound is not None:
                column, value = _bound(frame, bound)
                kept = kept.where(column >= value if is_start else column < value)
        if self._pattern is not None:
            kept = kept.where(_matching(frame, self._pattern))
        return _with_raw_subject(kept)


def is_journal(path: str) -> bool:
    """Tell whether a directory holds a journal."""
    directory = Path(path)
    return directory.is_dir() and (bool(files.named(directory)[0]) or (directory / files.MARK).exists())


def _with_raw_subject(frame: DataFrame) -> DataFrame:
    """Return subjects as bytes: those that are not UTF-8 are in a column of their own."""
    if "subject_raw" not in frame.columns:
        return frame
    subject = F.coalesce(F.col("subject_raw"), F.col("subject").cast("binary"))
    return frame.withColumn("subject", subject)


def _matching(frame: DataFrame, pattern: Pattern) -> Column:
    found = matches("subject", pattern)
    if "subject_raw" not in frame.columns:
        return found
    if pattern.is_bytes:
        raw = F.col("subject_raw")
        return F.when(raw.isNull(), found).otherwise(matches(raw, pattern))
    return found & F.col("subject_raw").isNull()


def _bound(frame: DataFrame, bound: int | datetime) -> tuple[Column, int]:
    name = "offset" if isinstance(bound, int) else "time_ns"
    if name not in frame.columns:
        raise SinkError(f"rows without a column {name!r} cannot be chosen by {bound!r}: choose them before")
    if isinstance(bound, int):
        return F.col(name), bound
    return F.col(name), (bound - _EPOCH) // timedelta(microseconds=1) * 1000


def _refuse_without_a_zone(name: str, bound: int | datetime | None) -> None:
    if isinstance(bound, datetime) and bound.tzinfo is None:
        raise OptionError(
            name,
            str(bound),
            "it names no time zone: replace(tzinfo=UTC) if it is UTC, astimezone() if it is local time",
        )
