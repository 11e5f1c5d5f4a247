"""A node that says goodbye for all others: `saying_goodbye.py DIRECTORY HONEST ENDPOINT`, until it is killed.

As each publisher it is told how the streams of those are called that connect to it. It says goodbye in these
names at the endpoint of another publisher, and takes back there what they have asked for.
"""

import sys
from itertools import count

from subscribing import Peer, declare

import oz
from oz.protocol.declared import declare as declared
from oz.wire.keys import Declaration
from support.inside import engine_of


def keys_of(stream):
    """Return what its subscriber has subscribed to, as far as its publisher knows: nothing was collected."""
    for number, chunk in stream.chunks.items():
        patterns = tuple(declared(one) for one in chunk.patterns)
        yield Declaration(stream.name, number, stream.delivery, patterns=patterns).encode()
    yield stream.key


def main(directory, honest, endpoint):
    with oz.Node("attacker", bus="a", directory=directory) as node:
        node.wait_for_peers({honest})
        node.wait_ready(60)
        peer = Peer(endpoint)
        print("ready", flush=True)
        for number in count(10**6):
            for stream in engine_of(node).sockets.main.streams():
                peer.send(*(b"\0" + key for key in keys_of(stream)))
                peer.send(
                    b"\1" + declare(stream.name, number, leaving=True),
                    b"\1" + stream.key,
                    b"\1" + declare(stream.name, number + 10**6, leaving=True),
                    b"\0" + stream.key,
                )
            peer.read(0.01)


main(*sys.argv[1:])
