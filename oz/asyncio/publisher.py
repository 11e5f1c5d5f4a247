"""The publisher for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Iterable
from functools import partial
from math import ceil
from typing import Any, Self

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing, is_cancelled
from oz.errors import Timeout
from oz.transport.publishing import PublisherBase
from oz.transport.socket import CLOSE_TIMEOUT

_NOBLOCK = int(zmq.NOBLOCK)
_SLICE = 0.05
# libzmq gives no sign when a subscriber leaves its high-water mark, so a blocked publisher looks again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_TURN = 256
"""Messages published in one turn of the loop; after them other tasks have theirs."""


class Publisher(PublisherBase, zmq.asyncio.Socket):  # type: ignore[misc]
    """Publishes messages by subject, as `oz.Publisher` does; in place of a `zmq.asyncio` PUB socket."""

    _context_class = zmq.asyncio.Context

    def _set_options(self, high_water_mark: int | None) -> None:
        super()._set_options(high_water_mark)
        # The loop must not be blocked.
        self._outlet.flags = _NOBLOCK

    async def publish(self, subject: str | bytes, payload: Any = b"") -> None:
        """Publish one message; see `oz.Publisher.publish`.

        It goes out before anything is awaited, so that cancelling cannot lose it; only a publisher with
        `on_full="block"` at a high-water mark waits.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `oz.Publisher.publish`.
        """
        try:
            refused = self._outlet.publish(self, subject, payload)
        except zmq.ZMQError:
            self._check_open()
            raise
        if refused is not None:
            if self._on_full != "block":
                self._refused(subject)
            await self._send_when_possible(subject, *refused)

    async def _send_when_possible(self, subject: str | bytes, raw: bytes, payload: Any) -> None:
        deadline = None if self._full_timeout is None else time.monotonic() + self._full_timeout
        pause = _FIRST_PAUSE
        while deadline is None or time.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self._check_open()
            try:
                self._outlet.hand_over(self, raw, payload, _NOBLOCK)
                return
            except zmq.Again:
                continue
        self._refused(subject)

    async def publish_many(
        self, pairs: Iterable[tuple[str | bytes, Any]] | AsyncIterable[tuple[str | bytes, Any]]
    ) -> int:
        """Publish messages one after another; see `oz.Publisher.publish_many`.

        Args:
            pairs: of subject and payload, from an ordinary or an asynchronous iterable.

        Returns:
            How many were published.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `publish`.
        """
        count = 0
        if isinstance(pairs, AsyncIterable):
            async for subject, payload in pairs:
                await self.publish(subject, payload)
                count += 1
            return count
        for subject, payload in pairs:
            await self.publish(subject, payload)
            count += 1
            if not count % _TURN:
                await asyncio.sleep(0)
        return count

    async def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`.

        Raises:
            Timeout, SubjectError, ClosedError: as there.
        """
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._enough(n, subject):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Timeout(self._too_few(n, subject, timeout))
            try:
                # Another task that publishes may take the sign that something came, hence only a slice.
                await self.poll(ceil(1000 * (_SLICE if left is None else min(_SLICE, left))), zmq.POLLIN)
            except asyncio.CancelledError:
                # Closing cancels what waits on the socket; that is not a cancelled task.
                if not self.closed or is_cancelled():
                    raise
            self._check_open()

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> Closing:  # type: ignore[override]
        """Close, as `oz.Publisher.close`; await what it gives to know that all is sent.

        Args:
            linger: as in pyzmq, milliseconds.
            timeout: the same in seconds.
        """
        if not self._close_socket(linger, timeout):
            return Closing(None)
        seconds = timeout if timeout is not None else CLOSE_TIMEOUT
        return Closing(partial(self._end_context, seconds if linger is None else linger / 1000))

    async def __aenter__(self) -> Self:
        """Use it in `async with`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close, and wait until all is sent."""
        await self.close()
