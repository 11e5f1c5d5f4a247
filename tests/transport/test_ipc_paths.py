"""A bind to an `ipc://` path refuses the path of a live socket, replaces a stale file and removes its own."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

import oz
import oz.asyncio
from oz.services import Forwarder, NameServer
from oz.services.proxy import Proxy

LISTEN = """
import sys, oz
publisher = oz.Publisher(bind=sys.argv[1])
print("bound", flush=True)
sys.stdin.read()
"""


@contextmanager
def python(program, *arguments):
    words = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def listening(endpoint):
    """Bind a publisher of another process to an endpoint."""
    with python(LISTEN, endpoint) as process:
        assert process.stdout.readline() == "bound\n"
        yield process


@contextmanager
def in_loop(kind, endpoint):
    with asyncio.Runner() as runner:

        async def bind():
            return await kind(bind=endpoint).__aenter__()

        bound = runner.run(bind())
        yield bound
        runner.run(bound.__aexit__(None, None, None))


BINDS = {
    "publisher": lambda at: oz.Publisher(bind=at),
    "subscriber": lambda at: oz.Subscriber(bind=at),
    "publisher of asyncio": lambda at: in_loop(oz.asyncio.Publisher, at),
    "subscriber of asyncio": lambda at: in_loop(oz.asyncio.Subscriber, at),
    "node": lambda at: oz.Node(bus="paths", bind=at),
    "node of asyncio": lambda at: in_loop(lambda bind: oz.asyncio.Node(bus="paths", bind=bind), at),
    "name server": lambda at: NameServer(at),
    "forwarder leg": lambda at: Forwarder([{"bus": "paths", "bind": at}, {"bus": "others"}]),
    "proxy frontend": lambda at: Proxy(frontend=at, backend="tcp://127.0.0.1:*"),
    "proxy backend": lambda at: Proxy(frontend="tcp://127.0.0.1:*", backend=at),
}


@pytest.fixture
def directory():
    """Create a directory with a path short enough for the sockets of nodes."""
    with tempfile.TemporaryDirectory(prefix="oz-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def directory_of_nodes(directory, monkeypatch):
    monkeypatch.setenv("OZ_DIRECTORY", str(directory / "nodes"))


@pytest.fixture
def path(directory):
    return directory / "feed"


@pytest.fixture
def endpoint(path):
    return f"ipc://{path}"


def refused(bind, path):
    """Check that a bind raises EADDRINUSE and names the path."""
    with pytest.raises(zmq.ZMQError) as caught, bind():
        pass
    assert caught.value.errno == zmq.EADDRINUSE
    assert isinstance(caught.value, oz.OzError)
    assert str(path) in str(caught.value)
    assert "bind to another path" in str(caught.value)


@pytest.mark.parametrize("kind", BINDS)
def test_a_path_of_the_same_process_is_refused(kind, endpoint, path):
    with BINDS[kind](endpoint):
        refused(lambda: BINDS[kind](endpoint), path)
        refused(lambda: oz.Publisher(bind=f"ipc://{path.parent}/./{path.name}"), path.name)


def test_a_bind_that_is_refused_removes_the_files_of_the_binds_before(endpoint, path, directory):
    with listening(endpoint):
        places = [f"{endpoint}-first", endpoint]
        refused(lambda: oz.Publisher(bind=places), path)
        refused(lambda: oz.Subscriber(bind=places), path)
        refused(
            lambda: oz.Node(bus="paths", bind=places, options=oz.NodeOptions(directory=directory / "nodes")),
            path,
        )
        refused(lambda: NameServer(places), path)
        refused(lambda: Proxy(frontend=places[0], backend=places[1]), path)
        assert sorted(item.name for item in directory.iterdir()) == [path.name, f"{path.name}.links"]


def test_unbind_removes_the_file(endpoint, path):
    for kind in (oz.Publisher, oz.Subscriber):
        with kind() as bound:
            bound.bind(endpoint)
            assert path.is_socket()
            bound.unbind(endpoint)
            assert not path.exists()


def test_a_relative_path_is_removed_after_a_change_of_directory(directory, monkeypatch):
    (directory / "elsewhere").mkdir()
    monkeypatch.chdir(directory)
    with oz.Publisher(bind="ipc://feed"):
        assert (directory / "feed").is_socket()
        refused(lambda: oz.Subscriber(bind="ipc://./feed"), "feed")
        monkeypatch.chdir(directory / "elsewhere")
    assert not (directory / "feed").exists()


FORK = """
import os, sys, oz
from oz.services import NameServer
endpoint = sys.argv[1]
with oz.Publisher(bind=endpoint) as publisher, oz.Subscriber(bind=f"{endpoint}2") as subscriber:
    with oz.Node(bus="forks", bind=f"{endpoint}3") as node, NameServer(f"{endpoint}4") as server:
        child = os.fork()
        if not child and sys.argv[2] == "close":
            for one in (publisher, subscriber, node):
                one.close()
            os._exit(0)
        if not child:
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        print(sorted(os.listdir(os.path.dirname(endpoint.removeprefix("ipc://")))), flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["close", "exit"])
def test_the_paths_of_a_process_outlive_its_forked_child(way, endpoint, path):
    names = [path.name, f"{path.name}.links", *(f"{path.name}{number}" for number in (2, 3, 4)), "nodes"]
    with python(FORK, endpoint, way) as process:
        assert process.stdout.readline() == f"{names}\n"
        for number in ("", 2, 3, 4):
            refused(lambda number=number: oz.Publisher(bind=f"{endpoint}{number}"), path)
        process.stdin.close()
        assert process.wait(60) == 0
    assert [item.name for item in path.parent.iterdir()] == ["nodes"]
    assert not list((path.parent / "nodes").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a listener with a full backlog refuses")
def test_a_listener_with_a_full_backlog_is_live(endpoint, path):
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        is_full = False
        while not is_full:
            caller = opened.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            is_full = caller.connect_ex(str(path)) == errno.EAGAIN
        refused(lambda: oz.Publisher(bind=endpoint), path)


def test_a_socket_of_another_type_is_live(endpoint, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        refused(lambda: oz.Publisher(bind=endpoint), path)
    with oz.Publisher(bind=endpoint):
        pass
    assert not path.exists()


def test_what_is_no_socket_is_refused_by_name(endpoint, path):
    link, directory = path.with_name("link"), path.with_name("directory")
    link.symlink_to(path)
    directory.mkdir()
    refused(lambda: oz.Publisher(bind=f"ipc://{link}"), f"{str(link)!r} is a symbolic link")
    refused(lambda: oz.Publisher(bind=f"ipc://{directory}"), f"{str(directory)!r} is a directory")
    assert link.is_symlink()


DENIED = """
import os, sys, oz, zmq
oz.Publisher().close()
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)
try:
    oz.Publisher(bind="ipc://feed")
except zmq.ZMQError as error:
    print(error.errno, error)
"""


def test_a_socket_that_admits_no_connection_of_this_user_is_refused(endpoint, path):
    with listening(endpoint):
        path.chmod(0)
        path.parent.chmod(0o777)
        with python(DENIED, path.parent) as process:
            number, _, text = process.stdout.read().partition(" ")
        assert int(number) == errno.EACCES
        assert "'feed' may be in use: Permission denied" in text
        assert path.is_socket()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are of Linux")
def test_an_abstract_name_in_use_gives_the_same_error():
    name = f"@oz-test-{os.getpid()}"
    with listening(f"ipc://{name}"):
        refused(lambda: oz.Publisher(bind=f"ipc://{name}"), name)
        refused(lambda: oz.Subscriber(bind=f"ipc://{name}"), name)
