"""A node that answers what it was not asked: `answering.py DIRECTORY VICTIM [BUS]`, one of its own bus.

It says when it is ready, and goes on until it is killed: replies to the inboxes that the next requests of
the victim may have, and requests that want their reply elsewhere than in an inbox.
"""

import sys
import time
from itertools import count

import oz
from support.inside import engine_of

ELSEWHERE = ("orders.new", "", "_OZ.NAMING.x", "a\0b", "_INBOX.>", "_LOCAL.x", "." * 300)


def main(directory, victim, bus=None):
    node = oz.Node("attacker", bus=bus, directory=directory)
    node.wait_for_peers({victim})
    node.wait_ready(60)
    (there,) = [peer for peer in node.peers if peer.name == victim]
    main = engine_of(node).sockets.main
    print("ready", flush=True)
    for number in count(1):
        for secret in ("", "0" * 39, str(number).zfill(39)):
            for guess in range(1, 101):
                node.publish(f"_INBOX.{there.uuid.hex()}.{guess}{secret}", "forged")
        for subject in ELSEWHERE:
            main.send_request("svc", "forged", None, None, subject)
        time.sleep(0.02)


main(*sys.argv[1:])
