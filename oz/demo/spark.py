"""`oz demo --spark`: the same patterns, counted by Spark in the same traffic."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from oz.demo import flights


def require() -> None:
    """Check for the extra and for Java, before anything else is done.

    Raises:
        SparkMissing: the extra `ozmq[spark]` is not installed.
        JavaMissing: there is no Java, or it is too old.
    """
    from oz.spark.session import require_java

    require_java()


def count_in_spark(specs: Sequence[str]) -> list[int]:
    """Write the flights as Parquet, sorted by subject, and count what each pattern matches.

    Args:
        specs: the patterns.

    Raises:
        SparkMissing: the extra `ozmq[spark]` is not installed.
        JavaMissing: there is no Java, or it is too old.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import oz.spark

    was_active = SparkSession.getActiveSession() is not None
    spark = oz.spark.session()
    try:
        with tempfile.TemporaryDirectory(prefix="oz-demo-") as directory:
            archive = str(Path(directory, "flights"))
            traffic = pa.Table.from_pylist(
                [{"subject": subject, **payload} for subject, payload in flights.load()]
            )
            spark.createDataFrame(traffic).sort("subject").write.parquet(archive)
            counts = [F.count_if(oz.spark.matches("subject", spec)) for spec in specs]
            return list(spark.read.parquet(archive).select(*counts).first() or ())
    finally:
        if not was_active:
            spark.stop()
