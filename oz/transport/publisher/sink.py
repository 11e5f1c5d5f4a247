"""The way of messages into an XPUB socket: batches by the sink, and what plain subscribers get as frames.

See `oz.protocol.publisher.sink` for what decides about batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol

import zmq

from oz.compiled import HOT
from oz.protocol.publisher.accounts import Peer, SlowPeers
from oz.protocol.publisher.backlog import WATCHED_FROM, Backlog
from oz.protocol.publisher.dispatch import Dispatch
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.transport.backend import SENDIOV_AT, Backend, backend_of
from oz.transport.frames import send_frames
from oz.transport.guard import Guard
from oz.transport.libzmq import raise_of
from oz.wire.batch import LARGE

# Plain numbers: the enum's member costs 0.3 µs a message.
_EVENTS = int(zmq.EVENTS)
_SNDMORE = int(zmq.SNDMORE)
_NOBLOCK = int(zmq.NOBLOCK)
_NODROP = int(zmq.XPUB_NODROP)

_MOST_HELD = 8_192
"""Bytes that are sent without releasing the interpreter's lock. Whoever sends has the guard: to come by that
lock again takes until all have run who wait for it, and each of those who publish then waits for the guard.
A full batch is larger as a rule, so that a publisher that never pauses gives others their turn."""

_LOSSLESS, _LOSSY, _BEING_SET = True, False, None
"""What is known of XPUB_NODROP at a socket. While it is set nobody knows: a signal handler that raises comes
before the call, or behind it. The compiled part goes by `False`."""


class XpubSink:
    """Sends by an XPUB socket, whose guard the caller holds.

    Attributes:
        taken: messages for which `try_send` found room.
        peers: gives the connections that there are.
        cut: ends some of them, which hold up what several share.
        try_add: counts a message for several connections, the short way: where not, call `weigh`.
    """

    __slots__ = (
        "_backend",
        "_drops",
        "_is_lossless",
        "_send",
        "_send_whole",
        "_several",
        "_slow",
        "_socket",
        "cut",
        "peers",
        "taken",
        "try_add",
    )

    def __init__(self, socket: zmq.Socket[Any], *, drops: bool, unsent: float = inf) -> None:
        """Begin.

        Args:
            socket: the socket.
            drops: whether what has no room may be dropped; otherwise the publisher waits, and the socket
                has XPUB_NODROP for good.
            unsent: bytes that may wait for several connections together.
        """
        self._socket = socket
        self._backend = backend = backend_of(socket)
        self._send = backend.send
        self._send_whole = backend.send_whole
        self._drops = drops
        self._is_lossless: bool | None = _LOSSY if drops else _LOSSLESS
        self._several = Backlog(unsent)
        self.try_add = self._several.try_add
        self._slow = SlowPeers()
        self.peers: Callable[[], Iterable[Peer]] = tuple
        self.cut: Callable[[list[Peer]], object] = bool
        self.taken = 0

    def try_send_one(self, frame: bytes) -> bool:
        """Send one small frame, the short way."""
        try:
            if self._send_whole is None:
                self._send(self._socket, frame, _NOBLOCK)
            else:
                self._send_whole(self._socket, (frame,), _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def try_send(self, frames: tuple[bytes, ...], backlog: Backlog | None = None) -> bool:
        """Send the frames of one message; tell whether there was room.

        There is none either where too many bytes wait. What several connections share is sent all the same
        where the publisher drops: whoever holds it up is found.

        libzmq hears of room that has come only now and then while it sends. Before anything is dropped it is
        made to look: asking for its events does.
        """
        size = sum(map(len, frames))
        copy = size < LARGE
        if size < WATCHED_FROM:
            return self._try_send(frames, copy=True, is_held=True)
        if backlog is None:
            try:
                return self._try_send(self.weigh(frames, size), copy=copy, is_held=False)
            except zmq.Again:
                return False
        if backlog.is_full:
            return False
        is_sent, given = None, frames
        if backlog.is_due(size) and self._backend.watched is not None:
            last, is_sent = self._backend.watched(frames[-1])
            given = (*frames[:-1], last)
        # A frame that is watched is pyzmq's.
        if not self._try_send(given, copy=copy, is_held=size <= _MOST_HELD and given is frames):
            return False
        backlog.add(size, is_sent)
        return True

    def _try_send(self, frames: Sequence[Any], *, copy: bool, is_held: bool) -> bool:
        if not copy and self._backend.has_handle:
            # Before any of them goes: pyzmq starts a thread for the first, in Python.
            frames = [zmq.Frame(one, copy=False) if type(one) is bytes else one for one in frames]
        try:
            self._send_all(frames, copy=copy, is_held=is_held)
        except zmq.Again:
            self.look()
            try:
                self._send_all(frames, copy=copy, is_held=is_held)
            except zmq.Again:
                return False
        self.taken += 1
        return True

    def _send_all(self, frames: Sequence[Any], *, copy: bool, is_held: bool) -> None:
        if is_held and self._send_whole is not None and all(type(one) is bytes for one in frames):
            self._send_whole(self._socket, tuple(frames), _NOBLOCK)
        else:
            send_frames(self._send, self._socket, frames, _NOBLOCK, copy=copy)

    def weigh(self, frames: Sequence[Any], size: int) -> Sequence[Any]:
        """Count a message that is about to be sent to several connections.

        Returns:
            The frames to be sent: one of them may be watched.

        Raises:
            zmq.Again: too much waits already, and the publisher does not drop.
        """
        if not self._several.is_full:
            self._slow.calm()
        elif not self._drops:
            raise zmq.Again
        else:
            backend = self._backend
            slow = self._slow.find(backend.monotonic(), size, self.peers, backend.taken)
            if slow:
                self.cut(slow)
        is_sent = None
        if self._several.is_due(size) and self._backend.watched is not None:
            last, is_sent = self._backend.watched(frames[-1])
            frames = (*frames[:-1], last)
        self._several.add(size, is_sent)
        return frames

    def send_past_the_full(self, frames: tuple[bytes, ...]) -> None:
        """Send frames to those connections that have room."""
        self._is_lossless = _BEING_SET
        self._backend.set(self._socket, _NODROP, 0)
        send_frames(self._send, self._socket, frames, _NOBLOCK, copy=sum(map(len, frames)) < LARGE)
        self.make_lossless()

    def look(self) -> None:
        """Make libzmq take notice of the room that has come."""
        self._backend.get(self._socket, _EVENTS)

    def make_lossless(self) -> None:
        """Make ZeroMQ say when there is no room, so that every drop is known."""
        if self._is_lossless is not _LOSSLESS:
            self._is_lossless = _BEING_SET
            self._backend.set(self._socket, _NODROP, 1)
            self._is_lossless = _LOSSLESS

    def make_lossy(self) -> None:
        """Make ZeroMQ drop messages for a plain subscriber without room, if that is the publisher's way."""
        if self._is_lossless is not _LOSSY and self._drops:
            self._is_lossless = _BEING_SET
            self._backend.set(self._socket, _NODROP, 0)
            self._is_lossless = _LOSSY


def as_sendable(payload: Any) -> Any:
    """Return a payload that ZeroMQ takes: bytes-like, or a tuple of several frames.

    Raises:
        TypeError: it is neither; says what to do.
    """
    if isinstance(payload, (list, tuple)) and payload:
        return tuple(_as_frame(frame) for frame in payload)
    return _as_frame(payload)


def _as_frame(payload: Any) -> Any:
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, (bytes, zmq.Frame)):
        return payload
    raise TypeError(
        f"a payload is bytes, not {type(payload).__name__}: encode it, or give the publisher codec='msgpack'"
    )


def as_item(payload: Any) -> Any:
    """Return the form in which a payload is packed: bytes, or a list of the bytes of several frames."""
    if type(payload) is tuple:
        return [bytes(frame) for frame in payload]
    return payload if type(payload) is bytes else bytes(payload)


class HandOver(Protocol):
    """Hands one plain message to ZeroMQ."""

    def __call__(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Send it.

        Args:
            socket: the publisher.
            wire: its subject.
            payload: bytes-like, or a tuple of several frames.
            flags: 0 or `zmq.NOBLOCK`.

        Raises:
            zmq.Again: a subscriber is at its high-water mark and `on_full` is not `"drop"`.
        """


class PlainFrames:
    """Sends the subject as a frame, and the payload behind it."""

    __slots__ = ("_dispatch", "_guard", "_send", "_send_whole", "_sink")

    def __init__(self, guard: Guard, dispatch: Dispatch, sink: XpubSink, backend: Backend) -> None:
        """Put together what a publisher has.

        Args:
            guard: of the publisher.
            dispatch: sends batches.
            sink: counts what waits.
            backend: of its socket.
        """
        self._guard = guard
        self._dispatch = dispatch
        self._sink = sink
        self._send = backend.send
        self._send_whole = backend.send_whole

    def shortest(self) -> HandOver:
        """Return `hand_over`, compiled where that is there."""
        if HOT is None:
            return self.hand_over
        return HOT.HandOver(
            twin=self.hand_over,
            guard=self._guard,
            postponed=self._guard.postponed,
            sink=self._sink,
            make_lossy=self._dispatch.make_lossy,
            send=self._send,
            error=zmq.ZMQError,
            more=_SNDMORE,
            counted_from=WATCHED_FROM,
            sendiov=0 if self._send_whole is None else SENDIOV_AT,
            fail=raise_of,
        )

    def hand_over(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Hand one message to ZeroMQ; see `HandOver`."""
        guard = self._guard
        guard.is_wanted = True
        with guard:
            if guard.is_interrupted:
                # One that was postponed.
                self._dispatch.make_lossy()
                self._send_apart(socket, wire, payload, flags)
                return
            with guard.busy:
                guard.is_busy = True
                self._dispatch.make_lossy()
                self._send_apart(socket, wire, payload, flags)
            guard.is_busy = False
            if guard.postponed:
                guard.do_postponed()

    def _send_apart(self, socket: Any, wire: bytes, payload: Any, flags: int) -> None:
        """Send the subject as a frame, and the payload behind it."""
        if type(payload) is tuple or (
            (size := len(payload)) >= WATCHED_FROM and not self._sink.try_add(size)
        ):
            frames = (wire, *payload) if type(payload) is tuple else (wire, payload)
            self._send_all(socket, frames, flags)
            return
        if self._send_whole is not None and type(payload) is bytes:
            self._send_whole(socket, (wire, payload), flags)
            return
        is_open = True
        try:
            self._send(socket, wire, flags | _SNDMORE)
            is_open = False
            self._send(socket, payload, flags)
        except zmq.ZMQError:
            raise
        except BaseException:
            # See `send_frames`, of which this is the short way.
            if is_open:
                try:  # noqa: SIM105 - no call before it, in which one might raise again
                    self._send(socket, payload, flags)
                except BaseException:
                    pass  # Another one: that has gone, too.
            raise

    def _send_all(self, socket: Any, frames: tuple[Any, ...], flags: int) -> None:
        size = sum(map(len, frames))
        if size >= WATCHED_FROM:
            frames = tuple(self._sink.weigh(frames, size))
        elif self._send_whole is not None and all(type(one) is bytes for one in frames):
            self._send_whole(socket, frames, flags)
            return
        if self._send_whole is None:
            send_frames(self._send, socket, frames, flags)
        else:
            # Rare, and the rest for pyzmq, which says when they have gone.
            self._guard.apart(send_frames, self._send, socket, frames, flags)


class SendingParts(NamedTuple):
    """The parts by which a publisher sends to those who ask for a subject.

    Attributes:
        router: who wants what.
        dispatch: sends batches.
        records: tells subscribers where the publisher stands.
        sink: what it sends them into.
        last_values: what keeps the last values, if they are kept.
    """

    router: Router
    dispatch: Dispatch
    records: Records
    sink: XpubSink
    last_values: LastValueCache | None
