"""The directory of a host, with real sockets and processes."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from oz.errors import ConfigurationError
from oz.node import directory as module
from oz.node.directory import LONGEST_PATH, READ_INTERVAL, YOUNG, Directory
from oz.node.roster import NAME_INTERVAL, Dial, HangUp, Roster
from oz.wire.links import Card

OWN, A, B = (bytes([item] * 16) for item in (5, 1, 7))

LISTEN = """
import sys, zmq
from oz.node.directory import Directory
place = Directory(sys.argv[1], "bus", bytes.fromhex(sys.argv[2]))
router = zmq.Context().socket(zmq.ROUTER)
router.bind(place.endpoint)
print(place.endpoint, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short():
    """A directory with a short path, because the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="oz-") as found:
        yield Path(found)


@pytest.fixture
def path(short):
    return short / "d"


@pytest.fixture
def place(path):
    return Directory(path, "bus", OWN)


@contextmanager
def bound(place, *, age=YOUNG + 1):
    """Listen at the socket of a directory, with a ROUTER as nodes do."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(place.endpoint)
        grow(place.endpoint, age)
        yield


def grow(endpoint, age):
    """Set the age of a socket."""
    then = time.time() - age
    os.utime(endpoint.removeprefix("ipc://"), (then, then))


def leave_dead(path, node, *, age=YOUNG + 1):
    """Leave a socket without a listener; return its endpoint."""
    endpoint = Directory(path, "bus", node).endpoint
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(endpoint.removeprefix("ipc://"))
    grow(endpoint, age)
    return endpoint


@contextmanager
def process_in(path, node):
    command = [sys.executable, "-c", LISTEN, str(path), node.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == Directory(path, "bus", node).endpoint
            yield process
        finally:
            process.kill()


def roster_of(place):
    card = Card(node=OWN, bus="bus", name="own", host="h", pid=1, endpoints=(place.endpoint,), kind="node")
    return Roster(card, local_prefix=place.prefix)


def test_other_buses_keys_and_files_are_passed_by(path, place):
    leave_dead(path, B)
    for other in (Directory(path, "elsewhere", A), Directory(path, "bus", A, has_key=True)):
        (path / other.endpoint.rpartition("/")[2]).touch()
    begin = place.prefix.rpartition("/")[2]
    for name in (
        f"{begin}{'0' * 31}.sock",
        f"{begin}{'0' * 32}.sock.links",
        f"{begin}{'x' * 32}.sock",
        "note",
    ):
        (path / name).touch()
    assert place.others() == {Directory(path, "bus", B).endpoint}
    assert place.nodes() == {B}


def test_directory_is_private(path, place):
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        Directory(path, "bus", A)


def test_long_path_is_refused(short):
    longest = LONGEST_PATH - len(f"{short}//012345678901-0123456789012345678901.sock")
    assert len(Directory(short / ("x" * longest), "bus", OWN).endpoint) == len("ipc://") + LONGEST_PATH
    with pytest.raises(ValueError, match="choose a shorter directory="):
        Directory(short / ("x" * (longest + 1)), "bus", OWN)


def test_path_that_is_not_utf8_is_refused(short):
    with pytest.raises(ValueError, match="UTF-8"):
        Directory(os.fsdecode(os.fsencode(short) + b"/\xff"), "bus", OWN)


def test_socket_of_a_killed_process_is_removed(path, place):
    with process_in(path, A) as process:
        endpoint = Directory(path, "bus", A).endpoint
        grow(endpoint, YOUNG + 1)
        assert not place.remove_dead(endpoint)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert place.others() == {endpoint}
    assert place.remove_dead(endpoint)
    assert place.others() == set()
    assert place.remove_dead(endpoint)


def test_young_socket_is_not_removed(path, place):
    """A node binds and listens in two calls: in between a connect is refused."""
    endpoint = leave_dead(path, A, age=0)
    assert not place.remove_dead(endpoint)
    assert place.others() == {endpoint}
    grow(endpoint, YOUNG + 1)
    assert place.remove_dead(endpoint)


def test_listener_with_a_full_backlog_is_alive(path, place):
    endpoint = Directory(path, "bus", A).endpoint
    waiting = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(endpoint.removeprefix("ipc://"))
        listener.listen(0)
        grow(endpoint, YOUNG + 1)
        try:
            for _ in range(3):
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(endpoint.removeprefix("ipc://"))
            assert not place.remove_dead(endpoint)
        finally:
            for item in waiting:
                item.close()
    assert place.others() == {endpoint}


def test_file_that_is_no_socket_is_removed_as_a_dead_one(path, place):
    endpoint = Directory(path, "bus", A).endpoint
    (path / endpoint.rpartition("/")[2]).touch()
    grow(endpoint, YOUNG + 1)
    assert place.remove_dead(endpoint)


def test_socket_that_another_node_has_removed_is_gone(path, place, monkeypatch):
    endpoint = leave_dead(path, A)
    monkeypatch.setattr(module.Path, "lstat", lambda self: (path / "nothing").stat())
    assert place.remove_dead(endpoint)


def test_read_reports_live_and_dead_sockets(path, place):
    roster = roster_of(place)
    dead, live = leave_dead(path, A, age=0), Directory(path, "bus", B)
    with bound(live):
        assert set(place.read(roster, 0.0)) == {Dial(dead), Dial(live.endpoint)}
        grow(dead, YOUNG + 1)
        assert place.read(roster, 2.0) == [HangUp(dead)]
        assert place.read(roster, 4.0) == []


def test_socket_with_a_link_is_not_tested(path, place):
    """A test is a connection that the listener must accept."""
    roster = roster_of(place)
    endpoint = leave_dead(path, A, age=0)
    place.read(roster, 0.0)
    roster.on_live(endpoint, Card(node=A, bus="bus", name="a", endpoints=(endpoint,)), 0.0)
    grow(endpoint, YOUNG + 1)
    assert place.read(roster, 2.0) == []
    assert place.others() == {endpoint}


def test_node_without_peers_reads_more_often(path, place):
    roster = roster_of(place)
    place.read(roster, 10.0)
    assert place.next_read(roster) == 10.0 + NAME_INTERVAL
    card = Card(node=A, bus="bus", name="a", endpoints=("tcp://10.0.0.1:1",))
    roster.on_hello(card, 10.0)
    roster.on_live("tcp://10.0.0.1:1", card, 10.0)
    assert place.next_read(roster) == 10.0 + READ_INTERVAL


def test_another_network_is_another_host(path, place, monkeypatch):
    other = place.prefix
    monkeypatch.setattr(module, "_NETWORK", "/proc/self/exe")
    assert Directory(path, "bus", OWN).prefix != other
    monkeypatch.setattr(module, "_NETWORK", "/nowhere")
    monkeypatch.setattr(module, "_BOOT_ID", "/nowhere")
    assert Directory(path, "bus", OWN).prefix not in (other, "")
