"""Multicast endpoints: everything that libzmq would end the process for is found and refused here.

libzmq opens a PGM socket in a thread of its own, where any failure is an assertion. What was seen to end the
process with libzmq 4.3.4: a UDP port that another program holds, hops above 255, packets below 76 bytes or
larger than a second's rate, a raw socket without the privilege.
tests/multicast/test_nothing_aborts.py tries what else one can think of.
"""

from __future__ import annotations

import array
import errno
import ipaddress
import os
import re
import socket
import struct
import sys
from typing import NamedTuple

from oz.errors import TransportUnavailable
from oz.system import HAS_FCNTL, ioctl
from oz.transport.endpoints import EndpointError

SCHEMES = ("epgm", "pgm")

_FORM = re.compile(r"(e?pgm)://([^;/\s]+);([0-9.]+):([0-9]{1,5})", re.ASCII)
_EXAMPLE = "epgm://eth0;239.192.1.1:5555"
_IPPROTO_PGM = 113
_SIOCGIFADDR, _SIOCGIFCONF, _SIOCGIFMTU = 0x8915, 0x8912, 0x8921
_ADDRESSES, _ADDRESS_SIZE = 1_024, 40 if struct.calcsize("P") == 8 else 32
"""What is read of the addresses of this host at most; bytes of one, with the name of its interface."""

_DESCRIPTORS = 24
"""Open files that must be free; a PGM socket was seen to take 8."""


class Endpoint(NamedTuple):
    """A multicast endpoint that was checked.

    Attributes:
        scheme: `epgm` (within UDP) or `pgm` (IP protocol 113).
        interface: the IPv4 address of the interface; its name, as of `parts`.
        group: the IPv4 address of the group.
        port: the UDP port; with `pgm` what tells sessions apart.
    """

    scheme: str
    interface: str
    group: str
    port: int

    def __str__(self) -> str:
        """Return the form that libzmq takes."""
        return f"{self.scheme}://{self.interface};{self.group}:{self.port}"

    @property
    def to(self) -> str:
        """The group and port: what publisher and subscriber have in common."""
        return f"{self.group}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it stays within this host."""
        return ipaddress.ip_address(self.interface).is_loopback


def is_multicast(endpoint: object) -> bool:
    """Tell whether an endpoint is one of multicast."""
    return isinstance(endpoint, str) and endpoint.partition("://")[0] in SCHEMES


def parse(text: str) -> Endpoint:
    """Read an endpoint, and find the address of its interface.

    Raises:
        EndpointError: it is none, its interface is not of this host, or its group is no multicast address.
    """
    named = parts(text)
    return named._replace(interface=_address(named.interface, text))


def parts(text: str) -> Endpoint:
    """Read an endpoint, and leave its interface as it is named.

    Raises:
        EndpointError: it is none, or its group is no multicast address.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise EndpointError(
            f"{text!r} is no multicast endpoint; one looks like {_EXAMPLE}: an interface by its name or IPv4 "
            "address, a group and a port"
        )
    scheme, interface, group, port = found[1], found[2], found[3], int(found[4])
    if not 1 <= port <= 65_535:
        raise EndpointError(f"{text!r} names port {port}; it is from 1 to 65,535")
    try:
        is_group = ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        is_group = False
    if not is_group:
        raise EndpointError(f"{text!r} names group {group}, which is not from 224.0.0.0 to 239.255.255.255")
    return Endpoint(scheme, interface, group, port)


def _address(interface: str, text: str) -> str:
    """Return the IPv4 address of an interface that is named by it, or by its name."""
    if sys.platform != "linux" or not HAS_FCNTL:
        raise TransportUnavailable(
            f"{text!r}: multicast needs Linux; oz cannot ask {sys.platform} which interfaces there are, and "
            "libzmq ends the process at one that there is not"
        )
    names = [name for _, name in socket.if_nameindex()]
    if interface in names:
        address = _ask(interface, _SIOCGIFADDR)
        if address is None:
            raise EndpointError(f"{text!r} names interface {interface}, which has no IPv4 address")
        return socket.inet_ntoa(address[4:8])
    addresses = _addresses()
    # Not by binding to it: all of 127.0.0.0/8 can be bound to, and libpgm knows only what an interface has.
    if interface not in addresses:
        raise EndpointError(
            f"{text!r} names interface {interface}, which this host does not have; "
            f"it has {', '.join([*names, *addresses])}"
        )
    return interface


def _addresses() -> list[str]:
    """List the IPv4 addresses of all interfaces. Source: netdevice(7)."""
    room = array.array("B", bytes(_ADDRESSES * _ADDRESS_SIZE))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iP", len(room), room.buffer_info()[0])
        (size, _) = struct.unpack("iP", ioctl(probe, _SIOCGIFCONF, asked))
    return [socket.inet_ntoa(room[at + 20 : at + 24]) for at in range(0, size, _ADDRESS_SIZE)]


def _ask(interface: str, what: int) -> bytes | None:
    """Ask the kernel for an attribute of an interface; None when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = ioctl(probe, what, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return answer[16:]


def check(endpoint: Endpoint, *, mtu: int) -> None:
    """See whether libzmq can open a socket for an endpoint.

    Args:
        endpoint: the endpoint.
        mtu: bytes of a packet.

    Raises:
        ValueError: the port is held by a program that does not share it, the interface does no multicast or
            carries only smaller packets.
        TransportUnavailable: the privilege is missing, or there are too many open files.
    """
    _check_mtu(endpoint, mtu)
    _check_descriptors(endpoint)
    if endpoint.scheme == "pgm":
        _check_privilege(endpoint)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # As libpgm shares a port; another program that does not do the same keeps it to itself.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(probe, endpoint)
        interface = socket.inet_aton(endpoint.interface)
        group = socket.inet_aton(endpoint.group)
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + interface)
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            probe.connect((endpoint.group, endpoint.port))
        except OSError as error:
            raise ValueError(
                f"{str(endpoint)!r}: interface {endpoint.interface} does no multicast: {error.strerror}; "
                "is it up, and is there a route to 224.0.0.0/4?"
            ) from None


def _bind(probe: socket.socket, endpoint: Endpoint) -> None:
    if endpoint.scheme == "pgm":
        return
    try:
        probe.bind(("0.0.0.0", endpoint.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"{str(endpoint)!r}: UDP port {endpoint.port} is held by another program on this host, or by "
                "a PGM socket of another user; choose another port"
            ) from None
        raise TransportUnavailable(
            f"{str(endpoint)!r}: UDP port {endpoint.port} cannot be bound: {error.strerror}"
        ) from None


def _check_mtu(endpoint: Endpoint, mtu: int) -> None:
    for _, name in socket.if_nameindex():
        address, size = _ask(name, _SIOCGIFADDR), _ask(name, _SIOCGIFMTU)
        if address is None or size is None or socket.inet_ntoa(address[4:8]) != endpoint.interface:
            continue
        (most,) = struct.unpack_from("i", size)
        if mtu > most:
            raise ValueError(
                f"{str(endpoint)!r}: interface {name} carries packets of {most:,} bytes; mtu={mtu:,} is more"
            )


def _check_privilege(endpoint: Endpoint) -> None:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, _IPPROTO_PGM).close()
    except OSError as error:
        raise TransportUnavailable(
            f"{str(endpoint)!r} needs a raw socket: {error.strerror}; run with CAP_NET_RAW, "
            f"or use e{endpoint}, which needs no privilege"
        ) from None


def _check_descriptors(endpoint: Endpoint) -> None:
    opened: list[int] = []
    try:
        for _ in range(_DESCRIPTORS):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise TransportUnavailable(
            f"{str(endpoint)!r}: a PGM socket needs {_DESCRIPTORS} open files to be free: {error.strerror}; "
            "raise the limit (ulimit -n), or close some"
        ) from None
    finally:
        for one in opened:
            os.close(one)


def holders(port: int) -> int:
    """Count the UDP sockets of this host, or network namespace, that hold a port; 0 where none can tell."""
    try:
        with open("/proc/net/udp") as table:
            rows = table.readlines()[1:]
    except OSError:
        return 0
    return sum(int(row.split()[1].rpartition(":")[2], 16) == port for row in rows)
