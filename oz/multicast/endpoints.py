"""Checks of multicast endpoints. libzmq would abort the process for an endpoint that fails a check.

A thread of libzmq opens PGM sockets, and aborts the process if a call fails. With libzmq 4.3.4, five causes were seen.
Another program had the UDP port, or the process lacked the privilege for a raw socket. The number of hops was above
255. The packet size was below 76 bytes, or above the number of bytes that the rate allows in a second. Further cases
are in tests/multicast/test_nothing_aborts.py.
"""

from __future__ import annotations

import array
import errno
import ipaddress
import re
import socket
import struct
import sys
from typing import NamedTuple

import zmq

from oz.system import HAS_FCNTL, ioctl
from oz.transport import descriptors
from oz.transport.errors import EndpointError

SCHEMES = ("epgm", "pgm")

_FORM = re.compile(r"(e?pgm)://([^;/\s]+);([0-9.]+):([0-9]{1,5})", re.ASCII)
_EXAMPLE = "epgm://eth0;239.192.1.1:5555"
_IPPROTO_PGM = 113
_SIOCGIFADDR, _SIOCGIFCONF, _SIOCGIFMTU = 0x8915, 0x8912, 0x8921
_ADDRESSES, _ADDRESS_SIZE = 1_024, 40 if struct.calcsize("P") == 8 else 32
"""Maximum number of addresses of this host, and the size in bytes of one address with its interface name."""

_DESCRIPTORS = 24
"""Number of file descriptors that must be free. A PGM socket opened 8 descriptors."""


class Endpoint(NamedTuple):
    """A multicast endpoint.

    Attributes:
        scheme: `epgm` (PGM in UDP packets) or `pgm` (IP protocol 113).
        interface: IPv4 address of the network interface. In the result of `parts`, this may be the name of the
            interface.
        group: IPv4 address of the group.
        port: UDP port of `epgm`, or the session number of `pgm`.
    """

    scheme: str
    interface: str
    group: str
    port: int

    def __str__(self) -> str:
        """Return the text to pass to `zmq_connect`."""
        return f"{self.scheme}://{self.interface};{self.group}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the packets of the endpoint stay on this host."""
        return ipaddress.ip_address(self.interface).is_loopback


def is_multicast(endpoint: object) -> bool:
    """Return whether a text begins with `epgm://` or `pgm://`."""
    return isinstance(endpoint, str) and endpoint.partition("://")[0] in SCHEMES


def parse(text: str) -> Endpoint:
    """Parse the text of an endpoint. Replace the name of an interface with its IPv4 address.

    Raises:
        EndpointError: the text is not a multicast endpoint, this host does not have the interface, or this
            system cannot list its interfaces.
    """
    named = parts(text)
    return named._replace(interface=_address(named.interface, text))


def parts(text: str) -> Endpoint:
    """Parse the text of an endpoint. Keep the name of an interface.

    Raises:
        EndpointError: the text is not a multicast endpoint.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise EndpointError(
            f"{text!r} is no multicast endpoint: write interface, group and port, as in {_EXAMPLE}"
        )
    scheme, interface, group, port = found[1], found[2], found[3], int(found[4])
    if not 1 <= port <= 65_535:
        raise EndpointError(f"{text!r} names port {port}: a port is from 1 to 65,535")
    try:
        is_group = ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        is_group = False
    if not is_group:
        raise EndpointError(f"{text!r} names group {group}: a group is from 224.0.0.0 to 239.255.255.255")
    return Endpoint(scheme, interface, group, port)


def _address(interface: str, text: str) -> str:
    if sys.platform != "linux" or not HAS_FCNTL:
        raise EndpointError(
            f"{text!r}: multicast needs Linux. oz cannot list the interfaces of {sys.platform}, and libzmq ends "
            "the process for an unknown interface"
        )
    names = [name for _, name in socket.if_nameindex()]
    if interface in names:
        address = _ask(interface, _SIOCGIFADDR)
        if address is None:
            raise EndpointError(f"{text!r} names interface {interface}, which has no IPv4 address")
        return socket.inet_ntoa(address[4:8])
    addresses = _addresses()
    # Do not test the address with `bind`: it succeeds for all of 127.0.0.0/8, but libpgm accepts only addresses of
    # interfaces.
    if interface not in addresses:
        raise EndpointError(
            f"{text!r} names interface {interface}, which this host does not have; it has "
            + ", ".join([*names, *addresses])
        )
    return interface


def _addresses() -> list[str]:
    """Return the IPv4 addresses of all interfaces. Source: netdevice(7)."""
    room = array.array("B", bytes(_ADDRESSES * _ADDRESS_SIZE))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iP", len(room), room.buffer_info()[0])
        (size, _) = struct.unpack("iP", ioctl(probe, _SIOCGIFCONF, asked))
    return [socket.inet_ntoa(room[at + 20 : at + 24]) for at in range(0, size, _ADDRESS_SIZE)]


def _ask(interface: str, what: int) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = ioctl(probe, what, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return answer[16:]


def check(endpoint: Endpoint, *, mtu: int) -> None:
    """Check that libzmq can open a socket for an endpoint.

    Args:
        endpoint: endpoint that `parse` returned.
        mtu: size in bytes of the largest IP packet.

    Raises:
        EndpointError: another program has the port and does not share it. Other causes: the interface does not support
            multicast or packets of this size, or the process lacks the privilege for the raw socket of `pgm`.
        zmq.ZMQError: fewer than 24 file descriptors are free.
    """
    _check_mtu(endpoint, mtu)
    descriptors.need(_DESCRIPTORS, f"a PGM socket at {endpoint}")
    if endpoint.scheme == "pgm":
        _check_privilege(endpoint)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # libpgm sets SO_REUSEPORT. Therefore it can share the port with programs that also set this option.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(probe, endpoint)
        interface = socket.inet_aton(endpoint.interface)
        group = socket.inet_aton(endpoint.group)
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + interface)
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            probe.connect((endpoint.group, endpoint.port))
        except OSError as error:
            raise EndpointError(
                f"{str(endpoint)!r}: interface {endpoint.interface} cannot be used: {error.strerror}. "
                "Check that it is up, and that there is a route to 224.0.0.0/4"
            ) from None


def _bind(probe: socket.socket, endpoint: Endpoint) -> None:
    if endpoint.scheme == "pgm":
        return
    try:
        probe.bind(("0.0.0.0", endpoint.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EndpointError(
                f"{str(endpoint)!r}: another program on this host has UDP port {endpoint.port}, or a PGM "
                "socket of another user has it; choose another port",
                errno.EADDRINUSE,
            ) from None
        raise EndpointError(
            f"{str(endpoint)!r}: UDP port {endpoint.port} cannot be bound: {error.strerror}; choose another port",
            error.errno or zmq.EINVAL,
        ) from None


def _check_mtu(endpoint: Endpoint, mtu: int) -> None:
    for _, name in socket.if_nameindex():
        address, size = _ask(name, _SIOCGIFADDR), _ask(name, _SIOCGIFMTU)
        if address is None or size is None or socket.inet_ntoa(address[4:8]) != endpoint.interface:
            continue
        (max_mtu,) = struct.unpack_from("i", size)
        if mtu > max_mtu:
            raise EndpointError(
                f"{str(endpoint)!r}: interface {name} carries packets of {max_mtu:,} bytes: make mtu={mtu:,} smaller"
            )


def _check_privilege(endpoint: Endpoint) -> None:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, _IPPROTO_PGM).close()
    except OSError as error:
        raise EndpointError(
            f"{str(endpoint)!r} needs a raw socket: {error.strerror}; run it with CAP_NET_RAW, "
            f"or use e{endpoint}, which needs no privilege",
            error.errno or zmq.EINVAL,
        ) from None


def holders(port: int) -> int:
    """Return the number of UDP sockets on a port in this network namespace.

    Return 0 if the kernel does not list sockets.
    """
    try:
        with open("/proc/net/udp") as table:
            rows = table.readlines()[1:]
    except OSError:
        return 0
    return sum(int(row.split()[1].rpartition(":")[2], 16) == port for row in rows)
