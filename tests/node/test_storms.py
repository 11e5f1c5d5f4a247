"""Many peers vanish at once: they are missed, and nobody calls after them."""

import textwrap
from collections import Counter
from contextlib import ExitStack

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

import oz
from oz.services.nameserver import NameServer
from support.inside import engine_of, shell_of
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

PROCESSES, EACH = size((1, 5), (3, 10))
ATTEMPTS = 6
"""Of libzmq to connect, each after twice the time: three seconds, or what a busy machine makes of them."""

TURNS = 100
"""Of a node beside each of them, at most; one that does not rest takes ten thousand a second."""

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
    """Counts the attempts to connect that a node's subscriber makes, and the turns of its thread."""

    def __init__(self, node, monkeypatch):
        self.node, self.engine = node, engine_of(node)
        self.turns, self._attempts = 0, Counter()
        look = self.engine.seconds_left

        def counted():
            self.turns += 1
            return look()

        monkeypatch.setattr(self.engine, "seconds_left", counted)
        self.socket = self.do(lambda sub: sub.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED))

    def do(self, work):
        """Do something with the subscriber's socket, where nobody else does."""
        return shell_of(self.node).call(lambda: work(self.engine.sockets.sub.socket))

    def attempts(self):
        """Say how many there were, by endpoint, since it was begun anew."""
        while self.socket.poll(0):
            self._attempts[recv_monitor_message(self.socket)["endpoint"].decode()] += 1
        return self._attempts

    def begin(self):
        self.attempts()
        self.turns, self._attempts = 0, Counter()


@pytest.mark.heavy
@pytest.mark.sized
@pytest.mark.timeout(180)
def test_nobody_is_redialled_for_ever_when_many_peers_vanish_at_once(short_directory, monkeypatch):
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
        calls = Calls(node, monkeypatch)
        try:
            for process in crowd:
                process.kill()
            until(lambda: [one.name for one in node.peers] == ["other"], 60)
            # Those whose end nobody has told of yet are tried again once or twice, and no more after that.
            until(
                lambda: (
                    len(shell_of(node).call(lambda: list(engine_of(node).sockets.sub.connector.endpoints)))
                    <= 4
                ),
                60,
            )
            calls.begin()
            nobody = f"ipc://{directory}/nobody"
            calls.do(lambda sub: sub.connect(nobody))
            got = other.subscribe("b")
            other.wait_ready(timeout=DEADLINE)
            node.publish("b", 1)
            assert got.receive(timeout=DEADLINE).payload == 1
            # Whoever is still called is called in this time too.
            until(lambda: calls.attempts()[nobody] >= ATTEMPTS)
            assert set(calls.attempts()) == {nobody}
            assert calls.turns < TURNS * ATTEMPTS
        finally:
            calls.do(lambda sub: sub.disable_monitor())
