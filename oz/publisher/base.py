"""Non-blocking calls that the publishers for threads and for asyncio share."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Never, NoReturn

import zmq

from oz.compiled import HOT
from oz.errors import ConfigurationError
from oz.numbers import check_count
from oz.options import OnFull, Options
from oz.program_end import check_running
from oz.publisher.engine import Engine
from oz.publisher.multicast import MulticastEngine, wants_multicast
from oz.publisher.stats import PublisherStats, SubscriberInfo
from oz.suggestions import OPTIONS_OF_SOCKETS, no_attribute, refuse_unknown
from oz.transport.endpoints import Endpoints, as_list
from oz.wire.codec import Codec


class PublishingBase:
    """Publish calls that do not wait, shared by publishers and nodes."""

    # C code reads the slot `_outbox`.
    __slots__ = ("__dict__", "__weakref__", "_outbox")

    _engine: Engine

    def _publish_with(self, engine: Engine) -> None:
        self._engine = engine
        if HOT is not None:
            self._outbox = HOT.Outbox(
                quick=engine.quick,
                waiting=engine.waiting,
                engine=engine,
                batcher=engine.batcher,
                lock=engine.lock,
                plain=engine.plain_raw,
                full_length=engine.full_length,
                max_fast_bytes=engine.max_fast_bytes,
                window_bytes=engine.settings.window_bytes,
                pending_bytes=engine.settings.pending_bytes,
                total_bytes=engine.settings.total_bytes,
                joined_bytes=engine.settings.joined_bytes,
                refuses=engine.refuses,
            )

    @staticmethod
    def _check_pairs(pairs: object) -> None:
        if isinstance(pairs, Mapping | str | bytes):
            hint = "call .items()" if isinstance(pairs, Mapping) else "use publish for one message"
            raise TypeError(f"pairs are (subject, payload), not {type(pairs).__name__}: {hint}")

    @staticmethod
    def _no_pair(element: object, index: int) -> ConfigurationError:
        rule = "an element is a pair (subject, payload); use publish for headers=, key= and id="
        return ConfigurationError(f"pairs[{index}]", element, "argument", rule)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect messages in batches while a `with` block runs.

        A full batch is sent at once. The last batch is sent at the end of the block.
        """
        engine = self._engine
        token = object()
        try:
            engine.hold(token)
            yield
        finally:
            try:
                engine.release(token)
            finally:
                # The second call has an effect only if a signal handler has raised in the first call.
                engine.release(token)

    def has_subscribers(self, subject: str | bytes) -> bool:
        """Return whether a subscriber receives a subject.

        A subscriber that has lost its connection counts until its link can no longer resume.

        Raises:
            SubjectError, ClosedError, OwnershipError: see `publish`.
        """
        return self._engine.count_subscribers(subject) > 0


class PublisherBase(PublishingBase, ABC):
    """Base class of the publishers, with all calls that do not wait."""

    _class_name = "oz.Publisher"

    def __init__(
        self,
        bind: Endpoints | None = None,
        connect: Endpoints | None = None,
        *,
        codec: str | Codec | None = None,
        dialect: str = "nats",
        on_full: OnFull = "drop",
        last_value: bool = False,
        links: str | bool | None = None,
        security: Any = None,
        context: zmq.Context[Any] | None = None,
        options: Options | None = None,
        **unknown: Never,
    ) -> None:
        """Bind and connect to endpoints.

        Args:
            bind: endpoints to listen at.
            connect: endpoints to connect to, for example the endpoint of a proxy. Links need `bind`.
            codec: codec that encodes payloads: "msgpack", "json", or an object with `encode` and `decode`.
            dialect: rules for subjects, one of `oz.DIALECTS`.
            on_full: reaction of `publish` if a subscriber without an overflow policy is full. "drop" drops the message
                for this subscriber, "block" waits for at most `send_timeout` seconds, "raise" raises `WouldBlock`.
            last_value: whether the publisher keeps the newest message of each subject. A subscription with
                `last_value=True` first receives these messages.
            links: endpoint for links. None derives a link endpoint from each endpoint: TCP port + 10,000, or `.links`
                appended to an ipc or inproc name. False turns links off.
            security: key, trusted keys and permissions: `oz.Security`, or the path of a TOML file.
            context: ZeroMQ context of the sockets. For inproc endpoints, pass a context. With None, the publisher
                creates its own context.
            options: limits and other settings; see `oz.options.Options`.
            unknown: misspelled arguments, which raise an error with a suggestion.

        Raises:
            TypeError: an argument is unknown.
            EndpointError: an endpoint cannot be used.
            ConfigurationError: an argument has a wrong value.
            ClosedError: the program is ending.
        """
        refuse_unknown(self._class_name, unknown, PublisherBase.__init__, options=Options)
        check_running("publisher")
        kind = MulticastEngine if wants_multicast(options, (*as_list(bind), *as_list(connect))) else Engine
        engine = kind(
            codec=codec,
            dialect=dialect,
            on_full=on_full,
            last_value=last_value,
            links=links,
            security=security,
            context=context,
            options=options,
        )
        self._publish_with(engine)
        self._begin(engine)
        try:
            for endpoint in as_list(bind):
                self.bind(endpoint)
            for endpoint in as_list(connect):
                self.connect(endpoint)
        except BaseException:
            self._abort()
            raise

    @abstractmethod
    def _begin(self, engine: Engine) -> None:
        """Create the thread or task that runs the engine."""

    @abstractmethod
    def _start(self) -> None:
        """Start the engine. The caller has added the first endpoint."""

    @abstractmethod
    def _abort(self) -> None:
        """Close the sockets after the constructor has failed."""

    @abstractmethod
    def _drop(self) -> None:
        """Close a garbage-collected publisher without a wait. Any thread may call this method."""

    def report_loss(self, count: int | None) -> None:
        """Report that messages were lost before they reached this publisher. Gateways and forwarders use this.

        Each subscriber with a link receives a gap after the messages that were published before this call. Plain
        subscribers get no report.

        Args:
            count: number of lost messages; None if it is unknown.

        Raises:
            TypeError, ValueError: the count is not an integer of at least 1.
            ClosedError, OwnershipError: see `publish`.
        """
        if count is not None:
            check_count("count", count, 1, 2**62)
        self._engine.report_loss(count)

    def bind(self, endpoint: str | bytes) -> None:
        """Bind to an endpoint, and to its link endpoint.

        Raises:
            EndpointError: the endpoint cannot be used, or the endpoint given as `links=` cannot be used.
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.bind(endpoint)
        self._start()

    def connect(self, endpoint: str | bytes) -> None:
        """Connect to an endpoint. It serves plain subscribers only, because links need `bind`.

        Raises:
            EndpointError: the endpoint cannot be used.
            PermissionDenied: with `security`, one side does not trust the other side's key. The endpoint is not
                connected.
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.connect(endpoint)
        self._start()

    def unbind(self, endpoint: str | bytes) -> None:
        """Undo `bind`.

        Raises:
            EndpointError: the publisher is not bound to the endpoint.
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.unbind(endpoint)

    def disconnect(self, endpoint: str | bytes) -> None:
        """Undo `connect`.

        Raises:
            EndpointError: the publisher is not connected to the endpoint.
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.disconnect(endpoint)

    @property
    def endpoint(self) -> str | None:
        """Last bound endpoint. Without a bound endpoint, the last connected endpoint, or None."""
        return self._engine.endpoint

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All bound endpoints, then all connected endpoints."""
        return self._engine.endpoints

    @property
    def link_endpoints(self) -> tuple[str, ...]:
        """Endpoints to which subscribers connect their links."""
        return self._engine.link_endpoints

    @property
    def stats(self) -> PublisherStats:
        """Counters of the publisher."""
        return self._engine.stats()

    @property
    def subscribers(self) -> list[SubscriberInfo]:
        """State of each link."""
        return self._engine.subscriber_infos()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self._class_name, type(self), name)

        def __setattr__(self, name: str, value: Any) -> None:
            """Raise AttributeError for socket options of pyzmq, which would have no effect on a publisher."""
            if name in OPTIONS_OF_SOCKETS:
                raise no_attribute(self._class_name, type(self), name)
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        where = ", ".join(self.endpoints) or ("closed" if self._engine.is_closed else "no endpoint")
        return f"<{self._class_name} {where}>"

    def __del__(self) -> None:
        engine = self.__dict__.get("_engine")
        if engine is None or engine.is_closed or engine.is_foreign:
            return
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
        self._drop()
