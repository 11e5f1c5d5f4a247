"""Thirty peers vanish at once: they are missed, and nobody calls after them."""

import textwrap
import time
from contextlib import ExitStack

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

import oz
from oz.services.nameserver import NameServer
from support.inside import engine_of, shell_of
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

PROCESSES, EACH = 3, 10

CROWD = textwrap.dedent("""
    import sys, oz
    nameserver, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    nodes = [oz.Node(nameserver=nameserver, directory=directory, join_timeout=90.0) for _ in range(count)]
    for node in nodes:
        node.subscribe("a.>", handler=lambda _: None)
    print("ready", flush=True)
    sys.stdin.read()
""")


class Calls:
    """Counts the attempts to connect that a node's subscriber makes."""

    def __init__(self, node):
        self.socket = shell_of(node).call(
            lambda: engine_of(node).sockets.sub.socket.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
        )

    def take(self):
        count = 0
        while self.socket.poll(0):
            recv_monitor_message(self.socket)
            count += 1
        return count


@pytest.mark.timeout(180)
def test_nobody_is_redialled_for_ever_when_thirty_peers_vanish_at_once(short_directory):
    with ExitStack() as stack:
        server = stack.enter_context(NameServer("tcp://127.0.0.1:*"))
        serving = Thread(server.run)
        stack.callback(serving.outcome)
        stack.callback(server.stop)
        directory = str(short_directory / "s")
        crowd = [
            stack.enter_context(started("-c", CROWD, server.endpoint, directory, EACH))
            for _ in range(PROCESSES)
        ]
        for process in crowd:
            assert Thread(process.stdout.readline).outcome(90) == "ready\n"
        node = stack.enter_context(oz.Node("survivor", nameserver=server.endpoint, directory=directory))
        other = stack.enter_context(oz.Node("other", nameserver=server.endpoint, directory=directory))
        node.wait_for_peers(PROCESSES * EACH + 1, timeout=60)
        calls = Calls(node)
        try:
            for process in crowd:
                process.kill()
            until(lambda: [one.name for one in node.peers] == ["other"], 60)
            # Those whose end nobody has told of yet are tried again once or twice, and no more after that.
            until(
                lambda: len(shell_of(node).call(lambda: list(engine_of(node).sockets.sub.endpoints))) <= 4, 60
            )
            calls.take()
            used, began = time.process_time(), time.monotonic()
            got = other.subscribe("b")
            other.wait_ready(timeout=DEADLINE)
            node.publish("b", 1)
            assert got.receive(timeout=DEADLINE).payload == 1
            until(lambda: time.monotonic() - began > 3)
            assert calls.take() == 0
            assert time.process_time() - used < 0.5 * (time.monotonic() - began)
        finally:
            shell_of(node).call(engine_of(node).sockets.sub.socket.disable_monitor)
