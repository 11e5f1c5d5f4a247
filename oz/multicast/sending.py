"""Socket of a multicast publisher. It has one endpoint, and sends the frames of a `Sender`."""

from __future__ import annotations

import time
from typing import Any

import zmq

from oz.multicast.endpoints import is_multicast
from oz.multicast.group import Claim, configure
from oz.multicast.sender import Sender
from oz.options import Multicast
from oz.transport.endpoints import refused_by_libzmq
from oz.transport.errors import EndpointError

MIN_WAITING = 1_000
"""Minimum of the default high-water mark, in frames. If RATE allows more packets in a second, the default is that
number."""

_NOBLOCK = int(zmq.NOBLOCK)
_send: Any = zmq.backend.Socket.send


class Transmitter:
    """XPUB socket of one publisher. The socket has at most one endpoint.

    Attributes:
        socket: XPUB socket of ZeroMQ.
        claim: checked endpoint, with the claim to its UDP port; None without an endpoint.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        options: Multicast,
        *,
        refuses: bool,
        high_water_mark: int | None = None,
    ) -> None:
        """Set the options of the socket.

        Args:
            socket: XPUB socket without an endpoint.
            options: multicast options of the endpoint, such as the rate.
            refuses: whether `send` stops when the socket is full. Otherwise libzmq drops the frames.
            high_water_mark: maximum number of frames that wait in the socket. None means the number of packets that
                RATE allows in one second, but at least `MIN_WAITING`.
        """
        self.socket, self._mtu = socket, options.mtu
        self.claim: Claim | None = None
        if high_water_mark is None:
            high_water_mark = max(MIN_WAITING, options.rate_kbps * 125 // options.mtu)
        configure(socket, options, is_publisher=True)
        socket.setsockopt(zmq.XPUB_NODROP, int(refuses))
        socket.setsockopt(zmq.SNDHWM, high_water_mark)

    @property
    def endpoint(self) -> str | None:
        """Endpoint as text, with the IPv4 address of its interface; None without an endpoint."""
        return None if self.claim is None else str(self.claim.endpoint)

    def attach(self, text: str) -> None:
        """Begin to send to an endpoint.

        Raises:
            EndpointError: the endpoint cannot be used, the socket already has an endpoint, or a privilege or free
                descriptors are missing.
        """
        if not is_multicast(text):
            raise EndpointError(
                f"{text!r} is no multicast endpoint: leave Options(multicast=) out, or give an endpoint such as "
                "epgm://eth0;239.192.1.1:5555"
            )
        if self.claim is not None:
            raise EndpointError(
                f"{text!r} is a second endpoint, and a multicast publisher has one, because its messages are "
                "numbered for all subscribers: use another publisher"
            )
        claim = Claim(text, mtu=self._mtu, is_publisher=True)
        try:
            with refused_by_libzmq(text, ""):
                self.socket.connect(str(claim.endpoint))
        except BaseException:
            claim.release()
            raise
        self.claim = claim

    def detach(self, text: str) -> None:
        """Disconnect from the endpoint.

        Raises:
            EndpointError: the socket does not have this endpoint.
        """
        if self.claim is None or text not in (self.claim.text, self.endpoint):
            raise EndpointError(f"{text!r} is not bound; bound is {self.endpoint or 'none'}")
        self.socket.disconnect(str(self.claim.endpoint))
        self.release()

    def send(self, sender: Sender) -> bool:
        """Send frames until the socket is full. Return whether all frames were sent."""
        frames = sender.frames
        while frames:
            try:
                _send(self.socket, frames[0].data, _NOBLOCK)
            except zmq.Again:
                return False
            sender.sent(time.monotonic())
        return True

    def release(self) -> None:
        """Release the UDP port. Call this after the socket was closed or disconnected."""
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release()
