"""Calls without free file descriptors are refused, because libzmq would end the process."""

import errno
import os
import subprocess
import sys
from io import FileIO

import pytest
import zmq

from oz.transport import descriptors
from support.waiting import DEADLINE

FEW_LEFT = """
import asyncio, errno, os, resource, sys, tempfile, zmq
import oz, oz.asyncio
from oz.services import NameServer
from oz.services.proxy import Proxy

here = "tcp://127.0.0.1:*"
directory = tempfile.mkdtemp(prefix="oz", dir="/tmp")

async def node():
    async with oz.asyncio.Node(options=oz.NodeOptions(directory=directory)):
        pass

# The loop's own descriptors are not what this is about.
runner = asyncio.Runner()
runner.run(asyncio.sleep(0))
# Modules are imported before descriptors are few.
spare, _ = oz.Publisher(), (oz.Node, oz.Subscriber)
MAKES = {
    "publisher": lambda: oz.Publisher(here).close(timeout=0),
    "subscriber": lambda: oz.Subscriber("tcp://127.0.0.1:1").close(),
    "bind": lambda: (spare.bind(here), spare.unbind(spare.endpoint)),
    "connect": lambda: (spare.connect("tcp://127.0.0.1:1"), spare.disconnect("tcp://127.0.0.1:1")),
    "node": lambda: oz.Node(options=oz.NodeOptions(directory=directory)).close(),
    "asyncio node": lambda: runner.run(node()),
    "proxy": lambda: Proxy(frontend=here, backend=here).close(),
    "name server": lambda: NameServer(here).close(),
}
for left in (1, 4, 9):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, before[1]))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(left):
        os.close(held.pop())
    for name, make in MAKES.items():
        if left == 9 and name in ("bind", "connect"):
            continue
        try:
            make()
        except zmq.ZMQError as error:
            assert error.errno == errno.EMFILE and "ulimit -n" in str(error), (name, error)
        else:
            raise AssertionError(name)
    for one in held:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
for make in MAKES.values():
    make()
spare.close(timeout=0)
runner.close()
print("all of it works again")
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nothing tells which descriptors are open")
def test_what_needs_descriptors_is_refused_without_them_and_works_again_with_them():
    ended = subprocess.run(
        [sys.executable, "-c", FEW_LEFT], capture_output=True, text=True, timeout=2 * DEADLINE
    )
    assert (ended.returncode, ended.stdout) == (0, "all of it works again\n"), ended.stderr


def test_descriptors_are_given_back_whatever_becomes_of_it(monkeypatch):
    taken = []

    def take(path):
        if len(taken) == 3:
            raise OSError(errno.ENFILE, "no more in the whole system")
        taken.append(FileIO(path))
        return taken[-1]

    with monkeypatch.context() as patched:
        patched.setattr(descriptors, "has_free_descriptors", lambda _: False)
        patched.setattr(descriptors, "FileIO", take)
        with pytest.raises(zmq.ZMQError, match="a test takes 4 file descriptors, and there are 3"):
            descriptors.need(4, "a test")
    assert [one.closed for one in taken] == [True] * 3


def test_an_endpoint_within_the_process_needs_no_descriptors(monkeypatch):
    monkeypatch.setattr(descriptors, "need", lambda *_: pytest.fail("asked"))
    descriptors.need_for_endpoint("inproc://a")
