"""Closing without holding up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator

_running: set[asyncio.Future[None]] = set()


class Closing:
    """What `close` gives: it has closed already, and may be awaited to know that all is sent."""

    __slots__ = ("_future",)

    def __init__(
        self,
        finish: Callable[[], None] | None = None,
        *,
        later: Coroutine[object, object, None] | None = None,
        surely: Callable[[], object] | None = None,
    ) -> None:
        """Run what is still to be done: `finish` in a thread when a loop is running, `later` in the loop.

        `surely` comes behind `later`, which is cancelled when the loop ends, perhaps before it has begun.
        """
        self._future: asyncio.Future[None] | None = None
        if later is not None:
            self._future = task = asyncio.ensure_future(later)
            # The loop itself keeps no task, and nobody has to keep what `close` gives.
            _running.add(task)
            task.add_done_callback(_running.discard)
            if surely is not None:
                task.add_done_callback(lambda _: surely())
            return
        if finish is None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            finish()
        else:
            self._future = loop.run_in_executor(None, finish)

    def __await__(self) -> Generator[object, None, None]:
        """Wait until it is done."""
        if self._future is not None:
            yield from asyncio.shield(self._future).__await__()


def is_cancelled() -> bool:
    """Tell whether the task that runs is being cancelled, rather than what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
