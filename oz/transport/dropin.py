"""Drop-in use: warnings and refusals where pyzmq's meaning and oz's differ."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """Count the frames up to the code that called oz, so that a warning names its line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level
