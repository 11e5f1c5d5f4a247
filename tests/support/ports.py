"""Ports for listeners that close and return, or that start later than their peers."""

import itertools
import random
import socket
from contextlib import suppress
from functools import cache

PLACES = range(12_000, 22_000)
"""These ports and their link ports are below the ports of outgoing connections, which occupy their port for a
minute after their end."""

_SHARE = 100


@cache
def _own():
    """Return a cycle of ports that belong to this process of the tests."""
    shares = list(range(PLACES.start, PLACES.stop, _SHARE))
    random.SystemRandom().shuffle(shares)  # not seeded: tests run in several processes
    for start in shares:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # An abstract name of Linux, which goes with the process.
            claim.bind(f"\0oz.tests.ports.{start}")
        except OSError:
            claim.close()
            continue
        return claim, itertools.cycle(range(start, start + _SHARE))
    raise AssertionError("other processes have all the ports that are for tests")


def _free(kind):
    _, ports = _own()
    for port in itertools.islice(ports, 2 * _SHARE):
        with suppress(OSError), socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("0.0.0.0", port))
            return port
    raise AssertionError("all the ports of this process are in use")


def lasting_port():
    """Return a free TCP port that no other process gets by chance."""
    return _free(socket.SOCK_STREAM)


def lasting_udp_port():
    """Return a free UDP port, for multicast."""
    return _free(socket.SOCK_DGRAM)


def lasting_endpoint():
    """Return an endpoint of this host with a port of `lasting_port`."""
    return f"tcp://127.0.0.1:{lasting_port()}"


def free_endpoint():
    """Return an endpoint whose port and link port are free."""
    for _ in range(_SHARE):
        port = lasting_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 10_000)):
            return f"tcp://127.0.0.1:{port}"
    raise AssertionError("no port has a free link port")


@cache
def has_ipv6():
    """Return whether this host has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
