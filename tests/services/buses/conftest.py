"""Nodes and services for tests. Each node has a directory of its own, so that only the service joins them."""

import shutil
import tempfile
import threading
from contextlib import contextmanager

import pytest

from oz.node.sync import Node
from oz.options import NodeOptions
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
    services = []

    def begin(service):
        manager = running(service)
        services.append(manager)
        return manager.__enter__()

    yield begin
    for item in reversed(services):
        item.__exit__(None, None, None)
