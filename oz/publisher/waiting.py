"""Waits of threads for news of an engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from oz.transport.steps import Steps, run

_Result = TypeVar("_Result")


def wait_in_thread(waiters: set[Callable[[], object]], steps: Steps[_Result]) -> _Result:
    """Run steps in the calling thread, which sleeps until an engine has news.

    Args:
        waiters: of the engine, which calls each when it has news.
        steps: of the engine.

    Raises:
        Exception: any error of the steps.
    """
    news = threading.Event()

    def wait(until: float | None) -> None:
        left = None if until is None else until - time.monotonic()
        if left is None or left > 0:
            news.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
        # A change that has set the event is visible to the steps, which run next.
        news.clear()

    waiters.add(news.set)
    try:
        return run(steps, wait)
    finally:
        waiters.discard(news.set)
