"""Tasks that wait for messages of a subscriber in an asyncio loop, and tasks that call its handlers.

While a task waits, the event loop watches the descriptor of `Engine.poll`, and calls `Engine.attend`. A message stays
in its queue while the task is suspended, and leaves the queue after the last suspension of `receive`. Therefore a
cancelled task loses no message.
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
"""Seconds after which a task yields to the event loop, even if more messages wait."""
SHORTEST = 0.001
"""Minimum time of a timer in seconds. Event loops that round to milliseconds would call a shorter timer too early."""


class TaskWaits:
    """Runs the steps of an engine in coroutines.

    Attributes:
        turn_ends: time in seconds of the engine's clock until which tasks need not yield to the event loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # A dict keeps the order of its keys, so that tasks always continue in the same order.
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
        """Yield to the event loop, if the time `turn_ends` has passed."""
        now = self._engine.clock()
        if now >= self.turn_ends:
            # Extend the time first, so that tasks that run during this suspension need not yield.
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
        """Wait until the engine's `version` changes, or until the time `until` of the engine's clock."""
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
    """Wait function of one call of `run`. `_seen` is the engine version that the steps have checked last."""

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
                # More frames must be read. Yield first, so that other tasks can run.
                await asyncio.sleep(0)
            elif engine.version == self._seen and (until is None or engine.clock() < until):
                await self._waits.suspend(until)
        self._seen = engine.version

    def close(self) -> None:
        """Report to the engine that the wait has ended, if the wait has begun."""
        if self._has_entered:
            self._engine.leave(self)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def serve(engine: Engine, waits: TaskWaits, inbox: Inbox) -> None:
    """Call the handler of a subscription with each message, until the subscription ends."""
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
    """Call a handler, and await its result. If the handler raises, the exception is logged and counted."""
    handler: Any = inbox.handler
    try:
        result = handler(message)
        if inspect.isawaitable(result):
            await result
    except Exception:
        engine.handler_failed(inbox, message)
