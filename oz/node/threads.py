"""Threads that call the handlers of a node.

Theory of operation
-------------------
A thread handles one lane until it is empty. After `TURN` seconds it puts the lane behind other lanes that wait for a
thread, so that a busy subscription does not delay other subscriptions. A handler that waits for other handlers, for
example in `request`, *lends* its thread: the pool may start another thread meanwhile. So a pool of one thread does not
block, and the number of threads is never larger than `size` and the number of lanes together.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from oz.node.handlers import Runner
from oz.node.lanes import Lane
from oz.subscriber.message import Message

TURN = 0.001
"""Seconds after which a thread whose lane has messages serves other lanes."""
_clock = time.monotonic


class ThreadPool:
    """Bounded pool of daemon threads. Threads start when there is work.

    Attributes:
        lock: lock for the attributes of the pool and of the lanes.
        is_alone: whether no other message waits for a handler.
    """

    def __init__(self, size: int, name: str = "oz handler") -> None:
        """Start no thread yet.

        Args:
            size: maximum number of threads. Threads that wait for other handlers do not count.
            name: name of the threads.
        """
        self.lock = threading.Lock()
        self._size, self._name = size, name
        self.is_alone = True
        self._work: SimpleQueue[Lane | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._idents: set[int] = set()
        # Number of threads that wait for work, less the number of lanes that wait for a thread.
        self._free = self._lent = self._ending = 0
        self._is_closed = False

    def schedule(self, lane: Lane) -> None:
        """Schedule a lane: a thread handles its messages. The caller holds the lock."""
        if self._is_closed:
            return
        if self._free <= 0 and self._count < self._size:
            self._start()
        self._free -= 1
        self._work.put(lane)

    @property
    def _count(self) -> int:
        """Number of threads that handle messages or wait for messages."""
        return len(self._threads) - self._lent - self._ending

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads, or the interpreter shuts down.
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
            # A thread that waits for work must not keep a reference to the subscription.
            del lane
        with self.lock:
            self._threads.discard(threading.current_thread())
            self._idents.discard(threading.get_ident())
            self._ending -= 1

    def _handle(self, lane: Lane) -> bool:
        """Handle messages of a lane; return whether the lane is empty. Otherwise the lane waits for its next turn."""
        runner: Runner = lane.owner
        watch, take, lanes, lock = lane.watch, lane.take, runner.lanes, self.lock
        if lanes._only is None:
            take = self._locked_take(lane)
        end = _clock() + TURN
        while True:
            try:
                message = take()
            except IndexError:
                with lock:
                    # The stopwatch did not measure a call that began before the first snapshot.
                    watch.began = None
                    if not lanes.release(lane):
                        continue
                    self._free += 1
                    self._dismiss()
                return True
            try:
                result = watch.call(message)
            except BaseException as error:
                # SystemExit is caught too, because it would end the thread without a log record.
                runner.failed(message, error)
            else:
                if result is not None or message.__class__ is not Message:
                    runner.ended(message, result, is_alone=not lane.items)
            del message
            if self._is_closed:
                return False
            if self._free < 0 and _clock() > end:
                with lock:
                    if not lane.items:
                        continue
                    watch.began = None
                    self._free += 1
                    self.schedule(lane)
                return False

    def _locked_take(self, lane: Lane) -> Callable[[], Any]:
        def take() -> Any:
            with self.lock:
                return lane.take()

        return take

    def _dismiss(self) -> None:
        """End a thread if there are too many because lent threads have returned. The caller holds the lock."""
        if self._count > self._size:
            self._ending += 1
            self._free -= 1
            self._work.put(None)

    def is_worker(self) -> bool:
        """Return whether the calling thread is one of the pool."""
        return threading.get_ident() in self._idents

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Return a context manager in which another thread may replace the calling thread.

        It has no effect in a thread that does not belong to the pool.
        """
        if not self.is_worker():
            yield
            return
        with self.lock:
            self._lent += 1
            if self._free < 0 and not self._is_closed and self._count < self._size:
                self._start()
        try:
            yield
        finally:
            with self.lock:
                self._lent -= 1
                self._dismiss()

    def finish(self, timeout: float | None) -> bool:
        """Reject further work, and wait for running handlers.

        Messages of lanes that wait for a thread are not handled any more. If the calling thread belongs to the pool,
        the call does not wait for it.

        Args:
            timeout: seconds to wait; None waits for ever.

        Returns:
            Whether all threads have ended.
        """
        end = None if timeout is None else _clock() + timeout
        with self.lock:
            self._is_closed = True
            with suppress(Exception):
                while True:
                    self._work.get_nowait()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
            self._ending = len(self._threads)
            for _ in self._threads:
                self._work.put(None)
        for thread in threads:
            thread.join(None if end is None else max(0.0, end - _clock()))
        return not any(thread.is_alive() for thread in threads)

    def disown(self) -> None:
        """Forget the threads, in the child of a fork: they belong to the parent."""
        self.lock = threading.Lock()
        self._threads, self._idents, self._is_closed = set(), set(), True
