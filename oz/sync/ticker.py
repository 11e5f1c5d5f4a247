"""The thread that looks after a publisher while the threads of the application do other things.

It sends the tail of a batch, answers subscribers and tells them where their streams stand. It sleeps until
the socket has something to tell, a batch is left waiting, or something is due.

The socket's file descriptor tells of news only once, and whoever sends may take the sign. Mostly senders
look themselves afterwards. Where they do not, as in the middle of a burst, they say so, and the thread looks
once after the last of these.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import closing
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

import zmq

from oz.logs import peer_logger
from oz.sync.answer_line import EagerWaiter
from oz.system import POLLIN, make_poll
from oz.transport.bell import Bell
from oz.transport.publisher.attending import SOON, room_after

if TYPE_CHECKING:
    from oz.sync.publisher_engine import ThreadedPublisher

_log = peer_logger("oz.publisher")

MAX_DELAY = 0.0005
"""Seconds for which a message waits for others at most."""

_IDLE_ROUNDS = 20
"""Rounds of `MAX_DELAY` without anything to send, after which the thread sleeps deeply again, at most.

After one batch it is two rounds, and twice as many after each that follows: to be woken now and then costs
less than to look in vain.
"""


class Ticker:
    """One publisher's thread.

    Attributes:
        is_awake: it looks every `MAX_DELAY` seconds, so that it need not be woken.
        is_dormant: it sleeps for as long as there is no sign of news.
        used_at: when the publisher was last in use, in monotonic seconds.
    """

    __slots__ = (
        "_bell",
        "_is_stopped",
        "_publisher",
        "_stop",
        "_thread",
        "is_awake",
        "is_dormant",
        "used_at",
    )

    def __init__(self, publisher: ThreadedPublisher) -> None:
        """Start the thread. It does not keep the publisher.

        Args:
            publisher: a publisher that is bound or connected.
        """
        self._publisher = weakref.ref(publisher)
        self._is_stopped = False
        self._stop = EagerWaiter()
        self.is_awake = self.is_dormant = False
        self.used_at = monotonic()
        self._bell = Bell()
        self._thread = threading.Thread(
            target=self._run, args=(int(publisher.socket.fileno()),), name="oz-publisher", daemon=True
        )
        self._thread.start()

    def watch_out(self) -> None:
        """Look once soon, as the socket was used; this thread itself looks after each use."""
        if threading.get_ident() == self._thread.ident:
            return
        self.used_at = monotonic()
        if self.is_dormant:
            self.is_dormant = False
            self.wake()

    def wake(self) -> None:
        """Make it look now."""
        self._bell.ring()

    def stop(self, *, waits: bool = True) -> None:
        """End the thread.

        Args:
            waits: wait for that; False for whoever has the publisher's guard, which the thread may wait for.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        self._stop.tell()
        self.wake()
        # While the interpreter is finalizing, the thread is stopped and never ends.
        if waits and threading.current_thread() is not self._thread and not sys.is_finalizing():
            self._thread.join()

    def _run(self, descriptor: int) -> None:
        poller = make_poll()
        poller.register(descriptor, POLLIN)
        poller.register(self._bell, POLLIN)
        with closing(self._bell):
            while not self._is_stopped:
                seconds = self._rest()
                for ready, _ in poller.poll(None if seconds is None else ceil(1000 * seconds)):
                    if ready == self._bell.fileno():
                        self._bell.hear()
                self.is_dormant = False
                if not self._stay_awake():
                    break
        publisher = self._publisher()
        if publisher is not None:
            # Whoever waits finds out by itself that nothing comes any more.
            publisher.news.tell()

    def _rest(self) -> float | None:
        """Say how long to sleep, unless something comes."""
        publisher = self._publisher()
        if publisher is None:
            return 0.0
        # First: whoever uses the socket from now on wakes this thread, or is seen to have used it here.
        self.is_dormant = True
        left = self.used_at + SOON - monotonic()
        if left > 0:
            self.is_dormant = False
        try:
            return publisher.rest_for(left if left > 0 else None)
        except zmq.ZMQError:
            # The context has ended: the next look finds that.
            return 0.0

    def _stay_awake(self) -> bool:
        """Attend to the publisher until it has been idle for a while; tell whether it is still there."""
        idle, patience = 0, 1
        while not self._is_stopped:
            self.is_awake = True
            publisher = self._publisher()
            if publisher is None or publisher.socket.closed:
                return False
            began = monotonic()
            try:
                had_work = publisher.attend()
            except zmq.ContextTerminated:
                # Nothing can be sent any more; its owner has still to close it.
                return False
            except Exception:
                had_work = False
                _log.exception("looking after a publisher failed; it goes on")
            if publisher.has_to_make_room():
                # Others would hardly get in between: it takes the guard again before they wake up.
                self._pause(room_after(monotonic() - began))
            if had_work:
                idle, patience = 0, min(2 * patience, _IDLE_ROUNDS)
            else:
                idle += 1
            if idle >= patience:
                self.is_awake = False
                # What was published until now relied on this thread being awake.
                if not publisher.sender.accumulator:
                    return True
            del publisher
            self._pause(MAX_DELAY)
        return False

    def _pause(self, seconds: float) -> None:
        """Let so many seconds pass, or less if it is stopped."""
        self._stop.wait(seconds)
