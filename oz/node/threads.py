"""Threads that call the handlers of a node.

Theory of operation
-------------------
A lane (`oz.node.lanes`) is a queue of messages that are handled one after another. A thread handles the messages of one
lane until the lane is empty. If other lanes wait for a thread, the thread stops after `TURN` seconds and puts its lane
at the end of the queue of lanes. Therefore a busy subscription does not delay other subscriptions.

A handler that waits for another handler, for example in `request`, *lends* its thread: while the handler waits, the
pool may start another thread. Therefore even a pool of one thread does not block. The number of threads is at most
`size` plus the number of lanes.
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
"""Seconds for which a thread handles one lane while other lanes wait for a thread."""
_clock = time.monotonic


class ThreadPool:
    """Bounded pool of daemon threads. The pool starts a thread when a lane waits and no thread is free.

    Attributes:
        lock: lock for the attributes of the pool and of the lanes.
        is_alone: always True, because each thread passes `is_alone` to `Runner.ended` itself.
    """

    def __init__(self, size: int, name: str = "oz handler") -> None:
        """Create the pool without threads.

        Args:
            size: maximum number of threads. Lent threads do not count.
            name: name of the threads.
        """
        self.lock = threading.Lock()
        self._size, self._name = size, name
        self.is_alone = True
        self._work: SimpleQueue[Lane | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._idents: set[int] = set()
        # `_free` is the number of threads that wait for work, minus the number of lanes that wait for a thread.
        self._free = self._lent = self._ending = 0
        self._is_closed = False

    def schedule(self, lane: Lane) -> None:
        """Queue a lane. A thread then handles the messages of the lane. The caller holds the lock."""
        if self._is_closed:
            return
        if self._free <= 0 and self._count < self._size:
            self._start()
        self._free -= 1
        self._work.put(lane)

    @property
    def _count(self) -> int:
        """Number of threads. Lent threads, and threads that have been told to end, do not count."""
        return len(self._threads) - self._lent - self._ending

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # RuntimeError means that the system cannot create another thread, or that the interpreter shuts down.
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
                    # If the stopwatch was started during the last call, `began` still has a time.
                    watch.began = None
                    if not lanes.release(lane):
                        continue
                    self._free += 1
                    self._dismiss()
                return True
            try:
                result = watch.call(message)
            except BaseException as error:
                # Catch SystemExit too, because it would end the thread without a log record.
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
        """End one thread if lent threads have returned and the pool is too large. The caller holds the lock."""
        if self._count > self._size:
            self._ending += 1
            self._free -= 1
            self._work.put(None)

    def is_worker(self) -> bool:
        """Return whether the calling thread belongs to the pool."""
        return threading.get_ident() in self._idents

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Return a context manager. While the calling thread waits in the block, the pool may use one more thread.

        The context manager has no effect in a thread that does not belong to the pool.
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

        Messages that wait in lanes are not handled. If a thread of the pool calls this method, the call does not wait
        for that thread.

        Args:
            timeout: seconds to wait; None waits for ever.

        Returns:
            Whether all threads except the calling thread have ended.
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
        """Forget the threads. The child of a fork calls this, because the threads exist only in the parent."""
        self.lock = threading.Lock()
        self._threads, self._idents, self._is_closed = set(), set(), True
