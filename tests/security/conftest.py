"""Nodes and sockets with keys, and the rights that they have in most tests."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

import oz
from oz.services import NameServer
from support.keyring import Keyring
from support.meeting import DESK, FEED, meet
from support.waiting import DEADLINE, Thread


@pytest.fixture
def directory(monkeypatch):
    """A directory with a short path, as sockets need, which is home too."""
    made = Path(tempfile.mkdtemp(prefix="oz-", dir="/tmp"))
    monkeypatch.setenv("HOME", str(made))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def node_ring(directory):
    made = Keyring(directory, "feed", "desk", "other")
    made.permit(feed=FEED, desk=DESK, other="")
    return made


@pytest.fixture
def make(node_ring, directory):
    """Make nodes; each is closed at the end."""
    with ExitStack() as stack:

        def make(name, *, permissions=True, **options):
            # A directory each, unless they are to meet there.
            options = {"directory": directory / name, "join_timeout": DEADLINE, **options}
            node = oz.Node(name, security=node_ring.security(name, permissions=permissions), **options)
            stack.callback(node.close, timeout=1.0)
            return node

        yield make


@pytest.fixture
def feed(make):
    return make("feed", bind="tcp://127.0.0.1:*")


@pytest.fixture
def desk(make, feed):
    return meet(make("desk", peers=feed.endpoint), feed)


@pytest.fixture
def server(node_ring):
    node_ring.make("ns")
    node_ring.trust("ns")
    with NameServer("tcp://127.0.0.1:*", security=node_ring.security("ns")) as made:
        running = Thread(made.run)
        yield made
        made.stop()
        running.outcome()


@pytest.fixture
def rules():
    """What the users of `ring` may do; a module may have others."""
    return {
        "desk": 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }',
        "other": 'subscribe = { allow = ["x.>"] }',
    }


@pytest.fixture
def ring(tmp_path, rules):
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(**rules)
    return made


@pytest.fixture
def pub(ring):
    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as made:
        yield made


@pytest.fixture
def sub(ring, pub):
    with oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as made:
        yield made
