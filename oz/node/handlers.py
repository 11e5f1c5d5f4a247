"""Handlers of a node: a pool of threads, tasks of an event loop, and inline calls.

Theory of operation
-------------------
The attending thread or loop gives the messages of a subscription to its `Runner`. The runner schedules the lanes
that were empty (`oz.node.lanes`): in a pool a thread handles the messages of a lane, in a loop a task does.

A thread handles one lane until it is empty. After `TURN` seconds it puts the lane behind other lanes that wait
for a thread, so that a busy subscription does not hold up others. A handler that waits for other handlers, such
as one that calls `request`, *lends* its thread: the pool may start another thread meanwhile. So a pool of one
thread does not block, and there are never more threads than `size` and lanes together.

The return value of a handler is the reply to a request, unless it is None. An exception is logged and becomes an
error reply. A message of a subscription with `ack="handled"` is acknowledged afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from oz.errors import OwnershipError
from oz.node.lanes import Lane, Lanes
from oz.subscriber.message import HandledMessage, Message

TURN = 0.001
"""Seconds after which a thread or task that always finds a message lets others run."""
_TURNS = 8  # Turns that the result of an inline handler may give to the loop.
_clock = time.monotonic


class Owner(Protocol):
    """Services of a node for its handlers. The calls come from any thread.

    Attributes:
        overflowed: messages that did not reach a handler because its queue was full.
    """

    overflowed: int

    def answer(self, message: Message, value: Any) -> object:
        """Send the return value of a handler, if the message is a request."""

    def handler_failed(self, handler: Any, message: Message, error: BaseException) -> object:
        """Log and count the exception of a handler, and send it to the requester."""

    def acknowledge(self, message: Message) -> object:
        """Acknowledge a handled message."""

    def handler_ended(self) -> object:
        """Look whether a drain has ended: the last message of a lane was handled."""


class Pool(Protocol):
    """Workers of the handlers of a node.

    Attributes:
        lock: guards the lanes.
        is_alone: whether no other message waits for a handler.
    """

    lock: threading.Lock
    is_alone: bool

    def schedule(self, lane: Lane) -> None:
        """Let a worker handle the messages of a lane. The caller holds the lock."""


class Runner:
    """Messages and handler of one subscription.

    Attributes:
        handler: of the program.
        lanes: of the messages.
        owner: node.
    """

    def __init__(
        self,
        pool: Pool,
        owner: Owner,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 1,
        max_pending: int = 65_536,
        max_bytes: int = 64 << 20,
        overflow: str | None = None,
    ) -> None:
        """Start without messages.

        Args:
            pool: workers.
            owner: node.
            handler: of the program; in a loop it may return an awaitable.
            concurrency: messages that are handled at once.
            max_pending: messages that wait at most.
            max_bytes: bytes of these messages at most.
            overflow: policy of a full queue.
        """
        self._pool, self.owner, self.handler = pool, owner, handler
        self.lanes = Lanes(
            concurrency=concurrency,
            max_pending=max_pending,
            max_bytes=max_bytes,
            overflow=overflow,
            owner=self,
        )

    def put(self, messages: Sequence[Message]) -> None:
        """Give messages to the handler."""
        pool, lanes = self._pool, self.lanes
        with pool.lock:
            dropped = lanes.dropped
            for lane in lanes.put(messages):
                pool.schedule(lane)
            dropped = lanes.dropped - dropped
        if dropped:
            self.owner.overflowed += dropped
            self._abandon()

    def __call__(self, message: Message) -> None:
        """Give one message to the handler."""
        self.put((message,))

    def clear(self) -> None:
        """Drop the messages that wait, because the subscription ends."""
        with self._pool.lock:
            self.lanes.clear()
        self._abandon()

    def _abandon(self) -> None:
        # A dropped message of a handled stream must not hold up its mark.
        removed, self.lanes.removed = self.lanes.removed, []
        for message in removed:
            message.ack()

    def ended(self, message: Message, result: Any) -> None:
        """Reply and acknowledge after a handler."""
        if result is not None:
            self.owner.answer(message, result)
        if isinstance(message, HandledMessage):
            self.owner.acknowledge(message)

    def failed(self, message: Message, error: BaseException) -> None:
        """Report an exception of a handler, and acknowledge the message."""
        self.owner.handler_failed(self.handler, message, error)
        if isinstance(message, HandledMessage):
            self.owner.acknowledge(message)


class ThreadPool:
    """Bounded pool of daemon threads. Threads start when there is work.

    Attributes:
        lock: guards the pool and the lanes.
        is_alone: whether no other message waits for a handler.
    """

    def __init__(self, size: int, name: str = "oz handler") -> None:
        """Start no thread yet.

        Args:
            size: threads at most. Threads that wait for other handlers do not count.
            name: of the threads.
        """
        self.lock = threading.Lock()
        self._size, self._name = size, name
        self.is_alone = True
        self._work: SimpleQueue[Lane | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._idents: set[int] = set()
        # Threads that wait for work, less lanes that wait for a thread.
        self._free = self._lent = self._ending = 0
        self._is_closed = False

    def schedule(self, lane: Lane) -> None:
        """Let a thread handle the messages of a lane. The caller holds the lock."""
        if self._is_closed:
            return
        if self._free <= 0 and self._count < self._size:
            self._start()
        self._free -= 1
        self._work.put(lane)

    @property
    def _count(self) -> int:
        """Number of threads that handle messages or wait for some."""
        return len(self._threads) - self._lent - self._ending

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads, or the interpreter stops.
            self._threads.discard(thread)
            if not self._threads and not sys.is_finalizing():
                raise
        else:
            self._free += 1

    def _run(self) -> None:
        self._idents.add(threading.get_ident())
        while (lane := self._work.get()) is not None:
            if self._handle(lane):
                lane.owner.owner.handler_ended()
            # The wait for more work must not keep the subscription.
            del lane
        with self.lock:
            self._threads.discard(threading.current_thread())
            self._idents.discard(threading.get_ident())
            self._ending -= 1

    def _handle(self, lane: Lane) -> bool:
        """Handle the messages of a lane; return whether it is empty. Else it waits for its next turn."""
        runner: Runner = lane.owner
        handler, take, lanes, lock = runner.handler, lane.take, runner.lanes, self.lock
        if lanes._only is None:
            take = self._locked_take(lane)
        end = _clock() + TURN
        while True:
            try:
                message = take()
            except IndexError:
                with lock:
                    if not lanes.release(lane):
                        continue
                    self._free += 1
                    self._dismiss()
                return True
            try:
                result = handler(message)
            except BaseException as error:
                # SystemExit too: a thread would end without a word.
                runner.failed(message, error)
            else:
                if result is not None or message.__class__ is not Message:
                    runner.ended(message, result)
            del message
            if self._is_closed:
                return False
            if self._free < 0 and _clock() > end:
                with lock:
                    if not lane.items:
                        continue
                    self._free += 1
                    self.schedule(lane)
                return False

    def _locked_take(self, lane: Lane) -> Callable[[], Any]:
        def take() -> Any:
            with self.lock:
                return lane.take()

        return take

    def _dismiss(self) -> None:
        """End a thread if there are too many, because lent threads have come back. The caller holds the lock."""
        if self._count > self._size:
            self._ending += 1
            self._free -= 1
            self._work.put(None)

    def is_worker(self) -> bool:
        """Return whether the calling thread is one of the pool."""
        return threading.get_ident() in self._idents

    def lend(self) -> Lending:
        """Return a context manager in which another thread may take the place of the calling one.

        It has no effect in a thread that is not one of the pool.
        """
        return Lending(self if threading.get_ident() in self._idents else None)

    def _lend(self) -> None:
        with self.lock:
            self._lent += 1
            if self._free < 0 and not self._is_closed and self._count < self._size:
                self._start()

    def _take_back(self) -> None:
        with self.lock:
            self._lent -= 1
            self._dismiss()

    def close(self, timeout: float | None) -> bool:
        """Accept no more work, and wait for the handlers that run.

        Lanes that wait for a thread are not handled any more. The calling thread may be one of the pool: its
        own end is not waited for.

        Args:
            timeout: in seconds; None waits for ever.

        Returns:
            Whether all threads have ended.
        """
        end = None if timeout is None else _clock() + timeout
        with self.lock:
            self._is_closed = True
            with suppress(Exception):
                while True:
                    self._work.get_nowait()
            threads = [one for one in self._threads if one is not threading.current_thread()]
            self._ending = len(self._threads)
            for _ in self._threads:
                self._work.put(None)
        for one in threads:
            one.join(None if end is None else max(0.0, end - _clock()))
        return not any(one.is_alive() for one in threads)

    def disown(self) -> None:
        """Forget the threads, in the child of a fork: they belong to the parent."""
        self.lock = threading.Lock()
        self._threads, self._idents, self._is_closed = set(), set(), True


class Lending:
    """Context in which a thread of a pool waits for something that other handlers may have to do."""

    __slots__ = ("_pool",)

    def __init__(self, pool: ThreadPool | None) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        """Let another thread take the place of this one."""
        if self._pool is not None:
            self._pool._lend()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the place back."""
        if self._pool is not None:
            self._pool._take_back()


class TaskPool:
    """Tasks of one event loop: one for each lane that has messages.

    Attributes:
        lock: guards the lanes.
        is_alone: whether no other message waits for a handler.
    """

    def __init__(self, clock: Callable[[], float] = _clock) -> None:
        """Create no task yet.

        Args:
            clock: returns seconds, for the turns of the loop.
        """
        self.lock = threading.Lock()
        self.is_alone = True
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def schedule(self, lane: Lane) -> None:
        """Create the task of a lane. The caller holds the lock, in the thread of the loop."""
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._handle(lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, lane: Lane) -> None:
        runner: Runner = lane.owner
        handler, take, lanes = runner.handler, lane.take, runner.lanes
        clock = self._clock
        end = clock() + TURN
        while True:
            try:
                message = take()
            except IndexError:
                # Only this thread adds messages.
                lanes.release(lane)
                runner.owner.handler_ended()
                return
            self.is_alone = len(self._tasks) <= 1 and not lane.items
            try:
                result = handler(message)
                if result is not None and isawaitable(result):
                    result = await result
            except Exception as error:
                runner.failed(message, error)
            except BaseException:
                # The loop ends, or cancels the task: the lane has no worker any more.
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
        """Return whether the current task is one of the pool."""
        return asyncio.current_task() in self._tasks

    async def close(self, timeout: float | None) -> bool:
        """Accept no more work, wait for the handlers that run, and cancel the late handlers.

        Args:
            timeout: in seconds; None waits for ever.

        Returns:
            Whether all handlers have ended in time.
        """
        self._is_closed = True
        tasks = self._tasks - {asyncio.current_task()}
        if not tasks:
            return True
        _, left = await asyncio.wait(tasks, timeout=timeout)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        return not left

    def cancel(self) -> None:
        """Accept no more work, and cancel the handlers that run, but not the calling one."""
        self._is_closed = True
        current = asyncio.current_task() if asyncio._get_running_loop() is not None else None
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def disown(self) -> None:
        """Forget the tasks, in the child of a fork: they belong to the parent."""
        self.lock = threading.Lock()
        self._tasks, self._is_closed = set(), True


class InlineRunner:
    """Handler that the attending thread or loop calls itself.

    Attributes:
        handler: of the program.
    """

    def __init__(self, owner: Owner, handler: Callable[[Any], Any]) -> None:
        """Create the runner.

        Args:
            owner: node.
            handler: plain function. It must not wait.
        """
        self._owner, self.handler = owner, handler

    def __call__(self, message: Message) -> None:
        """Call the handler with a message."""
        try:
            result = self.handler(message)
            if result is not None and isawaitable(result):
                result = finish_at_once(result)
        except Exception as error:
            self._owner.handler_failed(self.handler, message, error)
        else:
            if result is not None:
                self._owner.answer(message, result)


def finish_at_once(wanted: Awaitable[Any]) -> Any:
    """Return the result of an awaitable that does not wait, such as that of `message.reply`.

    Raises:
        OwnershipError: it waits.
    """
    steps = wanted.__await__()
    try:
        for _ in range(_TURNS):
            # An awaitable that only gives the loop a turn yields None.
            if next(steps) is not None:
                break
    except StopIteration as end:
        return end.value
    close = getattr(wanted, "close", None)
    if close is not None:
        close()
    raise OwnershipError("an inline handler has no task of its own and cannot wait: leave inline=True out")
