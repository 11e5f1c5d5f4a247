"""Machine of the measurements, printed with every table."""

from __future__ import annotations

import os
import platform

import regex
import zmq


def name() -> str:
    """Name the machine."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the dependencies."""
    return {
        "Python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "libzmq": zmq.zmq_version(),
        "regex": regex.__version__,
    }


def describe() -> str:
    """Name the machine and the versions, and its load at this moment."""
    told = ", ".join(f"{library} {version}" for library, version in versions().items())
    return f"{name()}, load {os.getloadavg()[0]:.1f}; {told}"
