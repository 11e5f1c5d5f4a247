"""Findings about pyzmq and libzmq."""

from __future__ import annotations

import zmq

from oz.doctor.finding import Finding, State
from oz.transport.capabilities import has, pgm_line, pip_line

GROUP = "ZeroMQ"
OLDEST_PYZMQ = 26

_WHEEL = ("--force-reinstall", "--only-binary", "pyzmq", "pyzmq")


def zeromq() -> list[Finding]:
    """Look at what ZeroMQ can do here."""
    return [_pyzmq(), _libzmq(), *_features()]


def _pyzmq() -> Finding:
    is_old = zmq.pyzmq_version_info()[0] < OLDEST_PYZMQ
    add = pip_line("--upgrade", "pyzmq") if is_old else ""
    note = f"oz needs {OLDEST_PYZMQ} or later" if is_old else ""
    return Finding("pyzmq", GROUP, "broken" if is_old else "yes", zmq.pyzmq_version(), note, add)


def _libzmq() -> Finding:
    return Finding("libzmq", GROUP, "yes", zmq.zmq_version())


def _features() -> list[Finding]:
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


def _feature(name: str, note: str, add: str) -> Finding:
    state: State = "yes" if has(name) else "no"
    return Finding(name, GROUP, state, "", note, "" if state == "yes" else add)


def _draft_line() -> str:
    return "ZMQ_PREFIX=bundled ZMQ_DRAFT_API=1 " + pip_line(
        "--no-cache-dir", "--force-reinstall", "--no-binary", "pyzmq", "pyzmq"
    )
