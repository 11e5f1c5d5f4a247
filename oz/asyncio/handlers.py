"""The tasks that call the handlers of a node's subscriptions, and what they find to do.

What `oz.sync.handlers` does with threads is done here with tasks of one loop. Handlers are plain functions or
async ones; a plain one holds up the loop while it runs, and between two of them the loop gets its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isawaitable
from types import CoroutineType
from typing import Any, cast

from oz.asyncio.closing import is_cancelled
from oz.asyncio.waiting import TaskNews
from oz.errors import OwnershipError, Timeout
from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.node.handler_queue import TURN, Partition, Workers, refused
from oz.transport.guard import Guard
from oz.transport.node.handlers import HandlerRunner, PendingQueue, handled_partition, warn_of_result
from oz.transport.node.mailbox import Mailbox

_log = peer_logger("oz.handlers")

MOST_TASKS = 65_536
"""The largest pool."""

_OF_ANOTHER = nullcontext()
"""What a task lends that is none of the pool."""

_NOT_INLINE = "an inline handler has no task of its own and cannot wait: leave inline=True out"

Work = Callable[[], Awaitable[None]]


class TaskPool:
    """A bounded pool of tasks on the loop that runs. Its methods are for that loop's thread.

    Attributes:
        guard: tells whether this process has made it.
        workers: who they are, and how many there may be.
        before_inline: called before the loop calls a handler in no task.
    """

    interrupts: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)

    def __init__(self, size: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start no task yet: that happens when there is work.

        Args:
            size: tasks at most, 1 to 65,536.
            monotonic: the clock.

        Raises:
            ValueError: `size` is not one of these.
        """
        self._monotonic = monotonic
        self.workers = Workers(size, MOST_TASKS)
        self.guard = Guard()
        self.guard.when_disowned = self._forget
        self.before_inline: Callable[[], object] = bool
        self._line: deque[Work] = deque()
        # Those that have not quite ended too.
        self._alive: set[asyncio.Task[Any]] = set()
        self._ended = TaskNews()

    def make_news(self, guard: Guard) -> TaskNews:
        """Make what is told when something changes, the pool is closed, or a worker stands still."""
        news = TaskNews()
        self.workers.watch(news)
        return news

    def submit(self, work: Work) -> None:
        """Hand work to one of the tasks.

        Args:
            work: is called once, and what it gives is awaited. What it raises is logged.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: no loop is running in this thread.
        """
        with self.guard:
            if self.workers.is_closed:
                raise refused()
            asyncio.get_running_loop()
            self._line.append(work)
            self._grow()

    def cancel(self) -> None:
        """Take no more work, begin none that waits, and cancel all tasks but the one that asks.

        Queues keep what waits in them.
        """
        if self.guard.is_foreign:
            return
        self.workers.is_closed = True
        self._line.clear()
        for task in self._alive - {_current_task()}:
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
        if self.guard.is_foreign:
            return True
        self.cancel()
        with self.stand_still() as is_worker:
            still = self.workers.still if is_worker else set()
            return await self._ended.wait_for(lambda: not self._alive - still, timeout)

    def lend(self) -> AbstractContextManager[None]:
        """Let another task take the place of this one while it waits for what the pool may have to do.

        For what is awaited inside a handler; in tasks that are not the pool's it does nothing.
        """
        return self._lend() if _current_task() in self.workers.members else _OF_ANOTHER

    @contextmanager
    def _lend(self) -> Iterator[None]:
        workers = self.workers
        workers.lent += 1
        self._grow()
        try:
            yield
        finally:
            workers.lent -= 1

    @contextmanager
    def stand_still(self) -> Iterator[bool]:
        """Lend this task while it waits for handlers to end; give whether it is one of the pool's."""
        me, workers = _current_task(), self.workers
        if me not in workers.members:
            yield False
            return
        with self.lend():
            is_first = me not in workers.still
            workers.still.add(me)
            self._wake_all()
            try:
                yield True
            finally:
                if is_first:
                    workers.still.discard(me)

    def _wake_all(self) -> None:
        for news in (self._ended, *self.workers.watching()):
            news.tell()

    def _grow(self) -> None:
        if self._line and self.workers.has_room:
            task = asyncio.get_running_loop().create_task(self._run(), name="oz-handler")
            self.workers.members.add(task)
            self._alive.add(task)
            task.add_done_callback(self._bury)

    async def _run(self) -> None:
        line, task = self._line, cast("asyncio.Task[None]", _current_task())
        try:
            while line and not self.workers.has_too_many:
                ends = self._turn_ends()
                while line and self._monotonic() < ends:
                    try:
                        await line.popleft()()
                    except Exception:
                        _log.exception("a task of the handlers failed at its work; it goes on")
                if line:
                    await asyncio.sleep(0)
        except (KeyboardInterrupt, SystemExit):
            # They end the loop; should it be run again, the others still stand in line.
            self.workers.members.discard(task)
            self._grow()
            raise
        finally:
            self.workers.members.discard(task)

    def _bury(self, task: asyncio.Task[None]) -> None:
        # One that was cancelled before it had begun did not take itself out.
        self.workers.members.discard(task)
        self._alive.discard(task)
        self._ended.tell()
        if not task.cancelled():
            # An interrupt, which has come out of the loop already.
            task.exception()

    def _forget(self) -> None:
        """Be empty in the child of a fork, which does not run the loop."""
        self.workers.clear()
        self._line.clear()
        self._alive = set()

    def _turn_ends(self) -> float:
        """Return until when one task may hold the loop, so that all of them together do not for long."""
        return self._monotonic() + TURN / max(1, len(self.workers.members))

    # what subscriptions ask of it ------------------------------------------------------------------------

    async def receive(self, mailbox: Mailbox, timeout: float | None) -> Message:
        """Wait for a message; see `Mailbox.receive`."""
        while True:
            if not mailbox.is_readable and not await mailbox.news.wait_for(
                lambda: mailbox.is_readable, timeout
            ):
                raise Timeout(f"no message in {timeout:g} s")
            message = mailbox.take()
            if message is not None:
                return message

    async def drain(self, queue: PendingQueue, timeout: float | None = None) -> bool:
        """Wait until all is handled; see `HandlerRunner.drain`."""
        if queue.guard.is_foreign:
            return True
        me = _current_task()
        with self.stand_still():
            return await queue.news.wait_for(lambda: queue.is_done(me), timeout) and queue.is_handled

    def finish(self, result: Any) -> Any:
        """Await what an inline handler has given, if it can be; see `InlineCalls`."""
        if not isawaitable(result):
            return result
        steps = result.__await__()
        try:
            next(steps)
            # Raised where it awaits, which the traceback shows then.
            steps.throw(OwnershipError(_NOT_INLINE))
        except StopIteration as done:
            return done.value
        raise OwnershipError(_NOT_INLINE)

    async def work_off(self, runner: HandlerRunner, partition: Partition) -> None:
        """Handle a partition's messages, for a while or to the last."""
        me, handling = _current_task(), runner.handling
        if not handling.begin(me, partition):
            return
        handled_partition.set(partition)
        is_empty = is_ended = False
        try:
            is_empty = await self._handle(runner, partition)
        except (asyncio.CancelledError, GeneratorExit):
            is_ended = True
            raise
        finally:
            partition.answered = None
            if not runner.guard.is_foreign:
                if handling.end(me, partition, is_empty=is_empty, is_ended=is_ended):
                    # The task that asks takes from the line itself.
                    self._line.append(runner.work_of(partition))
                runner.news.tell()

    async def _handle(self, runner: HandlerRunner, partition: Partition) -> bool:
        """Handle messages until there are none, which gives True, or the loop has waited long enough."""
        pop, handler, take = partition.pop, runner.handler, runner.handling.queue.take
        ends = self._turn_ends()
        while True:
            try:
                message = pop()
            except IndexError:
                last = take(partition)
                if last is None:
                    return True
                message = last
            try:
                result = handler(message)
                # Of what a handler gives nearly all is one of the two first, and the last takes its time.
                if result is not None and (type(result) is CoroutineType or isawaitable(result)):
                    result = await result
            except BaseException as error:
                partition.failed += 1
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                if isinstance(error, GeneratorExit):
                    # The loop is gone, and this is being cleared away.
                    raise
                runner.report(message, error)
                if isinstance(error, self.interrupts):
                    # Whoever pressed Ctrl-C wants the loop to end.
                    raise
            else:
                partition.handled += 1
                if result is not None:
                    warn_of_result(runner.handling, partition, message)
            if self._monotonic() > ends or self.workers.is_closed:
                return False


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
