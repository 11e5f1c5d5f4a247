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

**Not written.** libzmq keeps that for LINGER, but drops it all the same in two cases:

- `unbind`, and `disconnect` where IMMEDIATE is set, tell the session to end before its pipe is told. The
  session reads no more of a pipe that it ends by itself (session_base_t::process_term and pipe_t::read): all
  that waits is gone.
- Whatever ends a connection, its engine takes up to 8 KiB at once (stream_engine_base_t::out_event). Where
  the mark of the end is among that, the session is over as soon as it is read, and what the system has no
  room for is dropped. It has none only when something new comes to an engine that had nothing to write: one
  that waits for room is told when there is much.

So an endpoint is left when all is written. libzmq does not tell that, but Linux tells which descriptors it
wants to write to. And a socket is closed when the threads of libzmq have taken up what came before.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import zmq

from oz import system
from oz.logs import peer_logger
from oz.protocol.backoff import growing
from oz.transport import descriptors
from oz.transport.guard import apart
from oz.transport.publisher.ends import Fate, Own, Wanted, find, places
from oz.transport.socket import GivingUp

_log = peer_logger("oz.socket")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25
"""Seconds between two looks at what the other side has read: nothing tells of it."""

_LONGEST_READ = 60.0
"""Seconds for the other side of a TCP connection to close: whoever was stopped may never do so."""


class Untaken:
    """The connections of one publisher, kept open until subscribers have read all that was sent on them.

    Attributes:
        fates: what has become of each, by the descriptor that libzmq had.
        missing: what has become of one that is not among them.
    """

    __slots__ = ("_ends", "_given_up", "fates", "missing")

    def __init__(self, bound: Iterable[str], connected: Iterable[str] = (), *, own: Own = None) -> None:
        """Take hold of connections, before libzmq is told to close them.

        Args:
            bound: the endpoints that the publisher listens at; all but `ipc://` and `tcp://` are passed over.
            connected: those that it has connected to.
            own: the descriptors of its connections and their inodes, where others of its context may have
                connected to the same endpoints.
        """
        bound, connected = list(bound), list(connected)
        here, there = list(places(bound)), list(places(connected))
        # A signal handler that raises would leave some descriptors open.
        found, has_all = apart(find, Wanted(set(here), set(there), own)) if here or there else ([], True)
        self._ends = [end for end in found if not end.is_silent]
        self._given_up = 0
        self.fates = {end.number: Fate.UNTOLD if end.is_silent else Fate.OPEN for end in found}
        for end in found:
            if end.is_silent:
                end.close()
        has_all = has_all and len(here) + len(there) == len(bound) + len(connected)
        self.missing = Fate.GONE if has_all else Fate.UNTOLD

    @property
    def open_numbers(self) -> set[int]:
        """The descriptors that libzmq still has."""
        return {one.number for one in self._ends if not one.is_written}

    @property
    def may_lack_room(self) -> bool:
        """Whether the system may not take at once what is sent next on one of them."""
        return system.count_with_room([end.own[0] for end in self._ends]) < len(self._ends)

    def leave_to_others(self) -> None:
        """Drop those that are in use though the context of the publisher has ended: others have them."""
        for end in [one for one in self._ends if not one.is_written]:
            end.close()
            self._ends.remove(end)
            del self.fates[end.number]

    def is_over(self, longest: float | None = None) -> bool:
        """Drop those that need it no more; tell whether that is all of them.

        Args:
            longest: seconds for the other side of a TCP connection to close, when it was told that nothing
                more comes; a minute if not given.
        """
        left, longest = [], _LONGEST_READ if longest is None else longest
        for end in self._ends:
            self.fates[end.number] = fate = end.fate(longest)
            if fate is Fate.OPEN:
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

    def wait(
        self,
        seconds: float,
        given_up: GivingUp | None = None,
        *,
        longest: float | None = None,
        is_aside: bool = False,
    ) -> None:
        """Wait until all is taken, for so long at most, and dropped. What is not taken by then is told of.

        Args:
            seconds: how long; may be infinite.
            given_up: ends it when it is set.
            longest: seconds for the other side of one TCP connection, as `is_over` has them.
            is_aside: while the program goes on, the time begins when libzmq has written everything, which it
                does for as long as LINGER says.
        """
        started, given_up = time.monotonic(), given_up or GivingUp()
        ends_at = started + seconds
        try:
            for pause in growing(_FIRST_PAUSE, _LONGEST_PAUSE):
                if self.is_over(longest):
                    break
                now = time.monotonic()
                if is_aside and self.open_numbers and threading.main_thread().is_alive():
                    ends_at = now + seconds
                if now >= ends_at:
                    self._given_up += len(self._ends)
                    break
                if given_up.wait(min(pause, ends_at - now)):
                    break
        finally:
            self.close()
        if self._given_up:
            text = (
                "closed, and %d subscribers may not have read in %g s all that was sent: the rest may be lost"
            )
            _log.warning(text, self._given_up, round(time.monotonic() - started, 3))

    def wait_aside(self, seconds: float) -> None:
        """The same without holding up the caller: a thread waits, and the end of the process for that."""
        if self.is_over() or seconds <= 0:
            # That the time is over was told already.
            self.close()
            return
        if threading.main_thread().is_alive():
            with suppress(RuntimeError):
                waiting = {"seconds": seconds, "is_aside": True}
                threading.Thread(target=self.wait, kwargs=waiting, name="oz-untaken").start()
                return
        # The process ends, and waits for no thread any more.
        self.wait(seconds)


@contextmanager
def kept(
    seconds: float, *, bound: Iterable[str] = (), connected: Iterable[str] = (), own: Own = None
) -> Iterator[None]:
    """Keep connections that libzmq is told to close meanwhile, until all is taken; see `Untaken.wait_aside`.

    Args:
        seconds: for so long at most, after that.
        bound: as for `Untaken`.
        connected: the same.
        own: the same.
    """
    untaken = Untaken(bound, connected, own=own)
    try:
        yield
    except BaseException:
        untaken.close()
        raise
    untaken.wait_aside(seconds)


_LONGEST = 1.0
"""Seconds for a thread of libzmq to answer: one that a monitor of the user's holds up never does."""

_DESCRIPTORS = 6
"""Those that asking takes: to listen, to call, what is accepted, two of the socket, and one to spare."""


def is_unwritten(ends: Untaken, context: zmq.Context[Any]) -> bool:
    """Tell whether libzmq has still to write on connections what it was given before, where the system tells.

    Args:
        ends: the connections.
        context: what they are of. Nothing more is sent meanwhile.
    """
    if not (open_ones := ends.open_numbers):
        return False
    take_up(context)
    return not open_ones.isdisjoint(system.awaiting_room())


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
