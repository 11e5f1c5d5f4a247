"""Asks a name server who is there, without joining anything."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import zmq

from oz.errors import NameserverUnavailable, ProtocolError
from oz.transport import descriptors, endpoints
from oz.transport.socket import keep_tcp_alive
from oz.wire.announcement import Announcement
from oz.wire.discovery import MAX_REPLY, Ask, Roster, pack, unpack_reply


def ask(
    nameserver: str, bus: str | None = None, *, timeout: float = 2.0, context: zmq.Context[Any] | None = None
) -> list[Announcement]:
    """Ask a name server which nodes there are.

    Args:
        nameserver: its endpoint.
        bus: on which bus; None: on any.
        timeout: seconds to wait for the answer.
        context: a ZeroMQ context to use; one of its own unless given.

    Returns:
        The nodes, in the order in which they were last heard.

    Raises:
        NameserverUnavailable: it has not answered in that time.
        ValueError: the text is no endpoint.
        TransportUnavailable: this libzmq lacks the transport.
        zmq.ZMQError: file descriptors are used up.
    """
    endpoints.check(nameserver, own_context=context is None)
    descriptors.need(descriptors.CONTEXT + 2, "asking a name server")
    made: zmq.Context[Any] = zmq.Context() if context is None else context
    dealer = made.socket(zmq.DEALER)
    try:
        keep_tcp_alive(dealer)
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.MAXMSGSIZE, MAX_REPLY)
        dealer.set(zmq.IPV6, endpoints.needs_ipv6(nameserver))
        dealer.connect(nameserver)
        dealer.send(pack(Ask(bus)))
        nodes = _receive(dealer, time.monotonic() + timeout)
    finally:
        dealer.close()
        if context is None:
            made.term()
    if nodes is None:
        raise NameserverUnavailable([nameserver], timeout)
    return nodes


def _receive(dealer: zmq.Socket[bytes], ends: float) -> list[Announcement] | None:
    """Wait for all parts of the roster; None when they do not come."""
    nodes: list[Announcement] = []
    while (left := ends - time.monotonic()) > 0:
        if not dealer.poll(max(1, round(1000 * left))):
            continue
        with suppress(ProtocolError):
            said = unpack_reply(dealer.recv())
            if isinstance(said, Roster):
                nodes = [*nodes[: said.first], *said.announcements]
                if said.is_last:
                    return nodes
    return None
