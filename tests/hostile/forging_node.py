"""A node that uses the name of another one of its bus: `forging_node.py DIRECTORY HONEST WHAT`.

It says when it is ready, and goes on until it is killed: frames on each stream of its publisher, under the
origins of the honest node.
"""

import random
import sys
import time
from itertools import count

from forging import FORGED, WAYS

import oz
from oz.protocol.node.presence import local_origin, network_origin
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start
from support.inside import engine_of, shell_of


def frames(publisher, origins, drawn, say, number):
    for stream in publisher.streams():
        # A name of its own for each.
        for origin in origins or [drawn.randbytes(16)]:
            epoch, sequence, body = say(drawn, number)
            has_messages = body is FORGED
            kind = MESSAGES if has_messages else CONTROL
            head = head_start(stream.key, kind, origin, epoch)
            yield head + head_end(sequence, int(has_messages)) + body


def main(directory, honest, what):
    drawn, say = random.Random(1), WAYS[what]
    node = oz.Node("attacker", bus="a", directory=directory)
    node.wait_for_peers({honest})
    node.wait_ready(60)
    (there,) = [peer for peer in node.peers if peer.name == honest]
    origins = () if what == "names" else (local_origin(there.uuid), network_origin(there.uuid))
    publisher = engine_of(node).sockets.main

    def forge(number):
        with publisher.engine.guard:
            for frame in frames(publisher, origins, drawn, say, number):
                publisher.engine.socket.send(frame)

    print("ready", flush=True)
    for number in count():
        shell_of(node).call(lambda number=number: forge(number))
        time.sleep(0.005)


main(*sys.argv[1:])
