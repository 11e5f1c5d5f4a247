"""All figures of a report, in few passes over what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from oz.journal import Kind
from oz.spark.jobs.reporting.levels import tree
from oz.spark.jobs.reporting.publishers import Publishers, by_hour
from oz.spark.jobs.reporting.rows import is_kind
from oz.spark.jobs.reporting.sizes import sizes, summary
from oz.spark.jobs.reporting.steps import HOUR, SECOND, Steps
from oz.spark.jobs.reporting.subjects import Subjects

Say = Callable[[str], object]

_QUIET = 10
"""Without a time, a subject is silent that was not heard in the last part of so many."""


def figures(
    rows: DataFrame,
    *,
    separator: str,
    levels: int,
    most: int,
    silent_after: float | None,
    is_whole: bool,
    say: Say,
) -> dict[str, Any]:
    """Compute the figures.

    Args:
        rows: of `narrow_rows`; read once, and kept by Spark meanwhile.
        separator: what stands between tokens.
        levels: how many levels of subjects to go down.
        most: how many of a kind to name.
        silent_after: after how many seconds a subject is silent; None: after a tenth of the record's time.
        is_whole: whether no pattern selected the rows.
        say: is told what comes next.
    """
    kept = rows.persist()
    try:
        say("reading")
        summed = _summed(kept)
        total = {name: summed[name] for name in ("messages", "payload_bytes", "first_ns", "last_ns")}
        if not total["messages"]:
            return {"total": total | _rates(total, 0.0, 0)} | _NOTHING
        steps = Steps.spanning(total["first_ns"], total["last_ns"])
        # A loss may be on record before the first message, or after the last.
        hours = Steps.spanning(summed["from_ns"], summed["to_ns"], HOUR)
        with _subjects(kept, steps) as subjects:
            found = _by_subject(subjects, total, separator, levels, most, silent_after, say)
        say("publishers and losses")
        found["publishers"], found["losses"] = _by_publisher(kept, hours, most, is_whole)
        say("payload sizes")
        return found | {"sizes": sizes(kept, summed)}
    finally:
        kept.unpersist()


_NOTHING: dict[str, Any] = {
    "timeline": {"step_seconds": None, "steps": []},
    "levels": None,
    "subjects": {"by_messages": [], "by_payload_bytes": []},
    "silent": {"after_seconds": None, "count": 0, "most_messages": [], "longest": []},
    "publishers": {"count": 0, "most": [], "others": None},
    "losses": None,
    "sizes": None,
}


@contextmanager
def _subjects(rows: DataFrame, steps: Steps) -> Iterator[Subjects]:
    subjects = Subjects.of(rows, steps)
    try:
        yield subjects
    finally:
        subjects.forget()


def _by_subject(
    subjects: Subjects,
    total: dict[str, Any],
    separator: str,
    levels: int,
    most: int,
    silent_after: float | None,
    say: Say,
) -> dict[str, Any]:
    say("subjects and time")
    timeline = subjects.timeline()
    end_ns = total["last_ns"]
    span = (end_ns - total["first_ns"]) / SECOND
    after = span / _QUIET if silent_after is None else silent_after
    since_ns = end_ns - round(after * SECOND)
    count, silent = subjects.counts(since_ns)
    lists = subjects.lists(since_ns, end_ns, most)
    say("levels of subjects")
    return {
        "total": total | _rates(total, span, count) | _peak(timeline, subjects.steps.length_ns / SECOND),
        "timeline": {"step_seconds": subjects.steps.length_ns / SECOND, "steps": timeline},
        "levels": tree(subjects.table, separator, levels, most),
        "subjects": {name: lists[name] for name in ("by_messages", "by_payload_bytes")},
        "silent": {
            "after_seconds": after,
            "count": silent,
            "most_messages": lists["silent"],
            "longest": lists["longest"],
        },
    }


def _by_publisher(
    rows: DataFrame, hours: Steps, most: int, is_whole: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    publishers = Publishers(by_hour(rows, hours, is_whole=is_whole), hours)
    try:
        return publishers.most(most), publishers.losses(most) | {"are_numbers_known": is_whole}
    finally:
        publishers.forget()


def _summed(rows: DataFrame) -> dict[str, Any]:
    is_message = is_kind(Kind.MESSAGE)
    time = F.when(is_message, F.col("time_ns"))
    found = rows.agg(
        F.count(F.when(is_message, 1)).alias("messages"),
        F.coalesce(F.sum(F.when(is_message, F.col("size"))), F.lit(0)).alias("payload_bytes"),
        F.min(time).alias("first_ns"),
        F.max(time).alias("last_ns"),
        F.min("time_ns").alias("from_ns"),
        F.max("time_ns").alias("to_ns"),
        *summary(),
    ).first()
    summed: dict[str, Any] = found.asDict()
    return summed


def _rates(total: dict[str, Any], seconds: float, subjects: int) -> dict[str, Any]:
    return {
        "subjects": subjects,
        "seconds": seconds,
        "messages_per_second": total["messages"] / seconds if seconds else None,
        "payload_bytes_per_second": total["payload_bytes"] / seconds if seconds else None,
    }


def _peak(timeline: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    return {
        f"peak_{name}_per_second": max(step[name] for step in timeline) / seconds
        for name in ("messages", "payload_bytes")
    }
