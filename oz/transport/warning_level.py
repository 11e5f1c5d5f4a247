"""Stack level of warnings."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """Return the `stacklevel` with which a warning names the program's line that called oz."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level
