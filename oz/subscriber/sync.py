"""`Subscriber` and `Subscription` for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Never, Self

from oz.compiled import HOT
from oz.errors import ClosedError
from oz.message import Message as BaseMessage
from oz.numbers import check_count, check_wait
from oz.options import Ack, Delivery, Overflow
from oz.subjects.pattern import PatternLike
from oz.subscriber import waits
from oz.subscriber.base import SubscriberBase, SubscriptionBase
from oz.subscriber.connections import FOREIGN
from oz.subscriber.engine import CHUNK
from oz.subscriber.message import Message
from oz.subscriber.queue import Queue
from oz.subscriber.threads import ThreadWaits
from oz.subscriber.turns import SubscriberTurn
from oz.transport.endpoints import as_text
from oz.transport.pollable import Pollable

_clock = time.monotonic
_owner = threading.current_thread

Handler = Callable[[BaseMessage], None]


class Subscription(SubscriptionBase):
    """One subscription of a `Subscriber`.

    `Subscriber.receive` returns the messages of all subscriptions without a handler. When the program calls
    `Subscription.receive` or iterates over a subscription, this subscription gets its own queue, and
    `Subscriber.receive` no longer returns its messages.
    """

    def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message of this subscription. Other threads may wait at the same time.

        Args:
            timeout: maximum time in seconds; None waits for ever, and 0 only checks.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscription has ended, the subscriber is closed, or the subscription has a handler.
            OwnershipError: the subscriber was created before a fork.
        """
        received: Message = self._subscriber._receive(self._queue(), timeout)
        return received

    def __iter__(self) -> Iterator[BaseMessage]:
        """Receive messages until the subscription ends or the subscriber is closed."""
        return _iterate(self._subscriber, self._queue())

    def unsubscribe(self) -> None:
        """End the subscription, and drop the messages that wait. A second call has no effect.

        Raises:
            ClosedError: the subscriber is closed.
        """
        self._engine.unsubscribe(self._inbox)

    def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End the subscription, but deliver the messages that were published before the call.

        Handlers run during the call. If the subscription has no handler, `receive` returns the remaining messages, and
        then raises ClosedError.

        Args:
            timeout: maximum time in seconds to wait for publishers; None waits for ever.

        Returns:
            Whether all these messages have arrived within `timeout`, and the handler has finished.

        Raises:
            ClosedError: the subscriber is closed.
        """
        check_wait("timeout", timeout)
        is_done: bool = self._subscriber._waits.run(waits.drain(self._engine, self._inbox, timeout))
        return is_done


class Subscriber(SubscriberBase, Pollable):
    """Receives messages whose subjects match its patterns. Several threads may share a subscriber.

    The subscriber creates no thread. Handlers run in the thread that calls `receive`, `run` or `drain`, or that
    iterates over the subscriber. `connect` and `subscribe` send to the publishers at once.

    Args:
        connect: endpoint of a publisher, or a list of endpoints.
        bind: endpoint to which plain publishers connect, or a list of endpoints.
        codec: codec that decodes payloads: "msgpack", "json", or an object with `encode` and `decode`.
        dialect: dialect of patterns given as text, if `subscribe` names no dialect.
        filtering: kind of connections. "publisher" uses only links, and "prefix" uses only plain connections. "auto"
            uses a link, or a plain connection if the publisher does not answer on the link.
        links: link endpoint of the publisher. Pass it if it cannot be derived from `connect`, for example behind
            address translation. For several endpoints, a dict from endpoints to link endpoints.
        on_gap: function called with each `Gap`, when the program has received the messages before the gap.
        security: key, trusted keys and permissions: `oz.Security`, or the path of a TOML file.
        context: ZeroMQ context; default: `zmq.Context.instance()`.
        options: options that few programs change.

    Raises:
        EndpointError: an endpoint cannot be used here.
        ConfigurationError: an argument has a wrong value.
        PermissionDenied: with `security`, one side of a connection does not trust the other side's key.
    """

    def _begin(self) -> None:
        self._waits = ThreadWaits(self._engine)

    def _begin_turn(self) -> SubscriberTurn:
        return SubscriberTurn(self._engine, self._waits.wake_followers)

    # endpoints

    def connect(self, endpoint: str | bytes) -> None:
        """Connect to a publisher. The subscriptions are sent at once.

        Raises:
            EndpointError: the endpoint cannot be used here.
            PermissionDenied: with `security`, one side does not trust the other side's key. The endpoint is not
                connected: call `connect` again when both sides trust each other. If a key is refused after `connect`
                has returned, the next waiting call raises the error, and the subscriber tries to connect again.
            ClosedError: the subscriber is closed.
        """
        self._engine.connect(as_text(endpoint))

    def bind(self, endpoint: str | bytes) -> str:
        """Bind an endpoint to which plain publishers connect. Messages are filtered by prefix and pattern.

        Returns:
            The bound endpoint, with its port number.

        Raises:
            EndpointError: the endpoint cannot be used here.
            ConfigurationError: `filtering="publisher"`, because links need a publisher that binds.
            ClosedError: the subscriber is closed.
        """
        return self._engine.bind(as_text(endpoint))

    def disconnect(self, endpoint: str | bytes) -> None:
        """Disconnect from a publisher. The session with this publisher ends.

        Raises:
            EndpointError: the endpoint is not connected.
            ClosedError: the subscriber is closed.
        """
        self._engine.disconnect(as_text(endpoint))

    def unbind(self, endpoint: str | bytes) -> None:
        """Unbind an endpoint.

        Raises:
            EndpointError: the endpoint is not bound.
            ClosedError: the subscriber is closed.
        """
        self._engine.disconnect(as_text(endpoint), is_bound=True)

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
        """Subscribe to a pattern, or to several patterns as one subscription.

        Args:
            pattern: text, bytes, `Pattern`, compiled regex, or a list of these. Bytes are a plain prefix.
            handler: function called with each message, in the thread that waits. If the handler raises, the exception
                is logged and counted.
            dialect: dialect of patterns given as text; None uses the dialect of the subscriber.
            group: name of a queue group. The publisher sends each message to only one member of the group.
            overflow: reaction of the publisher when too many messages wait: "drop_newest", "drop_oldest" or "conflate".
                With None, the argument `on_full` of the publisher decides.
            last_value: whether the publisher first sends the newest message of each matching subject.
            ack: "received" acknowledges a message when it has arrived. "handled", for groups only, acknowledges a
                message when its handler has returned or raised. Without a handler, `Message.ack` or the next call of
                `receive` in the same thread acknowledges the message.
            max_messages: the subscription ends after this number of messages.
            delivery: delivery options that few programs change.
            unknown: misspelled arguments, which raise an error with a suggestion.

        Raises:
            PatternError: the dialect does not allow the text.
            ConfigurationError: an option has a wrong value or needs a link.
            ClosedError: the subscriber is closed or drained.
            OwnershipError: the subscriber was created before a fork.
        """
        subscription: Subscription = self._subscribe(
            Subscription, pattern, handler, dialect, group, overflow, last_value, ack, max_messages, delivery, unknown
        )  # fmt: skip
        return subscription

    # waits

    def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message of a subscription without a handler. Handlers run during the wait.

        Args:
            timeout: maximum time in seconds; None waits for ever, and 0 only checks.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscriber is closed or drained. Another thread may close the subscriber during the wait.
            OwnershipError: the subscriber was created before a fork.
        """
        engine, items = self._engine, self._shared.items
        if items and not engine.held_messages and not engine.dispatcher.work and _clock() < engine.attend_at:
            item = _pop(items)
            if item.__class__ is Message:
                return item
            if item is not None:
                items.appendleft(item)
        return self._receive(self._shared, timeout)

    def _receive(self, queue: Queue, timeout: float | None) -> Message:
        check_wait("timeout", timeout)
        if queue is self._shared and not self._engine.held_messages:
            message = self._waits.alone(timeout)
            if message is not None:
                return message
        return self._waits.run(waits.receive(self._engine, queue, timeout, _owner()))

    def receive_many(self, limit: int = 1000, *, timeout: float | None = None) -> list[BaseMessage]:
        """Wait for a message as `receive` does, and return it with all further messages that have arrived.

        Args:
            limit: maximum number of messages.
            timeout: maximum time in seconds to wait for the first message; None waits for ever.

        Returns:
            List of at least one message. With `ack="handled"` the list contains exactly one message.

        Raises:
            Timeout, ClosedError, OwnershipError: see `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        messages = [self.receive(timeout=timeout)]
        items = self._shared.items
        try:
            while len(messages) < limit:
                item = _pop(items)
                if item.__class__ is not Message:
                    if item is not None:
                        items.appendleft(item)
                    break
                messages.append(item)
        except BaseException:
            # A signal handler has raised. Put the messages back, so that the next call returns them.
            items.extendleft(messages[::-1])  # type: ignore[arg-type]
            raise
        return messages

    def __iter__(self) -> Iterator[BaseMessage]:
        """Receive messages until the subscriber is closed or drained."""
        return _iterate(self, self._shared)

    def run(self, *, timeout: float | None = None) -> int:
        """Run handlers in the calling thread. If several threads call `run`, several handlers run at the same time.

        Args:
            timeout: the call returns when no message has arrived for this number of seconds. None runs until the
                subscriber is closed or drained.

        Returns:
            Number of messages that handlers received.

        Raises:
            OwnershipError: the subscriber was created before a fork.
        """
        check_wait("timeout", timeout)
        return self._waits.run(waits.run(self._engine, timeout))

    def wait_ready(self, *, timeout: float | None = 10.0) -> None:
        """Wait until all endpoints are ready.

        An endpoint with a link is ready when its publisher has answered the current subscriptions. The link loses no
        message that is published afterwards. An endpoint with a plain connection is ready when the handshake is done.
        The first messages may still be lost, because a plain publisher does not answer subscriptions. For the same
        reason, a subscription that a plain publisher denies raises no error here; the publisher logs the denial.

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
        self._waits.run(waits.wait_ready(self._engine, timeout))

    def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End all subscriptions, but deliver the messages that were published before the call.

        Handlers run during the call. For subscriptions without a handler, `receive` returns the remaining messages, and
        then raises ClosedError. An iteration ends after the remaining messages.

        Args:
            timeout: maximum time in seconds to wait for publishers; None waits for ever.

        Returns:
            Whether all these messages have arrived within `timeout`, and all handlers have finished.

        Raises:
            ClosedError: the subscriber is closed.
        """
        check_wait("timeout", timeout)
        return self._waits.run(waits.drain(self._engine, None, timeout))

    def close(self) -> None:
        """Close the subscriber. Calls that wait in other threads raise ClosedError. A second call has no effect."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pop(items: Any) -> Any:
    try:
        return items.popleft()
    except IndexError:
        return None


def _iterate(subscriber: Subscriber, queue: Queue) -> Iterator[Message]:
    if HOT is None:
        return _iterate_in_python(subscriber, queue, CHUNK)
    engine = subscriber._engine
    return HOT.MessageIteration(
        twin=_iterate_in_python(subscriber, queue, 1),
        items=queue.items,
        work=engine.dispatcher.work,
        in_hand=engine.held_messages,
        engine=engine,
        alone=subscriber._waits.alone if queue is subscriber._shared else None,
        chunk=CHUNK,
    )


def _iterate_in_python(subscriber: Subscriber, queue: Queue, chunk: int) -> Iterator[Message]:
    engine, items = subscriber._engine, queue.items
    in_hand, work = engine.held_messages, engine.dispatcher.work
    popleft = items.popleft
    while True:
        if items and not in_hand and not work and _clock() < engine.attend_at:
            # Read the clock once for several messages, because one read takes as long as one message.
            try:
                for _ in range(chunk):
                    item = popleft()
                    if item.__class__ is not Message:
                        items.appendleft(item)
                        break
                    yield item
                else:
                    continue
            except IndexError:
                pass
        try:
            yield subscriber._receive(queue, None)
        except ClosedError:
            if engine.state == FOREIGN:
                raise
            return
