"""As many tasks as there is work for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_SETTING = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@contextmanager
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """Let Spark put small partitions together where a table is kept too; else there are 200, mostly empty."""
    before = spark.conf.get(_SETTING, None)
    spark.conf.set(_SETTING, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_SETTING)
        else:
            spark.conf.set(_SETTING, before)
