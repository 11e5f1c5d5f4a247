"""A publisher that sends control records without a pause: `flooding_with_control.py WHAT`.

Writes its endpoint, and "ready" once somebody has subscribed; then it goes on until it is killed.
"""

import random
import sys
from itertools import count

import zmq

from oz.wire.batch import CONTROL, head_end, head_start, pack_control
from oz.wire.keys import STREAM

ORIGIN = bytes(15) + b"\1"


def main(what):
    drawn = random.Random(1)
    socket = zmq.Context().socket(zmq.XPUB)
    socket.set(zmq.XPUB_NODROP, 1)
    socket.bind("tcp://127.0.0.1:*")
    print(socket.last_endpoint.decode(), flush=True)
    keys = []
    while not keys:
        key = socket.recv()
        keys += [key[1:]] * (key[:1] == b"\1" and key[1:].startswith(STREAM))
    print("ready", flush=True)
    answer = pack_control(live=[*range(1, 2_000)])
    for number in count():
        origin = drawn.randbytes(16) if what == "names" else ORIGIN
        sequence = number if what == "numbers" else 0
        body = answer if what == "answers" else pack_control()
        socket.send(head_start(keys[0], CONTROL, origin, 1) + head_end(sequence, 0) + body)


main(*sys.argv[1:])
