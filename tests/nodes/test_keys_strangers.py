"""Strangers without keys at an open port of a node: it serves its peer meanwhile, and its memory stays."""

import os
import socket
import struct
import threading
from contextlib import suppress

import pytest
import zmq

from support.keyring import Keyring
from support.sizes import in_suite
from support.waiting import DEADLINE

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    """Shell: one in the suite, because the engine checks keys, and both shells use the same engine."""
    return request.param


CONNECTIONS = 100
REQUESTS = 50
MAX_GROWTH = 100 << 20
"""Bytes that the process grows at most; an endless multipart message without keys takes this in 0.3 s."""
NULL = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\x00" + bytes(31)
CURVE = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def garbage(there):
    there.sendall(os.urandom(1 << 20))


def endless(there):
    there.sendall(NULL + b"\x04" + bytes([len(READY)]) + READY)
    for _ in range(1_000):
        # Parts of one message, each of which says that more come.
        there.sendall((b"\x01\xff" + bytes(255)) * 100)


def flood(there):
    there.sendall(NULL + b"\x04" + bytes([len(READY)]) + READY)
    for _ in range(1_000):
        there.sendall((b"\x00\xff" + bytes(255)) * 100)


def forged(there):
    there.sendall(
        CURVE + b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + os.urandom(32) + bytes(8) + os.urandom(80)
    )
    while there.recv(1_024):
        pass


def many(there):
    address, others = there.getpeername(), []
    try:
        others += [socket.create_connection(address, timeout=5) for _ in range(CONNECTIONS)]
        there.recv(1_024)
    finally:
        for other in others:
            other.close()


class Strangers:
    """Threads that attack an endpoint until `stop`."""

    def __init__(self, endpoint, act):
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self._address, self._act = (host, int(port)), act
        self._has_stopped = threading.Event()
        self.attacks = 0
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        while not self._has_stopped.is_set():
            with suppress(OSError), socket.create_connection(self._address, timeout=5) as there:
                there.settimeout(0.5)
                self.attacks += 1
                self._act(there)

    def stop(self):
        self._has_stopped.set()
        for thread in self._threads:
            thread.join(40)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory is read from /proc")
@pytest.mark.parametrize("act", [garbage, endless, flood, forged, many])
def test_strangers_neither_stop_nor_fill_a_node(make, tmp_path, directory, act):
    ring = Keyring(tmp_path, "first", "second")
    options = [
        {"security": ring.security(name), "directory": f"{directory}/{name}"} for name in ("first", "second")
    ]
    first = make("first", bind="tcp://127.0.0.1:*", **options[0])
    second = make("second", connect=first.endpoint, **options[1])
    first.subscribe("svc.x", lambda message: message.payload)
    second.wait_ready("first", subscriber="svc.x", timeout=DEADLINE)
    before = resident()
    strangers = Strangers(first.endpoint, act)
    try:
        number = 0
        while number < REQUESTS or strangers.attacks < 4:
            number += 1
            assert second.request("svc.x", number, timeout=40).payload == number
    finally:
        strangers.stop()
    assert resident() - before < MAX_GROWTH
    assert [peer.name for peer in first.peers] == ["second"]
