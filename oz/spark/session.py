"""A Spark session set up the way PySpark needs it, and a clear error where it cannot be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from oz.errors import JavaMissing

MIN_JAVA = 17
"""The oldest Java that this PySpark runs on."""

_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(master: str = "local[*]", **conf: object) -> SparkSession:
    """Give the Spark session of this process, a new one if there is none.

    A new one is quiet (errors only, no progress bar, no web page), keeps time in UTC, and runs its Python
    workers with this very Python unless `PYSPARK_PYTHON` says otherwise.

    Args:
        master: where Spark runs: `local[2]`, `spark://host:7077`.
        conf: Spark's own settings, which win over these: `**{"spark.ui.enabled": True}`.

    Raises:
        JavaMissing: there is no Java, or it is too old; says what to install.
    """
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in {**_defaults(), **conf}.items():
        builder = builder.config(name, _written(value))
    return builder.getOrCreate()


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


def require_java() -> None:
    """Check that Spark will find a Java that it runs on.

    Raises:
        JavaMissing: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    # Spark looks in JAVA_HOME and nowhere else when it is set.
    program = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    where = f"JAVA_HOME={home}" if home else "PATH"
    if program is None:
        raise JavaMissing(f"no java in {where}")
    version = _version_of(program)
    if version is None or version < MIN_JAVA:
        raise JavaMissing(f"{program} (from {where}) is Java {version or 'of an unknown version'}")


def _version_of(program: str) -> int | None:
    try:
        ran = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found["major"]) if found else None
