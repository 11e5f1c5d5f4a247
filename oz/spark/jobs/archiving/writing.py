"""The work of Spark: rows of a journal, sorted into files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from oz.spark.jobs.archiving.layout import (
    DAY,
    FIRST_TOKEN,
    GAPS,
    MOST_CHARACTERS,
    OTHER,
    LakeLayout,
    folder_of_token,
)

SCHEMA = (
    "offset bigint, time timestamp, time_ns bigint, kind tinyint, lost bigint, origin binary, "
    "sequence bigint, subject string, subject_raw binary, reply_to binary, headers binary, payload binary, "
    "position bigint"
)
"""The columns of a lake's files; the folders add `day` and `first_token`. Files of an oz before positions
lack the last one, which is null there."""

_COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]
_DAY_NS = 86_400_000_000_000
_RAW_TIMES = 3  # about how much smaller Parquet makes them
_TASK_ROWS = 500_000  # fewer are not worth a task of their own
_ROW_BYTES = 60  # what a record takes besides subject and payload


@contextmanager
def settings_of_archiving(spark: SparkSession) -> Iterator[None]:
    """Set a session for this job, and back afterwards.

    Timestamps are written in microseconds, as others do: Spark's own INT96 has no statistics to prune by. The
    few groups of a census need no 200 tasks.
    """
    wanted = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism),
    }
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old or "")


def rows_of(spark: SparkSession, journal: Path, first: int, end: int) -> DataFrame:
    """Read a range of a journal, gaps included."""
    options = {"journal": str(journal), "startingOffset": first, "endingOffset": end, "gaps": True}
    return spark.read.format("oz").options(**options).load()


@dataclass(frozen=True)
class Census:
    """The contents of a range.

    Attributes:
        rows: how many records.
        bytes: about how large they are in memory.
        tokens: the first tokens that may have folders, those with the most messages first.
    """

    rows: int
    bytes: int
    tokens: Sequence[str]


def take_census(rows: DataFrame, layout: LakeLayout) -> Census:
    """Count records by their first tokens, and how large all are, in one pass."""
    size = F.octet_length("payload") + F.octet_length("subject") + F.lit(_ROW_BYTES)
    seen, totals = Observation(), (F.count(F.lit(1)).alias("rows"), F.sum(size).alias("bytes"))
    seeing = rows.observe(seen, *totals)
    token = _token(layout.separator).alias("token")
    short = seeing.where((F.col("kind") == 0) & (F.length(token) <= MOST_CHARACTERS))
    counted = short.groupBy(token).agg(F.count(F.lit(1)).alias("rows"))
    most = counted.orderBy(F.desc("rows"), "token").limit(layout.most_tokens).collect()
    # Where nothing is left to count, as of damage records alone, Spark leaves out what was observed too.
    [total] = [seen.get] if most else [row.asDict() for row in rows.agg(*totals).collect()]
    return Census(total["rows"], total["bytes"] or 0, [row.token for row in most])


def with_new_tokens(known: Sequence[str], found: Sequence[str], layout: LakeLayout) -> list[str]:
    """Add tokens that get folders of their own to those that have them, as far as there may be more."""
    tokens = list(known)
    for token in found:
        if len(tokens) < layout.most_tokens and token not in known and folder_of_token(token) is not None:
            tokens.append(token)
    return tokens


def write(
    rows: DataFrame, to: Path, census: Census, tokens: Sequence[str], layout: LakeLayout, cores: int
) -> None:
    """Write a range in folders by day and first token, each file sorted by subject.

    Args:
        rows: the records.
        to: a directory that is not there.
        census: what they are.
        tokens: the first tokens that have folders.
        layout: how large files and row groups are.
        cores: how many tasks run at once.
    """
    tasks = max(
        -(-census.bytes // (_RAW_TIMES * layout.file_bytes)), min(cores, -(-census.rows // _TASK_ROWS)), 1
    )
    placed = rows.select(*_COLUMNS, _day().alias(DAY), _folder(tokens, layout.separator).alias(FIRST_TOKEN))
    write_sorted(placed.repartitionByRange(tasks, DAY, FIRST_TOKEN, "subject", "offset"), to, layout)


def write_sorted(rows: DataFrame, to: Path, layout: LakeLayout) -> None:
    """Write rows that have `day` and `first_token`, as they are partitioned, each file sorted by subject."""
    arranged = rows.sortWithinPartitions(DAY, FIRST_TOKEN, "subject", "offset")
    arranged.write.partitionBy(DAY, FIRST_TOKEN).options(
        **{
            "compression": "zstd",
            "maxRecordsPerFile": 0,
            "parquet.block.row.count.limit": layout.row_group_rows,
            # Only what a task has committed whole is ever listed.
            "mapreduce.fileoutputcommitter.algorithm.version": 1,
        }
    ).parquet(address(to))


def address(path: Path) -> str:
    """Write a path so that Spark does not look for it in another file system."""
    return f"file://{path}"


def _day() -> Column:
    # Exact, and rounded down before 1970 too; the time column has microseconds only.
    number = F.expr(f"cast(time_ns div {_DAY_NS} - if(time_ns % {_DAY_NS} < 0, 1, 0) as int)")
    return F.date_from_unix_date(number)


def _token(separator: str) -> Column:
    return F.substring_index("subject", separator, 1)


def _folder(tokens: Sequence[str], separator: str) -> Column:
    token = _token(separator)
    folders = {one: folder_of_token(one) for one in tokens}
    plain = [one for one, folder in folders.items() if one == folder]
    odd = [one for one, folder in folders.items() if one != folder]
    chosen = F.when(F.col("kind") != 0, F.lit(GAPS)).when(token.isin(plain), token)
    for one in odd:
        chosen = chosen.when(token == F.lit(one), F.lit(folders[one]))
    return chosen.otherwise(F.lit(OTHER))
