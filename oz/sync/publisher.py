"""The blocking publisher."""

from __future__ import annotations

import atexit
import select
import time
import weakref
from collections.abc import Iterable
from typing import Any

import zmq

from oz.errors import Timeout
from oz.sync.ticker import Ticker
from oz.transport.publishing import PublisherBase
from oz.transport.socket import CLOSE_TIMEOUT

_SLICE = 0.05

_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Send what is still in the windows of publishers that nobody closed."""
    for publisher in list(_publishers):
        if not publisher.closed:
            publisher.close()


class Publisher(PublisherBase):
    """Publishes messages by subject; in place of a `zmq.PUB` socket.

    Several threads may publish on one. Plain ZeroMQ subscribers get `[subject, payload]`; subscribers that
    have the publisher filter get batches of what they want. The methods of `zmq.Socket` are there too,
    with their own meaning and units.
    """

    _ticker: Ticker | None = None

    def _set_options(self, high_water_mark: int | None) -> None:
        super()._set_options(high_water_mark)
        if self._on_full != "drop":
            self._outlet.flags = int(zmq.NOBLOCK)
        if self._on_full == "block" and self._full_timeout is not None:
            self.set(zmq.SNDTIMEO, round(self._full_timeout * 1000))

    def _endpoints_changed(self) -> None:
        super()._endpoints_changed()
        if self._ticker is None:
            self._ticker = Ticker(self, self._max_delay)
            _publishers.add(self)

    def _expect_more(self) -> None:
        ticker = self._ticker
        if ticker is not None and not ticker.is_awake:
            ticker.wake()

    def _take_shortcut(self) -> None:
        if type(self).publish is Publisher.publish:
            shortcut = self._outlet.shortcut(self, Publisher.publish, looks=False)
            if shortcut is not None:
                # An attribute of this object: looking up those of a ZeroMQ socket costs 0.07 µs each.
                self.__dict__["publish"] = shortcut

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message.

        Args:
            subject: a full subject, valid in the publisher's dialect.
            payload: bytes, or a list of them for several frames; with a codec any value that it encodes.
            headers: text to text, bytes, numbers, truth values or None. Only subscribers that have the
                publisher filter get them.
            key: what sticky queue groups go by, in place of the subject.
            message_id: what a repeat is known by to those with `dedupe`: up to 64 bytes, or a pair of such
                bytes and a number.

        Raises:
            SubjectError: the dialect does not allow the subject, or a `_LOCAL.` one would leave this host.
            WouldBlock: a subscriber is at its high-water mark, unless `on_full` is `"drop"`.
            ProtocolError: the subject begins with the two bytes that open oz's own keys.
            ClosedError: the publisher is closed.
            OwnershipError: the publisher was made before a fork.
        """
        refused = self._outlet.publish(self, subject, payload, headers, key, message_id)
        if refused is not None:
            # Other threads have the socket meanwhile, and may close it; a lock alone would not be fair.
            for pause in self._try_again(subject, refused):
                time.sleep(pause)

    def publish_many(self, pairs: Iterable[tuple[str | bytes, Any]]) -> int:
        """Publish messages one after another.

        Args:
            pairs: of subject and payload.

        Returns:
            How many were published. All before the first that raises are.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `publish`.
        """
        count = 0
        with self.batch():
            for subject, payload in pairs:
                self.publish(subject, payload)
                count += 1
        return count

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        self._check_open()
        self._outlet.window.flush(self)

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived: what is published after it is not lost to a slow start.

        Args:
            n: how many subscriptions to wait for; a subscriber has one for each prefix that it asks
                for, and behind a proxy equal ones count once.
            subject: count only those that let this subject through.
            timeout: seconds; None waits for ever, 0 only looks.

        Raises:
            Timeout: there were fewer in that time.
            SubjectError: the dialect does not allow the subject.
            ClosedError: the publisher is closed.
        """
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
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(seconds * 1000)

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> None:
        """Close, and send what is still to be sent. A second call does nothing.

        With a context of its own the publisher waits until all is sent or the time is over. With yours
        it sets LINGER and returns; your context's `term()` waits then.

        Args:
            linger: as in pyzmq, milliseconds.
            timeout: the same in seconds; default 5 with a context of its own, else what LINGER is.

        In the child of a fork it does nothing.
        """
        if self._ticker is not None and not self._guard.is_foreign:
            self._ticker.stop(waits=not self._guard.is_mine)
        closed_at = time.monotonic()
        if self._close_socket(linger, timeout):
            seconds = timeout if timeout is not None else CLOSE_TIMEOUT
            self._end_context(seconds if linger is None else linger / 1000, closed_at)
