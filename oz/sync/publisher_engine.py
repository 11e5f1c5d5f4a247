"""The engine of a blocking publisher; `oz.Publisher` is the object that you hold."""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import zmq

from oz.errors import ProtocolError, Timeout
from oz.message import Extras
from oz.sync.relay import MOST_HELD, Relay
from oz.sync.ticker import Ticker
from oz.system import POLLIN, make_poll
from oz.transport.publisher.closing import pauses
from oz.transport.publisher.engine import PublisherBase

_log = logging.getLogger("oz.publisher")

_SLICE = 0.05
_NOBLOCK = int(zmq.NOBLOCK)

_SHARE = 200
"""Messages that are passed on for code in C before the publisher's thread looks at all else again."""

_engines: weakref.WeakSet[PublisherEngine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Send what is still in the accumulators of publishers that nobody closed."""
    for engine in list(_engines):
        if not engine.closed:
            engine.close()


class PublisherEngine(PublisherBase):
    """The socket that a blocking publisher publishes on, which a thread of oz's uses too.

    It is not for users: what calls into libzmq with its handle and without its guard, `zmq_poll` or
    `zmq_proxy`, would use it at the same time as that thread, and no ZeroMQ socket stands that.
    """

    _public_name = "Publisher"
    _ticker: Ticker | None = None
    _relay: Relay | None = None

    def _set_options(self, high_water_mark: int | None) -> None:
        super()._set_options(high_water_mark)
        if self._on_full != "drop":
            self._sender.flags = int(zmq.NOBLOCK)
        if self._on_full == "block" and self._full_timeout is not None:
            self.set(zmq.SNDTIMEO, round(self._full_timeout * 1000))

    def _endpoints_changed(self) -> None:
        super()._endpoints_changed()
        if self._ticker is None:
            self._ticker = Ticker(self, self._max_delay)
            _engines.add(self)

    def serve(self, front: zmq.Socket[Any]) -> None:
        """Pass on to subscribers, from now on, what code in C sends into another socket.

        Args:
            front: a PUB of the same context, which this thread may use now.
        """
        if self._relay is None and self._ticker is not None:
            self._relay = Relay(front)
            self._ticker.watch(self._relay.descriptor)

    def _attend(self) -> bool:
        had_work = super()._attend()
        return self._pass_on(_SHARE) or had_work

    def _pass_on(self, most: int) -> bool:
        """Send what code in C sent into the front, so many messages at most; tell whether there was any."""
        with self._guard:
            relay, count = self._relay, 0
            if relay is None or self.closed or self._said_goodbye:
                return False
            # Not past what waits for room already.
            while count < most and not self._dispatch.is_blocked and relay.has_some():
                try:
                    # Never waiting: this thread answers subscribers. What has no room stays first.
                    super()._send_message(relay.first, _NOBLOCK, None)
                except zmq.Again:
                    break
                except ProtocolError as error:
                    self._sender.stats.dropped += 1
                    _log.warning("refused a message that was sent into a publisher by its handle: %s", error)
                relay.done()
                count += 1
            return bool(count)

    def _send_message(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        if self._on_full == "drop" or flags & _NOBLOCK:
            return super()._send_message(frames, flags, tracker)
        # Not in libzmq: whoever waits there has the guard, which the answers to subscribers wait for.
        limit = int(self.get(zmq.SNDTIMEO))
        deadline = inf if limit < 0 else time.monotonic() + limit / 1000
        for pause in pauses():
            is_over = time.monotonic() >= deadline
            try:
                return super()._send_message(frames, flags | _NOBLOCK, tracker)
            except zmq.Again:
                if is_over:
                    raise
            time.sleep(pause)

    def quick_sends(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the quickest `send` and `send_multipart` that this publisher can have."""
        if self._is_framed or self._on_full != "drop":
            return self.send, self.send_multipart
        return self._make_quick_sends()

    def _send_what_fits(self) -> bool:
        relay = self._relay
        if relay is None:
            return super()._send_what_fits()
        # With an end, should code in C still be sending.
        with self._guard, suppress(zmq.ZMQError):
            self._pass_on(MOST_HELD)
            return super()._send_what_fits() and (self.closed or self._said_goodbye or not relay.has_some())
        return True

    def _close_socket(self, linger: int | None, timeout: float | None) -> bool:
        is_own = super()._close_socket(linger, timeout)
        if self._relay is not None and not self._guard.is_foreign:
            with self._guard:
                unsent = self._relay.close()
                self._sender.stats.dropped += unsent
            if unsent:
                _log.warning("closed with %d messages unsent that were sent into it by its handle", unsent)
        return is_own

    def _expect_more(self) -> None:
        ticker = self._ticker
        if ticker is not None and not ticker.is_awake:
            ticker.wake()

    def _take_shortcut(self) -> None:
        shortcut = self.quick_publish(PublisherEngine.publish)
        if shortcut is not None:
            # An attribute of this object: looking up those of a ZeroMQ socket costs 0.07 µs each.
            self.__dict__["publish"] = shortcut

    def quick_publish(self, long_way: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return the quickest `publish` that this publisher can have, if any; see `Sender.shortcut`."""
        return self._sender.shortcut(self, long_way, looks=False)

    @property
    def is_foreign(self) -> bool:
        """Whether it was made before a fork, in the parent process."""
        return self._guard.is_foreign

    def publish(self, subject: str | bytes, payload: Any = b"", extras: Extras | None = None) -> None:
        """Publish one message; see `oz.Publisher.publish`."""
        refused = self._sender.publish(self, subject, payload, extras)
        if refused is not None:
            # Other threads have the socket meanwhile, and may close it; a lock alone would not be fair.
            for pause in self._try_again(subject, refused):
                time.sleep(pause)

    def flush(self) -> None:
        """Send now what waits for others to make a batch; see `oz.Publisher.flush`."""
        self._check_open()
        self._flush_accumulator()

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`."""
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._enough(n, subject):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Timeout(self._too_few(n, subject, timeout))
            self._await_news(_SLICE if left is None else min(_SLICE, left))
            self._check_open()

    def _await_news(self, seconds: float) -> None:
        """Wait for the socket's file descriptor, without the guard, so that others can publish meanwhile.

        It is edge-triggered: a thread that publishes may take the edge, hence only a slice of time.
        """
        with self._guard:
            if self.closed:
                # By another thread, just now.
                return
            descriptor = self.fileno()
        poller = make_poll()
        poller.register(descriptor, POLLIN)
        poller.poll(seconds * 1000)

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> None:
        """Close, and send what is still to be sent; see `oz.Publisher.close`."""
        if self._ticker is not None and not self._guard.is_foreign:
            self._ticker.stop(waits=not self._guard.is_mine)
        closed_at = time.monotonic()
        if self._close_socket(linger, timeout):
            self._end_context(self._seconds_to_close(linger, timeout), closed_at)
