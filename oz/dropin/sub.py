"""A SUB of pyzmq that takes patterns.

**Theory of operation.** `subscribe` gives libzmq the prefixes of a pattern, so that libzmq filters by them. A
receive reads the first frame of a message and asks the filter. If no subscription matches, the receive reads
the other frames of that message too, drops them, and goes on. Nothing else happens: no thread, no second
socket, no change on the wire.

Frames are read as `zmq.Frame`, because a Frame knows whether more frames follow. The option RCVMORE costs a
`getsockopt` and an enum for each frame.

Time: the first read of a receive waits in libzmq, which obeys RCVTIMEO. After a refused message the rest of
that time is waited for by `zmq_poll`. A receive that must not wait skips refused messages for at most
`SKIP_SECONDS`, so that a stream of refused messages cannot hold it.

EVENTS is exact: reading it skips refused messages, and keeps the first frame of a message that matches.
`zmq.asyncio` and Tornado's streams depend on EVENTS, so they see matching messages only. `zmq.Poller`,
`zmq.proxy` and FD are below Python and see what libzmq has.
"""

from __future__ import annotations

import time
from math import ceil, inf
from typing import Any, Literal, overload

import zmq

from oz.dropin.checks import check_arguments
from oz.dropin.poller import FilteredSocket, Poller
from oz.dropin.reading import Reading
from oz.errors import ConfigurationError, PatternError, PatternTimeout
from oz.subjects.pattern import Pattern, PatternLike, compile, compile_with_default

SKIP_SECONDS = 0.01
"""Seconds for which a receive that must not wait skips refused messages. Ten thousand messages take as long."""

_CONFLATE, _EVENTS, _INVERT_MATCHING, _NOBLOCK, _POLLIN, _RCVMORE, _RCVTIMEO, _SNDHWM, _SUBSCRIBE, _UNSUBSCRIBE = map(
    int,
    (
        zmq.CONFLATE, zmq.EVENTS, zmq.INVERT_MATCHING, zmq.NOBLOCK, zmq.POLLIN,
        zmq.RCVMORE, zmq.RCVTIMEO, zmq.SNDHWM, zmq.SUBSCRIBE, zmq.UNSUBSCRIBE,
    ),
)  # fmt: skip

_recv: Any = zmq.Socket.recv
"""C method of pyzmq."""

_NOTHING_READ = (zmq.ZMQError, TypeError, ValueError, OverflowError, BufferError)
"""Errors of pyzmq that are raised before a frame is read."""


class SubSocket(zmq.Socket[bytes], FilteredSocket):
    """A SUB of pyzmq whose `subscribe` takes patterns.

    All methods, options and attributes are those of `zmq.Socket`. Receives return only messages whose first
    frame matches a subscription. ::

        sub = context.socket(zmq.SUB, socket_class=oz.SubSocket)
        sub.connect("tcp://127.0.0.1:5555")
        sub.subscribe("weather.*.wind", dialect="nats")
        subject, payload = sub.recv_multipart()

    A plain `zmq.Poller` may report a message that the pattern refuses; `oz.Poller` and `poll` do not.

    Args:
        context: a `zmq.Context`, or another SUB to shadow. Default: `zmq.Context.instance()`.
        socket_type: `zmq.SUB`.
        dialect: one of `oz.DIALECTS`, for text that is given to `subscribe`. Default: "zmq", where text is a
            prefix.
        options: `shadow` and `copy_threshold`, as for `zmq.Socket`. A shadow of a drop-in socket shares its
            subscriptions.

    Raises:
        ConfigurationError: the socket type is not `zmq.SUB`.
        ValueError: no dialect has this name.
        TypeError: the context is gevent's.
    """

    _poller_class = Poller

    def __init__(
        self,
        context: zmq.Context[Any] | zmq.Socket[Any] | None = None,
        socket_type: int = zmq.SUB,
        *,
        dialect: str = "zmq",
        **options: Any,
    ) -> None:
        check_arguments("SubSocket", context, socket_type, zmq.SUB, dialect)
        shadowed = context if isinstance(context, zmq.Socket) else options.get("shadow")
        # Not by setattr, which pyzmq takes for an option.
        self.__dict__["_reading"] = getattr(shadowed, "_reading", None) or Reading(dialect)
        made_of: Any = zmq.Context.instance() if context is None and not shadowed else context
        super().__init__(made_of, socket_type, **options)
        if shadowed:
            check_arguments("SubSocket", None, int(super().get(zmq.TYPE)), zmq.SUB, dialect)
        else:
            made_of._add_socket(self)
            self.set(_SNDHWM, super().get(_SNDHWM))

    _reading: Reading

    @property
    def dialect(self) -> str:
        """Dialect of text that is given to `subscribe`."""
        return self._reading.dialect

    # Subscriptions ---------------------------------------------------------------------------------------------

    def subscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """Subscribe to a pattern.

        A subscription that is made twice must be ended twice, as in libzmq.

        Args:
            topic: bytes are a prefix in every dialect. Text is a pattern. Empty text is everything. Patterns of
                `oz.compile`, `re` and `regex` are taken as they are.
            dialect: dialect of the whole text. Default: the dialect of the socket; unless that is "zmq", text
                may name another one before a colon, as in "rv:Foo.*".

        Raises:
            PatternError: the dialect does not allow the text.
            ConfigurationError: CONFLATE or INVERT_MATCHING is set, and the pattern is not a prefix.
            ValueError: no dialect has this name.
            zmq.ZMQError: the socket is closed, or its context has ended.
        """
        self._subscribe(self._compile(topic, dialect))

    def unsubscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """End one subscription to a pattern; without such a subscription do nothing, as libzmq.

        Args:
            topic: as for `subscribe`.
            dialect: as for `subscribe`.

        Raises:
            PatternError: the dialect does not allow the text.
            ValueError: no dialect has this name.
            zmq.ZMQError: the socket is closed, or its context has ended.
        """
        self._unsubscribe(self._compile(topic, dialect))

    def _compile(self, topic: PatternLike, dialect: str | None) -> Pattern:
        if isinstance(topic, (bytes, bytearray, memoryview)):
            return compile(bytes(topic), "zmq")
        if topic == "" and dialect is None:
            return compile(b"", "zmq")
        try:
            return compile_with_default(topic, dialect, self._reading.dialect)
        except PatternError as error:
            if isinstance(topic, str):
                error.add_note(f"For a plain ZeroMQ prefix give bytes: {topic.encode(errors='replace')!r}")
            raise

    def _subscribe(self, pattern: Pattern) -> None:
        reading = self._reading
        if not pattern.is_prefix:
            for option, name in (_CONFLATE, "CONFLATE"), (_INVERT_MATCHING, "INVERT_MATCHING"):
                if super().get(option):
                    raise _unfit(name, 1)
            if not reading.filter.is_active:
                reading.more = bool(super().get(_RCVMORE))
        reading.filter.add(pattern)
        reading.is_plain = reading.is_plain and not reading.filter.is_active
        try:
            for prefix in pattern.prefixes:
                super().set(_SUBSCRIBE, prefix)
        except BaseException:
            reading.filter.discard(pattern)
            raise

    def _unsubscribe(self, pattern: Pattern) -> None:
        reading = self._reading
        is_known = reading.filter.discard(pattern)
        if is_known or not reading.filter.is_active:
            # A shadow of a plain SUB does not know the prefixes of that socket.
            for prefix in pattern.prefixes:
                super().set(_UNSUBSCRIBE, prefix)

    # Options ---------------------------------------------------------------------------------------------------

    def set(self, option: int, optval: Any) -> None:
        """Set an option, as `zmq.Socket.set`; SUBSCRIBE and UNSUBSCRIBE take a prefix.

        libzmq is never given an SNDHWM other than 0, because a SUB forwards only that many subscriptions in a
        burst and drops the others. `get` returns what was set.

        Raises:
            ConfigurationError: CONFLATE or INVERT_MATCHING, and a pattern is subscribed to.
            zmq.ZMQError: as `zmq.Socket.set`.
        """
        reading = self._reading
        if option == _SUBSCRIBE and isinstance(optval, bytes):
            self._subscribe(compile(optval, "zmq"))
        elif option == _UNSUBSCRIBE and isinstance(optval, bytes):
            self._unsubscribe(compile(optval, "zmq"))
        elif option in (_CONFLATE, _INVERT_MATCHING) and optval and reading.filter.is_active:
            raise _unfit(zmq.SocketOption(option).name, optval)
        else:
            super().set(option, optval)
            if option == _SNDHWM:
                reading.sndhwm = optval
                super().set(_SNDHWM, 0)

    def get(self, option: int) -> Any:
        """Return an option, as `zmq.Socket.get`; EVENTS has POLLIN only for a message that matches."""
        reading = self._reading
        value = super().get(option)
        if option == _SNDHWM:
            return reading.sndhwm
        if option == _RCVMORE and reading.held:
            return int(reading.more)
        if option == _EVENTS and not reading.is_plain:
            if self._has_message():
                return super().get(_EVENTS) | _POLLIN
            # POLLIN remains if the time for skipping was over, so that the program comes back.
            return super().get(_EVENTS)
        return value

    setsockopt = set  # type: ignore[assignment]
    getsockopt = get

    # Receiving -------------------------------------------------------------------------------------------------

    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True, track: bool = False) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> zmq.Frame: ...
    @overload
    def recv(self, flags: int, copy: Literal[False], track: bool = False) -> zmq.Frame: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes | zmq.Frame: ...
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes | zmq.Frame:
        """Receive one frame, as `zmq.Socket.recv`: the next one of a message that matches.

        Raises:
            zmq.Again: no message matched in the time of RCVTIMEO, or at once with NOBLOCK.
            PatternTimeout: a pattern exceeded its time limit; the message is dropped.
        """
        reading = self._reading
        try:
            if reading.is_plain:
                return _recv(self, flags, copy, track)  # type: ignore[no-any-return]
            frame = self._read_frame(flags, track)
            return frame.bytes if copy else frame
        except _NOTHING_READ:
            raise
        except BaseException:
            # No call: a signal may raise at each call.
            reading.interrupted = True
            reading.is_plain = False
            raise

    @overload
    def recv_multipart(
        self, flags: int = 0, copy: Literal[True] = True, track: bool = False
    ) -> list[bytes]: ...
    @overload
    def recv_multipart(
        self, flags: int = 0, *, copy: Literal[False], track: bool = False
    ) -> list[zmq.Frame]: ...
    @overload
    def recv_multipart(self, flags: int, copy: Literal[False], track: bool = False) -> list[zmq.Frame]: ...
    @overload
    def recv_multipart(
        self, flags: int, copy: bool, track: bool = False
    ) -> list[bytes] | list[zmq.Frame]: ...
    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> list[Any]:
        """Receive all frames of the next message that matches, as `zmq.Socket.recv_multipart`.

        After `recv` of a first frame it returns the other frames of that message.

        Raises:
            zmq.Again: no message matched in the time of RCVTIMEO, or at once with NOBLOCK.
            PatternTimeout: a pattern exceeded its time limit; the message is dropped.
        """
        reading = self._reading
        try:
            if reading.is_plain:
                frame = _recv(self, flags, False, track)
            else:
                frame = self._read_frame(flags, track)
            frames = [frame.bytes if copy else frame]
            while frame.more:
                frame = self._next_frame(flags, track)
                frames.append(frame.bytes if copy else frame)
            reading.more = False
            return frames
        except _NOTHING_READ:
            raise
        except BaseException:
            reading.interrupted = True
            reading.is_plain = False
            raise

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """Receive one frame into a buffer, as `zmq.Socket.recv_into`.

        Returns:
            Size of the frame in bytes; what exceeds the buffer is lost.

        Raises:
            zmq.Again, PatternTimeout: as `recv`.
            BufferError: the buffer is not writable or not contiguous.
            ValueError: `nbytes` is negative, or exceeds the buffer.
        """
        view = memoryview(buffer)
        if view.readonly or not view.c_contiguous:
            raise BufferError("recv_into needs a writable, C-contiguous buffer")
        if not 0 <= nbytes <= view.nbytes:
            raise ValueError(f"nbytes is from 0 to {view.nbytes}, not {nbytes}")
        frame = self.recv(flags, copy=False)
        taken = min(nbytes or view.nbytes, len(frame))
        if taken:
            view.cast("B")[:taken] = memoryview(frame.buffer)[:taken]
        return len(frame)

    def _read_frame(self, flags: int, track: bool) -> zmq.Frame:
        """Read the next frame of the current message, or the first frame of the next message."""
        reading = self._reading
        if reading.more and not reading.interrupted:
            frame, reading.is_first = self._next_frame(flags, track), False
        else:
            frame, reading.is_first = self._read_first(flags, track), True
        reading.more = frame.more
        return frame

    def _next_frame(self, flags: int, track: bool) -> zmq.Frame:
        held = self._reading.held
        if not held:
            return _recv(self, flags, False, track)  # type: ignore[no-any-return]
        frame = held.popleft()
        if track and frame.tracker is None:
            more, frame = frame.more, zmq.Frame(frame.bytes, track=True)
            frame.more = more
        return frame

    def _read_first(self, flags: int, track: bool) -> zmq.Frame:
        """Read the first frame of the next message that matches."""
        reading = self._reading
        if reading.interrupted:
            self._skip_interrupted()
        if reading.error is not None:
            error, reading.error = reading.error, None
            raise error
        began = time.monotonic()
        deadline = None
        while True:
            try:
                frame = self._next_frame(flags, track)
            except zmq.Again:
                # Before any message was refused libzmq has waited as long as it should.
                if deadline is None or not self._wait(deadline):
                    raise
                continue
            try:
                if reading.filter.accepts(frame.bytes):
                    return frame
            except PatternTimeout:
                self._skip(frame)
                raise
            self._skip(frame)
            if deadline is None:
                deadline = began + self._seconds(flags)
                if deadline < inf:
                    flags |= _NOBLOCK
            if deadline < inf and time.monotonic() >= deadline:
                raise zmq.Again()

    def _seconds(self, flags: int) -> float:
        """Return how long a receive may take after it refused a message."""
        timeout: int = 0 if flags & _NOBLOCK else super().get(_RCVTIMEO)  # type: ignore[assignment]
        return inf if timeout < 0 else timeout / 1000 or SKIP_SECONDS

    def _wait(self, deadline: float) -> bool:
        """Wait until libzmq has a message or the deadline has passed, and return whether it has one."""
        left = deadline - time.monotonic()
        return left > 0 and bool(zmq.zmq_poll([(self, _POLLIN)], ceil(1000 * left)))

    def _skip(self, frame: zmq.Frame) -> None:
        """Skip the frames that follow a frame in its message."""
        while frame.more:
            frame = self._next_frame(_NOBLOCK, False)

    def _skip_interrupted(self) -> None:
        """Skip the rest of the message in which a receive was interrupted."""
        reading = self._reading
        if not reading.held:
            while super().get(_RCVMORE):
                _recv(self, _NOBLOCK, False)
        reading.more = False
        reading.interrupted = False
        reading.is_plain = not (reading.filter.is_active or reading.held)

    def _has_message(self) -> bool:
        """Skip refused messages, and return whether a receive would return at once."""
        reading = self._reading
        if reading.is_plain:
            return bool(super().get(_EVENTS) & _POLLIN)  # type: ignore[operator]
        if reading.more and not reading.interrupted:
            return True
        try:
            reading.held.appendleft(self._read_first(_NOBLOCK, False))
        except zmq.Again:
            return False
        except PatternTimeout as error:
            reading.error = error
        except zmq.ZMQError:
            raise
        except BaseException:
            reading.interrupted = True
            raise
        return True

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> SubSocket:
        """Return a second socket object for the libzmq socket of another, as `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> SubSocket:
        """Return a shadow, which shares the subscriptions."""
        return self.shadow(self)

    __deepcopy__ = __copy__


def _unfit(name: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        name,
        value,
        "SubSocket",
        "does not go with patterns, because libzmq would choose messages before the pattern is asked; "
        "subscribe to prefixes (bytes) only, or leave the option at 0",
    )
