"""The engine of a blocking publisher; `oz.Publisher` is the object that you hold."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from math import ceil, inf
from typing import Any

import zmq

from oz.message import Extras
from oz.numbers import check_wait
from oz.program_end import check_running, close_all
from oz.sync.ticker import Ticker
from oz.sync.waiting import ThreadNews
from oz.system import POLLIN, make_poll
from oz.transport.publisher.attending import Shell
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import PublisherOptions, Role

_NOBLOCK = int(zmq.NOBLOCK)

_open: set[ThreadedPublisher] = set()
"""Those that nobody has closed. They keep contexts from becoming garbage together with these: Python may end
such a context first, and wait for ever for the socket to be closed."""


@atexit.register
def _close_all() -> None:
    """Send the messages of publishers that the program did not close."""
    close_all(_open)


class ThreadedPublisher(PublisherEngine):
    """A publisher's engine with a thread that looks after it, and calls that block.

    Its socket is not for users: what calls into libzmq with its handle and without its guard, `zmq_poll` or
    `zmq_proxy`, would use it at the same time as that thread, and no ZeroMQ socket stands that.

    Attributes:
        news: wakes those who wait for subscriptions, for room, or for the end of it.
    """

    def __init__(self, options: PublisherOptions, role: Role) -> None:
        """Make one, bound and connected to the endpoints of its options.

        Args:
            options: as `oz.Publisher` is given them.
            role: what the publisher knows beyond others, if it does.
        """
        check_running("publisher")
        self._ticker: Ticker | None = None
        shell = Shell(
            expect_more=self._expect_more,
            attached=self._start,
            in_use=self._stay_watchful,
            heard=self._tell,
        )
        super().__init__(options, shell, role)
        self.news = ThreadNews(self.guard)
        _open.add(self)
        if options.on_full != "drop":
            self.sender.flags = _NOBLOCK

    def _start(self) -> None:
        """Have a thread look after the socket, from its first endpoint on."""
        if self._ticker is None:
            self._ticker = ticker = Ticker(self)
            # Bound here, as nearly each message that comes alone calls it.
            self.sender.in_use = ticker.watch_out

    def _stay_watchful(self) -> None:
        ticker = self._ticker
        if ticker is not None:
            ticker.watch_out()

    def rest_for(self, most: float | None) -> float | None:
        """Say how long the thread may sleep, and so long at most; see `rest`.

        Args:
            most: seconds; None has no limit.
        """
        with self.guard:
            seconds = self.rest()
        return most if seconds is None else seconds if most is None else min(seconds, most)

    def _expect_more(self) -> None:
        ticker = self._ticker
        if ticker is not None and not ticker.is_awake:
            ticker.wake()

    def publish(self, subject: str | bytes, payload: Any = b"", extras: Extras | None = None) -> None:
        """Publish one message; see `oz.Node.publish`."""
        refused = self.sender.publish(self.socket, subject, payload, extras)
        if refused is not None and not (
            self.on_full == "block" and self._wait_for(lambda: self.publish_again(refused), self.full_timeout)
        ):
            self.refuse(subject)

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`."""
        check_wait("timeout", timeout)

        def has_enough() -> bool:
            self.check_open()
            return self.enough(n, subject)

        if not self._wait_for(has_enough, timeout):
            raise self.too_few(n, subject, timeout)

    def _wait_for(self, is_so: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so that news of the socket tell of; give whether it is.

        The publisher's thread waits for the socket's file descriptor, and tells: no other could, as whoever
        uses the socket may take the sign.

        Args:
            is_so: is called with the guard held, now and whenever there may be news.
            timeout: seconds; None waits for ever.
        """
        if not self.guard.is_mine:
            return self.news.wait_for(is_so, timeout)
        if self.guard.is_interrupted:
            # A signal handler in the middle of a message, or of an answer: nothing new is heard.
            return is_so()
        # A signal handler that interrupts oz: nobody else may get in between, nor take the sign.
        deadline = inf if timeout is None else time.monotonic() + timeout
        while not is_so():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller = make_poll()
            poller.register(self.socket.fileno(), POLLIN)
            poller.poll(None if left == inf else ceil(1000 * left))
        return True

    def _tell(self) -> None:
        self.news.tell()

    def close(self, *, timeout: float | None = None) -> None:
        """Close, and send what is still to be sent, for so many seconds at most."""
        if self.is_foreign:
            return
        try:
            if self._ticker is not None:
                self._ticker.stop(waits=not self.guard.is_mine)
            self.closing.close_socket(timeout)
            self.news.tell()
        finally:
            _open.discard(self)

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`."""
        self.close(timeout=timeout)
