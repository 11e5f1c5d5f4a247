import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

import oz
from oz.transport.publisher import alone
from support.ports import lasting_port
from support.scripts import started
from support.serving import serving
from support.waiting import DEADLINE, until

PEER = Path(__file__).with_name("peer.py")


@pytest.fixture(autouse=True)
def place(monkeypatch):
    """An empty directory where nodes meet, with a short path, and no settings from elsewhere."""
    for name in list(os.environ):
        if name.startswith(("OZ_", "XDG_")):
            monkeypatch.delenv(name)
    made = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("HOME", made)
    yield f"{made}/bus"
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def short_directory():
    """One whose sockets have paths of less than 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="oz-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make(place):
    """Make nodes; each is closed at the end."""
    with ExitStack() as stack:

        def make(name=None, *, kind=oz.Node, **options):
            node = kind(name, **{"directory": place, "join_timeout": DEADLINE, **options})
            stack.callback(node.close, timeout=1.0)
            return node

        yield make


@pytest.fixture
def spawn(place):
    """Start a node in a process of its own; it is killed at the end."""
    with ExitStack() as stack:

        def spawn(name, *words, **options):
            options = {"directory": place, "join_timeout": DEADLINE, **options}
            process = Process(stack.enter_context(started(PEER, name, repr(options))))
            process.ask("ready")
            for word in words:
                process.ask(word)
            return process

        yield spawn


class Process:
    """A node in another process: see peer.py."""

    def __init__(self, process):
        self._process = process
        self.pid = process.pid

    def say(self, words):
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()

    def hear(self):
        answer = self._process.stdout.readline().rstrip("\n")
        if not answer:
            # Its end is worth more than the line that did not come.
            self._process.kill()
            raise AssertionError(self._process.communicate()[1])
        return answer

    def ask(self, words):
        self.say(words)
        return self.hear()

    def kill(self):
        self._process.kill()
        self._process.wait(DEADLINE)

    def send_signal(self, number):
        self._process.send_signal(number)


@pytest.fixture(name="serving")
def _serving():
    """Run name servers, each in a thread."""
    return serving


@pytest.fixture
def nameserver():
    with serving() as server:
        yield server


@pytest.fixture
def met():
    """Wait until nodes know each other, and can speak with each other."""

    def met(*nodes):
        for node in nodes:
            node.wait_for_peers({one.name for one in nodes} - {node.name}, timeout=DEADLINE)
        for node in nodes:
            node.wait_ready(DEADLINE)

    return met


@pytest.fixture
def names():
    """Give the names of a node's peers."""
    return lambda node: sorted(peer.name for peer in node.peers)


@pytest.fixture
def collected():
    """Make a handler that gathers payloads, and wait for as many."""

    class Gathered(list):
        def __call__(self, message):
            self.append(message.payload)

        def wait(self, count):
            until(lambda: len(self) >= count)
            assert len(self) == count, self
            return self

    return Gathered


@pytest.fixture
def free_port():
    """Find a TCP port that nobody holds, nor gets by chance."""
    return lasting_port


def descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def sends_in_python(monkeypatch):
    """Lone messages of nodes are sent by Python: into the compiled part no signal handler comes."""
    monkeypatch.setattr(alone, "HOT", None)
