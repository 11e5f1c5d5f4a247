"""Every public call of `oz.spark` once, with every argument. They are checked, not run."""

# PySpark is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from collections.abc import Callable
from pathlib import Path
from typing import assert_type

from pyspark.sql import DataFrame, SparkSession

import oz
import oz.spark


def functions(spark: SparkSession, frame: DataFrame) -> None:
    assert_type(
        oz.spark.archive(
            spark,
            Path("there"),
            Path("there"),
            separator=".",
            max_tokens=10,
            batch_rows=1_000,
            compact=True,
            fail_on_loss=True,
            on_progress=None,
        ),
        oz.spark.ArchiveResult,
    )
    write: Callable[[DataFrame, int], None] = oz.spark.archive_batch(
        "there", separator=".", max_tokens=10, journal=Path("there")
    )
    write(frame, 0)
    oz.spark.archive_stream(
        spark, "there", "there", separator=".", max_tokens=10, interval=1.0, fail_on_loss=True
    ).stop()
    print(oz.spark.read_archive(spark, "there"))
    print(oz.spark.depth("subject", separator="."))
    print(oz.spark.from_msgpack("subject", "a int", mode="FAILFAST"))
    print(oz.spark.gaps("subject", "subject", order="offset"))
    print(oz.spark.join_patterns(frame, "subject", ["a.*", oz.compile("b")], name="desk"))
    print(oz.spark.match_all("subject", ["a.*", oz.compile("b")]))
    print(oz.spark.matches("subject", "a.*"))
    print(oz.spark.prefix("subject", "a.*"))
    print(oz.spark.read(spark, "there", "a.*", start=0, end="2026-03-01", gaps=True, fail_on_loss=False))
    oz.spark.register(spark)
    report = oz.spark.report(spark, "there", "a.*", start=0, end="-1h", top=1, separator=".")
    assert_type(report, oz.spark.Report)
    assert_type(report.html, str)
    report.save(html=Path("there"), json=Path("there"))
    print(oz.spark.session(master="a.b"))
    print(oz.spark.token("subject", 1, separator="."))
