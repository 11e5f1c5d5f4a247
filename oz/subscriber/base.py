"""Base classes of `Subscriber` and `Subscription` for threads and for asyncio."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Never, NoReturn

import zmq

from oz import suggestions
from oz.errors import ClosedError
from oz.message import Gap
from oz.options import Delivery, Filtering, Options
from oz.subjects.pattern import Pattern
from oz.subscriber import checks
from oz.subscriber.connections import CLOSED, FOREIGN
from oz.subscriber.engine import Engine
from oz.subscriber.message import Message
from oz.subscriber.places import PublisherInfo
from oz.subscriber.queue import Inbox, Queue, SubscriberStats
from oz.transport.endpoints import Endpoints, as_list
from oz.transport.security import credentials_of
from oz.wire.codec import Codec, find_codec

_clock = time.monotonic
_owner = threading.current_thread

Handler = Callable[[Message], Any]


class SubscriptionBase:
    """Base class of subscriptions, with everything that does not wait."""

    _class_name = "oz.Subscription"

    def __init__(self, subscriber: Any, inbox: Inbox, delivery: Delivery, overflow: str | None) -> None:
        """Create a subscription. Only `Subscriber.subscribe` calls the constructor."""
        self._subscriber = subscriber
        self._engine: Engine = subscriber._engine
        self._inbox, self._delivery, self._overflow = inbox, delivery, overflow
        inbox.handle = self

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Compiled patterns."""
        return tuple(entry.pattern for entry in self._inbox.entries)

    @property
    def group(self) -> str | None:
        """Name of the queue group, or None."""
        return self._inbox.entries[0].options.group

    @property
    def active(self) -> bool:
        """Whether the subscription still receives messages."""
        return self._inbox.is_active

    @property
    def pending(self) -> int:
        """Number of messages that have arrived and that the program has not received yet."""
        with self._engine.lock:
            return self._engine.dispatcher.pending(self._inbox)

    @property
    def dropped(self) -> int:
        """Number of messages that publishers or the queue of the subscription have dropped."""
        queue = self._inbox.queue
        return self._inbox.dropped + (0 if queue is None else queue.dropped)

    def _queue(self) -> Queue:
        queue = self._inbox.queue
        if self._inbox.handler is not None:
            raise ClosedError(
                "the handler of the subscription receives its messages: leave handler= out to call receive()"
            )
        return queue or self._engine.own_queue(self._inbox, self._delivery, self._overflow)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise suggestions.no_attribute(self._class_name, type(self), name)

    def __repr__(self) -> str:
        texts = ", ".join(repr(pattern.text) for pattern in self.patterns)
        return f"<{self._class_name} {texts}{'' if self.active else ' ended'}>"


class SubscriberBase:
    """Base class of subscribers, with everything that does not wait."""

    _class_name = "oz.Subscriber"
    _runs_handlers = True
    _engine: Engine

    def __init__(
        self,
        connect: Endpoints | None = None,
        bind: Endpoints | None = None,
        *,
        codec: str | Codec | None = None,
        dialect: str = "nats",
        filtering: Filtering = "auto",
        links: str | Mapping[str, str] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        security: Any = None,
        context: zmq.Context[Any] | None = None,
        options: Options = Options(),  # noqa: B008 - it is frozen
        **unknown: Never,
    ) -> None:
        suggestions.refuse_unknown(self._class_name, unknown, SubscriberBase.__init__, options=Options)
        checks.check_subscriber(dialect, filtering, on_gap, options, links)
        found = find_codec(codec)
        self._dialect, self._filtering = dialect, filtering
        self._engine = Engine(
            context=context,
            filtering=filtering,
            decode=None if found is None else found.decode,
            link_endpoints=links,
            on_gap=on_gap,
            options=options,
            credentials=credentials_of(security, options.multicast),
            runs_handlers=self._runs_handlers,
        )
        self._shared = self._engine.dispatcher.shared
        self._begin()
        try:
            for endpoint in as_list(connect):
                self._engine.connect(endpoint)
            for endpoint in as_list(bind):
                self._engine.bind(endpoint)
        except BaseException:
            self._engine.close()
            raise

    def _begin(self) -> None:
        """Create `_waits`, the object that runs waits in threads or in an asyncio loop."""
        raise NotImplementedError

    @property
    def endpoint(self) -> str | None:
        """First endpoint of the subscriber; None without an endpoint. A bound endpoint includes its port number."""
        return next(iter(self._engine.places), None)

    @property
    def stats(self) -> SubscriberStats:
        """Copy of the counters since the subscriber was created."""
        return self._engine.stats

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """Active subscriptions."""
        with self._engine.lock:
            return tuple(inbox.handle for inbox in self._engine.dispatcher.inboxes if inbox.is_active)

    @property
    def publishers(self) -> list[PublisherInfo]:
        """State of each endpoint."""
        return self._engine.publishers

    @property
    def closed(self) -> bool:
        """Whether the subscriber is closed."""
        return self._engine.state == CLOSED

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a message may have arrived.

        When the descriptor is readable, call `receive(timeout=0)` until it raises `Timeout`. If the descriptor is not
        readable for a second, also call `receive(timeout=0)`, so that publishers get acknowledgements.

        Raises:
            ClosedError: the subscriber is closed.
            OwnershipError: the subscriber was created before a fork.
        """
        return self._engine.fileno()

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
        max_messages: int | None,
        delivery: Delivery,
        unknown: dict[str, Any],
    ) -> Any:
        public: Any = type(self)
        suggestions.refuse_unknown(
            f"{self._class_name}.subscribe", unknown, public.subscribe, delivery=Delivery
        )
        stream = checks.stream_options(group, overflow, ack, last_value, delivery, self._filtering)
        checks.check_subscription(handler, max_messages, class_name=self._class_name)
        patterns = checks.compile_all(pattern, dialect, self._dialect)
        with self._engine.lock:
            inbox = self._engine.subscribe(
                patterns, handler, stream, delivery, last_value=bool(last_value), limit=max_messages
            )
            return subscription_class(self, inbox, delivery, overflow)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise suggestions.no_attribute(self._class_name, type(self), name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in suggestions.OPTIONS_OF_SOCKETS:
                # A socket option of pyzmq would have no effect on a subscriber.
                raise suggestions.no_attribute(self._class_name, type(self), name)
            super().__setattr__(name, value)

    def __del__(self) -> None:
        engine = self.__dict__.get("_engine")
        if engine is not None and engine.state not in (CLOSED, FOREIGN):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            engine.close()

    def __repr__(self) -> str:
        endpoints = (", ".join(self._engine.places) if "_engine" in self.__dict__ else "") or "no endpoint"
        return f"<{self._class_name} {endpoints}{' closed' if self.closed else ''}>"
