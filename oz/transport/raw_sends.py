"""Sending by the calls of pyzmq: nothing is checked but what would not arrive where it should."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import zmq

from oz.errors import ProtocolError
from oz.protocol.plain import UNREACHABLE
from oz.protocol.routing import Router
from oz.transport.dispatch import Dispatch
from oz.transport.outlet import Outlet
from oz.transport.socket import BaseSocket
from oz.wire.keys import OWN as OWN_KEYS

_SNDMORE = int(zmq.SNDMORE)


class RawSends(BaseSocket):
    """What a publisher has of `zmq.Socket`; what is sent so reaches those who have it filter too."""

    _outlet: Outlet
    _router: Router
    _dispatch: Dispatch
    _delimiter: bytes
    _raw: list[Any]
    _is_framed: bool = False

    def send(  # type: ignore[override]
        self, data: Any, flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send one frame, as `zmq.Socket.send` does: subjects are not checked here."""
        with self._guard:
            if self._outlet.is_nested:
                # pyzmq sends the frames of `send_multipart` by this method.
                return super().send(data, flags, copy=copy, track=track, **kwargs)
            self._make_ready((data,))
            result = None
            if not self._is_framed:
                result = super().send(data, flags, copy=copy, track=track, **kwargs)
            self._sent_raw((data,), flags)
            return result

    def send_multipart(
        self, msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send the frames of one message, as `zmq.Socket.send_multipart` does, unchecked."""
        frames = list(msg_parts)
        with self._guard:
            self._make_ready(frames)
            if self._is_framed:
                self._sent_raw(frames, flags)
                return None
            self._outlet.is_nested = True
            try:
                result = super().send_multipart(frames, flags, copy=copy, track=track, **kwargs)
            finally:
                self._outlet.is_nested = False
            self._sent_raw(frames, flags)
            return result

    def _sent_raw(self, frames: Iterable[Any], flags: int) -> None:
        """Send what went out by the calls of pyzmq to those too who have this publisher filter."""
        self._raw.extend(frames)
        if flags & _SNDMORE:
            return
        whole = [bytes(frame) for frame in self._raw] if self._router.streams else []
        self._raw.clear()
        if whole:
            first, *rest = whole
            if self._delimiter:
                first, _, start = first.partition(self._delimiter)
                rest.insert(0, start)
            self._outlet.route_raw(self, first, rest)

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

    def _make_ready(self, frames: Sequence[Any]) -> None:
        """Check the first frame of a message, and take in the subscriptions that have arrived."""
        if frames and not self._raw:
            self._check_first(frames[0])
            self._outlet.look(self)
            # After it: what answers subscriptions is not to be dropped.
            self._dispatch.make_lossy(self)

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> Any:
        """Wait for events, as `zmq.Socket.poll`: milliseconds.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        self.check_owner()
        return super().poll(timeout, flags)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> NoReturn:
        """Refuse, as a PUB socket does; see `interest` for what subscribers want."""
        raise zmq.ZMQError(zmq.ENOTSUP)
