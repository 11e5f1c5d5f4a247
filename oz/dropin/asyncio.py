"""Drop-in sockets for asyncio, based on `zmq.asyncio`.

**Theory of operation.** A socket of `zmq.asyncio` works through its *shadow*, a blocking socket object for the
same libzmq socket. The asyncio socket watches the descriptor FD and reads the option EVENTS of the shadow. When a
Future waits, the asyncio socket calls `recv` or `send` of the shadow with NOBLOCK. In oz the shadow is a blocking
drop-in socket. `_is_ready` decides whether the first waiting Future can be resolved.

The Future of a receive or of an `oz.asyncio.Poller` is resolved when a message that matches has arrived. The Future of
a plain `zmq.asyncio.Poller` is resolved when libzmq itself reports POLLIN. A plain poller polls libzmq again when its
Future is done, but libzmq does not report a message that oz has already read.

A task may be cancelled after its Future has received a message, but before the task runs again. In that case
`ReceiveFuture`, the Future of a receive, gives its message back to the socket.

This module overrides private methods of pyzmq, which have not changed since pyzmq 22.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import zmq
import zmq.asyncio

from oz.dropin import poller, pub, sub
from oz.dropin.checks import check_arguments
from oz.dropin.reading import ReceiveState
from oz.subjects.pattern import PatternLike

_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)
_OWN_OPTIONS = frozenset(map(int, (zmq.EVENTS, zmq.RCVMORE, zmq.SNDHWM)))

_get: Any = zmq.Socket.get


class PollFuture(asyncio.Future[Any]):
    """Future of an `oz.asyncio.Poller`."""


class Poller(zmq.asyncio.Poller, poller.Poller):  # type: ignore[misc]
    """A `zmq.asyncio.Poller` that reports a `SubSocket` readable only for a message that matches.

    The poller waits as `zmq.asyncio.Poller` does, and then calls `poll(0)` of the blocking `oz.Poller`.
    """

    _Future = PollFuture


class ReceiveFuture(asyncio.Future[Any]):
    """Future of a receive call. If the awaiting task is cancelled after the read, the message returns to the socket."""

    _raw: Any = None
    _is_first = True

    def __init__(self, socket: SubSocket) -> None:
        super().__init__()
        self._socket = socket

    def set_result(self, result: Any) -> None:
        """Resolve the Future with the result of a receive of the blocking shadow."""
        self.resolve(result, result, self._socket._reading.is_first)

    def resolve(self, result: Any, raw: Any, is_first: bool) -> None:
        """Resolve the Future.

        Args:
            result: result of the receive call.
            raw: frame or list of frames from which the result was built. `give_back` returns them to the socket.
            is_first: whether the first of these frames is the first frame of its message.
        """
        self._raw, self._is_first = raw, is_first
        super().set_result(result)

    def give_back(self) -> None:
        """Return the message to the socket. A second call has no effect."""
        if self._raw is not None:
            raw, self._raw = self._raw, None
            self._socket._give_back(raw if isinstance(raw, list) else [raw], self._is_first)

    def load(self, received: ReceiveFuture, load: Callable[[Any], Any]) -> None:
        """Convert the message of `received` with `load`, and resolve this Future with the result or error."""
        if self.done():
            received.give_back()
        elif received.cancelled():
            self.cancel()
        elif (error := received.exception()) is not None:
            self.set_exception(error)
        else:
            try:
                result = load(received.result())
            except Exception as failure:
                self.set_exception(failure)
            else:
                self.resolve(result, received._raw, received._is_first)
                received._raw = None

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the message."""
        try:
            result = yield from super().__await__()
        except BaseException:
            self.give_back()
            raise
        self._raw = None
        return result

    __iter__ = __await__


class _Shadow(sub.SubSocket):
    """Blocking shadow. The option EVENTS reports a message that oz has kept, without a read from libzmq."""

    def get(self, option: int) -> Any:
        if option != _EVENTS:
            return super().get(option)
        reading = self._reading
        kept = _POLLIN if reading.rest or reading.held or reading.error else 0
        return int(_get(self, _EVENTS)) | kept


class SubSocket(zmq.asyncio.Socket, poller.FilteredSocket):
    """A SUB of `zmq.asyncio` whose `subscribe` takes patterns; see `oz.SubSocket`.

    The socket has all methods, options and attributes of `zmq.asyncio.Socket`. If a receive is cancelled, no message is
    lost.

    Args:
        context: a `zmq.asyncio.Context`, or another SUB to shadow. Default: `zmq.asyncio.Context.instance()`.
        socket_type: type of the socket, always `zmq.SUB`.
        dialect: default dialect for `subscribe`; see `oz.SubSocket`.
        options: keyword arguments of `zmq.asyncio.Socket`.

    Raises:
        ConfigurationError, ValueError, TypeError: an argument has a wrong value; see `oz.SubSocket`.
    """

    _poller_class = Poller
    _shadow_sock: _Shadow
    _reading: ReceiveState

    def __init__(
        self,
        context: zmq.Context[Any] | zmq.Socket[Any] | None = None,
        socket_type: int = zmq.SUB,
        *,
        dialect: str = "zmq",
        **options: Any,
    ) -> None:
        check_arguments("SubSocket", context, socket_type, zmq.SUB, dialect)
        original = _original_of(context, options)
        made_of = zmq.asyncio.Context.instance() if context is None and not original else context
        super().__init__(made_of, socket_type, **options)  # type: ignore[arg-type, misc]
        shadow = _Shadow(shadow=self.underlying, dialect=dialect)
        reading = getattr(original, "_reading", None) or shadow._reading
        # `__dict__`, because `setattr` of pyzmq would set a socket option. `_original` keeps the original socket open.
        shadow.__dict__["_reading"] = self.__dict__["_reading"] = reading
        self.__dict__["_original"] = original
        self._shadow_sock = shadow
        if reading.is_plain:
            reading.end_plain(shadow)
        reading.is_awaited = True
        reading.update_state()
        if not original:
            self.context._add_socket(self)
            shadow.set(zmq.SNDHWM, shadow.SNDHWM)

    @property
    def dialect(self) -> str:
        """Default dialect for patterns as text in `subscribe`."""
        return self._reading.dialect

    def subscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """Subscribe to a pattern; see `oz.SubSocket.subscribe`."""
        self._check_open()
        self._shadow_sock.subscribe(topic, dialect)

    def unsubscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """End one subscription to a pattern; see `oz.SubSocket.unsubscribe`."""
        self._check_open()
        self._shadow_sock.unsubscribe(topic, dialect)

    def set(self, option: int, optval: Any) -> None:
        """Set an option; see `oz.SubSocket.set`."""
        self._check_open()
        self._shadow_sock.set(option, optval)

    def get(self, option: int) -> Any:
        """Return an option; see `oz.SubSocket.get`."""
        value = super().get(option)
        # The constructor of pyzmq reads the option TYPE before `_shadow_sock` exists.
        return sub.SubSocket.get(self._shadow_sock, option) if option in _OWN_OPTIONS else value

    setsockopt = set
    getsockopt = get

    def recv_into(  # type: ignore[override]
        self, buf: Any, /, *, nbytes: int = 0, flags: int = 0
    ) -> Awaitable[int]:
        """Receive one frame into a buffer; see `oz.SubSocket.recv_into`."""
        room = sub.check_buffer(buf, nbytes)
        received: Awaitable[int] = self._deserialize(
            self.recv(flags, copy=False), lambda frame: sub.copy_into(room, frame)
        )
        return received

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> SubSocket:
        """Return a second socket object for the same libzmq socket; see `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> SubSocket:
        """Return a shadow of the socket, which shares its subscriptions."""
        return self.shadow(self)

    __deepcopy__ = __copy__

    def _check_open(self) -> None:
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)

    def _has_message(self) -> bool:
        self._check_open()
        return self._shadow_sock._has_message()

    def _give_back(self, frames: list[Any], is_first: bool) -> None:
        self._reading.give_back(self._shadow_sock, frames, is_first)
        # Another task may wait for a message.
        loop: Any = self._current_loop
        if self._recv_futures and not self.closed and not (loop is None or loop.is_closed()):
            loop.call_soon(self._handle_events)

    def _add_recv_event(
        self,
        kind: str,
        *,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        future: asyncio.Future[Any] | None = None,
    ) -> Any:
        add_event = super()._add_recv_event  # type: ignore[misc]
        if kind == "poll":
            return add_event(kind, args=args, kwargs=kwargs, future=future)
        received = ReceiveFuture(self)
        if not self._recv_futures and kwargs is not None and not self.closed:
            # No earlier receive waits. Return an arrived message at once, because pyzmq would start a timer.
            try:
                received.set_result(
                    getattr(self._shadow_sock, kind)(**{**kwargs, "flags": kwargs["flags"] | _NOBLOCK})
                )
                return received
            except zmq.Again as error:
                if kwargs["flags"] & _NOBLOCK:
                    received.set_exception(error)
                    return received
            except Exception as error:
                received.set_exception(error)
                return received
        return add_event(kind, args=args, kwargs=kwargs, future=received)

    def _is_ready(self) -> bool:
        """Return whether the first waiting Future can be resolved."""
        events: Any = self._recv_futures
        for event in events or ():
            if not event.future.done():
                if event.kind == "poll" and not isinstance(event.future, PollFuture):
                    return bool(_get(self._shadow_sock, _EVENTS) & _POLLIN)
                return self._shadow_sock._has_message()
        return False

    def _handle_recv(self) -> None:
        if self._is_ready():
            super()._handle_recv()  # type: ignore[misc]

    def _schedule_remaining_events(self, events: int | None = None) -> None:
        # If `_is_ready` has reached its time limit for refused messages, libzmq still reports POLLIN.
        if self._state and (self._is_ready() or _get(self._shadow_sock, _EVENTS) & _POLLIN):
            self._call_later(0, self._handle_events)  # type: ignore[operator]

    def _deserialize(self, recvd: Any, load: Callable[[Any], Any]) -> Any:
        """Return a Future whose result is the received message, converted by `load`."""
        loaded = ReceiveFuture(self)
        if recvd.done():
            loaded.load(recvd, load)
        else:
            recvd.add_done_callback(lambda _: loaded.load(recvd, load))
            loaded.add_done_callback(lambda _: recvd.cancel())
        return loaded


class PubSocket(zmq.asyncio.Socket):
    """A PUB of `zmq.asyncio` that checks the first frame of each message; see `oz.PubSocket`.

    Args:
        context: a `zmq.asyncio.Context`, or another PUB to shadow. Default: `zmq.asyncio.Context.instance()`.
        socket_type: type of the socket, always `zmq.PUB`.
        dialect: dialect of the subjects; see `oz.PubSocket`.
        options: keyword arguments of `zmq.asyncio.Socket`.

    Raises:
        ConfigurationError, ValueError, TypeError: an argument has a wrong value; see `oz.PubSocket`.
    """

    _shadow_sock: pub.PubSocket
    _sending: pub.SendState

    def __init__(
        self,
        context: zmq.Context[Any] | zmq.Socket[Any] | None = None,
        socket_type: int = zmq.PUB,
        *,
        dialect: str = "zmq",
        **options: Any,
    ) -> None:
        check_arguments("PubSocket", context, socket_type, zmq.PUB, dialect)
        original = _original_of(context, options)
        made_of = zmq.asyncio.Context.instance() if context is None and not original else context
        super().__init__(made_of, socket_type, **options)  # type: ignore[arg-type, misc]
        shadow = pub.PubSocket(shadow=self.underlying, dialect=dialect)
        sending = getattr(original, "_sending", None) or shadow._sending
        shadow.__dict__["_sending"] = self.__dict__["_sending"] = sending
        self.__dict__["_original"] = original
        self._shadow_sock = shadow
        if not original:
            self.context._add_socket(self)

    @property
    def dialect(self) -> str:
        """Dialect whose rules the subjects must obey."""
        return self._sending.dialect

    def send_multipart(  # type: ignore[override]
        self, msg_parts: Sequence[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Awaitable[zmq.MessageTracker | None]:
        """Send all frames of a message, as `zmq.asyncio.Socket.send_multipart`. The first frame is the subject.

        Raises:
            SubjectError: the dialect does not allow the subject, and nothing is sent. The error is raised when the
                result is awaited.
        """
        return super().send_multipart(msg_parts, flags, copy, track, **kwargs)

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> PubSocket:
        """Return a second socket object for the same libzmq socket; see `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> PubSocket:
        """Return a shadow of the socket, which checks subjects by the same dialect."""
        return self.shadow(self)

    __deepcopy__ = __copy__


def _original_of(context: Any, options: dict[str, Any]) -> Any:
    """Return the socket that a new socket shadows, or its address; None or 0 if the new socket is no shadow."""
    if isinstance(context, zmq.Socket):
        return context
    return options.get("_from_socket") or options.get("shadow")
