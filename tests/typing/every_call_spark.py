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
            layout=None,
            unsealed=True,
            compact=True,
            fail_on_data_loss=True,
            staging=Path("there"),
            on_progress=None,
        ),
        oz.spark.Archived,
    )
    print(oz.spark.depth("subject", separator="."))
    print(oz.spark.from_msgpack("subject", "a int"))
    print(oz.spark.from_payload("subject", "a.b", schema="a int"))
    print(oz.spark.gaps("subject", "subject", order="offset"))
    print(oz.spark.join_patterns(frame, "subject", ["a.*", oz.compile("b")], name="desk"))
    assert_type(oz.spark.lake_files(Path("lake")), list[str])
    print(oz.spark.match_all("subject", ["a.*", oz.compile("b")]))
    print(oz.spark.matches("subject", "a.*"))
    print(oz.spark.prefix("subject", "a.*"))
    write: Callable[[DataFrame, int], None] = oz.spark.publish_batches("tcp://hub:5555", staging="staged")
    write(frame, 0)
    oz.spark.register(spark)
    assert_type(
        oz.spark.report(
            spark,
            "there",
            pattern="a.*",
            separator=".",
            levels=1,
            most=1,
            silent_after=1.0,
            on_progress=print,
        ),
        oz.spark.Report,
    )
    print(oz.spark.session(master="a.b"))
    print(oz.spark.token("subject", 1, separator="."))


def spark_report(report: oz.spark.Report) -> None:
    assert_type(report.html(), str)
    assert_type(report.json(), str)
    report.save(html=Path("there"), json=Path("there"))
