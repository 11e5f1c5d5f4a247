"""`Node` and `Subscription` for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from inspect import isawaitable
from typing import Any, Never, Self

from oz.errors import ClosedError, ConfigurationError
from oz.logs import peer_logger
from oz.message import Message as BaseMessage
from oz.node.base import NodeBase, NodeSubscriptionBase, is_coroutine_function
from oz.node.events import MAX_EVENTS, Event
from oz.node.loop_asking import LoopRequesting
from oz.node.snapshot import Snapshot
from oz.node.tasks import TaskPool
from oz.numbers import check_wait
from oz.options import Ack, Delivery, NodeOptions, Overflow
from oz.publisher.aio import Publishing
from oz.publisher.loop import LoopLifetime
from oz.subjects.pattern import PatternLike
from oz.subscriber import waits
from oz.subscriber.aio import Done
from oz.subscriber.aio import Subscription as PlainSubscription
from oz.transport.steps import Steps

TURN = 0.005
"""Seconds for which a task may receive waiting messages before it yields to the loop."""

_log = peer_logger("oz.node")

Handler = Callable[[BaseMessage], Any]


class Subscription(NodeSubscriptionBase, PlainSubscription):
    """One subscription of an asyncio `Node`; see `oz.Node`. A program may call `subscribe` with or without await."""

    _class_name = "oz.asyncio.Subscription"
    _node: Node
    _turn_ends = 0.0

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield

    async def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message. A cancelled call loses no message.

        Args:
            timeout: seconds to wait; None waits for ever, 0 only checks for a message that has arrived.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscription or the node has ended, or the subscription has a handler.
            PermissionDenied: a peer refuses the subscription. Only the first refusal is raised, and only once.
            OwnershipError: the node was created before a fork.
        """
        engine = self._engine
        if not engine.in_hand and engine.clock() < self._turn_ends:
            found = self._take()
            if found is not None:
                return found
        check_wait("timeout", timeout)
        if self._node._node.is_foreign:
            # Raise OwnershipError here, because the following steps need a running loop. The child of a fork has none.
            engine.check_open()
        queue = self._queue()
        if engine.clock() >= self._turn_ends:
            await asyncio.sleep(0)
        steps = waits.receive(engine, queue, timeout, asyncio.current_task())
        try:
            message: BaseMessage = await self._node._wait(steps)
            return message
        finally:
            self._turn_ends = engine.clock() + TURN

    async def __aiter__(self) -> AsyncIterator[BaseMessage]:
        """Receive until the subscription or the node ends."""
        while True:
            try:
                message = await self.receive()
            except ClosedError:
                if self._node._node.is_foreign:
                    raise
                return
            yield message

    def unsubscribe(self) -> Awaitable[None]:
        """End the subscription at once. Messages that the program has not received are dropped.

        Raises:
            ClosedError: the node is closed.
        """
        self._engine.unsubscribe(self._inbox)
        return Done(None)

    async def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End the subscription. Messages that were published before the call are still delivered.

        If the call is cancelled, the subscription ends at once.

        Args:
            timeout: seconds to wait for peers; None waits for ever.

        Returns:
            Whether all messages that were published before the call were delivered within `timeout`.

        Raises:
            ClosedError: the node is closed.
        """
        check_wait("timeout", timeout)
        return bool(await self._node._wait(waits.drain(self._engine, self._inbox, timeout)))


class _Notices:
    """Calls `on_event` for one event after another, in a task. The task ends when no event waits."""

    def __init__(self, on_event: Callable[[Event], Any]) -> None:
        self._on_event = on_event
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._task: asyncio.Task[None] | None = None

    def put(self, event: Event) -> None:
        """Add an event. If no loop runs, the event waits for the next call of `put` in a running loop."""
        self._events.append(event)
        if self._task is None and asyncio._get_running_loop() is not None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._events:
                event = self._events.popleft()
                try:
                    result = self._on_event(event)
                    if isawaitable(result):
                        await result
                except Exception:
                    _log.exception("on_event raised for %s", event)
        finally:
            self._task = None


class Node(NodeBase, Publishing, LoopRequesting):
    """Member of a bus, in an event loop; see `oz.Node`.

    If the constructor is called in a running loop, that loop runs the node. Otherwise the loop of the first `await`
    runs the node. Only the thread of the loop may use the node. Methods that do not wait act when they are called; a
    program may await their result.
    """

    _class_name = "oz.asyncio.Node"
    _runs_handlers = False

    @staticmethod
    def _make_pool(options: NodeOptions) -> TaskPool:
        return TaskPool()

    def _begin(self) -> None:
        if self._on_event is not None:
            self._node.notify = _Notices(self._on_event).put
        self._life = LoopLifetime(self._node, "node")
        self._node.exchange.finished = Done(None)
        self._node.exchange.schedule = self._life.attendance.attend_by
        self._node.publisher.defers = True
        self._attend_with(self._life.attendance)
        self._attendance.start()

    def _drop(self) -> None:
        self._attendance.call(self._life.drop)

    def subscribe(
        self,
        pattern: PatternLike | Iterable[PatternLike],
        handler: Handler | None = None,
        *,
        dialect: str | None = None,
        group: str | None = None,
        overflow: Overflow | None = None,
        last_value: bool = False,
        ack: Ack = "received",
        concurrency: int = 1,
        max_messages: int | None = None,
        delivery: Delivery = Delivery(),  # noqa: B008 - it is frozen
        **unknown: Never,
    ) -> Subscription:
        """Subscribe at once; see `oz.Node.subscribe`. A program may await the result.

        Args:
            pattern: text, `Pattern`, compiled regex, or a list of patterns. Bytes are a plain prefix.
            handler: function or coroutine function, called with each message.
            dialect: dialect of a pattern that is text.
            group: name of a queue group.
            overflow: policy for messages when `max_pending` messages already wait for the program.
            last_value: whether publishers first send the newest message of each subject that matches.
            ack: "received" or "handled", as in `oz.Node.subscribe`. With "handled" and without a handler, the next
                `receive` of the same task acknowledges the message.
            concurrency: number of messages that the handler handles at the same time.
            max_messages: number of messages after which the subscription ends.
            delivery: further options, which few programs change. With `inline=True`, the handler must be a plain
                function. The node calls it as soon as it has read the message.
            unknown: misspelled arguments. The error suggests the right name.

        Raises:
            PatternError, ConfigurationError, ClosedError, OwnershipError: the same reasons as in `oz.Node.subscribe`.
        """
        if getattr(delivery, "inline", False) and handler is not None and is_coroutine_function(handler):
            rule = "an inline handler is a plain function, not a coroutine function"
            raise ConfigurationError("inline", True, "argument", rule)
        self._attendance.start()
        subscription: Subscription = self._subscribe(
            Subscription, pattern, handler, dialect, group, overflow, last_value, ack, concurrency, max_messages,
            delivery, unknown,
        )  # fmt: skip
        return subscription

    async def wait_ready(
        self,
        *peers: str,
        count: int | None = None,
        subscriber: str | bytes | None = None,
        timeout: float | None = 10.0,
    ) -> None:
        """Wait until this node and its peers know each other's subscriptions; see `oz.Node.wait_ready`.

        Args:
            peers: names of peers that must be up.
            count: number of peers that must be up.
            subscriber: subject that at least one node must subscribe to. A silent peer does not count.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: a condition was not met within `timeout`. The text names the condition and the remedy.
            PermissionDenied, ProtocolError: a peer denies a subscription or a publication.
            SubjectError, ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        self._check_ready(peers, count)
        check_wait("timeout", timeout)
        await self._wait(self._node.readiness.ready(peers, count, subscriber, timeout))

    async def request_snapshots(self, *peers: str, timeout: float | None = 1.0) -> list[Snapshot]:
        """Return the statistics of peers, sorted by name; see `oz.Node.request_snapshots`.

        Args:
            peers: names of peers. Default: all peers that are up.
            timeout: seconds to wait for answers; None waits as long as the peers are up.

        Raises:
            NoResponders: a named peer is not up.
            PermissionDenied: no peer sends statistics, and at least one peer denies the request for `_OZ.STATISTICS`.
            ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        found: list[Snapshot] = await self._wait(self._snapshot_steps(peers, timeout))
        return found

    async def _wait(self, steps: Steps[Any]) -> Any:
        return await self._attendance.wait(steps, self._node.news)

    async def close(self, *, timeout: float | None = 5.0) -> int:
        """Leave the bus; see `oz.Node.close`.

        A program may call `close` again if the call was cancelled. Until then the node publishes no more messages.

        Args:
            timeout: seconds for the whole call; None as in `oz.Node.close`.

        Returns:
            Number of messages that peers have not acknowledged. For a group with `ack="handled"`, the number includes
            the messages that no member of the group has handled.
        """
        check_wait("timeout", timeout)
        engine = self._node
        if engine.is_foreign or engine.is_closed:
            return 0
        end = None if timeout is None else engine.clock() + timeout
        self._attendance.leave_closed_loop()
        await self._wait(engine.handled(timeout))
        left = None if end is None else max(0.0, end - engine.clock())
        count = self._life.finish(await self._attendance.wait(engine.acknowledgements(left)))
        if engine.owns_context:
            # `end_context` blocks until libzmq has sent its messages. Therefore another thread calls it.
            await asyncio.get_running_loop().run_in_executor(None, engine.end_context)
        self._handles.clear()
        return count

    async def __aenter__(self) -> Self:
        """Return the node; the `async with` block closes it."""
        self._attendance.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
