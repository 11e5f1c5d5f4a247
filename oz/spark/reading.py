"""`read`: a journal as a DataFrame, read with the Parquet reader of Spark.

Sealed segments of a journal are Parquet files, which Spark reads itself. Spark splits files among tasks, reads only the
columns of the query, and skips row groups by the statistics of subject, time and offset. The driver reads the active
segment, which is an Arrow stream, and appends its records to the DataFrame.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from oz.errors import ConfigurationError
from oz.journal import SCHEMA, Journal, ranges
from oz.journal.format import MESSAGE
from oz.journal.selection import Bound
from oz.spark.columns import matches
from oz.spark.rows import DDL
from oz.spark.source import Range, check_loss
from oz.subjects.pattern import Pattern, compile

PatternArgument = Pattern | str | bytes

_NULLABLE_DDL = ", ".join(f"`{name}` {kind.removesuffix(' NOT NULL')}" for name, kind in DDL.items())
# Without this setting, Spark's Parquet reader does not compare the checksums of pages, and a flipped byte could give a
# wrong value.
_VERIFY = "parquet.page.verify-checksum.enabled"
_LOCAL_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Maximum number of records of the active segment that one task converts. The start of a task takes 10 ms, in which a
# task could convert 5,000 records.
_TASK_ROWS = 65_536
_TASK_BYTES = 32 << 20


def read(
    spark: SparkSession,
    journal: str | os.PathLike[str],
    pattern: PatternArgument | Sequence[PatternArgument] | None = None,
    *,
    start: Bound = None,
    end: Bound = None,
    gaps: bool = False,
    fail_on_loss: bool = True,
) -> DataFrame:
    """Return the records of a journal as a DataFrame, with the columns of the journal.

    The result has the records that are acknowledged when the function is called. The driver keeps the matching records
    of the active segment in memory; the option `segment_bytes` of the writer limits their size.

    Args:
        spark: a Spark session. Its executors need the directory of the journal under the same path. The executors need
            oz only for patterns that Python must match; see `oz.spark.matches`.
        journal: directory of the journal, or a URI such as "s3://bucket/journal", which Spark reads as "s3a://".
        pattern: pattern of the subjects, or a list of patterns. A message is returned if at least one pattern matches.
            None returns all messages.
        start: the first offset, or the earliest time of receipt. A time without a zone is local time.
        end: the offset or the time before which to stop; None for the end of the journal.
        gaps: whether to return gap records too, in which the column `kind` is 1. A pattern does not exclude them.
        fail_on_loss: whether to raise an error if records of the range are missing. With False, a warning is logged.

    Raises:
        JournalError: the directory contains no journal, a file is damaged, or records are missing.
        ConfigurationError: a bound is beyond the end of the journal, or is neither an offset nor a time.
        PatternError: a pattern is not allowed in its dialect.

    If Spark finds a damaged page, the query fails, and not this call.
    """
    name = _name(journal)
    low, high = _bound("start", start), _bound("end", end)
    wanted = _Selection(
        _offsets(name, low, high),
        None if pattern is None else _patterns(pattern),
        low if isinstance(low, datetime) else None,
        high if isinstance(high, datetime) else None,
        gaps,
    )
    plan = ranges.plan(
        name,
        *wanted.offsets,
        wanted.patterns,
        start_time=wanted.start_time,
        end_time=wanted.end_time,
        gaps=gaps,
    )
    check_loss(name, plan.missing, fails=fail_on_loss)
    parts = []
    if plan.sealed:
        reader = spark.read.schema(_NULLABLE_DDL).option(_VERIFY, "true")
        sealed = reader.parquet(*(_spark_path(part.path) for part in plan.sealed))
        condition = wanted.condition(plan.sealed)
        parts.append(sealed if condition is None else sealed.where(condition))
    if plan.active is not None and (active := wanted.read(name, *plan.active)).num_rows:
        parts.append(_from_arrow(spark, active))
    if not parts:
        return spark.createDataFrame([], _NULLABLE_DDL)
    return reduce(DataFrame.union, parts)


def _from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a DataFrame. Each task of Spark converts one batch of its rows.

    During the call, the setting `_LOCAL_THRESHOLD` is 0. Otherwise Spark would convert the rows of a small table in the
    driver, which takes twice as long.
    """
    rows = max(1, min(_TASK_ROWS, table.num_rows * _TASK_BYTES // table.nbytes))
    wanted = {_LOCAL_THRESHOLD: "0", _BATCH_ROWS: str(rows)}
    saved = {name: str(spark.conf.get(name)) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        return spark.createDataFrame(table.combine_chunks())
    finally:
        for name, value in saved.items():
            spark.conf.set(name, value)


class _Selection(NamedTuple):
    """The arguments of `read` that select records."""

    offsets: Range
    patterns: list[Pattern] | None
    start_time: datetime | None
    end_time: datetime | None
    gaps: bool

    def condition(self, parts: Sequence[ranges.SealedPart]) -> Column | None:
        """Return the condition for records of sealed files; None if all records are selected.

        A condition that all records of the files meet is left out, so that Spark does not read its columns.
        """
        conditions = []
        if not all(part.is_whole for part in parts):
            conditions.append((F.col("offset") >= self.offsets.first) & (F.col("offset") < self.offsets.end))
        if self.start_time is not None:
            conditions.append(F.col("time") >= F.lit(self.start_time))
        if self.end_time is not None:
            conditions.append(F.col("time") < F.lit(self.end_time))
        matching = None if self.patterns is None else _matching(self.patterns)
        if any(part.gaps for part in parts):
            is_message = F.col("kind") == MESSAGE
            if not self.gaps:
                conditions.append(is_message)
            elif matching is not None:
                matching = matching | ~is_message
        if matching is not None:
            conditions.append(matching)
        return reduce(and_, conditions) if conditions else None

    def read(self, journal: str, first: int, end: int) -> pa.Table:
        batches = ranges.read_range(
            journal,
            first,
            end,
            pattern=self.patterns,
            gaps=self.gaps,
            start_time=self.start_time,
            end_time=self.end_time,
        )
        return pa.Table.from_batches(batches, schema=SCHEMA)


def _matching(patterns: Sequence[Pattern]) -> Column:
    """Return the condition that a pattern matches the subject. `subject_raw` has the subjects that are not UTF-8."""
    is_text = F.col("subject_raw").isNull()
    conditions = []
    for pattern in patterns:
        conditions.append(is_text & matches("subject", pattern))
        if pattern._dialect.is_bytes:
            conditions.append(F.col("subject_raw").isNotNull() & matches("subject_raw", pattern))
    return reduce(or_, conditions)


def _patterns(pattern: PatternArgument | Sequence[PatternArgument]) -> list[Pattern]:
    several = [pattern] if isinstance(pattern, (str, bytes, Pattern)) else pattern
    return [compile(each) for each in several]


def _name(journal: str | os.PathLike[str]) -> str:
    text = os.fspath(journal)
    return text if "://" in text else os.path.abspath(text)


def _bound(name: str, value: Bound) -> int | datetime | None:
    try:
        return ranges.parse_bound(value)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(name, value, "argument", str(error)) from None


def _offsets(journal: str, low: int | datetime | None, high: int | datetime | None) -> Range:
    opened = Journal(journal)
    available = opened.end_offset
    first = low if isinstance(low, int) else opened.first_offset
    end = high if isinstance(high, int) else available
    for name, offset in (("start", first), ("end", end)):
        if offset > available:
            raise ConfigurationError(name, offset, "argument", f"{journal} ends at offset {available}")
    return Range(first, max(first, end))


_GLOB = re.compile(r"[\\{}\[\]*?]")
_S3 = re.compile(r"^s3://(?:[^/@]*@)?")  # Spark takes credentials from its own settings


def _spark_path(path: str) -> str:
    """Return the path of a file in the form of Spark: with escaped wildcards, and with the scheme "s3a" for S3."""
    if "://" not in path:
        # Without a scheme, Spark would look for the path on the default file system of the cluster.
        return "file://" + _GLOB.sub(lambda found: f"\\{found[0]}", path)
    # After `?` come the options of pyarrow.fs, and then the file name.
    base, _, options = path.partition("?")
    uri = f"{base}/{options.rpartition('/')[2]}" if options else base
    return _GLOB.sub(lambda found: f"\\{found[0]}", _S3.sub("s3a://", uri))
