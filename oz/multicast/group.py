"""Preparation of a multicast socket: its options, the check of its endpoint, and the claim to a UDP port.

Subscribers send repair requests to the UDP port of the publisher. If several sockets of a host share the port, the
kernel gives each request to only one of the sockets, and losses are not repaired. Therefore a publisher claims its
port. The claim is an abstract Unix socket. When the process ends, the kernel removes the claim. Claims and ports are
both valid in one network namespace.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
import sys
from typing import Any

import zmq

from oz.multicast.endpoints import Endpoint, check, holders, parse
from oz.options import Multicast
from oz.transport.capabilities import has
from oz.transport.errors import EndpointError

_RECEIVE_BUFFER = 4 << 20
"""Size in bytes of the receive buffer. The kernel limits the size to `net.core.rmem_max`."""


def silence_libpgm() -> None:
    """Stop libpgm from writing warnings to the standard output of the program.

    The function sets an environment variable, which libpgm reads when the process creates its first ZeroMQ context.
    """
    if has("pgm"):
        os.environ.setdefault("PGM_MIN_LOG_LEVEL", "ERROR")


def configure(socket: Any, options: Multicast, *, is_publisher: bool) -> None:
    """Set the options of a multicast socket.

    Args:
        socket: ZeroMQ socket without an endpoint. libzmq reads these options when it opens the endpoint.
        options: multicast options of the endpoint, such as the rate.
        is_publisher: whether the socket sends.
    """
    values = {
        zmq.RATE: options.rate_kbps,
        zmq.RECOVERY_IVL: round(options.recovery * 1000),
        zmq.MULTICAST_HOPS: options.hops,
        zmq.MULTICAST_MAXTPDU: options.mtu,
    }
    if not is_publisher:
        values[zmq.RCVBUF] = _RECEIVE_BUFFER
    for option, value in values.items():
        zmq.backend.Socket.set(socket, int(option), value)


class Claim:
    """Checked endpoint. In a publisher, also the claim to the UDP port of the endpoint.

    Attributes:
        text: endpoint as the program gave it.
        endpoint: parsed endpoint, with the IPv4 address of its interface.
    """

    def __init__(self, text: str, *, mtu: int, is_publisher: bool) -> None:
        """Check an endpoint.

        Args:
            text: endpoint as the program gave it.
            mtu: size in bytes of the largest IP packet.
            is_publisher: whether to claim the UDP port. If False, the constructor only checks that no publisher has
                claimed the port.

        Raises:
            EndpointError: the text is not a multicast endpoint, this host cannot use the endpoint, another publisher
                has claimed the port, or a privilege or free descriptors are missing.
        """
        self._socket: sockets.socket | None = None
        self.text, self.endpoint = text, parse(text)
        check(self.endpoint, mtu=mtu)
        if self.endpoint.scheme != "epgm" or sys.platform != "linux":
            return
        if is_publisher:
            self._claim_port()
        elif not self.endpoint.is_loopback and _is_claimed(self.endpoint):
            raise self._refusal("a publisher")

    def _claim_port(self) -> None:
        claim = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
        try:
            claim.bind(_name(self.endpoint))
        except OSError:
            claim.close()
            raise self._refusal("another publisher") from None
        if not self.endpoint.is_loopback and holders(self.endpoint.port):
            claim.close()
            raise self._refusal("another socket")
        self._socket = claim

    def _refusal(self, holder: str) -> EndpointError:
        return EndpointError(
            f"{str(self.endpoint)!r}: {holder} on this host has UDP port {self.endpoint.port}, and two sockets "
            "on one port break the repair of lost packets: give each publisher a port of its own, and local "
            "subscribers a gateway (oz gateway)",
            errno.EADDRINUSE,
        )

    def release(self) -> None:
        """Release the port. A second call does nothing."""
        claim, self._socket = self._socket, None
        if claim is not None:
            claim.close()


def _is_claimed(endpoint: Endpoint) -> bool:
    # The probe connects and does not bind: a bound probe would prevent a publisher from claiming the port.
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM) as probe:
        return probe.connect_ex(_name(endpoint)) != errno.ECONNREFUSED


def _name(endpoint: Endpoint) -> str:
    return f"\0oz.multicast.publisher.{endpoint.port}"
