"""Drop-in use: warnings and refusals where pyzmq's meaning and oz's differ."""

from __future__ import annotations

import sys
from typing import Any

_MOST_LITERALS = 100
"""Literals that are watched; each is compared with each message that is refused before the first is not."""


def callers_level() -> int:
    """Count the frames up to the code that called oz, so that a warning names its line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level


def refuse_green(context: Any) -> None:
    """Refuse a context of gevent.

    Raises:
        TypeError: it is one.
    """
    if any(one.__module__.startswith("zmq.green") for one in type(context).__mro__):
        raise TypeError(
            "zmq.green does not go with oz, which waits in C: it would hold up every greenlet. Give a "
            "zmq.Context, and use the socket in a thread of its own (gevent's threadpool), or use oz.asyncio"
        )
