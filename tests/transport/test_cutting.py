"""The end of a connection, by the number of its descriptor: that may be something else's by then."""

import os
import socket

import pytest

from oz.transport.connections import Connection, cut, inode_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors are numbers on POSIX only")


def test_a_connection_is_ended():
    here, there = socket.socketpair()
    with here, there:
        cut(Connection(here.fileno(), inode_of(here.fileno())))
        assert there.recv(1) == b""


@pytest.mark.parametrize("make", [lambda: os.pipe()[0], lambda: os.open(os.devnull, os.O_RDONLY)])
def test_what_has_the_number_of_a_connection_that_is_gone_is_left_alone(make):
    descriptor = make()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    cut(Connection(descriptor, 1))
    os.fstat(descriptor)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(descriptor)
