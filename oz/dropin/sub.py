"""`oz.SubSocket`, a SUB of pyzmq that takes patterns.

**Theory of operation.** `subscribe` subscribes to the prefixes of a pattern in libzmq, which filters by these prefixes.
A receive reads the first frame of a message and matches it with the patterns. If no pattern matches, the message is
*refused*: the receive reads and drops its remaining frames, and reads the next message. The socket needs no thread and
no second socket, and sends the same bytes as a plain SUB.

`ReceiveState` holds the patterns, and the frames that were read but not delivered. While all patterns are prefixes,
`recv` calls pyzmq directly.

The first read of a receive waits in libzmq, which obeys the timeout RCVTIMEO. After a refused message, `zmq_poll` waits
for the remaining time. A receive with NOBLOCK skips refused messages for at most `SKIP_SECONDS`. Without this limit, a
stream of refused messages could block the receive.

A program that reads the option EVENTS makes the socket drop refused messages and keep the first message that matches.
Therefore `zmq.asyncio` and Tornado's streams, which depend on EVENTS, see only messages that match. `zmq.Poller`,
`zmq.proxy` and the descriptor FD also report refused messages, because they use the libzmq socket directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, Literal, overload

import zmq

from oz.compiled import HOT
from oz.dropin.checks import check_arguments
from oz.dropin.poller import FilteredSocket, Poller
from oz.dropin.reading import ReceiveState, convert_frame, read_frames
from oz.errors import ConfigurationError, PatternError, PatternTimeout
from oz.subjects.pattern import Pattern, PatternLike, compile, compile_with_default
from oz.transport.libzmq import IS_KNOWN

SKIP_SECONDS = 0.01
"""Maximum seconds for which a receive with NOBLOCK drops refused messages. A receive can drop about 10,000 messages in
this time."""

CHECK_AFTER = 0.001
"""Seconds between two checks of the timeout while a receive drops refused messages."""

_CONFLATE, _INVERT_MATCHING = int(zmq.CONFLATE), int(zmq.INVERT_MATCHING)
_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)
_RCVMORE, _RCVTIMEO, _SNDHWM = int(zmq.RCVMORE), int(zmq.RCVTIMEO), int(zmq.SNDHWM)
_SUBSCRIBE, _UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)

_recv: Any = zmq.Socket.recv
"""Receive method of pyzmq, which does not match patterns."""

_NOTHING_READ = (zmq.ZMQError, TypeError, ValueError, OverflowError, BufferError)
"""Errors of pyzmq that are raised before a frame is read."""


class SubSocket(zmq.Socket[bytes], FilteredSocket):
    """A SUB of pyzmq whose `subscribe` takes patterns.

    The socket has all methods, options and attributes of `zmq.Socket`. Receives return only messages whose first
    frame matches a subscription. ::

        sub = context.socket(zmq.SUB, socket_class=oz.SubSocket)
        sub.connect("tcp://127.0.0.1:5555")
        sub.subscribe("weather.*.wind", dialect="nats")
        subject, payload = sub.recv_multipart()

    A plain `zmq.Poller` may report the socket for a message that no pattern matches. `oz.Poller` and the method `poll`
    report only messages that match.

    Args:
        context: a `zmq.Context`, or another SUB to shadow. Default: `zmq.Context.instance()`.
        socket_type: type of the socket, always `zmq.SUB`.
        dialect: default dialect for patterns as text, one of `oz.DIALECTS`. Default: "zmq", where text is a literal
            prefix.
        options: keyword arguments `shadow` and `copy_threshold` of `zmq.Socket`. A shadow of a drop-in socket shares
            the subscriptions of that socket.

    Raises:
        ConfigurationError: the socket type is not `zmq.SUB`, or no dialect has this name.
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
        # `__dict__`, because `setattr` of pyzmq would set a socket option.
        self.__dict__["_reading"] = getattr(shadowed, "_reading", None) or ReceiveState(dialect)
        made_of: Any = zmq.Context.instance() if context is None and not shadowed else context
        super().__init__(made_of, socket_type, **options)
        if getattr(shadowed, "_reading", None) is None:
            self._reading.attach(self)
        if shadowed:
            check_arguments("SubSocket", None, int(super().get(zmq.TYPE)), zmq.SUB, dialect)
        else:
            made_of._add_socket(self)
            self.set(_SNDHWM, super().get(_SNDHWM))

    _reading: ReceiveState

    @property
    def dialect(self) -> str:
        """Default dialect for patterns as text in `subscribe`."""
        return self._reading.dialect

    # Subscriptions ----------------------------------------------------------------------------------------

    def subscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """Subscribe to a pattern.

        Two equal calls need two calls of `unsubscribe`, as in libzmq.

        Args:
            topic: prefix as bytes, pattern as text, or a compiled pattern. Empty text matches every message. A pattern
                of `oz.compile` keeps its dialect, and a pattern of `re` or `regex` is a regex.
            dialect: dialect of the whole text. Default: the dialect of the socket. In the dialect "zmq", text is a
                literal prefix: `md.*` matches only subjects that begin with these characters. If the socket has another
                dialect, text may begin with the name of its dialect and a colon, as in "rv:Foo.*".

        Raises:
            PatternError: the dialect does not allow the text.
            ConfigurationError: no dialect has this name; or CONFLATE or INVERT_MATCHING is set, and the
                pattern is not a prefix.
            zmq.ZMQError: the socket is closed, or its context has ended.
        """
        self._subscribe(self._compile(topic, dialect))

    def unsubscribe(self, topic: PatternLike, dialect: str | None = None) -> None:
        """End one subscription to a pattern. Without such a subscription, the call has no effect, as in libzmq.

        Args:
            topic: prefix or pattern that was given to `subscribe`.
            dialect: dialect that was given to `subscribe`.

        Raises:
            PatternError: the dialect does not allow the text.
            ConfigurationError: no dialect has this name.
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
        if not pattern._dialect.is_prefix:
            for option, name in (_CONFLATE, "CONFLATE"), (_INVERT_MATCHING, "INVERT_MATCHING"):
                if super().get(option):
                    raise _pattern_conflict(name, 1)
            if reading.is_plain:
                reading.end_plain(self)
        try:
            reading.filter.add(pattern)
            reading.update_state()
            for prefix in pattern.prefixes:
                super().set(_SUBSCRIBE, prefix)
        except BaseException:
            reading.filter.discard(pattern)
            raise

    def _unsubscribe(self, pattern: Pattern) -> None:
        reading = self._reading
        is_known = reading.filter.discard(pattern)
        if is_known or not reading.filter.is_active:
            # Pass a prefix to libzmq even if it was not subscribed here: this socket object may shadow a plain SUB that
            # has subscribed to it.
            for prefix in pattern.prefixes:
                super().set(_UNSUBSCRIBE, prefix)

    # Options ----------------------------------------------------------------------------------------------

    def set(self, option: int, optval: Any) -> None:
        """Set an option, as `zmq.Socket.set`. SUBSCRIBE and UNSUBSCRIBE take a prefix.

        libzmq always gets 0 (no limit) for SNDHWM, because a SUB drops subscriptions beyond SNDHWM. `get` returns the
        value that the program has set.

        Raises:
            ConfigurationError: CONFLATE or INVERT_MATCHING is set, and a pattern that is not a prefix was subscribed.
            zmq.ZMQError: libzmq refuses the option; see `zmq.Socket.set`.
        """
        reading = self._reading
        if option == _SUBSCRIBE and isinstance(optval, bytes):
            self._subscribe(compile(optval, "zmq"))
        elif option == _UNSUBSCRIBE and isinstance(optval, bytes):
            self._unsubscribe(compile(optval, "zmq"))
        elif option in (_CONFLATE, _INVERT_MATCHING) and optval and reading.filter.is_active:
            raise _pattern_conflict(zmq.SocketOption(option).name, optval)
        else:
            super().set(option, optval)
            if option == _SNDHWM:
                reading.sndhwm = optval
                super().set(_SNDHWM, 0)

    def get(self, option: int) -> Any:
        """Return an option, as `zmq.Socket.get`. EVENTS contains POLLIN only for a message that matches."""
        reading = self._reading
        if option == _EVENTS and not reading.is_plain:
            # If `_has_message` reaches its time limit without a match, POLLIN of libzmq remains, so that the program
            # receives again.
            found = _POLLIN if self._has_message() else 0
            return int(super().get(option)) | found
        value = super().get(option)
        if option == _SNDHWM:
            return reading.sndhwm
        if option == _RCVMORE and not reading.is_plain:
            return int(bool(reading.rest or reading.more) and not reading.interrupted)
        return value

    setsockopt = set
    getsockopt = get

    # Receiving --------------------------------------------------------------------------------------------

    def _wait_for_next(self, flags: int, began: float, is_empty: bool) -> int:
        """Check the timeout of a receive after a refused message, and wait for the next message if libzmq has none.

        Args:
            flags: flags of the receive.
            began: time at which the receive began, in monotonic seconds.
            is_empty: whether libzmq has no message.

        Returns:
            Flags for the next read.

        Raises:
            zmq.Again: the timeout has passed.
        """
        timeout: Any = 0 if flags & _NOBLOCK else super().get(_RCVTIMEO)
        if timeout < 0:
            return flags
        left = began + (timeout / 1000 or SKIP_SECONDS) - monotonic()
        if left <= 0 or (is_empty and not timeout):
            raise zmq.Again()
        if is_empty:
            zmq.zmq_poll([(self, _POLLIN)], ceil(1000 * left))
        return flags | _NOBLOCK

    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True, track: bool = False) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> zmq.Frame: ...
    @overload
    def recv(self, flags: int, copy: Literal[False], track: bool = False) -> zmq.Frame: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes | zmq.Frame: ...
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> bytes | zmq.Frame:
        """Receive the next frame of a message that matches, as `zmq.Socket.recv`.

        Raises:
            zmq.Again: no message matched within RCVTIMEO. With NOBLOCK: no message that matches has arrived.
            PatternTimeout: a pattern exceeded its time limit, and the message was dropped.
        """
        reading = self._reading
        try:
            if reading.is_plain:
                return _recv(self, flags, copy, track)  # type: ignore[no-any-return]
            rest = reading.rest
            if rest and not reading.interrupted:
                frame = rest.popleft()
                reading.is_first = False
                reading.is_ready = not (rest or reading.more or reading.held or reading.error)
                if copy and isinstance(frame, bytes):
                    return frame
                return convert_frame(frame, copy, track, bool(rest))  # type: ignore[no-any-return]
            if reading.more and copy and not reading.interrupted:
                frame = _recv(self, flags)
                reading.is_first = False
                reading.more = bool(reading.has_more(self))
                reading.is_ready = not (reading.more or reading.held or reading.error)
                return frame  # type: ignore[no-any-return]
            if reading.is_ready and copy:
                began = monotonic()
                subject: bytes = _recv(self, flags)
                answer = reading.answers.get(subject)
                if not (reading.filter.find(subject) if answer is None else answer):
                    reading.skip_message(self)
                    subject = self._skip_refused(self._read_one, flags, began)[0]
                    reading.update_state()
                elif reading.has_more(self):
                    reading.more = True
                    reading.is_ready = False
                reading.is_first = True
                return subject
            frames = self._read_next(flags, copy, track, is_whole=False)
            rest.extend(frames[1:])
            reading.update_state()
            return convert_frame(frames[0], copy, track, bool(rest or reading.more))  # type: ignore[no-any-return]
        except _NOTHING_READ:
            raise
        except BaseException:
            # Only assignments here, because a signal handler may raise an exception at each call.
            reading.is_plain = reading.is_ready = False
            reading.interrupted = True
            raise

    if HOT is not None and IS_KNOWN:
        recv = HOT.Receive(
            twin=recv,
            recv=_recv,
            wait_for_next=_wait_for_next,
            monotonic=monotonic,
            nothing_read=_NOTHING_READ,
            reading=ReceiveState,
        )

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

        After `recv` of a first frame, `recv_multipart` returns the remaining frames of the same message.

        Raises:
            zmq.Again: no message matched within RCVTIMEO. With NOBLOCK: no message that matches has arrived.
            PatternTimeout: a pattern exceeded its time limit, and the message was dropped.
        """
        reading = self._reading
        try:
            if reading.is_ready and copy:
                began = monotonic()
                frames: list[Any] = reading.read_message(self, flags)
                subject = frames[0]
                answer = reading.answers.get(subject)
                if not (reading.filter.find(subject) if answer is None else answer):
                    frames = self._skip_refused(partial(reading.read_message, self), flags, began)
                reading.is_first = True
                return frames
            frames = self._read_next(flags, copy, track, is_whole=True)
            last = len(frames) - 1
            reading.update_state()
            return [convert_frame(frame, copy, track, at < last) for at, frame in enumerate(frames)]
        except _NOTHING_READ:
            raise
        except BaseException:
            reading.is_plain = reading.is_ready = False
            reading.interrupted = True
            raise

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """Receive one frame into a buffer, as `zmq.Socket.recv_into`.

        Returns:
            Size of the frame in bytes. If the frame is larger than the buffer, its end is lost.

        Raises:
            zmq.Again, PatternTimeout: no message was received; see `recv`.
            BufferError: the buffer is not writable or not contiguous.
            ValueError: `nbytes` is negative, or exceeds the buffer.
        """
        room = check_buffer(buffer, nbytes)
        return copy_into(room, self.recv(flags, copy=False))

    def _read_one(self, flags: int, copy: bool = True, track: bool = False) -> list[Any]:
        frame = _recv(self, flags, copy, track)
        reading = self._reading
        reading.more = bool(reading.has_more(self)) if copy else frame.more
        return [frame]

    def _read_next(self, flags: int, copy: bool, track: bool, *, is_whole: bool) -> list[Any]:
        """Read the remaining frames of the current message, or the next message that matches.

        Args:
            flags: flags of the receive.
            copy: argument `copy` of the receive.
            track: argument `track` of the receive.
            is_whole: whether to read all frames of the message; otherwise only the first frame is read.
        """
        reading = self._reading
        if reading.interrupted:
            reading.skip_message(self)

        def read_libzmq(flags: int) -> list[Any]:
            if not is_whole:
                return self._read_one(flags, copy, track)
            reading.more = False
            return reading.read_message(self, flags) if copy else read_frames(self, flags, track)

        def read(flags: int) -> list[Any]:
            return reading.held.popleft() if reading.held else read_libzmq(flags)

        reading.is_first = not (reading.rest or reading.more)
        if not reading.is_first:
            frames = list(reading.rest)
            reading.rest.clear()
            return frames + read_libzmq(flags) if reading.more and (is_whole or not frames) else frames
        if reading.error is not None:
            error, reading.error = reading.error, None
            raise error
        began = monotonic()
        frames = read(flags)
        return frames if self._accepts(frames) else self._skip_refused(read, flags, began)

    def _accepts(self, frames: list[Any]) -> bool:
        subject = frames[0]
        return self._reading.filter.accepts(subject if isinstance(subject, bytes) else subject.bytes)

    def _skip_refused(self, read: Callable[[int], list[Any]], flags: int, began: float) -> list[Any]:
        """Drop messages until a message matches; return this message. The last message that was read did not match.

        Args:
            read: function that is called with flags, and reads a message or its first frame.
            flags: flags of the receive.
            began: time at which the receive began, in monotonic seconds.
        """
        reading = self._reading
        checked, is_empty = began, False
        while True:
            if reading.more:
                reading.skip_message(self)
            how = flags | _NOBLOCK
            if is_empty or monotonic() - checked > CHECK_AFTER:
                how = self._wait_for_next(flags, began, is_empty)
                checked = monotonic()
            try:
                frames = read(how)
            except zmq.Again:
                is_empty = True
                continue
            is_empty = False
            if self._accepts(frames):
                return frames

    def _has_message(self) -> bool:
        """Drop waiting messages that no pattern matches, and return whether a receive would return at once."""
        reading = self._reading
        if reading.is_plain:
            return bool(int(super().get(_EVENTS)) & _POLLIN)
        if not reading.interrupted and (
            reading.rest or reading.more or reading.error or (reading.held and self._accepts(reading.held[0]))
        ):
            return True
        is_first = reading.is_first
        # Set both before the read: if an exception is raised before `update_state`, the next receive must still check
        # `held`.
        reading.is_ready = reading.is_plain = False
        try:
            reading.held.appendleft(self._read_next(_NOBLOCK, False, False, is_whole=True))
            return True
        except zmq.Again:
            return False
        except _NOTHING_READ:
            raise
        except BaseException as error:
            reading.interrupted = True
            if not isinstance(error, PatternTimeout):
                raise
            reading.error = error
            return True
        finally:
            reading.is_first = is_first
            reading.update_state()

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> SubSocket:
        """Return a second socket object for the same libzmq socket; see `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> SubSocket:
        """Return a shadow of the socket, which shares its subscriptions."""
        return self.shadow(self)

    __deepcopy__ = __copy__


def _pattern_conflict(name: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        name,
        value,
        "SubSocket",
        "cannot be used with patterns, because libzmq would drop messages before patterns are matched; "
        "subscribe to prefixes (bytes) only, or leave the option at 0",
    )


def check_buffer(buffer: Any, nbytes: int) -> memoryview:
    """Return the part of a buffer that a frame may fill.

    Args:
        buffer: argument of `recv_into`.
        nbytes: size of the part in bytes; 0 for the whole buffer.

    Raises:
        BufferError: the buffer is not writable or not contiguous.
        ValueError: `nbytes` is negative, or exceeds the buffer.
    """
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise BufferError("recv_into needs a writable, C-contiguous buffer")
    if not 0 <= nbytes <= view.nbytes:
        raise ValueError(f"nbytes is from 0 to {view.nbytes}, not {nbytes}")
    return view.cast("B")[: nbytes or view.nbytes] if view.nbytes else view


def copy_into(room: memoryview, frame: zmq.Frame) -> int:
    """Copy the beginning of a frame into a buffer, and return the size of the frame in bytes."""
    taken = min(len(room), len(frame))
    room[:taken] = memoryview(frame.buffer)[:taken]
    return len(frame)
