"""`oz nameserver`."""

import re
import signal

import pytest

import oz as library
from support.waiting import DEADLINE

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def join(directory):
    """Join a bus through a name server only: each node has a directory of its own."""
    nodes = []

    def joined(name, endpoint):
        options = library.NodeOptions(directory=f"{directory}/{name}")
        nodes.append(library.Node(name, bus="test", connect=endpoint, options=options))
        return nodes[-1]

    yield joined
    for node in nodes:
        node.close(timeout=0)


def endpoints_in(line):
    return re.findall(r"bound to (\S+?)(?:,|$)", line)


def test_nodes_meet_after_the_ready_line_and_sigterm_ends_it_cleanly(oz_start, join):
    running = oz_start("nameserver", "--bind", ANY, "--name", "ns1", "--verbose")
    line = running.ready_line()
    assert line.startswith("oz nameserver: ready, bound to tcp://127.0.0.1:")
    (endpoint,) = endpoints_in(line)
    pricing, desk = join("pricing", endpoint), join("desk", endpoint)
    desk.wait_ready("pricing", timeout=DEADLINE)
    assert "is up" in running.line_with(running.process.stderr, b"pricing")
    pricing.close()
    assert "has left" in running.line_with(running.process.stderr, b"left")
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.stdout) == (0, b"")
    assert re.search(r"oz nameserver: \d nodes joined, 1 left and \d were lost; \d are up\n$", ended.stderr)
