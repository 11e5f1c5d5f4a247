"""Types of sockets, default options, and endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import zmq

from oz.testing.pipes import End, Message
from oz.testing.publishing import PublisherPipes, SubscriberPipes
from oz.testing.queues import Balancing, Routing

DEFAULTS: dict[int, int | bytes] = {
    int(zmq.SNDHWM): 1000,
    int(zmq.RCVHWM): 1000,
    int(zmq.LINGER): -1,
    int(zmq.SNDTIMEO): -1,
    int(zmq.RCVTIMEO): -1,
    int(zmq.IMMEDIATE): 0,
    int(zmq.RECONNECT_IVL): 100,
    int(zmq.RECONNECT_IVL_MAX): 0,
    int(zmq.RECONNECT_STOP): 0,
    int(zmq.ROUTING_ID): b"",
    # Accepted without an effect.
    int(zmq.MAXMSGSIZE): -1,
    int(zmq.IPV6): 0,
    int(zmq.BACKLOG): 100,
    int(zmq.HANDSHAKE_IVL): 30_000,
    int(zmq.TCP_KEEPALIVE): -1,
    int(zmq.TCP_KEEPALIVE_IDLE): -1,
    int(zmq.TCP_KEEPALIVE_INTVL): -1,
    int(zmq.TCP_KEEPALIVE_CNT): -1,
    int(zmq.TCP_MAXRT): 0,
    int(zmq.CONNECT_TIMEOUT): 0,
    int(zmq.SNDBUF): -1,
    int(zmq.RCVBUF): -1,
    int(zmq.AFFINITY): 0,
}
"""Options of every socket."""

ONCE = (int(zmq.PUB), int(zmq.SUB), int(zmq.REQ), int(zmq.DEALER))
"""Types for which libzmq ignores a second connection to one endpoint."""


class Behaviour(Protocol):
    """Behaviour of one type of socket with its pipes."""

    def set_option(self, option: int, value: int | bytes) -> bool:
        """Set an option of this type; return whether it is one."""

    def topics_count(self) -> int:
        """Return the number of subscribed topics."""

    def attach(self, end: End) -> None:
        """Add a pipe."""

    def readable(self, end: End) -> None:
        """Handle that a pipe has messages."""

    def writable(self, end: End) -> None:
        """Handle that a pipe has space again."""

    def hiccuped(self, end: End) -> None:
        """Send all subscriptions again."""

    def terminated(self, end: End) -> None:
        """Remove a pipe."""

    def has_begun(self, end: End) -> bool:
        """Return whether a message of several frames was announced and not received."""

    def begin(self, first: bytes) -> bool:
        """Choose the receivers of a message by its first frame; return whether it may be sent."""

    def send(self, message: Message) -> None:
        """Send a message to the receivers."""

    def receive(self) -> Message | None:
        """Return the next message."""

    def has_in(self) -> bool:
        """Return whether there is a message."""

    def has_out(self) -> bool:
        """Return whether a message may be sent."""


BEHAVIOURS: dict[int, Callable[[], Behaviour]] = {
    int(zmq.PUB): lambda: PublisherPipes(tells=False),
    int(zmq.XPUB): lambda: PublisherPipes(tells=True),
    int(zmq.SUB): lambda: SubscriberPipes(filters=True),
    int(zmq.XSUB): lambda: SubscriberPipes(filters=False),
    int(zmq.DEALER): Balancing,
    int(zmq.PAIR): lambda: Balancing(most=1),
    int(zmq.ROUTER): Routing,
}
"""Functions that create the behaviour of each type."""


def parse(endpoint: str) -> tuple[str, str]:
    """Return transport and address, with names of this host as numbers."""
    transport, separator, address = endpoint.partition("://")
    if not separator or not address:
        raise zmq.ZMQError(zmq.EINVAL)
    if transport not in ("tcp", "ipc", "inproc"):
        raise zmq.ZMQError(zmq.EPROTONOSUPPORT)
    if transport == "tcp":
        host, separator, port = address.rpartition(":")
        if not separator or not (port == "*" or port.isdigit()):
            raise zmq.ZMQError(zmq.EINVAL)
        address = f"{ {'*': '0.0.0.0', 'localhost': '127.0.0.1'}.get(host, host) }:{port}"
    return transport, address
