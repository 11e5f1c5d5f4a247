"""The job `explain`: what subscriptions cost on recorded traffic, and what would save some of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from oz.spark.columns import compiled_pattern
from oz.spark.jobs.explaining.families import MOST_PATTERNS, what_if
from oz.spark.jobs.explaining.interest import Amount, Interest, traffic_by_subject
from oz.spark.jobs.explaining.rewriting import TokenPattern
from oz.spark.jobs.reporting.rows import Source, narrow_rows
from oz.spark.jobs.reporting.tasks import few_tasks
from oz.subjects.dialects import find
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern


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
        return json.dumps(self.figures, ensure_ascii=False, indent=1)


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
        patterns: the subscriptions: patterns, or specs as `oz.parse` takes them; or one. Each is taken for a
            subscriber of its own, and all of them for one subscriber.
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
        everything, passed, matched, each = Interest(subjects, compiled).measure()
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
    """Write a pattern as `oz.parse` takes it, as far as it is text."""
    text = pattern.text if isinstance(pattern.text, str) else pattern.text.decode(errors="backslashreplace")
    return text if pattern.dialect == DEFAULT_DIALECT else f"{pattern.dialect}:{text}"
