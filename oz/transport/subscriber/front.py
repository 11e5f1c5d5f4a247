"""The common part of the public subscribers: connecting, subscribing and closing, on any SUB."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

import zmq

from oz.numbers import check_wait
from oz.protocol.messages import Message
from oz.protocol.multicast.options import Multicast
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.subscriptions import Handler
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, Patterns
from oz.transport import descriptors, endpoints
from oz.transport.attachments import Attachments
from oz.transport.dropin import refuse_green
from oz.transport.endpoints import Endpoints
from oz.transport.guard import StrictGuard
from oz.transport.monitors import Monitor
from oz.transport.multicast.receiver import OnAdvisory
from oz.transport.option_checks import Filtering, Overflow, Policy, delivery_options
from oz.transport.security import Security, credentials_of
from oz.transport.socket import describe, end_context, first_few
from oz.transport.subscriber.draining import SubscriberWaiter, next_deadline
from oz.transport.subscriber.engine import SubscriberEngine
from oz.transport.subscriber.options import check_options
from oz.transport.subscriber.receiver import ReceivePath
from oz.transport.subscriber.subscribing import AnySubscription, Subscribing
from oz.wire.codec import Codec

GOODBYE_SECONDS = 0.5
"""How long closing waits at most for the goodbye to be sent."""

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class SubscriberFront(Generic[AnyHandler, AnySubscription]):
    """A subscriber as its users see it, on a SUB of pyzmq's or of a model. The waiting is added elsewhere."""

    _context_class: Callable[[], zmq.Context[Any]]
    _subscription_class: type[AnySubscription]
    _waiter_class: ClassVar[type[SubscriberWaiter]]
    _awaits_handlers: ClassVar[bool]
    _may_block: ClassVar[bool]
    """Whether a read may wait within libzmq, so that the socket itself has an RCVTIMEO."""

    # What the SUB has, by which a subscriber is one itself.
    context: Any
    closed: Any
    _open_handle: Callable[[zmq.Context[Any]], None]
    """Makes the SUB, in a context."""
    _close_handle: Callable[[int], None]
    """Closes the SUB, with a linger in milliseconds."""

    # zmq.Socket takes attributes that are not declared here for socket options.
    dialect: str
    _guard: StrictGuard
    _attachments: Attachments
    _monitor: Monitor
    _engine: SubscriberEngine
    _waiter: SubscriberWaiter
    # Those of the engine: one step less for each message.
    _receive_path: ReceivePath
    _ready: deque[Message]
    _rest: deque[bytes]
    _waiting: deque[Message]
    _is_shared: bool
    _subscribing: Subscribing[AnySubscription]

    def __init__(
        self,
        connect: Endpoints | zmq.Context[Any] | None = None,
        bind: Endpoints | int | None = None,
        *,
        dialect: str = DEFAULT_DIALECT,
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
        r"""Make a subscriber.

        Args:
            connect: an endpoint to connect to, or a list of them. A context, with a socket type behind it, is
                pyzmq's own way to make a socket.
            bind: an endpoint to bind to, or a list of them.
            dialect: the dialect of patterns that are given as `str`; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the subscriber has one of its own.
            codec: `"msgpack"`, `"json"`, or an object with `encode` and `decode`; without it payloads are
                bytes.
            delimiter: for messages of one frame: what stands between subject and payload, such as
                `b" "` or `b"\\0"`. Without it the subject is a frame of its own.
            high_water_mark: messages that may wait here for each publisher; 0 is no limit. Default
                100,000, or what ZeroMQ has when the context is yours. With `filtering="publisher"` it
                counts batches, and the default is 1,000.
            filtering: `"prefix"` works with every ZeroMQ publisher: it sends all that begins as a pattern
                does. `"publisher"` needs oz there too: it sends what matches, and no loss is silent.
            shared: with `filtering="publisher"`, for a pattern that very many subscribers have: the
                publisher sends each message once for all of them.
            dedupe: with `filtering="publisher"` or multicast, drop what was published with a `message_id`
                that a message before had, and count it in `stats.repeated`. The ids of 16,384 series are
                remembered, each with its numbers as spans, and the newest 262,144 ids that have no number.
            on_gap: with `filtering="publisher"` or multicast, called with an `oz.Gap` whenever messages were
                lost.
            multicast: how to listen to `epgm://interface;group:port`; docs/multicast.md.
            plain: take in ordinary ZeroMQ messages that are multicast, of a publisher that is not oz or has
                `plain=True`: nobody can tell then what was lost, nor what is corrupt.
            on_advisory: with multicast, called with an `oz.Advisory` when a publisher goes silent or is
                back, or something else is wrong.
            limits: how much publishers may send; docs/limits.md.
            security: its key, the keys that it trusts and what their holders may do; docs/security.md.

        Raises:
            PermissionDenied: with `security`, one side of a connection does not trust the key of the other.
            ConfigurationError: with `security`, it cannot be told whose key an endpoint has, or another
                authenticator answers for the context.
            TypeError: the limits are none.
            ValueError: no such dialect, codec, filtering or endpoint, an empty delimiter, something that
                needs `filtering="publisher"` without it, or does not go with multicast.
            TransportUnavailable: this libzmq lacks the transport of an endpoint.
            zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        if isinstance(connect, zmq.Context):
            # pyzmq's own way to make a socket: (context, type).
            context, kind, connect, bind = connect, bind, None, None
        else:
            kind = None
        options = check_options(
            (connect, bind), codec=codec, delimiter=delimiter, filtering=filtering, shared=shared,
            dedupe=dedupe, on_gap=on_gap, multicast=multicast, plain=plain, on_advisory=on_advisory,
            limits=limits,
        )  # fmt: skip
        dialects.find(dialect)
        refuse_green(context)
        if isinstance(kind, int) and kind != zmq.SUB:
            raise ValueError(f"Subscriber is a SUB socket, not {zmq.SocketType(kind).name}")
        # Also where the context is the user's: nobody can ask whether its threads run already.
        descriptors.need(descriptors.CONTEXT, "a Subscriber")
        self._guard = guard = StrictGuard()
        credentials = credentials_of(security, options.group)
        self._attachments = Attachments(
            guard, options.group, own_context=context is None, credentials=credentials
        )
        self._monitor = Monitor(guard, is_shared=False)
        self.dialect = dialect
        self._is_shared = shared
        self._open_handle(self._context_class() if context is None else context)
        self._hold(options.make_engine(self._socket, guard, self._attachments))
        self._engine.raise_denials()
        if credentials is not None:
            self._engine.look_after_calls(self._attachments)
        self._subscribing = Subscribing(
            self._engine,
            self._attachments,
            self._waiter,
            options,
            dialect,
            self._subscription_class,
            awaits_handlers=self._awaits_handlers,
        )
        try:
            # Let `Context.destroy` know of this socket, as `Context.socket` does.
            self.context._add_socket(self)
            options.configure(self._socket, high_water_mark, own_context=context is None)
            for endpoint in endpoints.as_list(bind):
                self.bind(endpoint)
            for endpoint in endpoints.as_list(connect):
                self.connect(endpoint)
        except BaseException:
            # Nothing is left open behind.
            self._socket.close(0)
            raise

    @property
    def _socket(self) -> zmq.Socket[Any]:
        """The SUB, which it is itself."""
        return self  # type: ignore[return-value]

    def _hold(self, engine: SubscriberEngine) -> None:
        self._engine = engine
        self._receive_path, self._waiting = engine.receive_path, engine.waiting
        self._ready, self._rest = engine.ready, engine.rest
        self._waiter = type(self)._waiter_class(engine)

    # endpoints -------------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to; with the port that a `*` became.

        None when there is none: it is neither bound nor connected yet, or closed.
        """
        return None if self.closed else self._attachments.last

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint, as `zmq.Socket.bind` does.

        Args:
            addr: such as `tcp://127.0.0.1:*`, where the system chooses the port, or `tcp://[::1]:*`.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: see `connect`; or an `ipc://` path is in use, with the errno EADDRINUSE.
            zmq.ZMQError: the address is in use, or not one of this host; or file descriptors are used up.
        """
        if not self._monitor.is_watching:
            self._engine.declarer.begin_calls()
        manager = self._attachments.bind(self._socket, addr)
        self._engine.declarer.joined()
        return manager

    def connect(self, addr: str | bytes) -> Any:
        """Connect to an endpoint, as `zmq.Socket.connect` does; the peer may come later.

        Args:
            addr: such as `tcp://127.0.0.1:5555` or `tcp://[::1]:5555`. For a host name that has only an
                IPv6 address set the option `zmq.IPV6` before.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: it is no endpoint, or not a whole one; or a multicast one, and cannot be used here.
            zmq.ZMQError: file descriptors are used up.
        """
        self._engine.declarer.begin_calls()
        manager = self._attachments.connect(self._socket, addr)
        self._engine.declarer.joined()
        return manager

    def unbind(self, addr: Any) -> None:
        """Unbind from an endpoint, as `zmq.Socket.unbind` does."""
        self._engine.end_connections(lambda: self._attachments.unbind(self._socket, addr))

    def disconnect(self, addr: Any) -> None:
        """Disconnect from an endpoint, as `zmq.Socket.disconnect` does."""
        self._engine.declarer.forgive()
        self._engine.declarer.begin_calls()
        self._engine.end_connections(lambda: self._attachments.disconnect(self._socket, addr))

    # subscribing -----------------------------------------------------------------------------------------

    def subscribe(
        self,
        pattern: Patterns,
        *,
        dialect: str | None = None,
        handler: AnyHandler | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
    ) -> AnySubscription:
        """Ask for the messages whose subject matches.

        Args:
            pattern: `str` is a pattern of the socket's dialect, or of the dialect that it names before a
                colon, as in `rv:Foo.*`; a socket of the zmq dialect reads no such name. `bytes` is a plain
                ZeroMQ prefix. A `Pattern`, a pattern compiled by `re` or `regex`, or a list of all these can
                be given too. The empty string is ZeroMQ's own for everything, in every dialect.
            dialect: the dialect of this pattern, if it is another than the socket's; no name is read then.
            handler: is called with each message; without it messages are had by `receive` or iteration.
            group: a queue group: of its members, known by this name, one gets each message.
            policy: which one: `"round_robin"`;
                `"sticky"` by subject or the key given to `publish`; or `"failover"`, the senior member. That
                of the senior member counts.
            overflow: what happens to messages beyond `max_pending`, which come faster than they are taken:
                `"drop_newest"`, `"drop_oldest"`, or `"conflate"`: the newest of each subject stays. None
                keeps all until ZeroMQ's queues are full, and then the publisher's `on_full` decides.
            max_pending: messages, or subjects with `overflow="conflate"`, that may wait here, and at each
                publisher; from 1 to 2**32 - 1, 65,536 unless said otherwise. It needs an `overflow`.
            last_value: give the newest message of each subject that matches first, if the publisher
                keeps it.
            max_messages: end the subscription after so many.

        All but the first three and `max_messages` need `filtering="publisher"`.

        Returns:
            The subscription, which can be undone.

        Raises:
            PatternError: the dialect does not allow the pattern, or it cannot be sent to a publisher.
            TypeError: the handler cannot be called, or is `async` and the socket is not.
            ValueError: an empty list of patterns, or an option that is out of bounds or needs
                `filtering="publisher"`.
            ClosedError: the subscriber is closed.
        """
        self._check_open()
        delivery = delivery_options(group, policy, overflow, max_pending, shared=self._is_shared)
        return self._subscribing.subscribe(
            pattern, dialect, handler, delivery, last_value=last_value, max_messages=max_messages
        )

    def mark_seen(self, message_ids: Iterable[bytes | tuple[bytes, int]]) -> None:
        """Take messages with these ids for delivered: the subscriptions that stand drop their repeats.

        For those who keep in a file or a database what they have handled already.

        Args:
            message_ids: as of `Message.message_id`, the oldest first.

        Raises:
            ValueError: without `dedupe`.
        """
        self._subscribing.mark_seen(message_ids)

    def unsubscribe(self, topic: Patterns | AnySubscription) -> None:
        """Undo the newest subscription to a pattern, as ZeroMQ does; without one nothing happens.

        Args:
            topic: what was given to `subscribe`, or what it returned.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """
        self._subscribing.unsubscribe(topic)

    def check_owner(self) -> None:
        """Refuse the child of a fork.

        Raises:
            OwnershipError: the socket was made before a fork, in the parent process.
        """
        self._guard.check_owner()

    def __repr__(self) -> str:
        """Show where it is bound or connected to, what it is made for, and whether it is closed."""
        return describe(self._socket, self.described() if "_attachments" in self.__dict__ else [])

    def described(self) -> list[str]:
        """Say for `repr` where it is bound or connected to, how it filters, and its patterns."""
        patterns = [repr(one.text) for one in self._subscribing.patterns()]
        endpoints_shown = first_few(self._attachments.endpoints)
        filtering = f"filtering={self._subscribing.filtering!r}"
        return ["zmq.SUB", *endpoints_shown, filtering, *first_few(patterns)]

    def next_deadline(self) -> float | None:
        """Return when to receive though nothing has come, for a program with a poller of its own.

        With `filtering="publisher"` a subscriber has things to do at times, such as asking again.

        Returns:
            Seconds of `time.monotonic()`, also such as have passed; None for never. Any call may make it
            earlier: ask again after it.

        Raises:
            ClosedError: the subscriber is closed.
        """
        self._check_open()
        return next_deadline(self._engine, self._attachments.connections)

    @property
    def stats(self) -> SubscriberStats:
        """The counts of this subscriber so far; see `SubscriberStats`."""
        return self._engine.receiver.stats

    # closing ---------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._engine.check_open()

    def _close_socket(self, linger: int, timeout: float | None) -> bool:
        """Close the socket but not its context; tell whether the context is still to be ended."""
        check_wait("timeout", timeout)
        if self.closed or self._guard.is_foreign:
            # The child of a fork leaves alone what belongs to its parent, also at the end of a `with`.
            return False
        with self._guard:
            self._engine.declarer.end_calls(self._socket)
            if self._engine.declarer.say_goodbye() and not linger and timeout is None:
                linger = round(1000 * GOODBYE_SECONDS)
            if self.closed:
                return False
            # Not any monitor: libzmq tells it, and waits for ever if nobody is there any more.
            self._monitor.end()
            self._attachments.remove_files()
            self._close_handle(linger)
            if self._attachments.group is not None:
                self._attachments.group.release()
        return self._attachments.own_context

    def _end_context(self, timeout: float) -> None:
        end_context(self.context, timeout)
