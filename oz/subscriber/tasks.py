"""Waits of a subscriber in an asyncio loop, and the tasks of its handlers.

While a task waits, the event loop watches the descriptor of `Engine.poll`, and `attend` runs in the loop. A suspended
task holds no message, because a message leaves its queue after the task's last suspension. Therefore the cancellation
of a task loses no message.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from typing import Any, TypeVar

from oz.errors import ClosedError
from oz.subscriber.connections import CLOSED, FOREIGN
from oz.subscriber.engine import Engine
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox
from oz.subscriber.waits import receive
from oz.transport import steps
from oz.transport.steps import Steps

T = TypeVar("T")

TURN = 0.005
"""Seconds after which a task that always has messages yields to the event loop."""
SHORTEST = 0.001
"""Minimum time of a timer in seconds, because some event loops count in milliseconds and would call too early."""


class TaskWaits:
    """Runs the steps of an engine in coroutines.

    Attributes:
        turn_ends: time on the engine's clock until which tasks may continue without a suspension.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # A dict, because the order in which tasks continue must not depend on addresses in memory.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.turn_ends = 0.0
        notify = weakref.WeakMethod(self._notify)
        engine.notify = lambda: (found := notify()) and found()

    async def run(self, wanted: Steps[T]) -> T:
        """Run steps to their end and return their result. A cancellation loses no message."""
        await self.pause()
        wait = _Wait(self)
        try:
            return await steps.run_async(wanted, wait)
        finally:
            wait.close()

    async def pause(self) -> None:
        """Yield to the event loop if the turn has ended; see `TURN`."""
        now = self._engine.clock()
        if now >= self.turn_ends:
            # Other tasks that run during this suspension have a new turn.
            self.turn_ends = now + TURN
            await asyncio.sleep(0)
            self.turn_ends = self._engine.clock() + TURN

    def _notify(self) -> None:
        running = asyncio._get_running_loop()
        for waiter in tuple(self._waiters):
            loop = waiter.get_loop()
            if loop is running:
                _wake(waiter)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)
        if self._engine.state == CLOSED:
            self._stop_reading()

    async def suspend(self, until: float | None) -> None:
        """Wait until the engine's `version` changes, or until a time on the engine's clock."""
        loop = asyncio.get_running_loop()
        engine = self._engine
        seconds = engine.wait_seconds(until)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = None
        timer = None
        if seconds is not None:
            timer = loop.call_later(max(SHORTEST, seconds), _wake, waiter)
        try:
            self._read_in(loop)
            await waiter
        finally:
            self.turn_ends = self._engine.clock() + TURN
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()

    def _read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop or self._engine.dispatcher.is_full:
            return
        self._stop_reading()
        loop.add_reader(self._engine.poll.fileno(), self._on_readable)
        self._loop = loop

    def _stop_reading(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._engine.poll.fileno())

    def _on_readable(self) -> None:
        engine = self._engine
        if not self._waiters or engine.dispatcher.is_full or engine.state in (CLOSED, FOREIGN):
            self._stop_reading()
        elif engine.attend() and self._loop is not None:
            self._loop.call_soon(self._on_readable)


class _Wait:
    """State of a call of `run`. `_seen` is the last engine version that the steps have checked."""

    __slots__ = ("__weakref__", "_engine", "_has_entered", "_seen", "_waits")

    def __init__(self, waits: TaskWaits) -> None:
        self._waits, self._engine = waits, waits._engine
        self._seen = self._engine.version
        self._has_entered = False

    async def __call__(self, until: float | None) -> None:
        engine = self._engine
        if not self._has_entered:
            self._has_entered = True
            engine.enter(self)
        if engine.version == self._seen:
            if engine.attend():
                # More frames wait, but no message arrived for this task: other tasks may run.
                await asyncio.sleep(0)
            elif engine.version == self._seen and (until is None or engine.clock() < until):
                await self._waits.suspend(until)
        self._seen = engine.version

    def close(self) -> None:
        """Record at the engine that the wait has ended, if the wait has begun."""
        if self._has_entered:
            self._engine.leave(self)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def serve(engine: Engine, waits: TaskWaits, inbox: Inbox) -> None:
    """Call the handler of a subscription with each message until the subscription ends.

    A message is handled when the handler has returned or raised.
    """
    owner = asyncio.current_task()
    queue = inbox.queue
    assert queue is not None
    while True:
        try:
            message = await waits.run(receive(engine, queue, None, owner))
        except ClosedError:
            return
        with engine.handling():
            await call(engine, inbox, message)


async def call(engine: Engine, inbox: Inbox, message: Message) -> None:
    """Call a handler and await its result. Exceptions of the handler are logged and counted."""
    handler: Any = inbox.handler
    try:
        result = handler(message)
        if inspect.isawaitable(result):
            await result
    except Exception:
        engine.handler_failed(inbox, message)
