"""A publisher that uses the name of another one: `forging.py NAME WHAT [ENDPOINT]`, 32 digits first.

With "ahead" the endpoint is that of the publisher, on whose streams it listens to stay ahead of it. Otherwise

it binds, or connects to a subscriber that is bound. It learns the keys of the subscribers as any publisher
does. It writes its endpoint, and "ready" once somebody has subscribed; then it waits for a line, and goes on
until it is killed.
"""

import random
import sys
import time
from itertools import count

import zmq

from oz.wire.batch import (
    CONTROL,
    MESSAGES,
    head_end,
    head_start,
    key_size,
    pack_array,
    pack_control,
    parse_head,
)
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


def stay_ahead(socket, key, endpoint):
    """Give the publisher's numbers twenty before it does, again and again."""
    listening = zmq.Context.instance().socket(zmq.SUB)
    listening.connect(endpoint)
    listening.subscribe(key)
    given = 0
    while True:
        head = parse_head(listening.recv_multipart()[0], key_size(key))
        begin = max(given, head.sequence + head.count)
        if begin < head.sequence + head.count + 20:
            given = begin + 20
            start = head_start(key, MESSAGES, head.origin, head.epoch)
            socket.send(start + head_end(begin, 20) + pack_array([b"a.forged", b"forged"] * 20))


WAYS = {"cannot be": cannot_be, "can be": can_be, "goodbyes": goodbyes, "names": names}


def main(name, what, connect=None):
    origin, drawn = bytes.fromhex(name), random.Random(1)
    socket = zmq.Context().socket(zmq.XPUB)
    if connect is None or what == "ahead":
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
    if what == "ahead":
        stay_ahead(socket, keys[0], connect)
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
