"""Base classes that the `Node` and `Subscription` classes for threads and for asyncio share."""

from __future__ import annotations

import inspect
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never, NoReturn

from oz import suggestions
from oz.errors import ClosedError, ConfigurationError
from oz.node.engine import Engine
from oz.node.events import Event, Peer
from oz.node.handlers import Pool, Runner
from oz.node.metrics import exposition, families
from oz.node.snapshot import Snapshot
from oz.node.stats import NodeStats
from oz.numbers import check_count, check_wait
from oz.options import Delivery, NodeOptions, OnFull
from oz.publisher.base import PublishingBase
from oz.publisher.thread import forget
from oz.subjects import dialects
from oz.subscriber import checks
from oz.subscriber.base import SubscriptionBase
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox, Queue
from oz.transport.endpoints import Endpoints, as_list
from oz.transport.steps import Steps
from oz.wire.codec import Codec

_MAX_COUNT = 2**31
_HANDLES = 100  # When a node keeps this number of subscriptions, it removes the ended subscriptions.


class NodeSubscriptionBase(SubscriptionBase):
    """State of a subscription of a node."""

    def __init__(self, node: NodeBase, inbox: Inbox, delivery: Delivery, overflow: str | None) -> None:
        self._node = node
        self._engine = node._node.subscriber
        self._inbox, self._delivery, self._overflow = inbox, delivery, overflow
        node._keep(self)
        inbox.handle = weakref.ref(self)

    @property
    def pending(self) -> int:
        """Messages that have arrived and wait for the program."""
        runner = self._inbox.handler
        return runner.lanes.pending if isinstance(runner, Runner) else super().pending

    @property
    def dropped(self) -> int:
        """Messages that a publisher or the queue of the subscription dropped."""
        runner = self._inbox.handler
        return super().dropped + (runner.lanes.dropped if isinstance(runner, Runner) else 0)

    def _queue(self) -> Queue:
        queue = self._inbox.queue
        if self._inbox.handler is not None or queue is None:
            raise ClosedError(
                "the handler of the subscription receives its messages: leave handler= out to call receive()"
            )
        return queue

    def _take(self) -> Message | None:
        """Return the next message; None if the queue is empty, or if its first entry is a gap."""
        items = self._queue().items
        try:
            item = items.popleft()
        except IndexError:
            return None
        if item.__class__ is Message:
            return item
        items.appendleft(item)
        return None


class NodeBase(PublishingBase):
    """Constructor of a node, and methods that do not wait."""

    _node: Engine
    _class_name = "oz.Node"
    _runs_handlers = True

    def __init__(
        self,
        name: str | None = None,
        *unnamed: Never,
        bus: str | None = None,
        connect: Endpoints = (),
        bind: Endpoints | None = None,
        codec: str | Codec | None = "msgpack",
        dialect: str = "nats",
        on_full: OnFull = "drop",
        last_value: bool = False,
        on_event: Callable[[Event], Any] | None = None,
        security: Any = None,
        options: NodeOptions | None = None,
        **unknown: Never,
    ) -> None:
        """Join a bus.

        The constructor does not wait for peers; `wait_ready` does. If an argument is None, its value comes from the
        environment, from a file or from a default: see docs/configuration.md.

        Args:
            name: name of the node. Default: the name of the program and its process id.
            bus: name of the bus. Nodes of different buses do not see each other.
            connect: endpoints of other nodes. One node of the bus is sufficient, because it introduces all other nodes.
            bind: endpoints at which other nodes reach this node. Default: a Unix socket for nodes of this host, and a
                free TCP port if `connect` has a TCP endpoint.
            codec: format of payloads: "msgpack", "json", an object with `encode` and `decode`, or None for bytes.
            dialect: dialect of subjects and patterns, one of `oz.DIALECTS`.
            on_full: action if the queue for a peer is full. "drop" drops the message for this peer, "block" waits up to
                `send_timeout` seconds, and "raise" raises `WouldBlock`.
            last_value: whether the node keeps the newest message of each subject, for subscriptions with
                `last_value=True`.
            on_event: function that is called with each `Event`. Calls do not overlap.
            security: key, trusted keys and permissions: `oz.Security`, or the path of a TOML file.
            options: further options, which few programs change.
            unnamed: further positional arguments, which raise an error that names the parameter.
            unknown: misspelled arguments. The error suggests the right name.

        Raises:
            TypeError: an argument is unknown.
            EndpointError: an endpoint cannot be used.
            ConfigurationError: an argument has a wrong value.
            ClosedError: the program is ending, so that a new node would never be closed.
        """
        suggestions.refuse_positional(self._class_name, unnamed, "name")
        suggestions.refuse_unknown(self._class_name, unknown, NodeBase.__init__, options=NodeOptions)
        dialects.find(dialect)
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is called with each event; {on_event!r} cannot be called")
        self._dialect, self._on_event = dialect, on_event
        self._handles: list[NodeSubscriptionBase] = []
        self._handles_limit = _HANDLES
        options = NodeOptions() if options is None else options
        if not isinstance(options, NodeOptions):
            raise TypeError(f"options are oz.NodeOptions, not {type(options).__name__}")
        try:
            self._create_engine(
                name,
                bus=bus,
                connect=as_list(connect),
                bind=as_list(bind),
                codec=codec,
                dialect=dialect,
                on_full=on_full,
                last_value=last_value,
                security=security,
                options=options,
                runs_handlers=self._runs_handlers,
                pool=self._make_pool(options),
                # Not an assignment of the result: a signal handler may raise an exception after the engine's
                # constructor has returned and before the assignment. Then nothing would close the engine.
                keep=partial(setattr, self, "_node"),
            )
            self._publish_with(self._node.publisher)
            self._begin()
        except BaseException:
            engine: Engine | None = self.__dict__.get("_node")
            if engine is not None:
                # A signal handler raised the exception after the engine was complete.
                forget(engine)
                engine.abort()
                engine.wake()
                engine.end_context()
            raise

    def _create_engine(self, *arguments: Any, **options: Any) -> Engine:
        # `oz.testing` overrides this method to pass a context with simulated sockets.
        return Engine(*arguments, **options)

    def _keep(self, subscription: NodeSubscriptionBase) -> None:
        """Keep a reference to a subscription, because the engine has only a weak reference to it."""
        if len(self._handles) >= self._handles_limit:
            self._handles = [handle for handle in self._handles if handle.active]
            self._handles_limit = max(2 * len(self._handles), _HANDLES)
        self._handles.append(subscription)

    @staticmethod
    @abstractmethod
    def _make_pool(options: NodeOptions) -> Pool:
        """Return the workers of the handlers."""

    @abstractmethod
    def _begin(self) -> None:
        """Start the thread or the tasks that run the engine."""

    @abstractmethod
    def _drop(self) -> None:
        """Close without waiting, because the node was garbage-collected. Any thread may call this method."""

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._node.name

    @property
    def bus(self) -> str:
        """Name of the bus."""
        return self._node.bus

    @property
    def endpoint(self) -> str | None:
        """First endpoint at which other nodes reach this node; None if there is none."""
        return self._node.endpoint

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All endpoints at which other nodes reach this node."""
        return self._node.endpoints

    @property
    def peers(self) -> list[Peer]:
        """Peers that are up, sorted by name. The list contains a silent peer until that peer is lost."""
        return self._node.peers

    @property
    def stats(self) -> NodeStats:
        """Counters of the node."""
        return self._node.stats()

    def snapshot(self) -> Snapshot:
        """Return the statistics of this node: links, subscriptions, losses, times of handlers, and resources.

        Any thread may call this method, even if the node is an `oz.asyncio.Node`.

        The first call starts the measurement of the times of handlers. The measurement stops 60 s after the last call.

        Raises:
            ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        self._node.check_usable()
        return self._node.sampling.snapshot()

    def metrics(self) -> str:
        """Return the statistics of this node in the text format of Prometheus; see `snapshot`.

        Raises:
            ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        return exposition(families([self.snapshot()]))

    def is_healthy(self) -> bool:
        """Return whether the node is open and its thread or loop is at most 5 s late. Any thread may call this method.

        The result does not depend on peers. `wait_ready` waits for peers.
        """
        return self._node.is_healthy

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Active subscriptions."""
        subscriber = self._node.subscriber
        with subscriber.lock:
            return tuple(inbox.handle for inbox in subscriber.dispatcher.inboxes if inbox.is_active)

    @property
    def closed(self) -> bool:
        """Whether the node is closed."""
        return self._node.is_closed

    def _subscribe(
        self,
        subscription_class: type[Any],
        pattern: Any,
        handler: Any,
        dialect: str | None,
        group: str | None,
        overflow: str | None,
        last_value: bool,
        ack: str,
        concurrency: int,
        max_messages: int | None,
        delivery: Delivery,
        unknown: dict[str, Any],
    ) -> Any:
        public: Any = type(self)
        suggestions.refuse_unknown(
            f"{self._class_name}.subscribe", unknown, public.subscribe, delivery=Delivery
        )
        stream = checks.stream_options(group, overflow, ack, last_value, delivery, "publisher")
        checks.check_subscription(handler, max_messages, class_name=self._class_name)
        check_count("concurrency", concurrency, 1, _MAX_COUNT)
        if concurrency > 1 and handler is None:
            raise ConfigurationError("concurrency", concurrency, "argument", "it needs handler=")
        patterns = checks.compile_all(pattern, dialect, self._dialect)
        engine = self._node
        inbox = engine.subscribe(
            patterns,
            handler,
            stream,
            delivery,
            concurrency=concurrency,
            last_value=bool(last_value),
            limit=max_messages,
        )
        return subscription_class(self, inbox, delivery, overflow)

    def _snapshot_steps(self, peers: Sequence[str], timeout: float | None) -> Steps[list[Snapshot]]:
        for name in peers:
            if not isinstance(name, str):
                raise TypeError(f"peers are given by name, not by {name!r}")
        check_wait("timeout", timeout)
        return self._node.sampling.ask(peers, timeout)

    @staticmethod
    def _check_ready(peers: Sequence[str], count: int | None) -> None:
        for peer in peers:
            if not isinstance(peer, str):
                raise TypeError(f"peers are given by name, not by {peer!r}; count= takes a number of peers")
        if count is not None:
            check_count("count", count, 0, _MAX_COUNT)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise suggestions.no_attribute(self._class_name, type(self), name)

    def __repr__(self) -> str:
        if "_node" not in self.__dict__:
            return f"<{self._class_name} not made>"
        return f"<{self._class_name} {self.name!r} on {self.bus!r}{' closed' if self.closed else ''}>"

    def __del__(self) -> None:
        """Close the node without waiting, if the program has not closed it."""
        engine = self.__dict__.get("_node")
        if engine is None or engine.is_closed or engine.is_foreign:
            return
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        self._drop()


def is_coroutine_function(function: Any) -> bool:
    """Return whether calls of a function return a coroutine."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
