"""Tasks that call the handlers of a node in an event loop."""

from __future__ import annotations

import asyncio
import threading
from inspect import isawaitable

from oz.node.handlers import Runner
from oz.node.lanes import Lane
from oz.subscriber.message import Message

TURN = 0.001
"""Seconds for which a task may handle messages before it yields to the loop."""


class TaskPool:
    """Tasks of one event loop that call handlers. Each lane (`oz.node.lanes`) that has messages has one task.

    Attributes:
        lock: lock for the lanes.
        is_alone: whether no other message waits for a handler.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_alone = True
        # A dict, not a set, because `finish` must cancel the tasks in the order of their creation.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    def schedule(self, lane: Lane) -> None:
        """Create the task of a lane. The caller is the thread of the loop, and holds the lock."""
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._handle(lane))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _handle(self, lane: Lane) -> None:
        runner: Runner = lane.owner
        watch, take, lanes = lane.watch, lane.take, runner.lanes
        # Use the clock of the loop, because the event loops of tests have a virtual clock.
        clock = asyncio.get_running_loop().time
        end = clock() + TURN
        while True:
            try:
                message = take()
            except IndexError:
                # If the stopwatch was started during the last call, `began` still has a time.
                watch.began = None
                # Only this thread adds messages. Therefore the lane is still empty here.
                lanes.release(lane)
                runner.owner.handler_ended()
                return
            self.is_alone = len(self._tasks) <= 1 and not lane.items
            try:
                result = watch.call(message)
                if result is not None and isawaitable(result):
                    result = await result
            except Exception as error:
                runner.failed(message, error)
            except BaseException:
                # The event loop ends, or cancels the task. Then the lane has no worker.
                lane.is_scheduled = False
                raise
            else:
                if result is not None or message.__class__ is not Message:
                    runner.ended(message, result)
            del message
            if clock() > end:
                await asyncio.sleep(0)
                end = clock() + TURN

    def is_worker(self) -> bool:
        """Return whether the current task belongs to the pool."""
        return asyncio.current_task() in self._tasks

    def finish(self, timeout: float | None) -> None:
        """Reject further work, and cancel the running handlers except the caller.

        Args:
            timeout: ignored, because a function in an event loop cannot block.
        """
        self._is_closed = True
        current = asyncio.current_task() if asyncio._get_running_loop() is not None else None
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()

    def disown(self) -> None:
        """Forget the tasks. The child of a fork calls this, because the tasks run only in the parent."""
        self.lock = threading.Lock()
        self._tasks, self._is_closed = {}, True
