"""A node that introduces others which are not there: `introducing.py DIRECTORY VICTIM`, one of its own bus.

It prints where it is, reads a line, introduces them, and then answers each line with how many connections
were open at once at most, at the endpoints of whom it had introduced.
"""

import os
import socket
import sys
import threading
from dataclasses import replace

import oz
from oz.protocol.node.presence import to_text
from support.inside import engine_of, shell_of
from support.waiting import until

COUNT = 1_300
NEVER = (
    "tcp://attacker.invalid:5757",
    "tcp://255.255.255.255:5757",
    "tcp://0.0.0.0:5757",
    "tcp://224.0.0.1:5757",
    "tcp://[::ffff:239.1.2.3]:5757",
)


class Listener:
    """Takes connections at all addresses of this host, and says nothing."""

    def __init__(self):
        self.server = socket.create_server(("0.0.0.0", 0), backlog=1_024)
        self.port = self.server.getsockname()[1]
        self.open, self.most = set(), 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            one, _ = self.server.accept()
            self.open.add(one)
            self.most = max(self.most, len(self.open))
            threading.Thread(target=self.wait, args=(one,), daemon=True).start()

    def wait(self, one):
        with one:
            while one.recv(4_096):
                pass
        self.open.discard(one)


def forged(own, port, directory):
    hosts = (f"127.0.{at // 250}.{1 + at % 250}" for at in range(COUNT))
    tcp = [{"endpoints": (f"tcp://{host}:{port}",), "local_endpoint": None} for host in hosts]
    odd = [{"endpoints": (one,), "local_endpoint": None} for one in NEVER]
    link = f"{os.path.dirname(own.local_endpoint)}/elsewhere"
    near = [{"endpoints": (), "local_endpoint": one} for one in (f"ipc://{directory}/../x", link, "ipc://@x")]
    return [
        replace(own, uuid=b"%015d\0" % at, name=f"forged {at}", **changes)
        for at, changes in enumerate((*odd, *near, *tcp))
    ]


def main(directory, victim):
    listener = Listener()
    node = oz.Node("attacker", directory=directory)
    node.wait_for_peers({victim})
    node.wait_ready(60)
    engine = engine_of(node)
    print("ready", flush=True)
    sys.stdin.readline()
    (there,) = [peer for peer in node.peers if peer.name == victim]
    for one in (forged(node.announcement, listener.port, directory),):
        words = list(map(to_text, one))
        for first in range(0, len(words), 100):
            text = " ".join(words[first : first + 100])
            node_call(node, lambda text=text: engine.introduce(there, text))
            until(lambda: engine.introductions.next_deadline(0.0) is None)
    print("introduced", flush=True)
    for _ in sys.stdin:
        print(listener.most, flush=True)


def node_call(node, work):
    shell_of(node).call(work)


main(*sys.argv[1:])
