"""A Spark session set up the way PySpark needs it, and a clear error where it cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from oz.spark.java_home import require_java
from oz.spark.registration import register

__all__ = ["has_engine", "require_java", "session"]

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(master: str | None = None, **conf: object) -> SparkSession:
    """Give the Spark session of this process, a new one if there is none.

    A new one is quiet (errors only, no progress bar, no web page), keeps time in UTC, and runs its Python
    workers with this very Python unless `PYSPARK_PYTHON` says otherwise. In a program that `spark-submit`
    started, what was said there wins over all that, and over `local[*]`.

    Args:
        master: where Spark runs: `local[2]`, `spark://host:7077`; `local[*]` if nothing is said.
        conf: Spark's own settings, which win over these: `**{"spark.ui.enabled": True}`.

    Raises:
        JavaMissing: there is no Java, or it is too old; says what to install.
    """
    submitted = _submitted()
    if not has_engine():
        require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    defaults = {"spark.master": "local[*]", **_defaults()}
    given = conf if master is None else {"spark.master": master, **conf}
    for name, value in {**defaults, **submitted, **given}.items():
        builder = builder.config(name, _written(value))
    made = builder.getOrCreate()
    register(made)
    return made


def has_engine() -> bool:
    """Tell whether Spark's Java runs already: `spark-submit` started it, or there is or was a session."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, object]:
    """Give the settings of `spark-submit` where it started this program."""
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
