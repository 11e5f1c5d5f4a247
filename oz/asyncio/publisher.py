"""The publisher for asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from asyncio import _get_running_loop
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, inf
from typing import Any, Self

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing, is_cancelled
from oz.errors import ClosedError, Timeout
from oz.message import Extras
from oz.transport.publisher.engine import PublisherBase

_NOBLOCK = int(zmq.NOBLOCK)
_SLICE = 0.05
# libzmq gives no sign when a subscriber leaves its high-water mark, so a blocked publisher looks again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_TURN = 256
"""Messages published in one turn of the loop; after them other tasks have theirs."""


_ATTEND_EVERY = 0.1


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _look_after(publisher: weakref.ref[Publisher], loop: asyncio.AbstractEventLoop) -> None:
    """Attend to a publisher now, and again in a while, for as long as it is there and open."""
    one = publisher()
    if one is not None and one._loop is loop and not one.closed and not one._guard.is_foreign:
        one._attend()
        is_busy = one._dispatch.full or one._dispatch.is_halfway
        pause = _FIRST_PAUSE if is_busy else _ATTEND_EVERY
        loop.call_later(pause, _look_after, publisher, loop)


class Publisher(PublisherBase, zmq.asyncio.Socket):  # type: ignore[misc]
    """Publishes messages by subject, as `oz.Publisher` does; in place of a `zmq.asyncio` PUB socket."""

    _context_class = zmq.asyncio.Context
    _is_closing: bool = False
    _loop: asyncio.AbstractEventLoop | None = None
    _flushing: asyncio.Handle | None = None

    def _set_options(self, high_water_mark: int | None) -> None:
        super()._set_options(high_water_mark)
        # The loop must not be blocked.
        self._sender.flags = _NOBLOCK

    def _init_io_state(self, io_loop: Any = None) -> None:
        super()._init_io_state(io_loop)  # type: ignore[no-untyped-call]
        self._adopt(io_loop or asyncio.get_running_loop())

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be looked after by a loop: the first that there is, or another one after it has ended."""
        if self._loop is not loop:
            self._loop = loop
            self._flushing = None
            self._get_loop()  # type: ignore[operator]
            loop.call_soon(_look_after, weakref.ref(self), loop)

    def _handle_events(self, fd: int = 0, events: int = 0) -> None:
        """Called by pyzmq when the socket has news: subscriptions, as nothing else arrives here."""
        if self.closed:
            return
        self._listen()
        super()._handle_events(fd, events)  # type: ignore[misc]

    def _deliver(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        # Whoever asks for a tracker gets one from it.
        return zmq.asyncio.Socket.send_multipart(self, list(frames), flags, copy=tracker is None)

    def _as_result(self, tracker: Any) -> Any:
        done: asyncio.Future[Any] = self._Future()
        done.set_result(tracker)
        return done

    def _endpoints_changed(self) -> None:
        super()._endpoints_changed()
        # Without a loop so far: the first `publish` has one.
        with suppress(RuntimeError):
            self._adopt(asyncio.get_running_loop())

    def _expect_more(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._flushing = None
        if not self.closed and not self._sender.accumulator.is_held:
            self._sender.accumulator.flush(self)

    def _take_shortcut(self) -> None:
        shortcut = self._sender.shortcut(self, Publisher._publish, looks=True)
        if shortcut is None or type(self).publish is not Publisher.publish:
            return

        find, known = weakref.ref(self), None

        async def publish(
            subject: Any, payload: Any = b"", *, headers: Any = None, key: Any = None, message_id: Any = None
        ) -> None:
            nonlocal known
            # None in the child of a fork, which is refused further on.
            loop = _get_running_loop()
            if loop is not known and loop is not None:
                known = loop
                publisher = find()
                if publisher is not None and not publisher.closed:
                    publisher._adopt(loop)
            extras = None
            if not (headers is None is key and message_id is None):
                extras = Extras(headers=headers, key=key, message_id=message_id)
            waiting = shortcut(subject, payload, extras)
            if waiting is not None:
                await waiting

        publish.__doc__ = Publisher.publish.__doc__
        self.__dict__["publish"] = publish

    async def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message; see `oz.Publisher.publish`.

        It is published before anything is awaited, so that cancelling cannot lose it; only a publisher
        with `on_full="block"` at a high-water mark waits. Batches go out at the end of the loop's turn.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `oz.Publisher.publish`.
        """
        extras = None
        if not (headers is None is key and message_id is None):
            extras = Extras(headers=headers, key=key, message_id=message_id)
        await self._publish(subject, payload, extras)

    async def _publish(self, subject: str | bytes, payload: Any = b"", extras: Extras | None = None) -> None:
        if (loop := _get_running_loop()) is not None:
            self._adopt(loop)
        refused = self._sender.publish(self, subject, payload, extras)
        if refused is not None:
            for pause in self._try_again(subject, refused):
                await asyncio.sleep(pause)

    async def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        self._check_open()
        self._flush_accumulator()

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
            linger: as in pyzmq, milliseconds; -1 waits for ever, or until whoever awaits it is cancelled.
            timeout: the same in seconds.
        """
        ends_at = time.monotonic() + self._seconds_to_close(linger, timeout)
        finish = partial(self._finish, linger, timeout, ends_at)
        if not self._has_to_wait():
            return finish()
        # Subscribers get their time, and the loop goes on meanwhile.
        self._is_closing = True
        self._sender.routes.forget()
        # Cut short, as by the end of the loop, it does not wait for ever.
        return Closing(later=self._close_later(finish, ends_at), surely=lambda: finish().give_up())

    def _has_to_wait(self) -> bool:
        """Send what there is room for; tell whether closing has to go on in the loop."""
        if self.closed or self._guard.is_foreign or _get_running_loop() is None:
            return False
        if not self._send_what_fits():
            return True
        # Not with your context: its `term()` would wait for this socket, and hold up the loop.
        return self._own_context and bool(self._router.streams) and not self._said_goodbye

    async def _close_later(self, finish: Callable[[], Closing], ends_at: float) -> None:
        for pause in self._leave(ends_at - time.monotonic()):
            await asyncio.sleep(pause)
        await finish()

    def _finish(self, linger: int | None, timeout: float | None, ends_at: float) -> Closing:
        closed_at = time.monotonic()
        if not self._close_socket(linger, timeout):
            return Closing()
        seconds, given_up = max(0.0, ends_at - closed_at), threading.Event()
        end = partial(self._end_context, seconds, closed_at, given_up)
        return Closing(end, give_up=given_up.set if seconds == inf else None)

    def _send_rest(self, seconds: float) -> None:
        # Within a loop, what there is no room for had its time already.
        super()._send_rest(seconds if _get_running_loop() is None else 0.0)

    def _check_open(self) -> None:
        super()._check_open()
        if self._is_closing:
            raise ClosedError("this Publisher is closing")

    async def __aenter__(self) -> Self:
        """Use it in `async with`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close, and wait until all is sent."""
        await self.close()
