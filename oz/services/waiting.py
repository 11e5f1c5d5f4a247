"""Waits of services: for sockets, a deadline or a bell."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil, inf
from typing import Protocol

from oz.transport.bell import Bell as Bell

LOOK_SECONDS = 0.1
"""Seconds between two calls of a `look` that does not say when it wants the next."""


class Pollable(Protocol):
    """The poller that a service waits with: `zmq.Poller`, or `oz.Poller`."""

    def poll(self, timeout: int) -> object:
        """Wait `timeout` milliseconds at most; -1 is for ever."""


def wait(poller: Pollable, until: float) -> None:
    """Wait until something can be read, or a time of the monotonic clock; `inf` is for ever."""
    left = until - time.monotonic()
    poller.poll(-1 if left == inf else ceil(min(max(0.0, left * 1000), 2**31 - 1)))


def call_on_poll(look: Callable[[], object] | None) -> float:
    """Call `look`; return the monotonic time of its next call at the latest.

    `look` may return that time as a float. Otherwise it is called ten times a second.
    """
    if look is None:
        return inf
    wanted = look()
    return wanted if type(wanted) is float else time.monotonic() + LOOK_SECONDS
