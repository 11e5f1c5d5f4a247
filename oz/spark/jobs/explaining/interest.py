"""The traffic of a set of subscriptions, sent and wanted, worked out once for each distinct subject."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StructType

from oz.journal import Kind
from oz.spark.jobs.reporting.rows import exact_subject, is_kind
from oz.spark.vectorised import for_each_distinct
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern, compile

_NUMBERS = ArrayType(IntegerType(), False)
_FOUND = StructType().add("matched", _NUMBERS, False).add("passed", _NUMBERS, False)
_ARROW = pa.struct(
    [
        pa.field(name, pa.list_(pa.field("element", pa.int32(), False)), False)
        for name in ("matched", "passed")
    ]
)


class Amount(NamedTuple):
    """So much traffic.

    Attributes:
        messages: how many.
        bytes: of their subjects and payloads; what frames them is not counted.
        subjects: how many different ones.
    """

    messages: int = 0
    bytes: int = 0
    subjects: int = 0

    def less(self, other: Amount) -> Amount:
        """Take another amount away."""
        return Amount(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def and_also(self, other: Amount) -> Amount:
        """Add another amount."""
        return Amount(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def traffic_by_subject(rows: DataFrame) -> DataFrame:
    """Sum up each subject: columns `exact` (the subject's bytes), `subject`, `messages` and `bytes`."""
    size = F.col("size") + F.octet_length("exact")
    return (
        rows.where(is_kind(Kind.MESSAGE))
        .withColumn("exact", exact_subject())
        .groupBy("exact", "subject")
        .agg(F.count(F.lit(1)).alias("messages"), F.sum(size).alias("bytes"))
    )


class Interest:
    """Measures patterns on traffic, as many of them as one likes."""

    def __init__(self, subjects: DataFrame, patterns: Sequence[Pattern]) -> None:
        """Begin; nothing is computed yet.

        Args:
            subjects: of `traffic_by_subject`.
            patterns: the subscriptions.
        """
        self._patterns = patterns
        self._prefixes = sorted({prefix for pattern in patterns for prefix in pattern.prefixes})
        found = _lookup(F.col("exact"), patterns, self._prefixes)
        self._found = subjects.withColumn("found", found).select("messages", "bytes", "found.*")

    def measure(self) -> tuple[Amount, Amount, Amount, list[tuple[Amount, Amount]]]:
        """Measure.

        Returns:
            All traffic; what any prefix lets through; what any pattern matches; and for each pattern what its
            prefixes let through and what it matches.
        """
        kept = self._found.persist()
        try:
            matched = _by_number(kept, "matched")
            passed = _by_number(kept, "passed")
            row = kept.agg(
                *_amounts("all", F.lit(True)),
                *_amounts("passed", F.size("passed") > 0),
                *_amounts("matched", F.size("matched") > 0),
            ).first()
        finally:
            kept.unpersist()
        assert row is not None
        everything, any_passed, any_matched = (_amount(row, name) for name in ("all", "passed", "matched"))
        place = {prefix: number for number, prefix in enumerate(self._prefixes)}
        each = []
        for number, pattern in enumerate(self._patterns):
            through = Amount()
            for prefix in pattern.prefixes:  # none is a prefix of another, so nothing is counted twice
                through = through.and_also(passed.get(place[prefix], Amount()))
            each.append((through, matched.get(number, Amount())))
        return everything, any_passed, any_matched, each


def _by_number(found: DataFrame, column: str) -> dict[int, Amount]:
    each = found.select(F.explode(column).alias("number"), "messages", "bytes")
    rows = each.groupBy("number").agg(*_amounts("all", F.lit(True))).collect()
    return {row.number: _amount(row, "all") for row in rows}


def _amounts(name: str, condition: Column) -> list[Column]:
    amounts = {"messages": F.col("messages"), "bytes": F.col("bytes"), "subjects": F.lit(1)}
    return [
        F.coalesce(F.sum(F.when(condition, amount)), F.lit(0)).alias(f"{name}_{what}")
        for what, amount in amounts.items()
    ]


def _amount(row: Row, name: str) -> Amount:
    return Amount(*(row[f"{name}_{what}"] for what in Amount._fields))


def _lookup(subject: Column, patterns: Sequence[Pattern], prefixes: Sequence[bytes]) -> Column:
    packed = zlib.compress(pickle.dumps((list(patterns), list(prefixes))))

    def interest(exact: bytes) -> dict[str, Any]:
        wanted, sent = _indexes(packed)
        return {"matched": sorted(wanted.match(exact)), "passed": sorted(sent.match(exact))}

    return for_each_distinct(subject, interest, _FOUND, _ARROW)


@lru_cache(maxsize=2)
def _indexes(packed: bytes) -> tuple[PatternIndex, PatternIndex]:
    """Build both indexes once in each worker process: of the patterns, and of their prefixes."""
    patterns, prefixes = pickle.loads(zlib.decompress(packed))
    wanted, sent = PatternIndex(), PatternIndex()
    for number, pattern in enumerate(patterns):
        wanted.add(pattern, number)
    for number, prefix in enumerate(prefixes):
        sent.add(compile(prefix, "zmq"), number)
    return wanted, sent
