"""Endpoints that other nodes announce: which may be dialled, which stay on the host."""

import pytest

from oz.node.reach import is_local, may_dial

PREFIX = "ipc:///run/oz/5e1f-"


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://10.0.0.1:5555", "tcp://127.0.0.1:1", "tcp://[fe80::1]:65535", "tcp://host-7.example.com:5555",
        "tcp://localhost:5555", "tcp://h7:5555", f"{PREFIX}abc.sock",
    ],
)  # fmt: skip
def test_addresses_names_and_sockets_of_the_directory_may_be_dialled(endpoint):
    assert may_dial(endpoint, PREFIX)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://224.0.0.1:5555", "tcp://[ff02::1]:5555", "tcp://255.255.255.255:5555", "tcp://0.0.0.0:5555",
        "tcp://[::]:5555", "tcp://[::ffff:0.0.0.0]:5555", "tcp://*:5555", "tcp://0:5555", "tcp://127.1:5555",
        "tcp://0x7f.1:5555", "tcp://2130706433:5555", "tcp://1.2.3.4.:5555", "tcp://[::::]:5555", "tcp://a:0",
        "tcp://a:65536", "tcp://a:*", "tcp://a", "tcp://a;b:5555", "tcp://a b:5555", "tcp://:5555", "",
        "epgm://eth0;239.192.1.1:5555", "udp://239.1.1.1:5555", "inproc://a", "ws://a:5555", "ipc://", "ipc://@a",
        "ipc:///run/oz/other.sock", PREFIX, f"{PREFIX}a/../../b", f"{PREFIX}a\0b", f"tcp://{'a' * 600}:5555",
    ],
)  # fmt: skip
def test_other_endpoints_are_not_dialled(endpoint):
    assert not may_dial(endpoint, PREFIX)


def test_no_unix_socket_is_dialled_without_a_directory():
    assert not may_dial(f"{PREFIX}abc.sock", None)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://LocalHost:1", True),
        ("ipc:///run/oz/a", True),
        ("inproc://a", True),
        ("tcp://10.0.0.1:1", False),
        ("tcp://host:1", False),
        ("tcp://", False),
    ],
)
def test_local_endpoints(endpoint, expected):
    assert is_local(endpoint) is expected
