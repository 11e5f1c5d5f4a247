"""The subscriber for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from math import ceil, inf
from typing import Any, Self

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing, end_in_loop
from oz.asyncio.subscriptions import Subscription
from oz.asyncio.waiting import TURN_SECONDS, Handler, LoopWaiter
from oz.errors import ClosedError, Timeout
from oz.numbers import check_count, check_wait
from oz.protocol.messages import Message
from oz.protocol.subscriber.columns import MessageBatch, PlainBatch
from oz.transport.frames import as_frame_objects, copy_into
from oz.transport.subscriber.draining import drain, wait_ready
from oz.transport.subscriber.engine import is_kept, is_wanted
from oz.transport.subscriber.front import GOODBYE_SECONDS, SubscriberFront
from oz.transport.subscriber.receiver import MANY
from oz.transport.subscriber.routed import RoutedReceivePath
from oz.transport.subscriber.socket import SubscriberSocket

_NOBLOCK = int(zmq.NOBLOCK)
_TURN = 512
"""Messages received in one turn of the loop; after them other tasks have theirs."""


class LoopSubscriber(SubscriberFront[Handler, Subscription]):
    """A subscriber that waits in a loop, on a SUB of pyzmq's or of a model."""

    _subscription_class = Subscription
    _waiter_class = LoopWaiter
    _awaits_handlers = True
    _may_block = False
    _waiter: LoopWaiter
    # Of the SUB: those who wait for something to read.
    _recv_futures: deque[Any]

    async def receive(self, timeout: float | None = None) -> Message:
        """Wait for the next message that a subscription without a handler wants; run handlers meanwhile.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscriber is closed.
            OwnershipError: the subscriber was made before a fork.
        """
        check_wait("timeout", timeout)
        turn = self._waiter.turn
        turn.received += 1
        if turn.received >= _TURN:
            await self._pause()
        deadline = None
        while not self._ready:
            try:
                message = self._engine.take(self, _NOBLOCK, turn.ends)
            except zmq.Again:
                if self._engine.must_check:
                    self._engine.check()
                if timeout is not None and deadline is None:
                    deadline = self._engine.monotonic() + timeout
                await self._wait(deadline, timeout)
                continue
            except zmq.ZMQError:
                self._check_open()
                raise
            if message is not None:
                if message.route.is_only_listed:
                    if self._recv_futures:
                        self._waiter.wake_others()
                    return message
                if message.route.is_listed and is_wanted(message):
                    # Kept before anything is awaited: a handler's await may be cancelled.
                    self._ready.append(message)
                await self._waiter.dispatch(message)
            now = self._engine.monotonic()
            if now >= turn.ends and not self._ready:
                if timeout is not None:
                    deadline = now + max(timeout, TURN_SECONDS) if deadline is None else deadline
                    if now >= deadline:
                        raise Timeout(f"no message in {timeout:g} s")
                await self._pause()
        if self._recv_futures:
            self._waiter.wake_others()
        return self._ready.popleft()

    async def receive_many(self, limit: int = MANY, timeout: float | None = None) -> list[Message]:
        """Wait for a message, and take with it those that are there; see `oz.Subscriber.receive_many`.

        Only an `async` handler is awaited in between; cancelled then, it keeps the messages for later.

        Raises:
            Timeout, ClosedError, OwnershipError: as `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        messages = [await self.receive(timeout)]
        ready, take = self._ready, self._engine.take
        ends = self._engine.monotonic() + TURN_SECONDS
        try:
            while len(messages) < limit:
                if ready:
                    messages.append(ready.popleft())
                    continue
                message = take(self, _NOBLOCK, ends)
                if message is None:
                    break
                if message.route.is_only_listed:
                    messages.append(message)
                    continue
                if message.route.is_listed:
                    ready.append(message)
                await self._waiter.dispatch(message)
        except zmq.ZMQError:
            pass
        except asyncio.CancelledError:
            ready.extendleft(reversed(messages))
            self._waiter.wake_others()
            raise
        return messages

    async def receive_batches(
        self, limit: int = MANY, timeout: float | None = None
    ) -> list[Message | MessageBatch | PlainBatch]:
        """Wait and take what is there, as columns what can be; see `oz.Subscriber.receive_batches`.

        Raises:
            Timeout, ClosedError, OwnershipError: as `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        check_wait("timeout", timeout)
        if self._engine.monotonic() >= self._waiter.turn.ends:
            await self._pause()
        deadline = None if timeout is None else self._engine.monotonic() + timeout
        while self._receive_path.comes_in_columns and not self._ready:
            try:
                taken = self._receive_path.take_what_is_there(
                    self, limit, self._engine.monotonic() + TURN_SECONDS
                )
            except zmq.ZMQError:
                self._check_open()
                raise
            if taken:
                self._waiter.wake_others()
                return taken
            if self._engine.must_check:
                self._engine.check()
            await self._wait(deadline, timeout)
        left = None if deadline is None else max(0.0, deadline - self._engine.monotonic())
        return [*await self.receive_many(limit, left)]

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        self._waiter.turn.begin()

    async def _wait(self, deadline: float | None, timeout: float | None) -> None:
        self._waiter.turn.received = 0
        left = None if deadline is None else deadline - self._engine.monotonic()
        if left is not None and left <= 0:
            raise Timeout(f"no message in {timeout or 0:g} s")
        await self._waiter.wait(left)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Receive for ever, until the subscriber is closed."""
        ready, take, turn = self._ready, self._engine.take, self._waiter.turn
        others = self._recv_futures
        waiting = self._waiting
        while True:
            message = None
            if waiting and not ready and not others and turn.received < _TURN:
                message = waiting.popleft()
                turn.received += 1
                if message.route.is_only_listed:
                    yield message
                    continue
                waiting.appendleft(message)
            if not ready and not others and turn.received < _TURN:
                # The short way of `receive`, for a message that is there and has no handler.
                turn.received += 1
                try:  # noqa: SIM105 - suppress() costs 0.3 µs a message
                    message = take(self, _NOBLOCK, turn.ends)
                except zmq.ZMQError:
                    pass
                if message is not None and not message.route.is_only_listed:
                    if message.route.is_listed and is_wanted(message):
                        ready.append(message)
                    await self._waiter.dispatch(message)
                    message = None
            if message is None:
                try:
                    message = await self.receive()
                except ClosedError:
                    return
            yield message

    async def run(self, timeout: float | None = None) -> int:
        """Call handlers for what arrives; see `oz.Subscriber.run`.

        Args:
            timeout: seconds of silence after which to return; None runs until the subscriber is closed.

        Returns:
            How many messages were delivered.
        """
        before = self.stats.delivered
        kept: list[Message] = []
        try:
            while True:
                seen = self.stats.delivered
                try:
                    kept.append(await self.receive(timeout))
                except ClosedError:
                    break
                except Timeout:
                    if self.stats.delivered == seen:
                        break
        finally:
            self._ready.extendleft(message for message in reversed(kept) if is_kept(message))
            self._waiter.wake_others()
        return self.stats.delivered - before

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every publisher has answered; see `oz.Subscriber.wait_ready`.

        Raises:
            Timeout, ProtocolError, ValueError, ClosedError: as there.
        """
        await self._waiter.run(wait_ready(self._engine, self._attachments, timeout))

    async def drain(self, timeout: float = 1.0) -> None:
        """Stop asking, and deliver what is there; see `oz.Subscriber.drain`.

        Raises:
            ClosedError, OwnershipError: as there.
        """
        await self._waiter.run(drain(self._engine, self._attachments.connections, timeout))

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> Closing:
        """Close, as `oz.Subscriber.close`; what it gives may be awaited."""
        if not self._close_socket(0 if linger is None else linger, timeout):
            return Closing(None)
        if (ending := end_in_loop(self.context, GOODBYE_SECONDS)) is not None:
            return Closing(later=ending)
        return Closing(partial(self._end_context, 0))

    async def __aenter__(self) -> Self:
        """Use it in `async with`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()


class Subscriber(LoopSubscriber, SubscriberSocket[Handler, Subscription], zmq.asyncio.Socket):  # type: ignore[misc]
    """Receives messages by subject pattern; in place of a `zmq.asyncio` SUB socket.

    A message is never held in something that can be cancelled: cancelling `receive`, `recv_multipart` or
    a `wait_for` around them loses nothing. Handlers may be ordinary or `async` functions; each message is
    handled to the end before the next is taken.
    """

    _context_class = zmq.asyncio.Context

    async def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:  # type: ignore[override]
        """Receive the frames of the next message that a subscription wants; see `oz.Subscriber`.

        Raises:
            zmq.Again: there is none, with NOBLOCK or when RCVTIMEO is over.
            zmq.ZMQError: the socket is closed.
        """
        if self._rest:
            frames = list(self._rest)
            self._rest.clear()
        else:
            frames = await self._wanted_frames(flags)
        return frames if copy else as_frame_objects(frames)

    async def _wanted_frames(self, flags: int) -> list[bytes]:
        limit = 0 if flags & _NOBLOCK else self._receive_path.limit
        try:
            message = await self.receive(None if limit < 0 else limit / 1000)
        except Timeout:
            raise zmq.Again from None
        except ClosedError:
            raise zmq.ZMQError(zmq.ENOTSOCK) from None
        return message.frames

    async def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:  # type: ignore[override]
        """Receive one frame of a message that a subscription wants; RCVMORE tells whether more follow."""
        if not self._rest:
            self._rest.extend(await self.recv_multipart(flags))
        frame = self._rest.popleft()
        return frame if copy else as_frame_objects([frame, *self._rest])[0]

    async def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """Receive one frame, as `recv` does, into a buffer; gives the frame's size in bytes."""
        return copy_into(buffer, await self.recv(flags), nbytes)

    async def _deserialize(  # type: ignore[override]
        self, recvd: Awaitable[Any], load: Any
    ) -> Any:
        """Serve recv_string, recv_json and their kind, which pyzmq builds on this."""
        return load(await recvd)

    def poll(  # type: ignore[override]
        self, timeout: int | None = None, flags: int = zmq.POLLIN
    ) -> Awaitable[Any]:
        """Wait for something to read, as `zmq.asyncio.Socket.poll`, whatever RCVTIMEO is: milliseconds.

        It is a hint only: a message that no pattern wants makes the socket readable too, unless publishers
        filter.
        """
        receive_path = self._receive_path
        if (
            flags & zmq.POLLIN
            and isinstance(receive_path, RoutedReceivePath)
            and not self._engine.has_news
            and not self.closed
        ):
            if timeout != 0 and not self._engine.is_drained:
                return asyncio.ensure_future(self._poll_messages(receive_path, timeout, flags))
            receive_path.unpack(self)
        # Nothing comes once it is drained: whoever waited then was told to read, which says so.
        is_over = self._engine.is_drained and timeout != 0 and not self.closed
        if flags & zmq.POLLIN and (self._engine.has_news or is_over):
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.set_result(int(zmq.POLLIN))
            return future
        return self._waiter.poll(timeout, flags)

    async def _poll_messages(self, receive_path: RoutedReceivePath, timeout: int | None, flags: int) -> int:
        """Poll for messages: publishers that filter also say where they stand, every second."""
        ends = inf if timeout is None or timeout < 0 else self._engine.monotonic() + timeout / 1000
        while True:
            left = ends - self._engine.monotonic()
            events = await self._waiter.poll(None if left == inf else max(0, ceil(left * 1000)), flags)
            if events & zmq.POLLIN and not self._engine.is_drained:
                receive_path.unpack(self)
                if not self._engine.has_news:
                    events &= ~int(zmq.POLLIN)
            if events or self._engine.monotonic() >= ends:
                self._waiter.wake_others()
                return events

    def _add_recv_event(self, *args: Any, **options: Any) -> asyncio.Future[Any]:
        """Begin to wait for something to read, as all of pyzmq's ways to wait do."""
        future: asyncio.Future[Any] = super()._add_recv_event(*args, **options)  # type: ignore[misc]
        self._waiter.begin()
        return future
