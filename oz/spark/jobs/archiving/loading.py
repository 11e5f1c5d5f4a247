"""Reading a lake, also one that has no file yet: its records, and the files that they are in."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from oz.errors import LakeError
from oz.journal.places import place_of
from oz.spark.jobs.archiving import manifest as manifests
from oz.spark.jobs.archiving.lake import lake_folder
from oz.spark.jobs.archiving.layout import folders, is_stored, local_path
from oz.spark.jobs.archiving.manifest import FOLDER
from oz.spark.jobs.archiving.stored import stored_files
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


def lake_files(lake: str | os.PathLike[str]) -> list[str]:
    """List the files of a lake that belong to finished steps, for readers that want no others.

    Args:
        lake: a lake made by `archive`: its directory, or its URI on an object store.

    Returns:
        The paths or URIs, in order. Each record up to `LakeManifest.end_offset` is in one of them, and in no
        other.

    Raises:
        LakeError: it is no lake, or damaged.
        JournalError: the object store fails.
    """
    text = os.fspath(lake)
    found = stored_files(place_of(text)) if is_stored(text) else _local_files(local_path(text))
    if found is None:
        raise LakeError(
            f"{text.split('?')[0]}: no lake of oz: there is no {FOLDER} in it; `oz spark archive` makes one"
        )
    return found


def _local_files(directory: Path) -> list[str] | None:
    known = manifests.load(directory)
    if known is None:
        return None
    return [str(path) for folder in folders(directory) for path in lake_folder(folder, known.end_offset)]
