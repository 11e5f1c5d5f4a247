"""The threads that call the handlers of a node's subscriptions, and what they find to do.

The thread that receives only puts messages into queues. A queue with messages stands in the line of the pool;
a thread that takes it out handles its messages one after the other, and when others stand in line puts it at
their end after a while. So a slow handler fills its own queue, and a full queue starves nobody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic
from typing import Any

from oz.errors import ClosedError, Timeout
from oz.message import Message
from oz.protocol.node.handler_queue import HandlerQueue, Partition
from oz.transport.guard import Guard
from oz.transport.node.handlers import HandlerRunnerBase, HandlersBase, handled_partition
from oz.transport.node.mailbox import MailboxBase


class Mailbox(MailboxBase):
    """A queue of messages for one or several threads that receive."""

    __slots__ = ("_arrived",)

    def __init__(self, handler_queue: HandlerQueue, dropped: Callable[[int, Message], None]) -> None:
        """Start empty; the arguments are those of `MailboxBase`."""
        super().__init__(handler_queue, dropped)
        self._arrived = threading.Condition(Guard())  # type: ignore[arg-type]
        handler_queue.lock = self._arrived

    def put(self, message: Message) -> None:
        """Take a message in."""
        with self._arrived:
            _, dropped = self._handler_queue.put(message)
            self._arrived.notify()
        if dropped:
            self._dropped(dropped, message)

    def receive(self, timeout: float | None) -> Message:
        """Wait for a message.

        Raises:
            Timeout: none came in so many seconds.
            ClosedError: the subscription has ended, and nothing is left.
            OwnershipError: it was made before a fork, in the parent process.
        """
        ends = None if timeout is None else monotonic() + timeout
        with self._arrived:
            while not len(self._handler_queue):
                if self._is_closed:
                    raise ClosedError("this subscription has ended, and nothing is left")
                left = None if ends is None else ends - monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"no message in {timeout:g} s")
                self._arrived.wait(left)
            self._partition.handled += 1
            return self._partition.pop()

    def drain(self, timeout: float | None = None) -> bool:
        """Nobody handles by itself what waits here: it is still to be received."""
        return True

    def end(self) -> None:
        """Tell receivers that nothing more comes once it is empty."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()


_log = logging.getLogger("oz.handlers")

_SLICE = 0.001
"""Seconds after which a partition goes to the end of the line, when anybody else stands in it."""

MOST_THREADS = 1024
"""The largest pool."""

Work = Callable[[], None]


class Handlers(HandlersBase):
    """A bounded pool of daemon threads. Every method may be called from any thread and from signal handlers.

    Attributes:
        free: threads that wait for work, less the work that waits for threads.
    """

    def __init__(self, size: int) -> None:
        """Start no thread yet: that happens when there is work.

        Args:
            size: threads at most, 1 to 1,024.

        Raises:
            ValueError: `size` is not one of these.
        """
        super().__init__(size, MOST_THREADS)
        self.free = 0
        self._ending = self._started = 0
        self._line: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        # Those that have nothing more to do than to end.
        self._last: set[threading.Thread] = set()
        self._ended = threading.Condition(self._guard)  # type: ignore[arg-type]

    def is_worker(self, one: object) -> bool:
        """Tell whether a thread is one of the pool's."""
        return one in self._threads

    def submit(self, work: Work) -> None:
        """Hand work to one of the threads.

        Args:
            work: is called once. What it raises is logged.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: the system gives no thread, and there is none yet.
        """
        with self._guard:
            if self._is_closed:
                raise ClosedError("the pool of handlers is closed; nothing more is handled")
            if self.free <= 0:
                self._grow()
            self._line.put(work)
            self.free -= 1

    def close(self, timeout: float | None = None) -> bool:
        """Take no more work, and let the threads end. Queues keep what waits in them.

        A handler may call it: its own thread ends when the handler has returned.

        Args:
            timeout: seconds to wait for handlers that are running; None waits for as long as they do.

        Returns:
            Whether all threads have ended, but for the caller's and those whose handlers wait like that too.
            The others are daemons: they hold up no exit.
        """
        if self._guard.is_foreign:
            return True
        with self._guard:
            self._is_closed = True
            for _ in range(len(self._threads) - self._ending):
                self._dismiss()
            threads = set(self._threads)
            over = set(self._last)
        self._wake_all()
        ends = None if timeout is None else monotonic() + timeout
        with self.stand_still() as is_worker, self._ended:
            while threads & self._threads - (self.still if is_worker else set()):
                left = _left(ends)
                if left == 0:
                    return False
                self._ended.wait(left)
        for thread in over | (threads - self._threads):
            thread.join(_left(ends))
        return True

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Let another thread take the place of this one while it waits for what the pool may have to do.

        For what blocks inside a handler; in threads that are not the pool's it does nothing.
        """
        if threading.current_thread() not in self._threads:
            yield
            return
        with self._guard:
            self._lent += 1
            if self.free < 0 and not self._is_closed:
                self._grow()
        try:
            yield
        finally:
            if not self._guard.is_foreign:
                with self._guard:
                    self._lent -= 1
                    if len(self._threads) - self._ending > self._size + self._lent:
                        self._dismiss()

    @contextmanager
    def stand_still(self) -> Iterator[bool]:
        """Lend this thread while it waits for handlers to end; give whether it is one of the pool's."""
        me = threading.current_thread()
        if me not in self._threads:
            yield False
            return
        with self.lend():
            is_first = me not in self.still
            self.still.add(me)
            with self._ended:
                self._ended.notify_all()
            self._wake_all()
            try:
                yield True
            finally:
                if is_first:
                    self.still.discard(me)

    def _grow(self) -> None:
        if len(self._threads) - self._ending >= self._size + self._lent:
            return
        self._started += 1
        thread = threading.Thread(target=self._run, name=f"oz-handler-{self._started}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.discard(thread)
            if "interpreter shutdown" in str(error):
                # From Python 3.12 on, while a program ends that has closed nothing: nobody handles any more.
                self._is_closed = True
                return
            if not self._threads:
                raise
            _log.warning("no more than %d threads can be had for handlers", len(self._threads))
        else:
            self.free += 1

    def _dismiss(self) -> None:
        """Ask one thread to end when it comes to this."""
        self._ending += 1
        self.free -= 1
        self._line.put(None)

    def _run(self) -> None:
        while (work := self._line.get()) is not None:
            try:
                work()
            except BaseException:
                _log.exception("a thread of the handlers failed at its work; it goes on")
            # What was done must not be kept by waiting for more.
            work = None
            if self._guard.is_foreign:
                return
            with self._guard:
                self.free += 1
        with self._ended:
            self._ending -= 1
            me = threading.current_thread()
            self._threads.discard(me)
            self._last = {one for one in self._last if one.is_alive()} | {me}
            self._ended.notify_all()

    def _forget(self) -> None:
        """Be empty in the child of a fork, which has none of the threads."""
        self._is_closed = True
        self._threads = set()
        # A handler that forked and goes on looks at its next message only after it has looked here.
        self.free = -1


class HandlerRunner(HandlerRunnerBase):
    """One subscription's messages on their way to its handler, which threads call.

    Any thread may use it. `failed` is called in the handler's thread.
    """

    def __init__(
        self,
        handlers: Handlers,
        handler_queue: HandlerQueue,
        handler: Callable[[Message], Any],
        failed: Callable[[Message, BaseException], None],
        dropped: Callable[[int, Message], None],
    ) -> None:
        """Start empty; the arguments are those of `HandlerRunnerBase`."""
        super().__init__(handlers, handler_queue, handler, failed, dropped)
        self._handlers = handlers
        self._changed = threading.Condition(self._guard)  # type: ignore[arg-type]
        self._waiters = 0

    def drain(self, timeout: float | None = None) -> bool:
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
        ends = None if timeout is None else monotonic() + timeout
        me = threading.current_thread()
        with self._handlers.stand_still(), self._changed:
            self._waiters += 1
            try:
                while not self._is_done(me):
                    left = _left(ends)
                    if left == 0:
                        return False
                    self._changed.wait(left)
                return not len(self._handler_queue)
            finally:
                self._waiters -= 1

    def wake(self) -> None:
        """Wake all that wait for the queue."""
        with self._changed:
            self._changed.notify_all()

    def _work_off(self, partition: Partition) -> None:
        """Handle a partition's messages, for a while or to the last."""
        me = threading.current_thread()
        with self._guard:
            if self._handlers.closed:
                self._handler_queue.leave(partition)
                self._changed.notify_all()
                return
            self._busy[me] = partition
        handled_partition.set(partition)
        is_empty = False
        try:
            is_empty = self._handle(partition)
        finally:
            partition.answered = None
            if not self._guard.is_foreign:
                with self._guard:
                    del self._busy[me]
                    self._go_on(partition, is_empty)
                    if self._waiters:
                        self._changed.notify_all()

    def _go_on(self, partition: Partition, is_empty: bool) -> None:
        if is_empty:
            return
        try:
            self._handlers.submit(self._works[partition])
        except ClosedError:
            self._handler_queue.leave(partition)

    def _handle(self, partition: Partition) -> bool:
        """Handle messages until there are none, which gives True, or others have waited long enough."""
        pop, handler, handlers = partition.pop, self._handler, self._handlers
        ends = monotonic() + _SLICE
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
            except BaseException as error:
                # SystemExit and KeyboardInterrupt too: a thread would end of them without a word.
                partition.failed += 1
                self._report(message, error)
            else:
                partition.handled += 1
                if result is not None:
                    self._note_result(partition, message)
            if handlers.free < 0 and (monotonic() > ends or self._guard.is_foreign):
                return False


def _left(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - monotonic())
