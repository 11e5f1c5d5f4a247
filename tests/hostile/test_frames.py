"""A peer that sends frames above the limit, beside an honest peer."""

import socket as sockets
import struct
import subprocess

import pytest

import oz
from support.scripts import started
from support.sizes import one_of_each
from support.waiting import DEADLINE, until

VICTIM = """
import resource, sys
import oz

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

filtering, endpoint, hostile = sys.argv[1:]
links = {hostile: hostile} if filtering == "publisher" else None
with oz.Subscriber([endpoint, hostile], filtering=filtering, links=links) as sub:
    sub.subscribe("a.>")
    print("ready", flush=True)
    before = peak()
    while sub.receive(timeout=60).subject != "a.end":
        pass
    print(peak() - before)
"""

# A publisher at a plain endpoint is a PUB, at a link endpoint a ROUTER.
SOCKET_TYPES = {"prefix": b"PUB", "publisher": b"ROUTER"}
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\x00" + bytes(31)


def raw_publisher(listening, socket_type, claims):
    """Shake hands, and announce a frame of `claims` bytes; return the connection."""
    there, _ = listening.accept()
    there.settimeout(DEADLINE)
    there.sendall(GREETING)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(socket_type)) + socket_type
    there.sendall(b"\x04" + bytes([len(ready)]) + ready)
    there.sendall(b"\x02" + struct.pack(">Q", claims))
    return there


def is_cut_off(there):
    """Send part of the announced bytes until the other end has closed."""
    try:
        for _ in range(1_000):
            there.sendall(b"a.x" + bytes(1_000_000))
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("claims", "filtering"), one_of_each([(64 << 20) + 1, 8 << 30, 2**63 - 1], ["prefix", "publisher"])
)
def test_a_peer_that_announces_a_huge_frame_is_disconnected(claims, filtering):
    with sockets.create_server(("127.0.0.1", 0)) as listening, oz.Publisher("tcp://127.0.0.1:*") as pub:
        listening.settimeout(DEADLINE)
        hostile = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with started("-c", VICTIM, filtering, pub.endpoint, hostile) as victim:
            try:
                assert victim.stdout.readline() == "ready\n"
                with raw_publisher(listening, SOCKET_TYPES[filtering], claims) as there:
                    assert is_cut_off(there)
                until(lambda: _is_over(pub, victim))
                assert int(victim.stdout.readline()) < 64_000, "KiB more than before"
            finally:
                victim.kill()


def _is_over(pub, victim):
    pub.publish("a.end", b"")
    pub.flush()
    try:
        victim.wait(0.01)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_a_limit_of_both_sides_lets_larger_messages_pass(filtering):
    options = oz.Options(limits=oz.Limits(message_bytes=80 << 20), pending_bytes=160 << 20)
    with (
        oz.Publisher("tcp://127.0.0.1:*", options=options) as pub,
        oz.Subscriber(pub.endpoint, filtering=filtering, options=options) as sub,
    ):
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers("a")
        pub.publish("a", bytes((64 << 20) + 1))
        assert len(sub.receive(timeout=DEADLINE).payload) == (64 << 20) + 1
