"""The common part of the public publishers: the socket that you hold has an engine, and leads to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import zmq

from oz.protocol.multicast.options import Multicast
from oz.protocol.publisher.batches import MAX_BATCH
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.endpoints import Endpoints
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import MAX_DELAY, OnFull, PublisherOptions
from oz.transport.security import Security
from oz.transport.socket import describe, refuse_to_copy
from oz.wire.codec import Codec


class PublisherFront:
    """A publisher as its users see it, whatever ZeroMQ is below it. The waiting is added elsewhere."""

    # zmq.Socket takes attributes that are not declared here for socket options.
    _engine: PublisherEngine
    _publish_fields: Callable[..., Any]
    _begin: Callable[[PublisherOptions], None]
    """Makes the engine, and this socket beside it."""

    def __init__(
        self,
        bind: Endpoints | zmq.Context[Any] | None = None,
        connect: Endpoints | int | None = None,
        *,
        dialect: str = DEFAULT_DIALECT,
        context: zmq.Context[Any] | None = None,
        codec: str | Codec | None = None,
        delimiter: bytes | None = None,
        on_full: OnFull = "drop",
        full_timeout: float | None = None,
        high_water_mark: int | None = None,
        last_value: bool = False,
        max_batch: int = MAX_BATCH,
        max_delay: float = MAX_DELAY,
        multicast: Multicast | None = None,
        plain: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        security: Security | None = None,
    ) -> None:
        r"""Make a publisher.

        Args:
            bind: an endpoint to bind to, or a list of them; `tcp://127.0.0.1:*` lets the system choose.
            connect: an endpoint to connect to, or a list of them.
            dialect: the dialect that subjects must be valid in; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the publisher has one of its own.
            codec: `"msgpack"`, `"json"`, or an object with `encode` and `decode`; without it payloads are
                bytes.
            delimiter: for messages of one frame: what stands between subject and payload, such as
                `b" "` or `b"\\0"`. Without it the subject is a frame of its own.
            on_full: what to do when a subscriber is at its high-water mark: `"drop"` the message for
                that subscriber, as ZeroMQ does; `"block"` until there is room for all; `"error"` raises.
            full_timeout: seconds that `"block"` waits at most; None is for ever.
            high_water_mark: messages, or batches of them, that may wait here for each subscriber; 0 is no
                limit. Default 100,000, or what ZeroMQ has when the context is yours.
            last_value: keep the newest message of each subject, up to 65,536 of them, for subscribers that
                ask for it.
            max_batch: messages in one batch at most, from 1 to 16,384.
            max_delay: seconds for which a message waits for others at most; one that comes alone never
                waits. Only subscribers with publisher-side filtering get batches.
            multicast: how to send to `epgm://interface;group:port`; docs/multicast.md.
            plain: multicast ordinary ZeroMQ messages, for subscribers that are not oz: nobody can tell then
                what was lost, nor what is corrupt.
            limits: how much subscribers may ask for; docs/limits.md.
            security: its key, the keys that it trusts and what their holders may do; docs/security.md.

        Raises:
            PermissionDenied: with `security`, one side of a connection does not trust the key of the other.
            ConfigurationError: with `security`, it cannot be told whose key an endpoint has, or another
                authenticator answers for the context.
            ValueError: no such dialect, codec, `on_full` or endpoint, an empty delimiter, a number that is
                out of bounds, or an option that does not go with multicast.
            TransportUnavailable: this libzmq lacks the transport of an endpoint.
            zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        kind: Any = None
        if isinstance(bind, zmq.Context):
            # pyzmq's own way to make a socket: (context, type).
            context, kind, bind, connect = bind, connect, None, None
        self._begin(
            PublisherOptions(
                bind=bind,
                connect=connect,  # type: ignore[arg-type]
                kind=kind,
                dialect=dialect,
                context=context,
                codec=codec,
                delimiter=delimiter,
                on_full=on_full,
                full_timeout=full_timeout,
                high_water_mark=high_water_mark,
                last_value=last_value,
                max_batch=max_batch,
                max_delay=max_delay,
                multicast=multicast,
                plain=plain,
                limits=limits,
                security=security,
            )
        )

    def batch(self) -> AbstractContextManager[None]:
        """Hold what is published until the end of a `with` block, or until a batch is full.

        Only subscribers with publisher-side filtering get batches; others get their messages at once.
        """
        return self._engine.batch()

    def report_loss(self, count: int | None) -> None:
        """Report messages as lost here: subscribers that count their messages find them missing.

        This is for programs that pass on what others publish, such as a gateway: what was lost on the way to
        them is neither published nor kept quiet about.

        Args:
            count: how many messages; None when nobody knows.

        Raises:
            TypeError, ValueError: the count is no number, or negative.
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        self._engine.report_loss(count)

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any subscriber has asked for what a subject begins with.

        Args:
            subject: a valid subject of the dialect.

        Raises:
            SubjectError: it is not.
            ClosedError: the publisher is closed.
        """
        return self._engine.interest(subject)

    @property
    def stats(self) -> PublisherStats:
        """The counts of this publisher so far; see `PublisherStats`."""
        return self._engine.stats

    @property
    def dialect(self) -> str:
        """The dialect that subjects must be valid in."""
        return self._engine.dialect

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to; with the port that a `*` became.

        None when there is none: it is neither bound nor connected yet, or closed.
        """
        return self._engine.endpoint

    def __repr__(self) -> str:
        """Show where it is bound or connected to, and whether it is closed."""
        itself: Any = self
        return describe(itself, self._engine.described() if "_engine" in self.__dict__ else [])

    # endpoints -------------------------------------------------------------------------------------------

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint, as `zmq.Socket.bind` does.

        Args:
            addr: such as `tcp://127.0.0.1:*`, where the system chooses the port, or `tcp://[::1]:*`.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: see `connect`; or an `ipc://` path is in use, with the errno EADDRINUSE.
            zmq.ZMQError: the address is in use, or not one of this host.
        """
        return self._as_own(self._engine.bind(addr))

    def connect(self, addr: str | bytes) -> Any:
        """Connect to an endpoint, as `zmq.Socket.connect` does; the peer may come later.

        Args:
            addr: such as `tcp://127.0.0.1:5555`.

        Raises:
            TransportUnavailable: this libzmq lacks the transport.
            EndpointError: it is no endpoint; or a multicast one, and cannot be used here.
            zmq.ZMQError: the endpoint is not well formed.
        """
        return self._as_own(self._engine.connect(addr))

    def _as_own(self, manager: Any) -> Any:
        """Have the end of a `with` block undo what was done, and give this object in it."""
        manager.socket = self
        return manager

    def unbind(self, addr: Any) -> None:
        """Unbind from an endpoint, as `zmq.Socket.unbind` does, when all is written to it.

        That takes 5 s at most, in a loop 0.05 s. What is not written then is lost, and told by a warning.
        """
        self._engine.unbind(addr)

    def disconnect(self, addr: Any) -> None:
        """Disconnect from an endpoint, as `zmq.Socket.disconnect` does, when all is written to it.

        That takes 5 s at most, in a loop 0.05 s. What is not written then is lost, and told by a warning.
        """
        self._engine.disconnect(addr)

    def check_owner(self) -> None:
        """Refuse the child of a fork.

        Raises:
            OwnershipError: the publisher was made before a fork, in the parent process.
        """
        self._engine.guard.check_owner()


class PublisherSocket(PublisherFront, zmq.Socket[Any]):
    """The part of `oz.Publisher` and `oz.asyncio.Publisher` that pyzmq's sockets have."""

    _own_options: ClassVar[frozenset[int]] = frozenset()
    """What its own handle answers, and not the engine."""

    __copy__ = __deepcopy__ = __reduce__ = refuse_to_copy  # type: ignore[assignment]
    shadow = classmethod(refuse_to_copy)  # type: ignore[assignment]

    def _register(self) -> None:
        """Make `Context.destroy` and its `repr` know of this socket in place of its engine."""
        self.context._rm_socket(self._engine)
        self.context._add_socket(self)

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option, as `zmq.Socket.set` does.

        Raises:
            zmq.ZMQError: it is not one that a PUB socket has, such as SUBSCRIBE.
            ValueError: multicast does not know it, or would end the process.
            OwnershipError: the publisher was made before a fork.
        """
        self._engine.set(option, optval)

    setsockopt = set

    def get(self, option: int) -> Any:
        """Get a socket option, as `zmq.Socket.get` does; TYPE is PUB.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        if option in self._own_options:
            self.check_owner()
            return super().get(option)
        return self._engine.get(option)

    getsockopt = get

    def monitor(self, addr: Any, events: int = zmq.EVENT_ALL) -> None:
        """Send events of the connections to an endpoint, as `zmq.Socket.monitor` does."""
        self._engine.monitor(addr, events)

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Any:
        """Make a socket that receives events of the connections, as `zmq.Socket.get_monitor_socket` does."""
        return self._engine.get_monitor_socket(events, addr)

    def disable_monitor(self) -> None:
        """End what `get_monitor_socket` began."""
        self._engine.monitor(None, 0)

    def send(  # type: ignore[override]
        self, data: Any, flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send one frame, as `zmq.Socket.send` does: subjects are not checked here."""
        return self._engine.raw.send(data, flags, copy, track, **kwargs)

    def send_multipart(
        self, msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send the frames of one message, as `zmq.Socket.send_multipart` does, unchecked."""
        return self._engine.raw.send_multipart(msg_parts, flags, copy, track, **kwargs)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> NoReturn:
        """Refuse, as a PUB socket does; see `interest` for what subscribers want."""
        raise zmq.ZMQError(zmq.ENOTSOCK if self.closed else zmq.ENOTSUP)

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> int:
        """Wait for events, as `zmq.Socket.poll` does on a PUB: milliseconds.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        self.check_owner()
        return super().poll(timeout, flags)

    @property
    def copy_threshold(self) -> int:
        """Bytes from which on `send(…, copy=False)` does not copy, as on `zmq.Socket`."""
        return self._engine.socket.copy_threshold

    @copy_threshold.setter
    def copy_threshold(self, size: int) -> None:
        self._engine.socket.copy_threshold = size
