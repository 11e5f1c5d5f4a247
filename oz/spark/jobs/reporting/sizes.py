"""How large payloads are."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from oz.journal import Kind
from oz.spark.jobs.reporting.rows import is_kind

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
    """Give quantiles of the sizes, and a histogram whose bins double: 0, 1, 2 to 3, 4 to 7 bytes, and so on.

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
