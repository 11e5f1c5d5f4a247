"""Findings about Python and the packages that oz needs, or can use."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata

from oz.doctor.finding import Finding, State
from oz.transport.capabilities import pip_line
from oz.version import VERSION

OLDEST_PYTHON = (3, 11)

_NEEDED = ("regex", "msgpack", "click", "rich")
_EXTRAS = (
    ("pyarrow", "journal", "the journal: oz record, oz replay, oz.journal"),
    ("pyspark", "spark", "the data pipeline: oz.spark; needs Java too"),
)
_REQUIREMENT = re.compile(r"(?P<spec>[^;]+)(?:;.*extra == ['\"](?P<extra>[^'\"]+)['\"].*)?")


def requirements() -> list[Finding]:
    """Look at what oz cannot do without, apart from ZeroMQ."""
    return [_oz(), _python(), *(_needed(name) for name in _NEEDED)]


def extras() -> list[Finding]:
    """Look at what the extras of oz bring."""
    return [_extra(*one) for one in _EXTRAS]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _oz() -> Finding:
    if _version("oz") is not None:
        note = "PyPI's `oz`, another package, is installed too: each overwrites files of the other"
        remove = pip_line("-y", "oz", "ozmq", verb="uninstall")
        return Finding("oz", "Python", "broken", VERSION, note, f"{remove}, and then install ozmq again")
    note = "" if _version("ozmq") else "not installed: run from a checkout"
    return Finding("oz", "Python", "yes", VERSION, note)


def _python() -> Finding:
    state: State = "yes" if sys.version_info[:2] >= OLDEST_PYTHON else "broken"
    return Finding("python", "Python", state, platform.python_version(), sys.executable)


def _needed(package: str) -> Finding:
    version = _version(package)
    if version is not None:
        return Finding(package, "Python", "yes", version)
    return Finding(package, "Python", "broken", "", "oz needs it", pip_line(package))


def _extra(package: str, extra: str, note: str) -> Finding:
    version = _version(package)
    if version is not None:
        return Finding(package, "Extras", "yes", version, note)
    return Finding(package, "Extras", "no", "", note, pip_line(*_specs(extra)))


def _specs(extra: str) -> list[str]:
    """Return what an extra of oz requires, with its versions; in a checkout the extra itself."""
    try:
        required = metadata.requires("ozmq") or []
    except metadata.PackageNotFoundError:
        required = []
    found = [match for line in required if (match := _REQUIREMENT.fullmatch(line))]
    return [match["spec"].strip() for match in found if match["extra"] == extra] or [f".[{extra}]"]
