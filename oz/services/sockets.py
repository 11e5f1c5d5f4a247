"""The subscribing side of a service: the engine of a subscriber on a plain SUB, which no user holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import zmq

from oz.protocol.messages import Message
from oz.protocol.multicast.options import Multicast
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.columns import Arrived
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.pattern import Pattern
from oz.sync.waiting import BlockingWaiter
from oz.transport import descriptors
from oz.transport.attachments import Attachments
from oz.transport.endpoints import Endpoints, as_list
from oz.transport.guard import StrictGuard
from oz.transport.multicast.receiver import OnAdvisory
from oz.transport.option_checks import Filtering, delivery_options
from oz.transport.security import Security, credentials_of
from oz.transport.socket import end_context
from oz.transport.subscriber.draining import drain, wait_ready
from oz.transport.subscriber.front import GOODBYE_SECONDS
from oz.transport.subscriber.options import check_options
from oz.transport.subscriber.receiver import PATIENCE
from oz.transport.subscriber.routed import RoutedReceivePath
from oz.wire.codec import Codec

_NOBLOCK = int(zmq.NOBLOCK)


class ServiceSubscriber:
    """Receives for a service, which waits for all its sockets itself: taking messages never waits.

    One thread uses it, and subscriptions have no handlers.

    Attributes:
        socket: the SUB, to be waited for.
        engine: what receives.
    """

    __slots__ = ("_attachments", "_is_shared", "engine", "socket")

    def __init__(
        self,
        connect: Endpoints | None = None,
        bind: Endpoints | None = None,
        *,
        context: zmq.Context[Any] | None = None,
        codec: str | Codec | None = None,
        delimiter: bytes | None = None,
        high_water_mark: int | None = None,
        filtering: Filtering = "prefix",
        shared: bool = False,
        dedupe: bool = False,
        on_gap: OnGap | None = None,
        multicast: Multicast | None = None,
        plain: bool = False,
        on_advisory: OnAdvisory | None = None,
        limits: Limits = DEFAULT_LIMITS,
        security: Security | None = None,
    ) -> None:
        """Bind and connect; see `oz.Subscriber`, which has these options too.

        Args:
            connect: an endpoint to connect to, or a list of them.
            bind: an endpoint to bind to, or a list of them.
            context: the ZeroMQ context to share; without it there is one of its own.
            codec: decodes payloads, or its name.
            delimiter: what stands between subject and payload of messages of one frame.
            high_water_mark: what may wait here for each publisher.
            filtering: `"prefix"` or `"publisher"`.
            shared: patterns have keys that subscribers have in common.
            dedupe: repeats are dropped.
            on_gap: called with each `oz.Gap`.
            multicast: how to listen to multicast.
            plain: messages that are multicast are ordinary ones of ZeroMQ.
            on_advisory: called with each `oz.Advisory`.
            limits: how much publishers may send; docs/limits.md.
            security: its key, and those that it trusts; docs/security.md.

        Raises:
            ValueError, TypeError, EndpointError, TransportUnavailable, PermissionDenied, ConfigurationError,
                zmq.ZMQError: as `oz.Subscriber`.
        """
        options = check_options(
            (connect, bind),
            codec=codec,
            delimiter=delimiter,
            filtering=filtering,
            shared=shared,
            dedupe=dedupe,
            on_gap=on_gap,
            multicast=multicast,
            plain=plain,
            on_advisory=on_advisory,
            limits=limits,
        )
        descriptors.need(descriptors.CONTEXT, "a service")
        is_own = context is None
        guard = StrictGuard()
        self._is_shared = shared
        credentials = credentials_of(security, options.group)
        self._attachments = Attachments(guard, options.group, own_context=is_own, credentials=credentials)
        self.socket: zmq.Socket[Any] = zmq.Socket(zmq.Context() if context is None else context, zmq.SUB)
        self.engine = options.make_engine(self.socket, guard, self._attachments)
        self.engine.raise_denials()
        if credentials is not None:
            self.engine.look_after_calls(self._attachments)
        try:
            # `Context.destroy` is to know of it, as of what `Context.socket` makes.
            self.socket.context._add_socket(self.socket)
            options.configure(self.socket, high_water_mark, own_context=is_own)
            for endpoint in as_list(bind):
                self.bind(endpoint)
            for endpoint in as_list(connect):
                self.engine.declarer.begin_calls()
                self._attachments.connect(self.socket, endpoint)
                self.engine.declarer.joined()
        except BaseException:
            self.close()
            raise

    def bind(self, endpoint: str) -> str:
        """Bind to an endpoint; return it with the port that a `*` became.

        Raises:
            EndpointError, TransportUnavailable, zmq.ZMQError: as `oz.Subscriber.bind`.
        """
        self.engine.declarer.begin_calls()
        self._attachments.bind(self.socket, endpoint)
        self.engine.declarer.joined()
        return self._attachments.endpoints[-1]

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to; None when it is closed."""
        return None if self.socket.closed else self._attachments.last

    @property
    def stats(self) -> SubscriberStats:
        """The counts so far."""
        return self.engine.receiver.stats

    def subscribe(self, patterns: Sequence[Pattern]) -> None:
        """Ask for the messages whose subject matches one of the patterns.

        Raises:
            PatternError: one of them cannot be sent to publishers.
        """
        delivery = delivery_options(None, "round_robin", None, None, shared=self._is_shared)
        subscription = Subscribed(list(patterns), None, self.engine.cancel)
        self.engine.declarer.begin(subscription, delivery, last_value=False)

    def mark_seen(self, message_ids: Any) -> None:
        """Take messages with these ids for delivered; see `oz.Subscriber.mark_seen`."""
        receiver = self.engine.receiver
        assert isinstance(receiver, BatchDecoder)
        receiver.streams.mark_seen(message_ids)

    # receiving -------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """Return when to take at the latest, though nothing comes: monotonic seconds, infinite for never.

        It is now while messages are here that were taken from the socket.
        """
        return time.monotonic() if self.engine.has_some else self.engine.declarer.due_at

    def take(self, limit: int) -> list[Message]:
        """Take the messages that are here.

        Args:
            limit: messages to take at most.

        Raises:
            ClosedError: it is closed.
            PermissionDenied: a publisher denies what it asks for, or does not trust its key.
        """
        engine, socket = self.engine, self.socket
        ready, waiting, take = engine.ready, engine.waiting, engine.receive_path.take
        until = time.monotonic() + PATIENCE
        taken: list[Message] = []
        try:
            while len(taken) < limit:
                if ready:
                    taken.append(ready.popleft())
                    continue
                message = waiting.popleft() if waiting else take(socket, _NOBLOCK, until)
                if message is None:
                    break
                if message.route.is_only_listed or engine.dispatch(message):
                    taken.append(message)
        except zmq.Again:
            if not taken:
                self._tend()
        except zmq.ZMQError:
            if not taken:
                engine.check_open()
                raise
        return taken

    def take_batches(self, limit: int) -> list[Arrived]:
        """Take what is here, in columns where it came so; see `oz.Subscriber.receive_batches`.

        Args:
            limit: take no more once there are so many messages; a batch is not split.

        Raises:
            ClosedError: it is closed.
            PermissionDenied: as `take`.
        """
        path = self.engine.receive_path
        if self.engine.ready or not (isinstance(path, RoutedReceivePath) or path.comes_in_columns):
            return [*self.take(limit)]
        try:
            taken = path.take_what_is_there(self.socket, limit, time.monotonic() + PATIENCE)
            if not taken:
                self._tend()
            return taken
        except zmq.ZMQError:
            self.engine.check_open()
            raise

    def _tend(self) -> None:
        """Do what is due while nothing comes, and refuse to wait for what is denied."""
        self.engine.look()
        if self.engine.must_check and not self.engine.is_drained:
            self.engine.check()

    def wait_ready(self, timeout: float | None) -> None:
        """Wait until every publisher has answered; see `oz.Subscriber.wait_ready`."""
        BlockingWaiter(self.engine).run(wait_ready(self.engine, self._attachments, timeout))

    def drain(self, timeout: float) -> None:
        """Stop asking, and take in what is on its way; see `oz.Subscriber.drain`."""
        BlockingWaiter(self.engine).run(drain(self.engine, self._attachments.connections, timeout))

    def close(self) -> None:
        """Say goodbye, and close. A second call does nothing; nor does one in the child of a fork."""
        guard = self.engine.declarer.guard
        if self.socket.closed or guard.is_foreign:
            return
        with guard:
            self.engine.declarer.end_calls(self.socket)
            has_said = self.engine.declarer.say_goodbye()
            self._attachments.remove_files()
            self.socket.close(round(1000 * GOODBYE_SECONDS) if has_said else 0)
            if self._attachments.group is not None:
                self._attachments.group.release()
        if self._attachments.own_context:
            end_context(self.socket.context, 0)
