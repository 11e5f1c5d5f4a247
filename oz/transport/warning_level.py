"""Stack level with which a warning shows a line of the program, and not a line of oz."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """Return the `stacklevel` with which a warning shows the line of the program that called oz."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level
