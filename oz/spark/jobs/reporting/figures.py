"""All figures of a report, in few passes over what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from oz.journal import Kind
from oz.spark.columns import depth
from oz.spark.jobs.reporting.counts import PublisherCounts, Subjects, by_hour, sums_of
from oz.spark.jobs.reporting.rows import is_kind
from oz.spark.jobs.reporting.steps import HOUR, SECOND, Steps

_PARENTS = 40
"""So many subjects of a level have those below them shown."""

Node = dict[str, Any]


def tree(subjects: DataFrame, separator: str, levels: int, children: int) -> Node:
    """Sum the subjects up by their first token, by their first two, and so on.

    Args:
        subjects: one row for each, with `subject`, `messages` and `payload_bytes`.
        separator: what stands between tokens.
        levels: how many levels to go down.
        children: how many to name below each; the others are summed up.

    Returns:
        The root. Each node has `subject` (what its subjects begin with), `messages` and `payload_bytes` of
        all of them, `subjects` (how many), `children`, most messages first, and `others`, not named.
    """
    root: Node = {"subject": "", "children": [], "others": None}
    parents = {"": root}
    for level in range(1, levels + 1):
        found = _below(subjects, parents, level, separator, children)
        for row in found:
            parent = parents[row.parent]
            parent["children"].append(_node(row))
            parent["others"] = row
        for parent in parents.values():
            parent["others"] = _others(parent)
        named = sorted((node for parent in parents.values() for node in parent["children"]), key=_weight)
        parents = {node["subject"]: node for node in named[:_PARENTS]}
        if not parents:
            break
    return root


def _below(
    subjects: DataFrame, parents: dict[str, Node], level: int, separator: str, children: int
) -> list[Row]:
    """Find the greatest of those right below each parent, with what all of those there sum up to."""
    parent = F.substring_index("subject", separator, level - 1) if level > 1 else F.lit("")
    above = Window.partitionBy("parent")
    rank = F.row_number().over(above.orderBy(F.desc("messages"), F.desc("payload_bytes"), "path"))
    sums = ("messages", "payload_bytes", "subjects")
    found: list[Row] = (
        subjects.where(depth("subject", separator=separator) >= level)
        .withColumn("parent", parent)
        .where(F.col("parent").isin(*parents))
        .groupBy("parent", F.substring_index("subject", separator, level).alias("path"))
        .agg(*sums_of("messages", "payload_bytes"), F.count(F.lit(1)).alias("subjects"))
        .select(
            "*",
            rank.alias("rank"),
            F.count(F.lit(1)).over(above).alias("all_count"),
            *(F.sum(name).over(above).alias(f"all_{name}") for name in sums),
        )
        .where(F.col("rank") <= children)
        .orderBy("parent", "rank")
        .collect()
    )
    return found


def _node(row: Row) -> Node:
    return {
        "subject": row.path,
        "messages": row.messages,
        "payload_bytes": row.payload_bytes,
        "subjects": row.subjects,
        "children": [],
        "others": None,
    }


def _others(parent: Node) -> Node | None:
    row, named = parent["others"], parent["children"]
    if row is None or row.all_count == len(named):
        return None
    rest = {"count": row.all_count - len(named)}
    for name in ("messages", "payload_bytes", "subjects"):
        rest[name] = row[f"all_{name}"] - sum(node[name] for node in named)
    return rest


def _weight(node: Node) -> tuple[int, int, str]:
    return -node["messages"], -node["payload_bytes"], node["subject"]


QUANTILES = (0.5, 0.9, 0.99, 0.999)
ACCURACY = 10_000
"""Of the quantiles: off by at most one in so many messages."""


def summary() -> list[Column]:
    """Say what to aggregate for `sizes`; null in records that are no messages."""
    size = F.when(is_kind(Kind.MESSAGE), F.col("size"))
    return [
        F.min(size).alias("least"),
        F.max(size).alias("greatest"),
        F.avg(size).alias("mean"),
        F.percentile_approx(size, list(QUANTILES), ACCURACY).alias("quantiles"),
    ]


def sizes(rows: DataFrame, found: dict[str, Any]) -> dict[str, Any]:
    """Return quantiles of the sizes, and a histogram whose bins double: 0, 1, 2 to 3, 4 to 7 bytes, and on.

    A quantile is the smallest size that so large a part of the messages does not exceed.

    Args:
        rows: of `narrow_rows`.
        found: what `summary` gave.
    """
    bits = F.when(F.col("size") == 0, 0).otherwise(F.length(F.bin("size")))
    counts = (F.count(F.lit(1)).alias("messages"), F.sum("size").alias("payload_bytes"))
    rows_of_bins = rows.where(is_kind(Kind.MESSAGE)).groupBy(bits.alias("bits")).agg(*counts).collect()
    bins = {row.bits: row for row in rows_of_bins}
    return {
        "least": found["least"],
        "greatest": found["greatest"],
        "mean": found["mean"],
        "quantiles": dict(zip(map(str, QUANTILES), found["quantiles"], strict=True)),
        "histogram": [
            {
                "from": 1 << bits - 1 if bits else 0,
                "to": (1 << bits) - 1,
                "messages": bins[bits].messages if bits in bins else 0,
                "payload_bytes": bins[bits].payload_bytes if bits in bins else 0,
            }
            for bits in range(min(bins), max(bins) + 1)
        ],
    }


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
    publishers = PublisherCounts(by_hour(rows, hours, is_whole=is_whole), hours)
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
