"""Links that end: whom nodes go on trying to reach, and whom not."""

import select
import socket
import time

import pytest
import zmq

from support import network
from support.inside import engine_of
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE, until

_why = network.missing()
namespaces = pytest.mark.skipif(_why is not None, reason=_why or "")


def attempts(listener, seconds):
    """Count those who try to connect to a port in so many seconds."""
    count, ends = 0, time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if select.select([listener], [], [], left)[0]:
            listener.accept()[0].close()
            count += 1
    return count


def test_a_dead_port_that_a_name_server_told_of_is_not_redialled(make, spawn, nameserver, free_port):
    """Whoever has the port later would be called by all that had known the node that was there before.

    It is ephemeral mostly; here it is one that nobody else gets meanwhile.
    """
    port = free_port()
    node = make("node", nameserver=nameserver.endpoint)
    victim = spawn("dies", nameserver=nameserver.endpoint, bind=f"tcp://127.0.0.1:{port}")
    node.wait_for_peers("dies", timeout=DEADLINE)
    victim.kill()
    until(lambda: not node.peers and not engine_of(node).links.membership.known)
    until(lambda: not engine_of(node).links.connections.draining)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        # The longest pause of libzmq is 5 s, which begins at 0.1 s.
        assert attempts(listener, 1.5) == 0


def test_a_node_that_left_is_not_redialled(make, nameserver, free_port):
    port = free_port()
    node = make("node", nameserver=nameserver.endpoint)
    other = make("other", nameserver=nameserver.endpoint, bind=f"tcp://127.0.0.1:{port}")
    node.wait_for_peers("other", timeout=DEADLINE)
    assert other.announcement.endpoints == (f"tcp://127.0.0.1:{port}",)
    other.close()
    until(lambda: not node.peers and not engine_of(node).links.connections.draining)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert attempts(listener, 1.0) == 0


def test_an_attempt_to_connect_to_a_host_that_says_nothing_is_given_up_soon(make, nameserver):
    """The system's own attempts go on for two minutes, in which it asks less and less often."""
    sockets = engine_of(make("node", nameserver=nameserver.endpoint)).sockets
    for one in (sockets.sub.socket, *sockets.servers.values()):
        assert one.get(zmq.CONNECT_TIMEOUT) == 5_000


@pytest.fixture(scope="module")
def hosts():
    with network.Network(3) as made:
        yield made.hosts


class Remote:
    """A node on another host: see peer.py."""

    def __init__(self, stack, host, name, directory, **options):
        import subprocess
        import sys
        from pathlib import Path

        peer = Path(__file__).with_name("peer.py")
        options = {"directory": directory, **options}
        self.process = subprocess.Popen(
            host.command(sys.executable, peer, name, repr(options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        stack.callback(self.end)

    def end(self):
        self.process.kill()
        self.process.communicate()

    def ask(self, words):
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


@pytest.fixture
def remote(place):
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda host, name, **options: Remote(stack, host, name, place, **options)


@namespaces
def test_hosts_meet_and_local_subjects_stay_on_each(hosts, remote):
    """They even share a directory, as containers may: a socket there would lead to the other host."""
    first, second, _ = hosts
    seed = f"tcp://{first.address}:5000"
    nodes = [
        remote(first, "a", bind=seed),
        remote(first, "b", peers=seed),
        remote(second, "c", peers=seed),
    ]
    for node in nodes:
        assert node.ask("ready") == "ready"
    for node, names in zip(nodes, ("['b', 'c']", "['a', 'c']", "['a', 'b']"), strict=True):
        until(lambda node=node, names=names: node.ask("peers") == names)
    for node in nodes:
        assert node.ask("listen _LOCAL.>") == "ready"
    for node in nodes:
        assert node.ask("listen x") == "ready"
    for node in nodes:
        assert node.ask("ready") == "ready"
    nodes[0].ask("publish _LOCAL.x 3")
    nodes[0].ask("publish x 2")
    until(lambda: sorted(nodes[1].ask("got")) == sorted("[0, 1, 2, 0, 1]"))
    until(lambda: nodes[2].ask("got") == "[0, 1]")
    # What stays on its host does not arrive later either.
    nodes[2].ask("publish _LOCAL.x 4")
    until(lambda: len(nodes[2].ask("got")) == len("[0, 1, 0, 1, 2, 3]"))
    assert sorted(nodes[1].ask("got")) == sorted("[0, 1, 2, 0, 1]")


@namespaces
def test_nodes_of_two_hosts_do_not_meet_in_a_directory_that_they_share(hosts, remote):
    first, second, _ = hosts
    here, there = remote(first, "here"), remote(second, "there")
    assert here.ask("ready") == there.ask("ready") == "ready"
    beside = remote(first, "beside")
    assert beside.ask("ready") == "ready"
    until(lambda: here.ask("peers") == "['beside']")
    assert there.ask("peers") == "[]"


@namespaces
@pytest.mark.timeout(120)
def test_a_link_that_is_cut_without_a_word_is_noticed_and_comes_back(hosts, remote):
    _, second, third = hosts
    seed = f"tcp://{second.address}:5001"
    one, two = remote(second, "one", bind=seed), remote(third, "two", peers=seed)
    for node in (one, two):
        assert node.ask("ready") == "ready"
        assert node.ask("listen x") == "ready"
    until(lambda: one.ask("peers") == "['two']")
    # As a cable that is pulled: nothing is refused, nothing comes.
    network.run(*third.command("ip", "link", "set", "lan", "down"))
    began = time.monotonic()
    until(lambda: one.ask("peers") == two.ask("peers") == "[]", 30)
    took = time.monotonic() - began
    network.run(*third.command("ip", "link", "set", "lan", "up"))
    until(lambda: one.ask("peers") == "['two']" and two.ask("peers") == "['one']", 60)
    assert one.ask("ready") == two.ask("ready") == "ready"
    one.ask("publish x 3")
    until(lambda: two.ask("got").endswith("0, 1, 2]"))
    assert 2 < took < 25
