"""The tasks that call the handlers of a node's subscriptions, and what they find to do.

What `oz.sync.handlers` does with threads is done here with tasks of one loop. Handlers are plain functions or
async ones; a plain one holds up the loop while it runs, and between two of them the loop gets its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from time import monotonic
from typing import Any, cast

from oz.asyncio.closing import is_cancelled
from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue, Partition
from oz.transport.node.handlers import HandlerRunnerBase, HandlersBase, handled_partition
from oz.transport.node.mailbox import MailboxBase


class Mailbox(MailboxBase):
    """A queue of messages for tasks of one loop. Cancelling one that waits loses nothing."""

    __slots__ = ("_arrived",)

    def __init__(self, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]) -> None:
        """Start empty; the arguments are those of `MailboxBase`."""
        super().__init__(handler_queue, dropped)
        self._arrived = asyncio.Event()

    def put(self, message: Message) -> None:
        """Take a message in."""
        _, dropped = self._handler_queue.put(message)
        self._arrived.set()
        if dropped:
            self._dropped(dropped, message)

    async def receive(self, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
        """
        try:
            async with asyncio.timeout(timeout):
                while not len(self._handler_queue):
                    if self._is_closed:
                        raise ClosedError("this subscription has ended, and nothing is left")
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            if not len(self._handler_queue):
                raise Timeout(f"no message in {timeout or 0:g} s") from None
        self._partition.handled += 1
        return self._partition.pop()

    async def drain(self, timeout: float | None = None) -> bool:
        """Nobody handles by itself what waits here: it is still to be received."""
        return True

    def end(self) -> None:
        """Tell receivers that nothing more comes once it is empty."""
        self._is_closed = True
        self._arrived.set()


_log = logging.getLogger("oz.handlers")

_SLICE = 0.001
"""Seconds after which the loop gets its turn, all tasks of a pool together."""

MOST_TASKS = 65_536
"""The largest pool."""

Work = Callable[[], Awaitable[None]]


class Handlers(HandlersBase):
    """A bounded pool of tasks on the loop that runs. Its methods are for that loop's thread."""

    def __init__(self, size: int) -> None:
        """Start no task yet: that happens when there is work.

        Args:
            size: tasks at most, 1 to 65,536.

        Raises:
            ValueError: `size` is not one of these.
        """
        super().__init__(size, MOST_TASKS)
        self._line: deque[Work] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        # Those that have not quite ended too.
        self._alive: set[asyncio.Task[Any]] = set()
        self._changes = TaskNews()

    def is_worker(self, one: object) -> bool:
        """Tell whether a task is one of the pool's."""
        return one in self._tasks

    @property
    def slice(self) -> float:
        """Seconds for which one task may hold the loop, so that all of them together do not for long."""
        return _SLICE / max(1, len(self._tasks))

    def submit(self, work: Work) -> None:
        """Hand work to one of the tasks.

        Args:
            work: is called once, and what it gives is awaited. What it raises is logged.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: no loop is running in this thread.
        """
        with self._guard:
            if self._is_closed:
                raise ClosedError("the pool of handlers is closed; nothing more is handled")
            asyncio.get_running_loop()
            self._line.append(work)
            self._grow()

    def go_on(self, work: Work) -> None:
        """Put the work of the task that asks at the end of the line; it takes from there itself."""
        self._line.append(work)

    def cancel(self) -> None:
        """Take no more work, begin none that waits, and cancel all tasks but the one that asks.

        Queues keep what waits in them.
        """
        if self._guard.is_foreign:
            return
        self._is_closed = True
        self._line.clear()
        for task in self._tasks - {_current_task()}:
            # Once is enough: two handlers that clean up by closing would cancel each other for ever.
            if not task.cancelling() and not task.get_loop().is_closed():
                task.cancel()
        self._wake_all()

    async def close(self, timeout: float | None = None) -> bool:
        """Cancel the handlers that are running, and wait until they have ended.

        A handler may await it: it is not cancelled itself, and its task ends when it has returned.

        Args:
            timeout: seconds to wait for handlers that clean up; None waits for as long as they do.

        Returns:
            Whether all tasks have ended, but for the caller's and those whose handlers wait like that too.
        """
        if self._guard.is_foreign:
            return True
        self.cancel()
        try:
            with self.stand_still() as is_worker:
                async with asyncio.timeout(timeout):
                    while self._alive - (self.still if is_worker else set()):
                        await self._changes.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Let another task take the place of this one while it waits for what the pool may have to do.

        For what is awaited inside a handler; in tasks that are not the pool's it does nothing.
        """
        if _current_task() not in self._tasks:
            yield
            return
        self._lent += 1
        self._grow()
        try:
            yield
        finally:
            self._lent -= 1

    @contextmanager
    def stand_still(self) -> Iterator[bool]:
        """Lend this task while it waits for handlers to end; give whether it is one of the pool's."""
        me = _current_task()
        if me not in self._tasks:
            yield False
            return
        with self.lend():
            is_first = me not in self.still
            self.still.add(me)
            self._changes.tell()
            self._wake_all()
            try:
                yield True
            finally:
                if is_first:
                    self.still.discard(me)

    def _grow(self) -> None:
        if self._line and len(self._tasks) < self._size + self._lent and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._run(), name="oz-handler")
            self._tasks.add(task)
            self._alive.add(task)
            task.add_done_callback(self._bury)

    async def _run(self) -> None:
        line, task = self._line, cast("asyncio.Task[None]", _current_task())
        try:
            while line and len(self._tasks) <= self._size + self._lent:
                ends = monotonic() + self.slice
                while line and monotonic() < ends:
                    try:
                        await line.popleft()()
                    except Exception:
                        _log.exception("a task of the handlers failed at its work; it goes on")
                if line:
                    await asyncio.sleep(0)
        except (KeyboardInterrupt, SystemExit):
            # They end the loop; should it be run again, the others still stand in line.
            self._tasks.discard(task)
            self._grow()
            raise
        finally:
            self._tasks.discard(task)

    def _bury(self, task: asyncio.Task[None]) -> None:
        # One that was cancelled before it had begun did not take itself out.
        self._tasks.discard(task)
        self._alive.discard(task)
        self._changes.tell()
        if not task.cancelled():
            # An interrupt, which has come out of the loop already.
            task.exception()

    def _forget(self) -> None:
        """Be empty in the child of a fork, which does not run the loop."""
        self._is_closed = True
        self._line.clear()
        self._tasks = set()
        self._alive = set()


class HandlerRunner(HandlerRunnerBase):
    """One subscription's messages on their way to its handler, which may be async.

    It is for the thread of the loop.
    """

    def __init__(
        self,
        handlers: Handlers,
        handler_queue: HandlerQueue,
        handler: Callable[[Message], Any],
        failed: Callable[[Message, BaseException], None],
        dropped: Callable[[int, Message], None],
    ) -> None:
        """Start empty; the arguments are those of `HandlerRunnerBase`.

        What `handler` gives is awaited when it can be.
        """
        super().__init__(handlers, handler_queue, handler, failed, dropped)
        self._handlers = handlers
        self._changes = TaskNews()

    async def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits and nothing is being handled.

        A handler waits neither for itself, nor for handlers that wait so too, nor for what these hold up.

        Args:
            timeout: seconds to wait at most; None waits for as long as the handlers take.

        Returns:
            Whether everything was handled. False also when messages are left and nobody will handle them:
            the pool is closed, or they stand behind the message whose handler asks.
        """
        if self._guard.is_foreign:
            return True
        me = _current_task()
        try:
            with self._handlers.stand_still():
                async with asyncio.timeout(timeout):
                    while not self._is_done(me):
                        await self._changes.wait()
        except TimeoutError:
            return False
        return not len(self._handler_queue)

    def wake(self) -> None:
        """Wake all that wait for the queue."""
        self._changes.tell()

    async def _work_off(self, partition: Partition) -> None:
        """Handle a partition's messages, for a while or to the last."""
        me = _current_task()
        self._busy[me] = partition
        handled_partition.set(partition)
        is_empty = is_ended = False
        try:
            is_empty = await self._handle(partition)
        except (asyncio.CancelledError, GeneratorExit):
            is_ended = True
            raise
        finally:
            partition.answered = None
            if not self._guard.is_foreign:
                del self._busy[me]
                if is_ended or self._handlers.closed:
                    # Without a task nobody works it off before the next message comes, if one does.
                    self._handler_queue.leave(partition)
                elif not is_empty:
                    self._handlers.go_on(self._works[partition])
                self.wake()

    async def _handle(self, partition: Partition) -> bool:
        """Handle messages until there are none, which gives True, or the loop has waited long enough."""
        pop, handler, handlers = partition.pop, self._handler, self._handlers
        ends = monotonic() + handlers.slice
        while True:
            try:
                message = pop()
            except IndexError:
                last = self._handler_queue.take(partition)
                if last is None:
                    return True
                message = last
            try:
                result = handler(message)
                if result is not None and isawaitable(result):
                    result = await result
            except BaseException as error:
                partition.failed += 1
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                if isinstance(error, GeneratorExit):
                    # The loop is gone, and this is being cleared away.
                    raise
                self._report(message, error)
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    # Whoever pressed Ctrl-C wants the loop to end.
                    raise
            else:
                partition.handled += 1
                if result is not None:
                    self._note_result(partition, message)
            if monotonic() > ends or handlers.closed:
                return False


class TaskNews:
    """Wakes the tasks that wait for something to become different."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait until the next `tell`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def tell(self) -> None:
        """Have all who wait look again."""
        for waiter in self._waiters:
            if not waiter.done() and not waiter.get_loop().is_closed():
                waiter.set_result(None)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
