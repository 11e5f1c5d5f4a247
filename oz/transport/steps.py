"""Waits that threads and asyncio share.

An engine describes each wait once, as a generator of *steps*. The generator does what is possible without a wait,
and yields the time until which it waits for a change, in seconds of `time.monotonic`, or None for ever. It is resumed
when the state may have changed, or after the timeout. `run` waits in the calling thread, `run_async` in a coroutine. A
cancellation arrives at the yield, where the engine holds no lock.

psycopg 3 has the same design.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[float | None, None, T]
"""Generator that yields the time until which it waits, and returns the result of the wait."""


def run(steps: Steps[T], wait: Callable[[float | None], object]) -> T:
    """Run steps in the calling thread.

    Args:
        steps: of an engine.
        wait: waits for a change until a time, or for ever.
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
        steps: of an engine.
        wait: waits for a change until a time, or for ever.
    """
    try:
        while True:
            await wait(next(steps))
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    finally:
        steps.close()
