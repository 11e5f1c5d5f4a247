"""Frames that were sent in the same process without being copied: pyzmq is told when they are read."""

import pytest

from oz.compiled import HOT
from oz.protocol.publisher.backlog import WATCHED_FROM
from support.scripts import run

pytestmark = pytest.mark.skipif(HOT is None, reason="the compiled part does not run")

READ = """
import sys
import zmq
from oz.compiled import HOT
from oz.transport.backend import PYZMQ

(size, parts), count = map(int, sys.argv[1:]), 8_000
with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
    for one in (push, pull):
        one.set_hwm(0)
    push.bind("inproc://here")
    pull.connect("inproc://here")
    for _ in range(count):
        push.send_multipart(
            [zmq.Frame(bytes(size), copy=False, copy_threshold=0) for _ in range(parts)], copy=False
        )
    read = HOT.FrameReader(recv=PYZMQ.recv, socket=pull.underlying)
    for _ in range(count):
        assert read(pull, zmq.NOBLOCK) == [bytes(size)] * parts
"""


@pytest.mark.parametrize("parts", [1, 3])
def test_more_of_them_are_read_than_pyzmq_can_be_told_of_at_once(parts):
    """Each goes back through a socket that holds 2,000, to a thread in Python, which reads one in a while."""
    run("-c", READ, WATCHED_FROM, parts)
