"""Making the source and sink known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from oz.spark.source.datasource import OzDataSource


def register(spark: SparkSession) -> None:
    """Make `format("oz")` known to a session; `oz.spark.session` does so by itself.

    Args:
        spark: any session. Its executors need oz too.
    """
    spark.dataSource.register(OzDataSource)
