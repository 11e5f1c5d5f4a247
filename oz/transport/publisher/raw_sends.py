"""Sending by the calls of pyzmq: nothing is checked but what would not arrive where it should."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any

import zmq

from oz.errors import ProtocolError
from oz.protocol.prefix_counts import UNREACHABLE
from oz.protocol.publisher.backlog import WATCHED_FROM
from oz.transport.frames import send_frames
from oz.transport.guard import Guard
from oz.transport.publisher.sender import LISTEN_EVERY, Sender
from oz.transport.publisher.sink import SendingParts
from oz.wire.keys import OWN as OWN_KEYS

_send = zmq.backend.Socket.send
_SNDMORE = int(zmq.SNDMORE)
_NOBLOCK = int(zmq.NOBLOCK)

_FIRST_FREE = OWN_KEYS[:-1] + bytes((OWN_KEYS[-1] + 1,))
"""Before it come frames that may not be sent: the empty one, a zero byte, and what begins as oz's keys do."""


def _size(frame: Any) -> int:
    return len(frame) if isinstance(frame, (bytes, zmq.Frame)) else memoryview(frame).nbytes


def as_it_is(tracker: Any) -> Any:
    """Return what a blocking `send` does: the tracker itself."""
    return tracker


class RawSends:
    """The sends of `zmq.Socket`; such messages reach filtered subscriptions too.

    The frames of a message go to ZeroMQ when the last of them is there. Otherwise what oz itself sends in
    between, such as a heartbeat, would become a part of the message.
    """

    __slots__ = (
        "_as_result",
        "_delimiter",
        "_deliver",
        "_dispatch",
        "_guard",
        "_raw",
        "_router",
        "_send_whole",
        "_sender",
        "_sink",
        "_socket",
    )

    def __init__(
        self,
        socket: zmq.Socket[Any],
        guard: Guard,
        parts: SendingParts,
        sender: Sender,
        *,
        delimiter: bytes,
        deliver: Callable[[Sequence[Any], int, Any], Any] | None = None,
        as_result: Callable[[Any], Any] = as_it_is,
        send_whole: Callable[[Sequence[Any], int, Any], Any] | None = None,
    ) -> None:
        """Start without a message that was begun.

        Args:
            socket: of the publisher.
            guard: of the publisher.
            parts: what sends to those who ask.
            sender: what is published passes through.
            delimiter: what ends the subject in a message of one frame, or nothing.
            deliver: gives frames, with flags and a tracker, to ZeroMQ; default at once.
            as_result: makes what `send` gives of a tracker.
            send_whole: sends a whole message; default `send_message`, which does not wait for room.
        """
        self._socket = socket
        self._guard = guard
        self._router = parts.router
        self._dispatch = parts.dispatch
        self._sink = parts.sink
        self._sender = sender
        self._delimiter = delimiter
        self._deliver = self._deliver_now if deliver is None else deliver
        self._as_result = as_result
        self._send_whole = self.send_message if send_whole is None else send_whole
        self._raw: list[Any] = []

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any) -> Any:
        """Send one frame, as `zmq.Socket.send` does: subjects are not checked here."""
        frame, tracker = self._as_frame(data, copy=copy, track=track, **kwargs)
        return self._send_all([frame], int(flags), tracker)

    def send_multipart(
        self, msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send the frames of one message, as `zmq.Socket.send_multipart` does, unchecked."""
        made = [self._as_frame(part, copy=copy, track=track, **kwargs) for part in msg_parts]
        return self._send_all([frame for frame, _ in made], int(flags), made[-1][1])

    def _send_all(self, frames: list[Any], flags: int, tracker: Any) -> Any:
        """Send the rest of a message, or keep it until there is more."""
        if flags & _SNDMORE:
            with self._guard:
                if self._socket.closed:
                    raise zmq.ZMQError(zmq.ENOTSOCK)
                if not self._raw:
                    self._check_first(frames[0])
                self._raw += [frame if isinstance(frame, zmq.Frame) else bytes(frame) for frame in frames]
            return self._as_result(tracker)
        try:
            result = self._send_whole([*self._raw, *frames], flags, tracker)
        except zmq.ZMQError:
            # Whoever finds no room for the last frame tries again with that one.
            raise
        except BaseException:
            self._raw.clear()
            raise
        self._raw.clear()
        return result

    def send_message(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        """Send a whole message to all who want it.

        Raises:
            zmq.Again: there is no room for somebody who is to be waited for.
        """
        self._guard.is_wanted = True
        with self._guard:
            self._check_first(frames[0])
            if self._guard.is_interrupted:
                # A signal handler, in the middle of another message.
                self._guard.postponed.append(partial(self._send_later, frames, flags, tracker))
                return self._as_result(tracker)
            return self._send_now(frames, flags, tracker)

    def _send_now(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        """Do as `send_message` does, with the guard held."""
        with self._guard:
            self._sender.look(self._socket)
            if self._dispatch.is_blocked:
                self._guard.undivided(self._dispatch.retry)
                if self._dispatch.is_blocked:
                    self._sender.look(self._socket)
                    raise zmq.Again
            # After it: what answers subscriptions is not to be dropped.
            self._dispatch.make_lossy()
            size = sum(map(_size, frames))
            given = frames if size < WATCHED_FROM else self._sink.weigh(frames, size)
            result = self._guard.undivided(self._deliver, given, flags, tracker)
            self._route_too(frames)
            if not self._sender.is_unheard:
                self._sender.listen()
            return result

    def _send_later(self, frames: Sequence[Any], flags: int, tracker: Any) -> None:
        try:
            self._send_now(frames, flags | _NOBLOCK, tracker)
        except zmq.ZMQError:
            # Nobody is there any more to wait for room, or to be told.
            self._router.stats.dropped += 1

    def _deliver_now(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        """Return a whole message to ZeroMQ."""
        send_frames(_send, self._socket, frames, flags)
        return tracker

    def _as_frame(
        self, data: Any, *, copy: bool, track: bool, routing_id: int | None = None, group: str | None = None
    ) -> tuple[Any, zmq.MessageTracker | None]:
        """Make of what is to be sent something that can be; return what tells when it has been, too.

        Raises:
            TypeError: it is nothing of bytes.
            ValueError: `track` is asked for what is not tracked.
        """
        if type(data) is bytes and copy and routing_id is None is group:
            return data, None
        if isinstance(data, str):
            raise TypeError(
                f"a frame is bytes, not str: {data!r}; encode it, or use send_string(…) or publish(…)"
            )
        if not isinstance(data, zmq.Frame):
            view = memoryview(data)
            if copy and routing_id is None is group:
                return data, None
            if view.nbytes < self._socket.copy_threshold:
                # As pyzmq does with what is small.
                return bytes(data), zmq._FINISHED_TRACKER
            data = zmq.Frame(data, track=track, copy_threshold=self._socket.copy_threshold)
        elif track and not data.tracker:
            raise ValueError("Not a tracked message")
        if routing_id is not None:
            data.routing_id = routing_id
        if group is not None:
            data.group = group
        return data, data.tracker

    def _route_too(self, frames: Sequence[Any]) -> None:
        """Send messages of pyzmq's calls to filtered subscriptions too."""
        if self._router.streams:
            first, *rest = [bytes(frame) for frame in frames]
            if self._delimiter:
                first, _, start = first.partition(self._delimiter)
                rest.insert(0, start)
            self._sender.route_raw(self._socket, first, rest)

    def _check_first(self, frame: Any) -> None:
        """Refuse a first frame that would not arrive where it should.

        Raises:
            ProtocolError: it begins as oz's own keys do; or it is empty or a zero byte, and there are
                subscribers to everything, who would not get it.
        """
        first = frame.bytes if isinstance(frame, zmq.Frame) else bytes(memoryview(frame)[:2])
        if first[:2] == OWN_KEYS:
            raise ProtocolError(f"a first frame begins with {OWN_KEYS!r}, which opens oz's own keys")
        if first in UNREACHABLE and len(frame) < 2 and self._router.plain.matches(first):
            raise ProtocolError(f"a first frame of {first!r} does not reach subscribers to everything")

    def quick_sends(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Make a `send` and a `send_multipart` that are quick with plain bytes; both keep the socket.

        They cost what a PUB's do, or twice that: for each message the lock, the clock, a look at its first
        two bytes, and no look-up of an attribute of a ZeroMQ socket.
        """
        socket, guard, raw, sender = self._socket, self._guard, self._raw, self._sender
        streams = self._router.streams
        look, listen = sender.look, sender.listen
        try_add = self._sink.try_add
        make_lossy, route = self._dispatch.make_lossy, self._route_too
        slow_send, slow_multipart, check = self.send, self.send_multipart, self._check_first

        def send(
            data: Any,
            flags: int = 0,
            copy: bool = True,
            track: bool = False,
            routing_id: int | None = None,
            group: str | None = None,
        ) -> zmq.MessageTracker | None:
            if (
                flags
                or raw
                or type(data) is not bytes
                or not copy
                or not (routing_id is None is group)
                or (len(data) >= WATCHED_FROM and not try_add(len(data)))
            ):
                return slow_send(data, flags, copy, track, routing_id=routing_id, group=group)  # type: ignore[no-any-return]
            guard.is_wanted = True
            with guard:
                if guard.is_interrupted:
                    return slow_send(data)  # type: ignore[no-any-return]
                if data < _FIRST_FREE:
                    check(data)
                if not sender.is_unheard or monotonic() - sender.listened_at >= LISTEN_EVERY:
                    look(socket)
                make_lossy()
                _send(socket, data)
                if streams:
                    route((data,))
                if not sender.is_unheard:
                    listen()
            return None

        def send_multipart(
            msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
        ) -> zmq.MessageTracker | None:
            frames = list(msg_parts)
            if flags or raw or not copy or kwargs or not frames:
                return slow_multipart(frames, flags, copy, track, **kwargs)  # type: ignore[no-any-return]
            for frame in frames:
                if type(frame) is not bytes or (len(frame) >= WATCHED_FROM and not try_add(len(frame))):
                    return slow_multipart(frames)  # type: ignore[no-any-return]
            guard.is_wanted = True
            with guard:
                if guard.is_interrupted:
                    return slow_multipart(frames)  # type: ignore[no-any-return]
                if frames[0] < _FIRST_FREE:
                    check(frames[0])
                if not sender.is_unheard or monotonic() - sender.listened_at >= LISTEN_EVERY:
                    look(socket)
                make_lossy()
                guard.undivided(send_frames, _send, socket, frames, 0)
                if streams:
                    route(frames)
                if not sender.is_unheard:
                    listen()
            return None

        return send, send_multipart
