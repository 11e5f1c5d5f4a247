"""A publisher that uses the name of another one: `forging.py NAME WHAT [ENDPOINT]`, 32 digits first.

It binds, or connects to a subscriber that is bound. It learns the keys of the subscribers as any publisher
does. It writes its endpoint, and "ready" once somebody has subscribed; then it waits for a line, and goes on
until it is killed.
"""

import random
import sys
import time
from itertools import count

import zmq

from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array, pack_control
from oz.wire.keys import STREAM

FORGED = pack_array([b"a.forged", b"forged"])


def cannot_be(drawn, number):
    epoch, sequence = drawn.choice([(2**32 - 1, 0), (1, 10**15), (2**32 - 1, 10**15)])
    return epoch, sequence, drawn.choice([b"", FORGED])


def can_be(drawn, number):
    return (
        drawn.choice([1, 2, 3, 1_000]),
        drawn.choice([500_000, 600_000 + number]),
        drawn.choice([b"", FORGED]),
    )


def goodbyes(drawn, number):
    return drawn.choice([1, 2]), drawn.choice([0, 1_000]), pack_control(bye=True)


def names(drawn, number):
    return drawn.randrange(100), drawn.randrange(100), pack_control(live=[1], refused={1: "x" * 16_000})


WAYS = {"cannot be": cannot_be, "can be": can_be, "goodbyes": goodbyes, "names": names}


def main(name, what, connect=None):
    origin, drawn = bytes.fromhex(name), random.Random(1)
    socket = zmq.Context().socket(zmq.XPUB)
    if connect is None:
        socket.bind("tcp://127.0.0.1:*")
    else:
        socket.connect(connect)
    print(socket.last_endpoint.decode(), flush=True)
    keys = []
    while not keys:
        key = socket.recv()
        keys += [key[1:]] * (key[:1] == b"\1" and key[1:].startswith(STREAM))
    print("ready", flush=True)
    sys.stdin.readline()
    say = WAYS[what]
    for number in count():
        if what == "names":
            origin = drawn.randbytes(16)
        epoch, sequence, body = say(drawn, number)
        has_messages = body is FORGED
        kind = MESSAGES if has_messages else CONTROL
        socket.send(head_start(keys[0], kind, origin, epoch) + head_end(sequence, int(has_messages)) + body)
        if number % 10 == 0 or what != "names":
            time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
