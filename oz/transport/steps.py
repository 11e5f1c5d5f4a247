"""Waits that threads and asyncio share.

The engine is the part of a publisher or subscriber that threads and asyncio share. It describes each wait once, as a
generator of *steps*. In each step the generator does all work that needs no wait. Then it yields a deadline in seconds
of `time.monotonic`, or None for no deadline. The generator is resumed when the state of the engine may have changed,
and at the yielded time at the latest. `run` waits in the calling thread, `run_async` waits in a coroutine. A task is
cancelled only at a yield, where the engine holds no lock.

psycopg 3 has the same design.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[float | None, None, T]
"""Generator that yields the time until which the caller waits, and at its end returns the result of the wait."""


def run(steps: Steps[T], wait: Callable[[float | None], object]) -> T:
    """Run steps in the calling thread; return their result.

    Args:
        steps: generator of an engine.
        wait: function that waits for a change, at most until the time in its argument. None waits for ever.
    """
    try:
        while True:
            wait(next(steps))
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def run_async(steps: Steps[T], wait: Callable[[float | None], Awaitable[object]]) -> T:
    """Run steps in a coroutine; return their result.

    Args:
        steps: generator of an engine.
        wait: function that waits for a change, at most until the time in its argument. None waits for ever.
    """
    try:
        while True:
            await wait(next(steps))
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    finally:
        steps.close()
