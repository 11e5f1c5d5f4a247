"""A Spark session set up the way PySpark needs it, and a clear error where it cannot be."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from oz.spark.java_home import require_java
from oz.spark.registration import register

__all__ = ["has_engine", "require_java", "session"]

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITIONS_OF_A_CORE = 4


def session(master: str | None = None, **conf: object) -> SparkSession:
    """Return the Spark session of this process, a new one if there is none.

    A new one is quiet (errors only, no progress bar, no web page), keeps time in UTC, and runs its Python
    workers with this very Python unless `PYSPARK_PYTHON` says otherwise. On a local master it shuffles into
    four partitions for each core, where Spark's 200 would be mostly empty. In a program that `spark-submit`
    started, what was said there wins over all that, and over `local[*]`. One that there is already gets
    `conf` only.

    Args:
        master: where Spark runs: `local[2]`, `spark://host:7077`; `local[*]` if nothing is said.
        conf: Spark's own settings, which win over these: `**{"spark.ui.enabled": True}`.

    Raises:
        JavaMissing: there is no Java, or it is too old; says what to install.
    """
    given = conf if master is None else {"spark.master": master, **conf}
    made = _with(given) if _has_session() else _new(given)
    register(made)
    return made


def has_engine() -> bool:
    """Tell whether Spark's Java runs already: `spark-submit` started it, or there is or was a session."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def is_remote(spark: object) -> bool:
    """Tell whether a session is one of Spark Connect, whose Java is in another process."""
    return not isinstance(spark, SparkSession)


def _has_session() -> bool:
    there = SparkSession._instantiatedSession
    return there is not None and there._sc._jsc is not None  # None when it was stopped


def _new(given: Mapping[str, object]) -> SparkSession:
    submitted = _submitted()
    if not has_engine():
        require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = _with({"spark.master": "local[*]", **_defaults(), **submitted, **given})
    context = made.sparkContext
    # Asked now, so that spark-defaults.conf is heard too.
    if _is_local(context.master) and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        made.conf.set(_SHUFFLE_PARTITIONS, str(_PARTITIONS_OF_A_CORE * context.defaultParallelism))
    return made


def _with(conf: Mapping[str, object]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, _written(value))
    return builder.getOrCreate()


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")  # not local-cluster[


def _submitted() -> dict[str, object]:
    """Return the settings of `spark-submit` where it started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    # Only then does SparkConf know what Java was told.
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _defaults() -> dict[str, object]:
    return {
        "spark.app.name": "oz",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
