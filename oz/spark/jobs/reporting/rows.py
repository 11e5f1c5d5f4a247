"""Recorded traffic as few narrow columns, wherever it is: in a journal, in a Parquet lake, in a DataFrame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from oz.journal import Journal, Kind
from oz.journal.files import named
from oz.spark.columns import compiled_pattern, matches
from oz.spark.jobs.archiving.loading import load_lake
from oz.spark.registration import register
from oz.subjects.pattern import Pattern

Source: TypeAlias = "str | os.PathLike[str] | DataFrame"
"""A journal's directory, a Parquet lake's, or rows with the columns of either."""

_TYPES = {
    "offset": "bigint",
    "time_ns": "bigint",
    "kind": "tinyint",
    "lost": "bigint",
    "origin": "binary",
    "sequence": "bigint",
    "subject": "string",
    "subject_raw": "binary",
}


def narrow_rows(spark: SparkSession, source: Source, pattern: Pattern | str | None = None) -> DataFrame:
    """Return what the figures are made of, losses included.

    Args:
        spark: the session.
        source: what was recorded. Of the columns it must have `subject` and `payload`.
        pattern: only messages that it matches, and losses that may have to do with it.

    Returns:
        Columns `offset`, `time_ns`, `kind`, `lost`, `origin`, `sequence`, `subject`, `subject_raw` and
        `size`, the bytes of the payload. What the source has not got is null.

    Raises:
        JournalError: there is no journal, or it is of another version.
        PatternError: a dialect does not allow the pattern.
    """
    wanted = None if pattern is None else compiled_pattern(pattern)
    rows = source if isinstance(source, DataFrame) else _load(spark, os.fspath(source), wanted)
    columns = {name: _column(rows, name, kind) for name, kind in _TYPES.items()}
    columns["kind"] = F.coalesce(columns["kind"], F.lit(int(Kind.MESSAGE)))
    if "time_ns" not in rows.columns and "time" in rows.columns:
        columns["time_ns"] = F.unix_micros("time") * 1000
    columns["size"] = F.coalesce(F.octet_length("payload"), F.lit(0)).cast("bigint")
    narrow = rows.select(*(column.alias(name) for name, column in columns.items()))
    return (
        narrow if wanted is None else narrow.where(~is_kind(Kind.MESSAGE) | matches(exact_subject(), wanted))
    )


def is_kind(kind: Kind) -> Column:
    """Tell which records are of a kind."""
    return F.col("kind") == int(kind)


def exact_subject() -> Column:
    """Return the subject byte by byte, as binary."""
    return F.coalesce("subject_raw", F.col("subject").cast("binary"))


def is_journal(directory: str) -> bool:
    """Tell whether a path is a journal's directory on this machine's file system."""
    return Path(directory).is_dir() and bool(named(Path(directory))[0])


def _load(spark: SparkSession, path: str, pattern: Pattern | None) -> DataFrame:
    if "://" not in path and not Path(path).exists():
        Journal(path)  # says that there is none
    if not is_journal(path):
        return load_lake(spark, path)
    options: dict[str, Any] = {"journal": str(Path(path).resolve()), "gaps": True}
    if (
        pattern is not None
        and isinstance(pattern.text, str)
        and not pattern.flags
        and not pattern.named_lists
    ):
        options["subject"] = f"{pattern.dialect}:{pattern.text}"  # so that it passes segments by
    register(spark)
    return spark.read.format("oz").options(**options).load()


def _column(rows: DataFrame, name: str, kind: str) -> Column:
    return F.col(name).cast(kind) if name in rows.columns else F.lit(None).cast(kind)
