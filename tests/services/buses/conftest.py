"""Nodes and services for tests. Each node has a directory of its own, so that only the service joins them."""

import shutil
import tempfile
import threading
from contextlib import ExitStack, contextmanager

import pytest

from oz.node.sync import Node
from oz.options import NodeOptions
from support.scripts import started
from support.waiting import DEADLINE


@pytest.fixture
def directory():
    """Directory with a short path, because the path of a socket has at most 107 bytes."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def make(directory):
    """Return a factory of nodes. `near` names the directory in which nodes of one host find each other."""
    nodes = []

    def made(name, *, bus="test", near=None, **options):
        own = {
            option: options.pop(option)
            for option in list(options)
            if option in NodeOptions.__dataclass_fields__
        }
        where = f"{directory}/{near or name}"
        nodes.append(Node(name, bus=bus, options=NodeOptions(directory=where, **own), **options))
        return nodes[-1]

    yield made
    for node in nodes:
        node.close(timeout=0)


FORWARDER = """
import signal, sys
from oz.services.bridge import Forwarder
legs = [{"bus": bus, "directory": sys.argv[1], "lost_after": 2.0} for bus in ("lan", "wan")]
with Forwarder(legs) as forwarder:
    signal.signal(signal.SIGTERM, lambda *_: forwarder.stop())
    print(forwarder._engine.id.hex(), flush=True)
    forwarder.run()
"""


@pytest.fixture
def start_forwarder(directory):
    """Function that starts a forwarder between the buses lan and wan in a process; returns its id and the process."""
    with ExitStack() as stack:

        def start():
            process = stack.enter_context(started("-c", FORWARDER, f"{directory}/shared"))
            line = process.stdout.readline()
            assert line, process.stderr.read()
            return line.strip(), process

        yield start


@contextmanager
def running(service):
    """Run a service in a thread for a `with` block."""
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        with service:
            yield service
    finally:
        thread.join(DEADLINE)
        assert not thread.is_alive()


@pytest.fixture
def serve():
    """Run services until the end of the test."""
    with ExitStack() as stack:
        yield lambda service: stack.enter_context(running(service))
