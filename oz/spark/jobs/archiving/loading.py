"""Reading a lake, also one that has no file yet."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from oz.spark.jobs.archiving.layout import folders
from oz.spark.jobs.archiving.manifest import FOLDER
from oz.spark.jobs.archiving.writing import SCHEMA


def load_lake(spark: SparkSession, path: str) -> DataFrame:
    """Return the records of a lake, or the rows of any Parquet files.

    Args:
        spark: the session.
        path: where they are. A lake to which nothing was archived yet has none, where Spark would say that it
            cannot tell their columns.
    """
    if "://" not in path and Path(path, FOLDER).is_dir() and not folders(Path(path)):
        return spark.createDataFrame([], SCHEMA)
    return spark.read.parquet(path)
