"""The node for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, Self, overload

import zmq
import zmq.asyncio

from oz.asyncio.closing import in_thread
from oz.asyncio.handlers import TaskPool
from oz.asyncio.publisher_engine import LoopPublisher
from oz.asyncio.requesting import TaskRequester
from oz.asyncio.waiting import TURN_SECONDS, Handler, Subscription
from oz.errors import ClosedError, NameserverUnavailable, OwnershipError, Timeout
from oz.message import Extras, Message
from oz.protocol.node import subscription as node_subscription
from oz.protocol.node.handler_queue import HandlerQueue
from oz.protocol.node.requests import RequestClient
from oz.protocol.node.subscription import NodeStats
from oz.protocol.subscriber.receive_buffer import LIMIT
from oz.subjects.pattern import Patterns
from oz.transport.node.handlers import HandlerRunner
from oz.transport.node.mailbox import Mailbox
from oz.transport.node.node import NodeBase
from oz.transport.node.subscriptions import OnDropped
from oz.transport.option_checks import Overflow, Policy, check_count, closing_time
from oz.wire.discovery import Announcement

_PATIENCE = 5.0
"""Seconds beyond its own time for which another loop waits for a node's own to close it."""


class NodeSubscription(node_subscription.NodeSubscription, Subscription):
    """One call of a node's `subscribe`; as `oz.NodeSubscription`."""

    __slots__ = ()


class ReceivedSubscription(NodeSubscription):
    """A subscription without a handler: its messages are received, by `receive` or `async for`."""

    __slots__ = ()
    queue: Mailbox

    async def receive(self, timeout: float | None = None) -> Message:
        """Wait for its next message; cancelling that loses nothing.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscription has ended, or its node is closed.
        """
        message: Message = await self.queue.receive(timeout)
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Receive until the subscription has ended."""
        while True:
            try:
                message = await self.receive()
            except ClosedError:
                return
            yield message


class _Done:
    """Something to await that is done already."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Node(NodeBase):
    """Joins a bus, as `oz.Node` does; for one loop.

    Handlers are plain or async functions. They run in tasks, in order for each subscription.
    """

    _engine_class = LoopPublisher
    _subscription_class = NodeSubscription
    _context_class = zmq.asyncio.Context

    def _launch(self) -> None:
        client = RequestClient(
            self._requests, self._stats, self._publisher_for, self._has_responders, self._no_responders
        )
        self._requester = TaskRequester(client, self._wait, self._check_loop)
        self._tasks: list[asyncio.Task[None]] = []
        self._has_started = self._is_closing = False

    async def start(self) -> Self:
        """Join the bus; `async with` does it. A second call does nothing.

        Raises:
            NameserverUnavailable: no name server has answered in `join_timeout`.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        if self._has_started:
            return self
        self._has_started = True
        self._loop = asyncio.get_running_loop()
        self._handlers = TaskPool(self.configuration.threads)
        self._woken = asyncio.Event()
        self._news = asyncio.Condition()
        self._notifications = self._make_queue(self._call_on_peer, HandlerQueue(), self._on_dropped)
        self._open()
        working = [self._receive(), self._attend(), *map(self._read, self._servers)]
        self._tasks = [asyncio.create_task(one, name=f"oz-node-{self.name}") for one in working]
        await self._join(self.configuration.join_timeout)
        return self

    async def _join(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        try:
            await self._wait(lambda: None if self._links.is_registered else "no name server", timeout)
            with suppress(Timeout):
                left = max(0.0, min(1.0, ends - time.monotonic()))
                await self._wait(lambda: "looking around" if self._links.unsettled() else None, left)
        except Timeout:
            if timeout:
                await self.close(drain=False, timeout=1.0)
                raise NameserverUnavailable(self.configuration.nameserver, timeout) from None
        except BaseException:
            await self.close(drain=False, timeout=0)
            raise

    # the I/O side ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if asyncio._get_running_loop() is self._loop:
            self._woken.set()
        else:
            # An error: the loop has ended, and does nothing more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    def _changed(self) -> None:
        """Do nothing: `_tell_news` tells those who wait, as that is awaited."""

    async def _tell_news(self) -> None:
        """Wake those who wait, to look again."""
        async with self._news:
            self._number_of_news += 1
            self._news.notify_all()

    async def _receive(self) -> None:
        """Receive, and hand messages to handlers; nothing here is for anybody else."""
        sub = self._sub
        while not sub.socket.closed:
            await sub.socket.poll(0 if sub.has_some else None)
            sub.take_in(TURN_SECONDS)
            if self._number_of_waits:
                self._note_news(time.monotonic())
                self._woken.set()

    async def _attend(self) -> None:
        """Do what is due, and what has been asked for."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_left()):
                    await self._woken.wait()
            self._woken.clear()
            self._sub.take_in(TURN_SECONDS)
            if self._has_due(now := time.monotonic()):
                for endpoint, frame in self._tick(now):
                    self._say(endpoint, frame)
                await self._tell_news()
            # What was done to the socket may have taken the news of its descriptor: this tells `_receive`.
            self._sub.socket.get(zmq.EVENTS)

    def _say(self, endpoint: str, frame: bytes) -> None:
        with suppress(zmq.Again):
            zmq.backend.Socket.send(self._servers[endpoint], frame, zmq.NOBLOCK)

    async def _read(self, endpoint: str) -> None:
        dealer = self._servers[endpoint]
        while True:
            frame = await dealer.recv()
            self._dialler.receive(endpoint, frame, time.monotonic())
            self._note_due()

    async def _wait(self, what_is_missing: Callable[[], str | None], timeout: float | None) -> None:
        """Wait until nothing is missing."""
        ends = None if timeout is None else time.monotonic() + timeout
        self._check_loop()
        self._number_of_waits += 1
        try:
            while True:
                seen, missing = self._number_of_news, what_is_missing()
                if missing is None:
                    return
                self._check_owner()
                self._check_open()
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"not within {timeout:g} s: {missing}")
                # The look itself may have set a time for the next one, or asked something.
                self._woken.set()
                await self._await_news(seen, left)
        finally:
            self._number_of_waits -= 1

    async def _await_news(self, seen: int, seconds: float | None) -> None:
        """Wait for more news than so many."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: self._number_of_news != seen)

    def _check_loop(self) -> None:
        if self._has_started and asyncio.get_running_loop() is not self._loop:
            raise OwnershipError(
                f"the node {self.name} belongs to the loop that started it; make one in this loop"
            )

    def _check_open(self) -> None:
        if not self._has_started:
            raise ClosedError(f"the node {self.name} has not joined yet: use `async with`, or await start()")
        super()._check_open()

    # publishing ------------------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message; see `oz.Node.publish`."""
        publisher: Any = self._publisher_for(subject)
        extras = None
        if not (headers is None is key and message_id is None):
            extras = Extras(headers, None, message_id, key)
        await publisher.engine.publish(subject, payload, extras)

    async def flush(self) -> None:
        """Send now what waits for others to make a batch."""
        self._check_open()
        for publisher in self._publishers():
            await publisher.engine.flush()

    def _answer(self, message: Message, payload: Any, headers: Any) -> Any:
        super()._answer(message, payload, headers)
        return _Done()

    # asking ----------------------------------------------------------------------------------------------

    async def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer; see `oz.Node.request`."""
        replies = self._requester.ask(subject, payload, timeout, 1, headers, key)
        try:
            return await anext(replies)
        finally:
            await replies.aclose()

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Ask, and give the answers as they come; see `oz.Node.request_many`. For `async for`."""
        if limit is not None:
            check_count("limit", limit, 1, 2**63)
        return self._requester.ask(subject, payload, timeout, limit, headers, key)

    # subscribing -----------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: None = None,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> ReceivedSubscription: ...

    @overload
    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: Handler,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> NodeSubscription: ...

    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: Handler | None = None,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> Any:
        """Ask for the messages whose subject matches; see `oz.Node.subscribe`. Nothing is awaited.

        A handler is a plain or an async function; without one messages are had by the subscription's
        `receive` and by `async for`.
        """
        self._check_open()
        return self._subscribe(
            self._prepare(pattern, dialect),
            handler,
            self._delivery_options(group, policy, overflow, max_pending),
            HandlerQueue(overflow, LIMIT if max_pending is None else max_pending, concurrency, order_by),
            last_value=last_value,
            max_messages=max_messages,
        )

    def _make_queue(
        self, handler: Callable[[Any], Any], handler_queue: HandlerQueue, dropped: OnDropped
    ) -> HandlerRunner:
        return HandlerRunner(self._handlers, handler_queue, handler, self._on_failed, dropped)

    def _make_mailbox(
        self, handler_queue: HandlerQueue, dropped: OnDropped
    ) -> tuple[Mailbox, type[ReceivedSubscription]]:
        return Mailbox(self._handlers, handler_queue, dropped), ReceivedSubscription

    def _call(self, work: Callable[[], Any]) -> Any:
        self._check_owner()
        try:
            return work()
        finally:
            # Something may be due, or have come, that nobody was told of.
            self._wake()

    def _hear_own(self) -> None:
        # Nobody else may touch the subscriber; in another loop nothing says what comes before what.
        if asyncio._get_running_loop() is self._loop:
            super()._hear_own()

    async def _drain_one(self, subscription: node_subscription.NodeSubscription, timeout: float) -> bool:
        self._check_open()
        if not subscription.active:
            return True
        ends, has_all = time.monotonic() + timeout, True
        self._call(lambda: self._sub.begin_part(subscription))
        try:
            await self._wait(lambda: self._still_draining(subscription), timeout)
        except Timeout:
            has_all = False
        self._call(lambda: self._sub.end_with_rest(subscription))
        is_handled = await subscription.queue.drain(max(0.0, ends - time.monotonic()))
        self._call(lambda: self._end_drained(subscription))
        return has_all and is_handled

    # presence --------------------------------------------------------------------------------------------

    @property
    def peers(self) -> list[Announcement]:
        """The nodes that are up and connected, this one not among them."""
        return self._membership.up if self._has_started and not self._closed else []

    async def wait_for_peers(
        self, wanted: int | str | Iterable[str] = 1, timeout: float | None = None
    ) -> None:
        """Wait until peers are up; see `oz.Node.wait_for_peers`."""
        self._check_open()
        await self._wait(self._missing(wanted), timeout)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every peer that is known can be spoken with both ways; see `oz.Node.wait_ready`."""
        self._check_open()
        await self._wait(self._unready(), timeout)

    @property
    def stats(self) -> NodeStats:
        """The counts of this node so far; see `NodeStats`."""
        return self._count_stats()

    # closing ---------------------------------------------------------------------------------------------

    async def close(self, drain: bool = True, timeout: float | None = 5.0) -> None:
        """Leave the bus; see `oz.Node.close`.

        Another loop may close it too. Once its own has ended nobody is there to handle what has come, and it
        leaves at once.
        """
        if self._is_closing or not self._has_started or self._local.engine.guard.is_foreign:
            return
        seconds = closing_time(timeout)
        ends = time.monotonic() + seconds
        is_own = asyncio.get_running_loop() is self._loop
        if not is_own and self._loop.is_running():
            with suppress(TimeoutError):
                there = asyncio.run_coroutine_threadsafe(self.close(drain, timeout), self._loop)
                await asyncio.wait_for(asyncio.wrap_future(there), seconds + _PATIENCE)
            return
        self._is_closing = True
        drain = drain and is_own
        if drain:
            await self._drain(ends)
        self._closed = True
        for endpoint, frame in self._say_goodbye():
            with suppress(zmq.ZMQError):
                self._say(endpoint, frame)
        for task in self._tasks:
            if task is not asyncio.current_task() and not self._loop.is_closed():
                task.cancel()
        if is_own:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._tell_news()
        self._close_queues()
        if is_own:
            await self._handlers.close(max(0.0, ends - time.monotonic()))
        else:
            self._handlers.cancel()
        # With a drain the goodbye has been said, and answered by those who are there.
        self._sub.close(is_drained=drain)
        for dealer in self._servers.values():
            dealer.close(500)
        closed_at = time.monotonic()
        for publisher in self._publishers():
            await publisher.engine.close(timeout=max(0.0, ends - time.monotonic()))
        await in_thread(lambda: self._end_context(max(0.0, ends - closed_at), closed_at))

    async def _drain(self, ends: float) -> None:
        with suppress(ClosedError, Timeout):
            self._sub.begin_drain()
            left = max(0.0, ends - time.monotonic())
            await self._wait(self._still_closing, left)
        for queue in self._queues():
            await queue.drain(max(0.0, ends - time.monotonic()))
        for publisher in self._publishers():
            with suppress(ClosedError):
                await publisher.engine.flush()

    async def __aenter__(self) -> Self:
        """Join."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Leave."""
        await self.close()
