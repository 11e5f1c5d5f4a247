"""Thousands of patterns at once: the index that the sockets use, in Spark's Python workers."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from oz.spark.columns import as_subject, compiled_pattern
from oz.spark.vectorised import for_each_distinct
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern

_SUBJECT = "__oz_subject"


def match_all(column: Column | str, patterns: Iterable[Pattern | str] | Pattern | str) -> Column:
    """Return the patterns that each subject matches, as an array of strings; null where there is no subject.

    One index of all patterns is built in each Python worker, which then looks up each distinct subject of a
    batch once: its time hardly grows with the number of patterns.

    Args:
        column: subjects, strings or binary.
        patterns: patterns, or specs as `oz.parse` takes them, of any dialects; or one. A spec is returned
            as it was given, a pattern as its text; in the order of this list, and each once.

    Raises:
        ValueError: the text of a pattern is not UTF-8, so that Spark cannot hold it.
    """
    if isinstance(patterns, (str, Pattern)):
        patterns = [patterns]
    named = {_name(pattern): compiled_pattern(pattern) for pattern in patterns}
    names = list(named)
    packed = zlib.compress(pickle.dumps(list(named.values())))

    def lookup(subject: bytes) -> list[str]:
        return [names[number] for number in sorted(_index(packed).match(subject))]

    lookup.__name__ = "match_all"  # which Spark shows in plans, and as the name of the column
    return for_each_distinct(
        as_subject(column), lookup, ArrayType(StringType(), False), pa.list_(pa.string())
    )


def join_patterns(
    dataframe: DataFrame,
    column: Column | str,
    patterns: Iterable[Pattern | str] | Pattern | str,
    *,
    name: str = "pattern",
) -> DataFrame:
    """Return each row once for each pattern that its subject matches, and the pattern beside it.

    Each distinct subject is looked up once, and the result is joined back. Rows that match nothing are left
    out.

    Args:
        dataframe: the rows.
        column: which of its columns holds the subjects.
        patterns: as for `match_all`.
        name: how to call the new column.
    """
    rows = dataframe.withColumn(_SUBJECT, as_subject(column))
    found = F.explode(match_all(_SUBJECT, patterns)).alias(name)
    matched = rows.select(_SUBJECT).distinct().select(_SUBJECT, found)
    return rows.join(matched, on=_SUBJECT).drop(_SUBJECT)


def _name(pattern: Pattern | str) -> str:
    text = pattern.text if isinstance(pattern, Pattern) else pattern
    if isinstance(text, str):
        return text
    raise ValueError(f"Spark's strings are UTF-8, and this pattern is not: {text!r}")


@lru_cache(maxsize=4)
def _index(packed: bytes) -> PatternIndex:
    """Build an index once in each worker process, which outlives the task."""
    index = PatternIndex()
    patterns: list[Pattern] = pickle.loads(zlib.decompress(packed))
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    return index
