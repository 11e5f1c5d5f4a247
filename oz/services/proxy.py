"""Plain forwarder: the proxy of libzmq between the sockets of publishers and subscribers."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq

from oz.errors import ConfigurationError
from oz.numbers import check_count
from oz.options import Limits
from oz.services.service import OnPoll, Service
from oz.transport import descriptors, endpoints
from oz.transport.bell import poll_until
from oz.transport.ipc_paths import SocketFiles

_BIND_HINT = "bind to an address or a network interface of this host, or to tcp://*:PORT"
_MAX_SUBSCRIPTION = 131_071
"""Maximum bytes of a subscription. For each byte of a subscription, libzmq needs one level of recursion and 100 bytes
of memory."""
HIGH_WATER_MARK = 100_000
"""Default number of messages that may wait for each subscriber."""
_KEEPALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 1),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    (zmq.TCP_MAXRT, 5_000),
    (zmq.CONNECT_TIMEOUT, 5_000),
    (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 5_000),
)
"""Socket options that detect a dead host within 5 s.

ZMTP heartbeats are not used, because they would abort the process on some failures (docs/libzmq.md).
"""
_LINGER = 1_000  # Milliseconds after `close` in which libzmq sends waiting messages.
_COUNTERS = struct.Struct("=Q")
_ANSWER_TIMEOUT = 1_000  # Milliseconds. The proxy of libzmq answers between two messages.


@dataclass(frozen=True)
class ProxyStats:
    """Counters of a plain forwarder."""

    messages: int = 0
    """Number of messages received from publishers. A batch counts as one message."""
    message_bytes: int = 0
    """Total bytes of the received messages."""
    sent: int = 0
    """Number of messages that had a subscriber."""
    subscriptions: int = 0
    """Number of subscriptions and unsubscriptions that were sent to publishers."""


class Proxy(Service):
    """Forwards messages from publishers to subscribers, and subscriptions from subscribers to publishers.

    The proxy of libzmq runs in a thread, between an XSUB socket and an XPUB socket. It does not decode messages.
    Publishers send only messages to which a subscriber has subscribed. If an error ends the proxy, `run` raises the
    `zmq.ZMQError`.
    """

    def __init__(
        self,
        *,
        frontend: str | Iterable[str] = (),
        backend: str | Iterable[str] = (),
        connect: str | Iterable[str] = (),
        high_water_mark: int = HIGH_WATER_MARK,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
    ) -> None:
        """Bind and connect. `run` starts to forward.

        Args:
            frontend: one or several endpoints for publishers, such as `tcp://*:5601`.
            backend: one or several endpoints for subscribers.
            connect: endpoints of publishers that bind, or backend endpoints of other proxies.
            high_water_mark: maximum number of messages that wait for each subscriber. Further messages for this
                subscriber are dropped. 0 means no limit.
            limits: only `message_bytes` and `handshake` have an effect. See docs/limits.md.

        Raises:
            TypeError: `limits` is not an `oz.Limits`.
            ConfigurationError: `backend` has no endpoint, or neither `frontend` nor `connect` has an endpoint.
            EndpointError: a text is not an endpoint, or libzmq has no support for its transport.
            zmq.ZMQError: an endpoint cannot be used, or file descriptors are used up.
        """
        if not isinstance(limits, Limits):
            raise TypeError(f"limits is an oz.Limits, not {type(limits).__name__}")
        ins, outs, dialled = (endpoints.as_list(value) for value in (frontend, backend, connect))
        if not outs or not (ins or dialled):
            rule = "give frontend= or connect= for publishers, and backend= for subscribers"
            raise ConfigurationError("backend" if ins or dialled else "frontend", (), "argument", rule)
        for endpoint in (*ins, *outs, *dialled):
            endpoints.check(endpoint, own_context=True)
        check_count("high_water_mark", high_water_mark, 0, 2**31 - 1)
        self._counting = threading.Lock()
        self._is_running = False
        self._stats = ProxyStats()
        self._failure: zmq.ZMQError | None = None
        # 6 descriptors for the control sockets, and two descriptors for each endpoint.
        descriptors.need(
            descriptors.CONTEXT + 6 + 2 * len([*ins, *outs, *dialled]), "a forwarder between sockets"
        )
        super().__init__()
        self._context: zmq.Context[Any] = zmq.Context()
        self._files = SocketFiles()
        try:
            self._front = self._open(zmq.XSUB, zmq.SNDHWM, zmq.RCVHWM, high_water_mark, limits)
            self._back = self._open(zmq.XPUB, zmq.RCVHWM, zmq.SNDHWM, high_water_mark, limits)
            self.frontends = self._bind(self._front, ins)
            """Endpoints for publishers, with their ports."""
            self.backends = self._bind(self._back, outs)
            """Endpoints for subscribers, with their ports."""
            for endpoint in dialled:
                self._front.set(zmq.IPV6, endpoints.needs_ipv6(endpoint))
                self._front.connect(endpoint)
            self._control = self._context.socket(zmq.PAIR)
            self._control.setsockopt(zmq.LINGER, 0)
            self._control.bind("inproc://control")
            self._commands = self._context.socket(zmq.PAIR)
            self._commands.setsockopt(zmq.LINGER, 0)
            self._commands.connect("inproc://control")
        except BaseException:
            self._files.remove_all()
            self._context.destroy(0)
            self._bell.close()
            self._is_closed = True
            raise

    def _open(self, kind: int, unbounded: int, bounded: int, mark: int, limits: Limits) -> Any:
        # The queue for subscriptions has no limit, because a full queue drops subscriptions without an error.
        socket = self._context.socket(kind)
        for option, value in _KEEPALIVE:
            socket.set(option, value)
        maximum = min(limits.message_bytes, _MAX_SUBSCRIPTION) if kind == zmq.XPUB else limits.message_bytes
        socket.set(zmq.MAXMSGSIZE, maximum)
        socket.set(zmq.HANDSHAKE_IVL, max(int(limits.handshake * 1000), 1))
        socket.setsockopt(zmq.LINGER, _LINGER)
        socket.setsockopt(unbounded, 0)
        socket.setsockopt(bounded, mark)
        return socket

    def _bind(self, socket: Any, places: list[str]) -> list[str]:
        bound = []
        for place in places:
            socket.set(zmq.IPV6, endpoints.needs_ipv6(place))
            with endpoints.refused_by_libzmq(place, _BIND_HINT):
                self._files.bind(socket, place)
            bound.append(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        return bound

    @property
    def stats(self) -> ProxyStats:
        """Current counters of the proxy."""
        with self._counting:
            if self._is_running:
                self._count()
            return self._stats

    def _serve(self, on_poll: OnPoll | None) -> None:
        passing = threading.Thread(target=self._pass, name="oz-forwarder", daemon=True)
        passing.start()
        self._is_running = True
        try:
            super()._serve(on_poll)
        finally:
            with self._counting:
                self._count()
                self._is_running = False
                with suppress(zmq.ZMQError):
                    self._control.send(b"TERMINATE", zmq.NOBLOCK)
            passing.join()
        if self._failure is not None:
            raise self._failure

    def _turn(self, until: float) -> None:
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        poll_until(poller, until)

    def _pass(self) -> None:
        # While the proxy runs, no other thread uses these three sockets.
        try:
            zmq.proxy_steerable(self._front, self._back, None, self._commands)
        except zmq.ZMQError as error:
            self._failure = error
        finally:
            self.stop()

    def _count(self) -> None:
        try:
            self._control.send(b"STATISTICS", zmq.NOBLOCK)
            if self._control.poll(_ANSWER_TIMEOUT):
                parts = self._control.recv_multipart()
                counted = [_COUNTERS.unpack(part)[0] for part in parts]
                self._stats = ProxyStats(counted[0], counted[1], counted[6], counted[2])
        except zmq.ZMQError:
            # The proxy has ended.
            pass

    def _release(self, timeout: float | None) -> None:
        self._files.remove_all()
        linger = _LINGER if timeout is None else min(_LINGER, int(timeout * 1000))
        for socket in (self._front, self._back):
            socket.close(linger)
        for socket in (self._control, self._commands):
            socket.close()
        self._context.term()
