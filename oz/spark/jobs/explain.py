"""The job `explain`: what subscriptions cost on recorded traffic, and what would save some of it.

What is sent and what is wanted is worked out once for each distinct subject.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StructType

from oz.escaping import json_text
from oz.journal import Kind
from oz.spark.columns import compiled_pattern
from oz.spark.jobs.explaining.families import MOST_PATTERNS, what_if
from oz.spark.jobs.explaining.rewriting import TokenPattern
from oz.spark.jobs.reporting.rows import Source, exact_subject, is_kind, narrow_rows
from oz.spark.jobs.reporting.tasks import few_tasks
from oz.spark.vectorised import for_each_distinct
from oz.subjects.dialects import DIALECTS, find
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, compile

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


class MeasuredInterest:
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


@dataclass(frozen=True)
class Explanation:
    """The findings about a set of subscriptions.

    Bytes are those of subjects and payloads.

    Attributes:
        figures: all figures, as JSON has them; docs/spark-jobs.md says what they are.
    """

    figures: dict[str, Any]

    @property
    def patterns(self) -> list[dict[str, Any]]:
        """The figures of each pattern, in the order given."""
        found: list[dict[str, Any]] = self.figures["patterns"]
        return found

    @property
    def orders(self) -> list[dict[str, Any]]:
        """For each family of subjects the order of tokens that lets the least through."""
        found: list[dict[str, Any]] = self.figures["orders"]
        return found

    def json(self) -> str:
        """Return the figures as JSON."""
        return json_text(self.figures, indent=1)


def explain(
    spark: SparkSession,
    source: Source,
    patterns: Iterable[Pattern | str | bytes] | Pattern | str | bytes,
    *,
    separator: str | None = None,
    on_progress: Callable[[str], object] = lambda stage: None,
) -> Explanation:
    """Hold subscriptions against recorded traffic.

    Tells for each pattern how much of the traffic it matches, how much its prefixes let through in vain, what
    publisher-side filtering would save, and the order of tokens in which prefixes let the least through.

    Args:
        spark: the session.
        source: a journal's directory, a Parquet lake, or a DataFrame with columns `subject` and `payload`.
        patterns: the subscriptions: patterns, or specs as `oz.compile` takes them; or one. Each is taken for
            a subscriber of its own, and all of them for one subscriber.
        separator: what stands between tokens; None: `/` when all patterns are mqtt, else `.`.
        on_progress: is called with what comes next, for those who wait.

    Raises:
        JournalError: there is no journal, or it cannot be read.
        PatternError: a dialect does not allow a pattern.
        PatternTimeout: a pattern ran out of time on a subject.
        ValueError: there is no pattern, or the separator is empty.
    """
    if isinstance(patterns, (str, bytes, Pattern)):
        patterns = [patterns]
    compiled = [compiled_pattern(pattern) for pattern in patterns]
    if not compiled:
        raise ValueError("no pattern at all: there is nothing to explain")
    between = separator if separator is not None else _separator(compiled)
    if not between:
        raise ValueError("the separator is empty")
    with few_tasks(spark), _kept(traffic_by_subject(narrow_rows(spark, source))) as subjects:
        on_progress("patterns and prefixes")
        everything, passed, matched, each = MeasuredInterest(subjects, compiled).measure()
        on_progress("orders of tokens")
        candidates = _candidates(compiled, each, between)
        orders = what_if(spark, subjects, candidates, between)
    for order in orders:
        if order["example"]:
            order["example"]["pattern"] = _shown(compiled[order["example"]["pattern"]])
    return Explanation(
        {
            "traffic": everything._asdict(),
            "patterns": [
                _pattern_figures(pattern, through, wanted, everything)
                for pattern, (through, wanted) in zip(compiled, each, strict=True)
            ],
            "apart": _comparison(each),
            "together": _comparison([(passed, matched)]),
            "separator": between,
            "orders": orders,
            "orders_of_patterns": len(candidates),
        }
    )


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    try:
        yield rows.persist()
    finally:
        rows.unpersist()


def _separator(patterns: list[Pattern]) -> str:
    separators = {find(pattern.dialect).separator for pattern in patterns}
    return separators.pop() or "." if len(separators) == 1 else "."


def _candidates(
    patterns: list[Pattern], each: list[tuple[Amount, Amount]], separator: str
) -> dict[int, TokenPattern]:
    """Pick the patterns for which the order of tokens matters, those that let the most through in vain."""
    apart = ((number, TokenPattern.of(pattern)) for number, pattern in enumerate(patterns))
    found = {number: one for number, one in apart if one is not None and one.separator == separator}
    in_vain = {number: each[number][0].less(each[number][1]).bytes for number in found}
    worst = sorted(found, key=lambda number: (-in_vain[number], number))[:MOST_PATTERNS]
    return {number: found[number] for number in sorted(worst)}


def _pattern_figures(pattern: Pattern, through: Amount, wanted: Amount, everything: Amount) -> dict[str, Any]:
    return {
        "pattern": _shown(pattern),
        "prefixes": [prefix.decode(errors="backslashreplace") for prefix in pattern.prefixes],
        "matched": wanted._asdict(),
        "let_through": through._asdict(),
        "in_vain": through.less(wanted)._asdict(),
        "selectivity": wanted.messages / everything.messages if everything.messages else None,
    }


def _comparison(each: list[tuple[Amount, Amount]]) -> dict[str, Any]:
    """Say what crosses the wire with prefixes, and what with publisher-side filtering."""
    with_prefixes, routed = Amount(), Amount()
    for through, wanted in each:
        with_prefixes = with_prefixes.and_also(through)
        routed = routed.and_also(wanted)
    return {
        name: {"messages": amount.messages, "bytes": amount.bytes}
        for name, amount in (
            ("with_prefixes", with_prefixes),
            ("routed", routed),
            ("saved", with_prefixes.less(routed)),
        )
    }


def _shown(pattern: Pattern) -> str:
    """Write a pattern as `oz.compile` takes it, as far as it is text."""
    text = pattern.text if isinstance(pattern.text, str) else pattern.text.decode(errors="backslashreplace")
    name, colon, _ = text.partition(":")
    is_clear = pattern.dialect == DEFAULT_DIALECT and not (colon and name in DIALECTS)
    return text if is_clear else f"{pattern.dialect}:{text}"
