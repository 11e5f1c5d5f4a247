"""Stack level of warnings."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """Return the `stacklevel` of a warning that names the line of the program which called oz."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level
