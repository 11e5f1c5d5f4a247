"""Packets of a group, which need no libpgm to observe."""

import socket
import struct
import sys

import pytest

from oz.multicast.arrivals import FRESH, PacketArrivals
from oz.multicast.endpoints import parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="multicast needs Linux")

SPM, DATA, REPAIR, REQUEST, CONFIRMATION = 0x00, 0x04, 0x05, 0x08, 0x0A


@pytest.fixture
def port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


@pytest.fixture
def arrivals(port):
    made = PacketArrivals(parse(f"epgm://127.0.0.1;239.192.7.8:{port}"))
    yield made
    made.close()


@pytest.fixture
def send(port):
    """Send one packet to the group: of a type, from a publisher."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

        def send(kind, publisher, to="239.192.7.8"):
            sender.sendto(struct.pack(">HHBBH6sH", 7, port, kind, 0, 0, publisher, 0), (to, port))

        yield send


def test_publishers_with_recent_packets_are_counted(arrivals, send):
    arrivals.check(0.0)
    arrivals.check(FRESH)
    send(DATA, b"one...")
    send(REPAIR, b"one...")
    send(SPM, b"two...")
    send(REQUEST, b"three.")
    assert arrivals.check(FRESH + 1) == (2, True)
    send(SPM, b"two...")
    assert arrivals.check(2 * FRESH + 0.5) == (2, True)
    assert arrivals.check(2 * FRESH + 1.5) == (1, False)


@pytest.mark.parametrize("kind", [REPAIR, CONFIRMATION])
def test_repairs_are_distinguished_from_other_packets(arrivals, send, kind):
    arrivals.check(0.0)
    send(DATA, b"one...")
    assert arrivals.check(FRESH) == (1, False)
    send(kind, b"one...")
    assert arrivals.check(FRESH + 1) == (1, True)


def test_result_is_unknown_until_a_whole_interval_was_observed(arrivals, send):
    send(DATA, b"one...")
    assert arrivals.check(0.0) is None
    send(DATA, b"one...")
    assert arrivals.check(FRESH / 2) is None
    assert arrivals.check(FRESH) == (1, False)


def test_packets_between_two_distant_polls_have_no_known_time(arrivals, send):
    arrivals.check(0.0)
    assert arrivals.check(FRESH) == (0, False)
    send(DATA, b"one...")
    assert arrivals.check(3 * FRESH) is None
    assert arrivals.check(4 * FRESH) == (0, False)


def test_other_packets_are_ignored(arrivals, port, send):
    arrivals.check(0.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.sendto(b"", ("239.192.7.8", port))
        sender.sendto(b"short", ("239.192.7.8", port))
    send(DATA, b"one...")
    assert arrivals.check(FRESH) == (1, False)


def test_requests_for_repair_still_reach_a_publisher_of_this_host(arrivals, port, send):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
        publisher.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        publisher.bind(("0.0.0.0", port))
        publisher.settimeout(10)
        for _ in range(20):
            send(REQUEST, b"one...", to="127.0.0.1")
            assert publisher.recv(100)
    arrivals.check(0.0)
    assert arrivals.check(FRESH) == (0, False)
