"""Says that it is another node: `impersonating.py NAMESERVER VICTIM HONEST`, until it is killed.

It announces the uuid of the victim at another endpoint, and says goodbye for it, to the name server over
connections of its own; and subscribes to the presence announcement of the victim, as it is and with another
endpoint, at the publisher of an honest node, and takes that back.
"""

import sys
import time
from dataclasses import replace

import zmq

import oz
from oz.protocol.node.presence import presence_pattern
from oz.services.nameserver import ask
from oz.wire.discovery import Announce, Goodbye, pack


def main(nameserver, victim, honest):
    nodes = {one.name: one for one in ask(nameserver)}
    forged = replace(nodes[victim], endpoints=("tcp://127.0.0.1:9",), local_endpoint=None)
    context = zmq.Context()
    with oz.Subscriber(nodes[honest].endpoints[0], filtering="publisher") as sub:
        print("ready", flush=True)
        while True:
            dealer = context.socket(zmq.DEALER)
            dealer.linger = 1_000
            dealer.connect(nameserver)
            for message in (Announce(forged, False), Goodbye(forged.uuid), Announce(forged, False)):
                dealer.send(pack(message))
            standing = [sub.subscribe(presence_pattern(one)) for one in (nodes[victim], forged)]
            time.sleep(0.1)
            for one in standing:
                sub.unsubscribe(one)
            dealer.close()


main(*sys.argv[1:])
