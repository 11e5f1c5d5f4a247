"""Paths of ipc endpoints."""

import socket
from pathlib import Path

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.scripts import finished

IPC = {
    "tcp": "Only ipc endpoints have a path.",
    "tcp6": "Only ipc endpoints have a path.",
    "inproc": "Only ipc endpoints have a path.",
}

SECOND = """
try:
    api.publisher(sys.argv[1])
except errors.EndpointError as error:
    say(error)
"""

HOLDER = """
publisher = api.publisher(sys.argv[1])
say("bound")
sys.stdin.readline()
"""


@promise(
    "A second process cannot bind the ipc path of a running process, and does not affect that process.",
    not_for=IPC,
    small=1,
)
def test_libzmq_3204_second_process_is_refused(sockets, program):
    publisher = sockets.publisher()
    with program(SECOND, publisher.endpoint) as process:
        assert publisher.endpoint.removeprefix("ipc://") in finished(process)
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    publisher.publish("tick.a", b"still here")
    assert got.receive().payload == b"still here"


@promise("Two objects of one process cannot bind the same ipc path.", not_for=IPC)
def test_second_object_is_refused(sockets):
    publisher = sockets.publisher()
    with pytest.raises(errors.EndpointError):
        sockets.publisher(publisher.endpoint)
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    publisher.publish("tick.a", b"still here")
    assert got.receive().payload == b"still here"


@promise("A process can bind an ipc path whose file a killed process has left.", not_for=IPC, small=1)
def test_libzmq_2764_stale_file_is_no_obstacle(sockets, program, endpoint):
    path = endpoint()
    with program(HOLDER, path) as process:
        assert process.stdout.readline() == "bound\n"
        process.kill()
        process.wait()
    assert Path(path.removeprefix("ipc://")).is_socket()
    publisher = sockets.publisher(path)
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "tick.>")
    publisher.publish("tick.a", b"here")
    assert got.receive().payload == b"here"


@promise("`close` removes the file of an ipc endpoint.", not_for=IPC)
def test_libzmq_3387_close_removes_the_file(sockets):
    publisher = sockets.publisher()
    path = Path(publisher.endpoint.removeprefix("ipc://"))
    assert path.is_socket()
    publisher.close()
    assert not [item.name for item in path.parent.iterdir() if item.is_socket()]


@promise("A file at an ipc path that is not a socket is refused and stays.", not_for=IPC)
def test_file_that_is_not_a_socket_stays(sockets, endpoint):
    path = Path((made := endpoint()).removeprefix("ipc://"))
    path.write_text("data")
    with pytest.raises(errors.EndpointError):
        sockets.publisher(made)
    assert path.read_text() == "data"


@promise("`close` leaves the ipc file of another process that has bound the path since.", not_for=IPC)
def test_close_leaves_the_file_of_another_process(sockets):
    publisher = sockets.publisher()
    path = Path(publisher.endpoint.removeprefix("ipc://"))
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        publisher.close()
        assert path.is_socket()
