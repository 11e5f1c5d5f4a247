"""Messages that are still on their way when a publisher closes: not read by subscribers, or not even written.

**Not read.** The system keeps what was sent on a connection for the other side, also when this one has
closed. But libzmq 4.3.5 gives up all that it has not read, if its queue is full and it learns just then that
the connection is over (`in_event_internal` of stream_engine_base_t, with `_input_stopped`). It learns that
too soon:

- with `ipc://` at once (EPOLLHUP);
- with `tcp://` when it says anything itself, such as a further subscription: what comes for a descriptor that
  is closed is answered by a reset. That also throws away what this system has not sent yet.

So a second descriptor keeps the connection open until the other side has read all. With `ipc://` the system
tells when that is so. With `tcp://` the other side is told that nothing more comes, and closes when it has
read up to there: without a reset, which is sent by whoever closes and leaves something unread.

**Not written.** libzmq keeps that for LINGER, but drops it all the same in one case. Whatever ends a connection, its
engine takes up to 8 KiB at once (stream_engine_base_t::out_event). Where the mark of the end is among that, the
session is over as soon as it is read, and what the system has no room for is dropped. It has none only when
something new comes to an engine that had nothing to write: one that waits for room is told when there is much.

So a socket is closed when the threads of libzmq have taken up what came before.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

import zmq

from oz import system
from oz.logs import peer_logger
from oz.transport import descriptors
from oz.transport.backoff import growing
from oz.transport.guard import apart
from oz.transport.publisher.ends import find, places

_log = peer_logger("oz.socket")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25
"""Seconds between two looks at what the other side has read: nothing tells of it."""

_LONGEST_READ = 60.0
"""Seconds for the other side of a TCP connection to close: whoever was stopped may never do so."""


class Untaken:
    """The connections of one publisher, kept open until subscribers have read all that was sent on them."""

    __slots__ = ("_ends", "_given_up")

    def __init__(self, bound: Iterable[str]) -> None:
        """Take hold of connections, before libzmq is told to close them.

        Args:
            bound: the endpoints that the publisher listens at; all but `ipc://` and `tcp://` are passed over.
        """
        here = set(places(bound))
        # A signal handler that raises would leave some descriptors open.
        found = apart(find, here) if here else []
        self._ends = [end for end in found if not end.is_silent]
        self._given_up = 0
        for end in found:
            if end.is_silent:
                end.close()

    @property
    def may_lack_room(self) -> bool:
        """Whether the system may not take at once what is sent next on one of them."""
        return system.count_with_room([end.own[0] for end in self._ends]) < len(self._ends)

    def is_over(self) -> bool:
        """Drop those that need it no more; tell whether that is all of them."""
        left = []
        for end in self._ends:
            if end.is_open(_LONGEST_READ):
                left.append(end)
            else:
                self._given_up += end.is_late
                end.close()
        self._ends = left
        return not left

    def close(self) -> None:
        """Drop all."""
        for end in self._ends:
            end.close()
        self._ends = []

    def _wait(self, seconds: float, *, is_aside: bool = False) -> None:
        """Wait until all is taken, for so long at most, and dropped. What is not taken by then is told of.

        Args:
            seconds: how long.
            is_aside: while the program goes on, the time begins when libzmq has written everything, which it
                does for as long as LINGER says.
        """
        started = time.monotonic()
        ends_at = started + seconds
        try:
            for pause in growing(_FIRST_PAUSE, _LONGEST_PAUSE):
                if self.is_over():
                    break
                now = time.monotonic()
                is_unwritten = not all(end.is_written for end in self._ends)
                if is_aside and is_unwritten and threading.main_thread().is_alive():
                    ends_at = now + seconds
                if now >= ends_at:
                    self._given_up += len(self._ends)
                    break
                time.sleep(min(pause, ends_at - now))
        finally:
            self.close()
        if self._given_up:
            text = (
                "closed, and %d subscribers may not have read in %g s all that was sent: the rest may be lost"
            )
            _log.warning(text, self._given_up, round(time.monotonic() - started, 3))

    def wait_aside(self, seconds: float) -> None:
        """Wait without holding up the caller: a thread waits, and the end of the process for that."""
        if self.is_over() or seconds <= 0:
            # That the time is over was told already.
            self.close()
            return
        if threading.main_thread().is_alive():
            with suppress(RuntimeError):
                waiting = {"seconds": seconds, "is_aside": True}
                threading.Thread(target=self._wait, kwargs=waiting, name="oz-untaken").start()
                return
        # The process ends, and waits for no thread any more.
        self._wait(seconds)


_LONGEST = 1.0
"""Seconds for a thread of libzmq to answer: one that a monitor of the user's holds up never does."""

_DESCRIPTORS = 6
"""Those that asking takes: to listen, to call, what is accepted, two of the socket, and one to spare."""


def take_up(context: zmq.Context[Any]) -> None:
    """Wait until the threads of libzmq have taken up what was sent before, for a second at most."""
    # A signal handler that raises would leave a socket open, and the end of the context waits for it.
    with suppress(OSError, zmq.ZMQError):
        apart(_ask, context)


def _ask(context: zmq.Context[Any]) -> None:
    """Call each thread of libzmq, and wait for its answer. It does one thing after the other."""
    descriptors.need(_DESCRIPTORS, "asking libzmq")
    for number in range(min(64, int(context.get(zmq.IO_THREADS)))):
        with closing(zmq.Socket(context, zmq.PAIR)) as listener:
            listener.set(zmq.LINGER, 0)
            listener.set(zmq.AFFINITY, 1 << number)
            listener.bind("tcp://127.0.0.1:*")
            bound: Any = listener.get(zmq.LAST_ENDPOINT)
            port = int(bound.rstrip(b"\0").rpartition(b":")[2])
            # Not by `create_connection`, which imports a codec: Python cannot import any more at its end.
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
                caller.settimeout(_LONGEST)
                caller.connect(("127.0.0.1", port))
                caller.recv(1)
