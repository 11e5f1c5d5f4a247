"""Socket of a multicast subscriber. It reads all messages of one endpoint, and connects again if libpgm is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.multicast.arrivals import PacketArrivals
from oz.multicast.group import Claim, configure
from oz.multicast.receiver import Effect, Receiver
from oz.multicast.watchdog import UNOBSERVED, Arriving, Notice, Watchdog
from oz.options import Multicast
from oz.transport.endpoints import refused_by_libzmq

_log = peer_logger("oz.subscriber")

_NOBLOCK, _POLLIN, _EVENTS, _RCVMORE = int(zmq.NOBLOCK), int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE)
_get: Any = zmq.backend.Socket.get
_recv: Any = zmq.backend.Socket.recv


class Listener:
    """SUB socket of one multicast endpoint. It receives the frames of oz publishers.

    Attributes:
        socket: SUB socket of ZeroMQ.
        endpoint: endpoint as text, with the IPv4 address of its interface.
        options: multicast options of the endpoint, such as the rate.
        receiver: decoder of the frames. It also detects losses.
        is_empty: whether the last `read` emptied the socket.
        reconnects: number of new connections after libpgm was stuck.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        options: Multicast,
        *,
        high_water_mark: int,
        on_notice: Callable[[Notice], object] | None = None,
    ) -> None:
        """Create the socket and connect to the endpoint.

        Args:
            context: ZeroMQ context in which the socket is created.
            endpoint: multicast endpoint to read, such as "epgm://eth0;239.192.1.1:5555".
            options: multicast options of the endpoint, such as the rate.
            high_water_mark: maximum number of frames that wait in the socket before libzmq drops frames.
            on_notice: function that is called with each notice about a publisher; None to log the notices.

        Raises:
            EndpointError: the endpoint cannot be used, libzmq has no PGM, or a privilege or free descriptors are
                missing.
        """
        self._on_notice, self.options = on_notice, options
        claim = Claim(endpoint, mtu=options.mtu, is_publisher=False)
        self._endpoint, self.endpoint = claim.endpoint, str(claim.endpoint)
        self._watchdog = Watchdog(options.stale_after, options.rate_kbps)
        self._arrivals: PacketArrivals | None = None
        self._has_arrivals = self._endpoint.scheme == "epgm"
        self.is_empty = False
        self.reconnects = 0
        self.socket: zmq.Socket[bytes] = context.socket(zmq.SUB, socket_class=zmq.Socket)
        try:
            self.socket.setsockopt(zmq.LINGER, 0)
            self.socket.setsockopt(zmq.RCVHWM, high_water_mark)
            configure(self.socket, options, is_publisher=False)
            self.socket.setsockopt(zmq.SUBSCRIBE, b"")
            self.receiver = Receiver(time.time_ns())
            self._connect()
            self.fd = int(_get(self.socket, int(zmq.FD)))
        except BaseException:
            self.socket.close(0)
            raise

    def read(self, limit: int) -> list[Effect]:
        """Read at most `limit` frames, and return their messages and the detected losses."""
        effects: list[Effect] = []
        socket, on_frame, now = self.socket, self.receiver.on_frame, time.time_ns()
        self.is_empty = False
        for _ in range(limit):
            try:
                frame = _recv(socket, _NOBLOCK)
            except zmq.Again:
                self.is_empty = True
                break
            while _get(socket, _RCVMORE):
                # Oz publishers send only single frames. This message comes from a plain ZeroMQ publisher at the
                # endpoint.
                _recv(socket, _NOBLOCK)
                frame = b""
            effects += on_frame(frame, now)
        return effects

    def check(self, now: float) -> list[Effect]:
        """Check for silent publishers, and connect again if libpgm is stuck. Return the possible losses.

        Args:
            now: current time in seconds of the monotonic clock.
        """
        receiver, watchdog = self.receiver, self._watchdog
        effects: list[Effect] = []
        if self.is_empty:
            effects += receiver.on_idle(time.time_ns())
        if watchdog.has_silent():
            self._observe()
        else:
            self._stop_observing()
        notices = watchdog.check(
            receiver.senders, now,
            is_idle=self.is_empty, arriving=self._arriving(now), malformed=receiver.malformed,
        )  # fmt: skip
        for notice in notices:
            if notice.kind == "doubt":
                assert notice.origin is not None
                effects += receiver.on_silence(notice.origin)
            else:
                self._tell(notice)
        if any(notice.kind == "stuck" for notice in notices):
            self._reconnect()
        return effects

    def _tell(self, notice: Notice) -> None:
        if self._on_notice is None:
            if notice.kind == "corrupt":
                # The logger limits the records of each line of code. This call is on a separate line, so that damaged
                # frames do not hide other notices.
                _log.warning("multicast at %s: %s", self.endpoint, notice.text)
            else:
                _log.warning("multicast at %s: %s", self.endpoint, notice.text)
            return
        try:
            self._on_notice(notice)
        except Exception:
            _log.exception("the callback for notices raised for %r", notice)

    def _observe(self) -> None:
        if self._arrivals is None and self._has_arrivals:
            try:
                self._arrivals = PacketArrivals(self._endpoint)
            except OSError as error:
                self._has_arrivals = False
                _log.warning("multicast: packets at %s cannot be observed: %s", self.endpoint, error.strerror)

    def _stop_observing(self) -> None:
        arrivals, self._arrivals = self._arrivals, None
        if arrivals is not None:
            arrivals.close()

    def _arriving(self, now: float) -> Arriving | None:
        return UNOBSERVED if self._arrivals is None else self._arrivals.check(now)

    def _connect(self) -> None:
        with refused_by_libzmq(self.endpoint, ""):
            self.socket.connect(self.endpoint)

    def _reconnect(self) -> None:
        self.reconnects += 1
        with suppress(zmq.ZMQError):
            self.socket.disconnect(self.endpoint)
        self._connect()

    def next_deadline(self) -> float | None:
        """Return the monotonic time in seconds at which the next `check` is due if no frame arrives.

        None means that no check is needed.
        """
        return self._watchdog.next_deadline(self.receiver.senders)

    def close(self) -> None:
        """Close the sockets."""
        self._stop_observing()
        self.socket.close(0)
