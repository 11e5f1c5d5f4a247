"""The threads that call the handlers of a node's subscriptions, and what they find to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any

from oz.errors import ClosedError, Timeout
from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.node.handler_queue import TURN, Partition, Workers, refused
from oz.sync.waiting import ThreadNews
from oz.transport.guard import Guard
from oz.transport.node.handlers import HandlerRunner, PendingQueue, handled_partition, warn_of_result
from oz.transport.node.mailbox import Mailbox

_log = peer_logger("oz.handlers")

MOST_THREADS = 1024
"""The largest pool."""

Work = Callable[[], None]

_OF_ANOTHER = nullcontext()


class ThreadPool:
    """A bounded pool of daemon threads. Every method may be called from any thread and from signal handlers.

    Attributes:
        guard: is held for every change.
        workers: who they are, and how many there may be.
        check_may_wait: refuses the thread that the messages come by, which nobody may hold up.
        before_inline: called before that thread calls a handler itself.
        free: threads that wait for work, less the work that waits for threads.
    """

    interrupts: tuple[type[BaseException], ...] = ()

    def __init__(self, size: int) -> None:
        """Start no thread yet: that happens when there is work.

        Args:
            size: threads at most, 1 to 1,024.

        Raises:
            ValueError: `size` is not one of these.
        """
        self.workers = Workers(size, MOST_THREADS)
        self.free = 0
        self.check_may_wait: Callable[[], object] = bool
        self.before_inline: Callable[[], object] = bool
        self.guard = Guard()
        self.guard.when_disowned = self._forget
        self._started = 0
        self._line: SimpleQueue[Work | None] = SimpleQueue()
        # Those that have nothing more to do than to end.
        self._last: set[threading.Thread] = set()
        self._ended = ThreadNews(self.guard)

    def make_news(self, guard: Guard) -> ThreadNews:
        """Make what is told when something guarded changes, the pool is closed, or a worker stands still."""
        news = ThreadNews(guard)
        with self.guard:
            self.workers.watch(news)
        return news

    def submit(self, work: Work) -> None:
        """Hand work to one of the threads.

        Args:
            work: is called once. What it raises is logged.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: the system gives no thread, and there is none yet.
        """
        with self.guard:
            if self.workers.is_closed:
                raise refused()
            if self.free <= 0 and self.workers.has_room:
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
        if self.guard.is_foreign:
            return True
        with self.guard:
            workers = self.workers
            workers.is_closed = True
            for _ in range(len(workers.members) - workers.ending):
                self._dismiss()
            threads = set(workers.members)
            over = set(self._last)
        self._wake_all()
        ends = None if timeout is None else monotonic() + timeout
        with self.stand_still() as is_worker:
            still = workers.still if is_worker else set()
            if not self._ended.wait_for(lambda: not threads & workers.members - still, timeout):
                return False
        for thread in over | (threads - workers.members):
            assert isinstance(thread, threading.Thread)
            thread.join(_left(ends))
        return True

    def lend(self) -> AbstractContextManager[None]:
        """Let another thread take the place of this one while it waits for what the pool may have to do.

        For what blocks inside a handler; in threads that are not the pool's it does nothing.
        """
        return self._lend() if threading.current_thread() in self.workers.members else _OF_ANOTHER

    @contextmanager
    def _lend(self) -> Iterator[None]:
        workers = self.workers
        with self.guard:
            workers.lent += 1
            if self.free < 0 and workers.has_room:
                self._grow()
        try:
            yield
        finally:
            if not self.guard.is_foreign:
                with self.guard:
                    workers.lent -= 1
                    if workers.has_too_many:
                        self._dismiss()

    @contextmanager
    def stand_still(self) -> Iterator[bool]:
        """Lend this thread while it waits for handlers to end; give whether it is one of the pool's."""
        me, workers = threading.current_thread(), self.workers
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
        with self.guard:
            watching = self.workers.watching()
        for news in (self._ended, *watching):
            news.tell()

    def _grow(self) -> None:
        self._started += 1
        thread = threading.Thread(target=self._run, name=f"oz-handler-{self._started}", daemon=True)
        self.workers.members.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self.workers.members.discard(thread)
            if "interpreter shutdown" in str(error):
                # From Python 3.12 on, while a program ends that has closed nothing: nobody handles any more.
                self.workers.is_closed = True
                return
            if not self.workers.members:
                raise
            _log.warning("no more than %d threads can be had for handlers", len(self.workers.members))
        else:
            self.free += 1

    def _dismiss(self) -> None:
        """Ask one thread to end when it comes to this."""
        self.workers.ending += 1
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
            if self.guard.is_foreign:
                return
            with self.guard:
                self.free += 1
        with self.guard:
            self.workers.ending -= 1
            me = threading.current_thread()
            self.workers.members.discard(me)
            self._last = {one for one in self._last if one.is_alive()} | {me}
        self._ended.tell()

    def _forget(self) -> None:
        """Be empty in the child of a fork, which has none of the threads."""
        self.workers.clear()
        # A handler that forked and goes on looks at its next message only after it has looked here.
        self.free = -1

    # what subscriptions ask of it ------------------------------------------------------------------------

    def receive(self, mailbox: Mailbox, timeout: float | None) -> Message:
        """Wait for a message; see `Mailbox.receive`."""
        with mailbox.guard:
            if mailbox.is_readable and (message := mailbox.take()) is not None:
                return message
            self.check_may_wait()
        taken: list[Message] = []

        def take() -> bool:
            if mailbox.is_readable and (message := mailbox.take()) is not None:
                taken.append(message)
            return bool(taken)

        if not mailbox.news.wait_for(take, timeout):
            raise Timeout(f"no message in {timeout:g} s")
        return taken[0]

    def drain(self, queue: PendingQueue, timeout: float | None = None) -> bool:
        """Wait until all is handled; see `HandlerRunner.drain`."""
        if queue.guard.is_foreign:
            return True
        me = threading.current_thread()
        with self.stand_still():
            if not queue.news.wait_for(lambda: queue.is_done(me), timeout):
                return False
            with queue.guard:
                return queue.is_handled

    def finish(self, result: Any) -> Any:
        """Return what an inline handler has given as it is; see `InlineCalls`."""
        return result

    def work_off(self, runner: HandlerRunner, partition: Partition) -> None:
        """Handle a partition's messages, for a while or to the last."""
        me, handling = threading.current_thread(), runner.handling
        with runner.guard:
            has_begun = handling.begin(me, partition)
        if not has_begun:
            runner.news.tell()
            return
        handled_partition.set(partition)
        is_empty = False
        try:
            is_empty = self._handle(runner, partition)
        finally:
            partition.answered = None
            if not runner.guard.is_foreign:
                with runner.guard:
                    if handling.end(me, partition, is_empty=is_empty):
                        with suppress(ClosedError):
                            runner.stand_in_line(partition)
                runner.news.tell()

    def _handle(self, runner: HandlerRunner, partition: Partition) -> bool:
        """Handle messages until there are none, which gives True, or others have waited long enough."""
        pop, handler, take = partition.pop, runner.handler, runner.handling.queue.take
        ends = monotonic() + TURN
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
            except BaseException as error:
                # SystemExit and KeyboardInterrupt too: a thread would end of them without a word.
                partition.failed += 1
                runner.report(message, error)
            else:
                partition.handled += 1
                if result is not None:
                    warn_of_result(runner.handling, partition, message)
            if self.free < 0 and (monotonic() > ends or runner.guard.is_foreign):
                return False


def _left(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - monotonic())
