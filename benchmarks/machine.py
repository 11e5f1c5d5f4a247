"""What the numbers were taken on: printed with every table."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence

import regex
import zmq


def describe() -> str:
    """Name the machine and the versions, and its load at this moment."""
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load:.1f}; "
        f"Python {platform.python_version()}, pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}, "
        f"regex {regex.__version__}"
    )


def spread(values: Sequence[float]) -> str:
    """Show the median, and the least and most in brackets."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
