"""Check whether a process listens at an endpoint."""

import socket

import pytest

from oz.node.dial_check import DialCheck
from support.ports import lasting_port
from support.waiting import until


def is_refused(endpoint):
    check = DialCheck(endpoint)
    try:
        return check.is_refused()
    finally:
        check.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_tcp_endpoint_without_listener_is_refused(host):
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("this host has no IPv6")
    check = DialCheck(f"tcp://{host}:{lasting_port()}")
    until(check.is_refused)
    check.close()


def test_tcp_endpoint_with_listener_is_not_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = DialCheck(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        server.accept()[0].close()
        assert not check.is_refused()
        check.close()


def test_ipc_endpoint_is_refused_without_file_and_without_listener(directory):
    path = f"{directory}/a.sock"
    assert is_refused(f"ipc://{path}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert is_refused(f"ipc://{path}")
        server.listen(1)
        assert not is_refused(f"ipc://{path}")


@pytest.mark.parametrize(
    "endpoint", ["tcp://localhost:1", "tcp://127.0.0.1:*", "ipc://@abstract", "inproc://x"]
)
def test_other_endpoints_are_not_refused(endpoint):
    assert not is_refused(endpoint)
