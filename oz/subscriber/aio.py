"""`Subscriber` and `Subscription` for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Generic, Never, Self, TypeVar

from oz.errors import ClosedError, ConfigurationError
from oz.message import Message as BaseMessage
from oz.numbers import check_count, check_wait
from oz.options import Ack, Delivery, Overflow
from oz.subjects.pattern import PatternLike
from oz.subscriber import waits
from oz.subscriber.base import SubscriberBase, SubscriptionBase
from oz.subscriber.connections import FOREIGN
from oz.subscriber.message import Message
from oz.subscriber.queue import Queue
from oz.subscriber.tasks import TaskWaits, serve
from oz.transport.endpoints import as_text

T = TypeVar("T")

Handler = Callable[[BaseMessage], Awaitable[None] | None]


class Done(Generic[T]):
    """Awaitable result of a method that has finished when the call returns."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self._value
        yield


class Subscription(SubscriptionBase):
    """One subscription of an asyncio `Subscriber`; see `oz.Subscription`.

    `await subscriber.subscribe(...)` works like `subscriber.subscribe(...)`.
    """

    _class_name = "oz.asyncio.Subscription"
    _task: asyncio.Task[None] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield

    async def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message of this subscription. A cancellation loses no message.

        Args:
            timeout: maximum time in seconds; None waits for ever, and 0 only checks.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscription has ended, the subscriber is closed, or the subscription has a handler.
            OwnershipError: the subscriber was created before a fork.
        """
        received: Message = await self._subscriber._receive(self._queue(), timeout)
        return received

    def __aiter__(self) -> AsyncIterator[BaseMessage]:
        """Receive messages until the subscription ends or the subscriber is closed."""
        return _iterate(self._subscriber, self._queue())

    def unsubscribe(self) -> Awaitable[None]:
        """End the subscription before the call returns. Waiting messages are dropped; a running handler continues.

        Raises:
            ClosedError: the subscriber is closed.
        """
        self._engine.unsubscribe(self._inbox)
        return Done(None)

    async def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End the subscription, but deliver the messages published before; see `oz.Subscription.drain`.

        If `drain` is cancelled, the subscription ends at once.

        Args:
            timeout: maximum time in seconds to wait for publishers and the handler; None waits for ever.

        Returns:
            Whether all these messages have arrived within `timeout`, and the handler has finished.

        Raises:
            ClosedError: the subscriber is closed.
        """
        check_wait("timeout", timeout)
        return bool(await self._subscriber._run(waits.drain(self._engine, self._inbox, timeout)))

    def _start(self) -> None:
        """Start the task that runs the handler, if an event loop runs in this thread."""
        inbox = self._inbox
        if inbox.handler is None or inbox.is_inline or self._task is not None:
            return
        if asyncio._get_running_loop() is not None:
            task = asyncio.create_task(serve(self._engine, self._subscriber._waits, inbox))
            self._task = task
            tasks = self._subscriber._tasks
            tasks[task] = None
            task.add_done_callback(lambda done: tasks.pop(done, None))


class Subscriber(SubscriberBase):
    """Receives messages whose subjects match its patterns, in an asyncio loop; see `oz.Subscriber`.

    Each subscription with a handler has a task. The task calls the handler with one message after the other, and
    awaits the handler's result. A method that does not wait has finished when the call returns. Its result may be
    awaited.
    """

    _class_name = "oz.asyncio.Subscriber"
    _runs_handlers = False

    def _begin(self) -> None:
        self._waits = TaskWaits(self._engine)
        self._tasks: dict[asyncio.Task[None], None] = {}

    # endpoints

    def connect(self, endpoint: str | bytes) -> Awaitable[None]:
        """Connect to a publisher before the call returns. The result may be awaited.

        Raises:
            EndpointError: the endpoint cannot be used here.
            PermissionDenied: with `security`, one side does not trust the other side's key; see
                `oz.Subscriber.connect`. The endpoint is not connected.
            ClosedError: the subscriber is closed.
        """
        self._engine.connect(as_text(endpoint))
        return Done(None)

    def bind(self, endpoint: str | bytes) -> Awaitable[str]:
        """Bind an endpoint to which plain publishers connect; see `oz.Subscriber.bind`.

        The endpoint is bound when the call returns.

        Returns:
            Awaitable of the bound endpoint, with its port number.
        """
        return Done(self._engine.bind(as_text(endpoint)))

    def disconnect(self, endpoint: str | bytes) -> Awaitable[None]:
        """Disconnect from a publisher before the call returns. The session with this publisher ends.

        Raises:
            EndpointError: the endpoint is not connected.
            ClosedError: the subscriber is closed.
        """
        self._engine.disconnect(as_text(endpoint))
        return Done(None)

    def unbind(self, endpoint: str | bytes) -> Awaitable[None]:
        """Unbind an endpoint before the call returns.

        Raises:
            EndpointError: the endpoint is not bound.
            ClosedError: the subscriber is closed.
        """
        self._engine.disconnect(as_text(endpoint), is_bound=True)
        return Done(None)

    # subscriptions

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
        max_messages: int | None = None,
        delivery: Delivery = Delivery(),  # noqa: B008 - it is frozen
        **unknown: Never,
    ) -> Subscription:
        """Subscribe before the call returns; see `oz.Subscriber.subscribe`. The result may be awaited.

        Args:
            pattern: text, bytes, `Pattern`, compiled regex, or a list of these. Bytes are a plain prefix.
            handler: function or coroutine function, called with each message in the task of the subscription.
            dialect: dialect of patterns given as text; None uses the dialect of the subscriber.
            group: name of a queue group. The publisher sends each message to only one member of the group.
            overflow: reaction of the publisher when too many messages wait; see `oz.Subscriber.subscribe`.
            last_value: whether the publisher first sends the newest message of each matching subject.
            ack: "received" or "handled"; see `oz.Subscriber.subscribe`. If a task receives messages without a handler,
                its next call of `receive` acknowledges the previous message.
            max_messages: the subscription ends after this number of messages.
            delivery: delivery options. With `inline`, the handler must be a plain function, and the subscriber calls
                it directly when it reads a message.
            unknown: misspelled arguments, which raise an error with a suggestion.

        Raises:
            PatternError, ConfigurationError, ClosedError, OwnershipError: see `oz.Subscriber.subscribe`.
        """
        if inspect.iscoroutinefunction(handler) and getattr(delivery, "inline", False):
            rule = "an inline handler is a plain function, not a coroutine function"
            raise ConfigurationError("inline", True, "argument", rule)
        subscription: Subscription = self._subscribe(
            Subscription, pattern, handler, dialect, group, overflow, last_value, ack, max_messages, delivery, unknown
        )  # fmt: skip
        subscription._start()
        return subscription

    # waits

    async def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message of a subscription without a handler. A cancellation loses no message.

        Args:
            timeout: maximum time in seconds; None waits for ever, and 0 only checks.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscriber is closed or drained. Another task may close the subscriber during the wait.
            OwnershipError: the subscriber was created before a fork.
        """
        found = self._take(self._shared)
        return found if found is not None else await self._receive(self._shared, timeout)

    def _take(self, queue: Queue) -> Message | None:
        """Return the next message of a queue; None if the queue has no message, or if other work is due."""
        engine, items = self._engine, queue.items
        if items and not engine.in_hand:
            now = engine.clock()
            if now < engine.attend_at and now < self._waits.turn_ends:
                item = items.popleft()
                if item.__class__ is Message:
                    return item
                items.appendleft(item)
        return None

    async def _receive(self, queue: Queue, timeout: float | None) -> Message:
        check_wait("timeout", timeout)
        if self._engine.state == FOREIGN:
            # Raise OwnershipError here, because `_run` would fail: the child of a fork has no running loop.
            self._engine.check_open()
        message: Message = await self._run(
            waits.receive(self._engine, queue, timeout, asyncio.current_task())
        )
        return message

    async def _run(self, wanted: Any) -> Any:
        self._start_tasks()
        return await self._waits.run(wanted)

    def _start_tasks(self) -> None:
        """Start the tasks of subscriptions that were created before the loop ran."""
        if not self._runs_tasks:
            self._runs_tasks = True
            for subscription in self.subscriptions:
                subscription._start()

    _runs_tasks = False

    async def receive_many(self, limit: int = 1000, *, timeout: float | None = None) -> list[BaseMessage]:
        """Wait for a message as `receive` does, and return it with all further messages that have arrived.

        A cancellation loses no message.

        Args:
            limit: maximum number of messages.
            timeout: maximum time in seconds to wait for the first message; None waits for ever.

        Returns:
            List of at least one message. With `ack="handled"` the list contains exactly one message.

        Raises:
            Timeout, ClosedError, OwnershipError: see `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        messages = [await self.receive(timeout=timeout)]
        items = self._shared.items
        while items and len(messages) < limit:
            item = items[0]
            if not isinstance(item, Message) or item.__class__ is not Message:
                break
            messages.append(item)
            items.popleft()
        return messages

    def __aiter__(self) -> AsyncIterator[BaseMessage]:
        """Receive messages until the subscriber is closed or drained."""
        return _iterate(self, self._shared)

    async def run(self, *, timeout: float | None = None) -> int:
        """Wait while the tasks of the handlers run.

        Args:
            timeout: the call returns when no message has arrived for this number of seconds. None waits until the
                subscriber is closed or drained.

        Returns:
            Number of messages that handlers received during the call.

        Raises:
            OwnershipError: the subscriber was created before a fork.
        """
        check_wait("timeout", timeout)
        count: int = await self._run(waits.run(self._engine, timeout))
        return count

    async def wait_ready(self, *, timeout: float | None = 10.0) -> None:
        """Wait until all endpoints are ready; see `oz.Subscriber.wait_ready`.

        Args:
            timeout: maximum time in seconds; None waits for ever, and 0 only checks.

        Raises:
            Timeout: an endpoint is not ready, or the subscriber has no endpoint. The text of the error names the
                endpoint, its link endpoint and the remedy.
            PermissionDenied, ProtocolError: a publisher refuses a subscription or the key. Each refusal is raised
                only once.
            ClosedError: the subscriber is closed.
        """
        check_wait("timeout", timeout)
        await self._run(waits.wait_ready(self._engine, timeout))

    async def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End all subscriptions, but deliver the messages published before; see `oz.Subscriber.drain`.

        If `drain` is cancelled, the subscriptions end at once.

        Args:
            timeout: maximum time in seconds to wait for publishers and handlers; None waits for ever.

        Returns:
            Whether all these messages have arrived within `timeout`, and all handlers have finished.

        Raises:
            ClosedError: the subscriber is closed.
        """
        check_wait("timeout", timeout)
        return bool(await self._run(waits.drain(self._engine, None, timeout)))

    def close(self) -> Awaitable[None]:
        """Close the subscriber and cancel its handlers. Calls that wait in other tasks raise ClosedError.

        The subscriber is closed when the call returns.

        Returns:
            Awaitable that waits until the tasks of the handlers have ended.
        """
        self._engine.close()
        running = asyncio._get_running_loop()
        current = asyncio.current_task() if running is not None else None
        tasks = [task for task in self._tasks if task is not current and task.get_loop() is running]
        for task in tasks:
            task.cancel()
        return _Ending(tasks) if tasks else Done(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Ending:
    """Awaitable that waits until cancelled tasks have ended."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: list[asyncio.Task[None]]) -> None:
        self._tasks = tasks

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.wait(self._tasks).__await__()


async def _iterate(subscriber: Subscriber, queue: Queue) -> AsyncIterator[Message]:
    while True:
        try:
            message = subscriber._take(queue) or await subscriber._receive(queue, None)
        except ClosedError:
            if subscriber._engine.state == FOREIGN:
                raise
            return
        yield message
