"""`Node` and `Subscription` for threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Never, Self

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.message import Message as BaseMessage
from oz.node.asking import ThreadRequesting
from oz.node.base import NodeBase, NodeSubscriptionBase
from oz.node.engine import Engine
from oz.node.events import MAX_EVENTS, Event
from oz.node.snapshot import Snapshot
from oz.node.threads import ThreadPool
from oz.numbers import check_wait
from oz.options import Ack, Delivery, NodeOptions, Overflow
from oz.publisher.sync import Publishing
from oz.publisher.thread import ThreadLifetime
from oz.subjects.pattern import PatternLike
from oz.subscriber import waits
from oz.subscriber.sync import Subscription as PlainSubscription
from oz.transport.steps import Steps
from oz.transport.waiting import wait_in_thread

_log = peer_logger("oz.node")

Handler = Callable[[BaseMessage], Any]


class Subscription(NodeSubscriptionBase, PlainSubscription):
    """One subscription of a `Node`."""

    def receive(self, *, timeout: float | None = None) -> BaseMessage:
        """Wait for the next message. Other threads may wait at the same time.

        Args:
            timeout: seconds to wait; None waits for ever, 0 only checks for a message that has arrived.

        Raises:
            Timeout: no message arrived within `timeout`.
            ClosedError: the subscription or the node has ended, or the subscription has a handler.
            PermissionDenied: a peer refuses the subscription. Only the first refusal is raised, and only once.
            OwnershipError: the node was created before a fork, or the caller is an inline handler.
        """
        engine = self._engine
        found = None if engine.in_hand else self._take()
        if found is not None:
            return found
        check_wait("timeout", timeout)
        if timeout != 0:
            self._node._node.check_may_wait()
        steps = waits.receive(engine, self._queue(), timeout, threading.current_thread())
        return wait_in_thread(self._node._node.news, steps)

    def __iter__(self) -> Iterator[BaseMessage]:
        """Receive until the subscription or the node ends."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                if self._node._node.is_foreign:
                    raise
                return

    def unsubscribe(self) -> None:
        """End the subscription. Messages that the program has not received are dropped. A second call has no effect.

        Raises:
            ClosedError: the node is closed.
        """
        self._engine.unsubscribe(self._inbox)

    def drain(self, *, timeout: float | None = 5.0) -> bool:
        """End the subscription. Messages that were published before the call are still delivered.

        If the subscription has no handler, `receive` still returns the messages that have arrived. After the last
        message, it raises ClosedError.

        Args:
            timeout: seconds to wait for peers; None waits for ever.

        Returns:
            Whether all messages that were published before the call were delivered within `timeout`.

        Raises:
            ClosedError: the node is closed.
            OwnershipError: the caller is an inline handler.
        """
        check_wait("timeout", timeout)
        self._node._node.check_may_wait()
        return wait_in_thread(self._node._node.news, waits.drain(self._engine, self._inbox, timeout))


class _Notices:
    """Calls `on_event` for one event after another, in a separate thread. The thread ends when no event waits."""

    def __init__(self, on_event: Callable[[Event], Any]) -> None:
        self._on_event = on_event
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._lock = threading.Lock()
        self._is_running = False

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self._events.append(event)
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="oz event", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._events:
                    self._is_running = False
                    return
                event = self._events.popleft()
            try:
                self._on_event(event)
            except Exception:
                _log.exception("on_event raised for %s", event)


class _Lifetime(ThreadLifetime):
    """Thread that runs a node until the node is closed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, "node")
        self._node = engine

    def close(self, timeout: float | None) -> int:
        """Close the node; see `Node.close`."""
        node = self._node
        if node.is_foreign:
            return 0
        if node.is_attended_here():
            # The caller is an inline handler. It must not wait, because its thread attends to the node.
            timeout = 0.0
        end = None if timeout is None else node.clock() + timeout
        wait_in_thread(node.news, node.handled(timeout))
        return super().close(None if end is None else max(0.0, end - node.clock()))


class Node(NodeBase, Publishing, ThreadRequesting):
    """Member of a bus: publishes, subscribes, requests and replies by subject.

    Threads may share a node. A signal handler must not use a node. One background thread attends to the connections of
    the node.
    """

    @staticmethod
    def _make_pool(options: NodeOptions) -> ThreadPool:
        return ThreadPool(options.threads)

    def _begin(self) -> None:
        if self._on_event is not None:
            self._node.notify = _Notices(self._on_event).put
        self._node.publisher.defers = True
        self._life = _Lifetime(self._node)
        self._life.start()

    def _drop(self) -> None:
        self._life.drop()

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
        """Subscribe to a pattern, or to several patterns with one subscription.

        The subscription receives each message that this node publishes after the call. Peers know the subscription
        when `wait_ready` returns. A wildcard at the start of a pattern does not match subjects that begin with `_`.

        Args:
            pattern: text, `Pattern`, compiled regex, or a list of patterns. Bytes are a plain prefix.
            handler: function that is called with each message.
            dialect: dialect of a pattern that is text.
            group: name of a queue group. Each message goes to one member of a group.
            overflow: policy for messages when `max_pending` messages already wait: "drop_newest", "drop_oldest",
                "conflate", or None. With None, each publisher applies its `on_full`, and this node "drop_newest".
            last_value: whether publishers first send the newest message of each subject that matches.
            ack: "received" acknowledges a message when it has arrived. "handled" acknowledges a message when its
                handler has returned or raised an exception. With "handled" and without a handler, the next `receive` of
                the same thread acknowledges the message. `Message.ack` acknowledges a message earlier.
            concurrency: number of messages that the handler handles at the same time. Messages of one subject keep
                their order.
            max_messages: number of messages after which the subscription ends.
            delivery: further options, which few programs change.
            unknown: misspelled arguments. The error suggests the right name.

        Raises:
            PatternError: the text is not valid in the dialect, or the pattern may match subjects that oz reserves.
            ConfigurationError: an option has a wrong value.
            ClosedError: the node is closed.
            OwnershipError: the node was created before a fork.
        """
        subscription: Subscription = self._subscribe(
            Subscription, pattern, handler, dialect, group, overflow, last_value, ack, concurrency, max_messages,
            delivery, unknown,
        )  # fmt: skip
        return subscription

    def wait_for_subscribers(
        self, subject: str | bytes | None = None, *, count: int = 1, timeout: float | None = 10.0
    ) -> None:
        """Wait until nodes have subscribed; see `oz.Publisher.wait_for_subscribers`.

        The node itself counts if it subscribes and `echo` is on.

        Args:
            subject: subject to which a node must subscribe to be counted; None counts all nodes.
            count: number of nodes to wait for.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: fewer nodes than `count` have subscribed.
            OwnershipError: the caller is an inline handler, or the child of a fork.
            SubjectError, ClosedError: the same reasons as in `publish`.
        """
        self._node.check_may_wait()
        super().wait_for_subscribers(subject, count=count, timeout=timeout)

    def wait_ready(
        self,
        *peers: str,
        count: int | None = None,
        subscriber: str | bytes | None = None,
        timeout: float | None = 10.0,
    ) -> None:
        """Wait until this node and its peers know each other's subscriptions.

        A message that this node publishes before the call returns may not reach all subscribers. The call also waits
        for the answers of endpoints that this node has just found. It waits for a silent peer only if `peers` names
        that peer.

        Args:
            peers: names of peers that must be up.
            count: number of peers that must be up.
            subscriber: subject that at least one node must subscribe to. A silent peer does not count.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: a condition was not met within `timeout`. The text names the condition and the remedy.
            PermissionDenied: a peer denies a subscription of this node, or a message that this node has published. The
                error is raised once for each subscription, and once for each subject of denied messages.
            ProtocolError: a peer refuses a subscription for another reason.
            OwnershipError: the caller is an inline handler, or the child of a fork.
            SubjectError, ClosedError: the same reasons as in `publish`.
        """
        self._check_ready(peers, count)
        check_wait("timeout", timeout)
        self._node.check_may_wait()
        self._run(self._node.readiness.ready(peers, count, subscriber, timeout))

    def request_snapshots(self, *peers: str, timeout: float | None = 1.0) -> list[Snapshot]:
        """Return the statistics of peers, sorted by name; see `snapshot`. The result omits peers that answer too late.

        Each peer takes its snapshot when the request arrives. Name servers and forwarders answer too.

        Args:
            peers: names of peers. Default: all peers that are up.
            timeout: seconds to wait for answers; None waits as long as the peers are up.

        Raises:
            NoResponders: a named peer is not up.
            PermissionDenied: no peer sends statistics, and at least one peer denies the request for `_OZ.STATISTICS`.
            OwnershipError: the caller is an inline handler, or the child of a fork.
            ClosedError: the node is closed.
        """
        self._node.check_may_wait()
        found: list[Snapshot] = self._run(self._snapshot_steps(peers, timeout))
        return found

    def _run(self, steps: Steps[Any]) -> Any:
        return wait_in_thread(self._node.news, steps)

    def close(self, *, timeout: float | None = 5.0) -> int:
        """Leave the bus. A second call has no effect. A call in the child of a fork has no effect either.

        The call first waits until handlers have handled the messages that have arrived. Then it waits until connected
        peers have acknowledged the messages of this node. Messages that still wait for `receive` are dropped. In a
        group with redelivery, other members receive these messages.

        Args:
            timeout: seconds for the whole call. With None, the call waits while acknowledgements arrive, and until
                groups with `ack="handled"` have handled their messages.

        Returns:
            Number of messages that peers have not acknowledged. For a group with `ack="handled"`, the number includes
            the messages that no member of the group has handled.
        """
        check_wait("timeout", timeout)
        left = self._life.close(timeout)
        self._handles.clear()
        return left

    def __enter__(self) -> Self:
        """Return the node; the `with` block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
