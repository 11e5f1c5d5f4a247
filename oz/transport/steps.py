"""Waits that threads and asyncio share.

An engine describes each wait once, as a generator of *steps*. The generator does all work that needs no wait. Then it
yields the time until which it waits for a change, in seconds of `time.monotonic`; None waits for ever. It is resumed
when the state may have changed, or at that time. `run` waits in the calling thread, `run_async` waits in a coroutine.
A task is cancelled only at the yield, where the engine holds no lock.

psycopg 3 has the same design.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[float | None, None, T]
"""Generator that yields times until which the caller waits, and returns the result of the wait."""


def run(steps: Steps[T], wait: Callable[[float | None], object]) -> T:
    """Run steps in the calling thread.

    Args:
        steps: generator of an engine.
        wait: function that waits for a change, at most until the time in its argument; None waits for ever.
    """
    try:
        while True:
            wait(next(steps))
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def run_async(steps: Steps[T], wait: Callable[[float | None], Awaitable[object]]) -> T:
    """Run steps in a coroutine.

    Args:
        steps: generator of an engine.
        wait: function that waits for a change, at most until the time in its argument; None waits for ever.
    """
    try:
        while True:
            await wait(next(steps))
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    finally:
        steps.close()
