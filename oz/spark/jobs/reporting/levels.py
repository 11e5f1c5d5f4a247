"""Traffic by the levels of the subjects: a tree whose width and depth are bounded."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from oz.spark.columns import depth
from oz.spark.jobs.reporting.subjects import sums_of

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
