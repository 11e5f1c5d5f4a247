"""The multicast side of one socket: its options, its endpoints, and its claim to a port."""

from __future__ import annotations

import errno
import os
import socket as sockets
import sys
from collections.abc import Iterable
from typing import Any

import zmq

from oz.errors import TransportUnavailable
from oz.protocol.multicast.options import Multicast
from oz.transport.endpoints import as_list
from oz.transport.multicast.endpoint import Endpoint, check, holders, is_multicast, parse

_RECEIVE_BUFFER = 4 * 2**20
"""Bytes asked of the kernel for packets that are not taken yet; it gives what `net.core.rmem_max` allows."""

_ALLOWED = frozenset(
    int(option)
    for option in (
        zmq.AFFINITY,
        zmq.IMMEDIATE,
        zmq.LINGER,
        zmq.MAXMSGSIZE,
        zmq.RCVHWM,
        zmq.RCVTIMEO,
        zmq.SNDHWM,
        zmq.SNDTIMEO,
        zmq.SUBSCRIBE,
        zmq.UNSUBSCRIBE,
        zmq.XPUB_MANUAL,
        zmq.XPUB_NODROP,
    )
)

_SECURITY = {
    int(getattr(zmq, name)): name
    for name in (
        "CURVE_SERVER",
        "CURVE_PUBLICKEY",
        "CURVE_SECRETKEY",
        "CURVE_SERVERKEY",
        "PLAIN_SERVER",
        "PLAIN_USERNAME",
        "PLAIN_PASSWORD",
        "GSSAPI_SERVER",
        "GSSAPI_PRINCIPAL",
        "GSSAPI_SERVICE_PRINCIPAL",
        "ZAP_DOMAIN",
    )
}


def silence_libpgm() -> None:
    """Keep libpgm from writing warnings to the standard output of the application.

    It reads this when the first context of the process is made.
    """
    os.environ.setdefault("PGM_MIN_LOG_LEVEL", "ERROR")


def group_for(
    ends: Iterable[Any], options: Multicast | None, *, is_plain: bool, is_publisher: bool
) -> MulticastGroup | None:
    """Make what a socket needs for multicast, if it is told to or given such an endpoint.

    Args:
        ends: what it is to be bound and connected to.
        options: as they were given.
        is_plain: whether messages are ordinary ones of ZeroMQ.
        is_publisher: what kind of socket it is.

    Raises:
        ValueError: plain without multicast.
        TypeError: the options are not `oz.Multicast`.
    """
    if options is None and any(is_multicast(one) for end in ends for one in as_list(end)):
        options = Multicast()
    if options is not None:
        return MulticastGroup(options, is_publisher=is_publisher, is_plain=is_plain)
    if is_plain:
        raise ValueError("plain=True is for multicast; without it plain subscribers are served anyway")
    return None


class MulticastGroup:
    """The extra parts of a multicast socket.

    Attributes:
        options: how it sends and listens.
        is_plain: whether messages are ordinary ones of ZeroMQ.
        endpoints: what it is bound or connected to, by the form that libzmq was given.
    """

    __slots__ = ("_claims", "_is_publisher", "endpoints", "is_plain", "options")

    def __init__(self, options: Multicast, *, is_publisher: bool, is_plain: bool) -> None:
        """Start without endpoints.

        Raises:
            TypeError: the options are not `oz.Multicast`.
        """
        if not isinstance(options, Multicast):
            raise TypeError(f"multicast is an oz.Multicast, not {type(options).__name__}: {options!r}")
        self.options = options
        self.is_plain = is_plain
        self._is_publisher = is_publisher
        self.endpoints: dict[str, Endpoint] = {}
        self._claims: list[sockets.socket] = []
        silence_libpgm()

    def configure(self, socket: Any) -> None:
        """Set the options of ZeroMQ."""
        options, backend_set = self.options, zmq.backend.Socket.set
        values = {
            zmq.RATE: options.rate_kbps,
            zmq.RECOVERY_IVL: round(options.recovery * 1000),
            zmq.MULTICAST_HOPS: options.hops,
            zmq.MULTICAST_MAXTPDU: options.mtu,
        }
        if self._is_publisher:
            # Whatever finds no room is known: see `MulticastDispatch`.
            values[zmq.XPUB_NODROP] = int(not self.is_plain)
        else:
            values[zmq.RCVBUF] = _RECEIVE_BUFFER
        for option, value in values.items():
            backend_set(socket, int(option), value)

    def admit(self, socket: Any, text: str) -> str:
        """Check an endpoint, and claim its port.

        Args:
            socket: the socket, which must have no security that multicast would ignore.
            text: the endpoint as it was given.

        Returns:
            The endpoint as libzmq is to be given it.

        Raises:
            ValueError: it is no endpoint, cannot be used here, or does not go with others on this host.
            TransportUnavailable: a privilege or open files are missing.
        """
        endpoint = parse(text)
        self._check_security(socket)
        if str(endpoint) in self.endpoints:
            return str(endpoint)
        if self._is_publisher and self.endpoints:
            raise ValueError(
                f"{text!r} is a second endpoint; a multicast publisher has one, since its messages are "
                "numbered for all who listen there"
            )
        check(endpoint, mtu=self.options.mtu)
        self._check_neighbours(endpoint)
        self.endpoints[str(endpoint)] = endpoint
        return str(endpoint)

    def _check_security(self, socket: Any) -> None:
        if int(zmq.backend.Socket.get(socket, int(zmq.MECHANISM))) != int(zmq.NULL):
            raise ValueError(
                "multicast knows no CURVE nor any other security of ZeroMQ, which would be ignored in "
                "silence; encrypt payloads, or use tcp"
            )

    def _check_neighbours(self, endpoint: Endpoint) -> None:
        """Refuse a publisher beside other sockets on the same UDP port of this host.

        Requests for repair come to that port, and the kernel hands each to any one of the sockets.
        """
        if endpoint.scheme != "epgm" or sys.platform != "linux":
            return
        if not self._is_publisher:
            if not endpoint.is_loopback and self._is_claimed(endpoint):
                raise ValueError(f"{str(endpoint)!r}: {self._why(endpoint, 'a publisher holds')}")
            return
        claim = self._claim(endpoint)
        if claim is None:
            raise ValueError(f"{str(endpoint)!r}: {self._why(endpoint, 'another publisher holds')}")
        if not endpoint.is_loopback and holders(endpoint.port):
            claim.close()
            raise ValueError(f"{str(endpoint)!r}: {self._why(endpoint, 'another socket holds')}")
        self._claims.append(claim)

    @staticmethod
    def _claim(endpoint: Endpoint) -> sockets.socket | None:
        """Claim a port for a publisher; None when another has it.

        An abstract name of Linux is seen by the same sockets as the port: those of one network namespace.
        """
        claim = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
        try:
            claim.bind(_claim_on(endpoint))
        except OSError:
            claim.close()
            return None
        return claim

    @staticmethod
    def _is_claimed(endpoint: Endpoint) -> bool:
        """Tell whether a publisher has a port; not by claiming it, which would have others refused."""
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM) as probe:
            return probe.connect_ex(_claim_on(endpoint)) != errno.ECONNREFUSED

    @staticmethod
    def _why(endpoint: Endpoint, who: str) -> str:
        return (
            f"{who} UDP port {endpoint.port} on this host, and beside it lost packets could not be repaired; "
            "give each publisher a port of its own, and local subscribers a gateway (oz gateway)"
        )

    def check_option(self, option: int) -> None:
        """Refuse an option that would not work with multicast, or end the process.

        Raises:
            ValueError: it is one.
        """
        if int(option) in _SECURITY:
            raise ValueError(
                f"{_SECURITY[int(option)]} would be ignored in silence: multicast knows no CURVE nor any "
                "other security of ZeroMQ; encrypt payloads, or use tcp"
            )
        if int(option) not in _ALLOWED:
            raise ValueError(
                f"option {_name(option)} is not for a multicast socket; what can be chosen is in oz.Multicast"
            )

    def forget(self, text: str) -> str:
        """Forget an endpoint that is disconnected; give the form that libzmq was given."""
        try:
            known = str(parse(text))
        except (ValueError, TypeError, TransportUnavailable):
            return text
        if self.endpoints.pop(known, None) is not None and self._is_publisher:
            self.release()
        return known

    def release(self) -> None:
        """Release what was claimed."""
        while self._claims:
            self._claims.pop().close()
        self.endpoints.clear()


def _claim_on(endpoint: Endpoint) -> str:
    return f"\0oz.multicast.publisher.{endpoint.port}"


def _name(option: int) -> str:
    try:
        return zmq.SocketOption(option).name
    except ValueError:
        return str(int(option))
