"""Closing without holding up the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import zmq

_running: set[asyncio.Future[None]] = set()


class Closing:
    """The result of `close`: it has closed already; await it to know that all is sent."""

    __slots__ = ("_future",)

    def __init__(
        self,
        *,
        later: Coroutine[object, object, None] | None = None,
        surely: Callable[[], object] = bool,
    ) -> None:
        """Run `later`, which is still to be done, in the loop.

        `surely` comes behind `later`, which is cancelled when the loop ends, perhaps before it has begun.
        """
        self._future: asyncio.Future[None] | None = None
        if later is not None:
            self._future = task = asyncio.ensure_future(later)
            # The loop itself keeps no task, and nobody has to keep what `close` gives.
            _running.add(task)
            task.add_done_callback(_running.discard)
            task.add_done_callback(lambda _: surely())

    def __await__(self) -> Generator[object, None, None]:
        """Wait until it is done."""
        if self._future is not None:
            yield from asyncio.shield(self._future).__await__()


async def in_thread(work: Callable[[], None]) -> None:
    """Do something in a thread of its own: the loop's may all be busy, and closing must not wait for them.

    Args:
        work: raises nothing.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    def run() -> None:
        work()
        # An error: the loop has ended meanwhile, and nobody waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell)

    thread = threading.Thread(target=run, name="oz-closing")
    thread.start()
    await future
    # It has nothing more to do than to end.
    thread.join()


def end_in_loop(context: Any, seconds: float) -> Coroutine[object, object, None] | None:
    """Return what ends a context without a thread; None where it takes one, or no loop runs.

    Args:
        context: its sockets are closed. Those of a model of ZeroMQ have an `end` to await.
        seconds: after which it waits for nothing more.
    """
    if isinstance(context, zmq.Context) or asyncio._get_running_loop() is None:
        return None
    ending: Coroutine[object, object, None] = context.end(seconds)
    return ending


def is_cancelled() -> bool:
    """Tell whether the task that runs is being cancelled, rather than what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
