"""A subscriber that attacks the link endpoint of a publisher: `linking.py KIND ENDPOINT`, until it is killed.

It prints `ready` when the attack has begun. KIND:

- `hellos`: new sessions without end, none of which acknowledges.
- `declares`: full declarations of 1,000 patterns without end.
- `silent`: subscribes to all subjects, and reads nothing.
"""

import itertools
import os
import sys
import time

import zmq

from oz.transport.routers import link_endpoint
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, Declare, Hello, Item

PATTERNS = 1_000


def hello():
    return links.encode_hello(
        Hello(os.urandom(16), os.urandom(16), links.UNKNOWN_EPOCH, 1, 0, 0, 64 << 20, 256)
    )


def declare(revision, texts):
    items = [Item(sid + 1, 1, "nats", text) for sid, text in enumerate(texts)]
    return links.encode_declare(Declare(revision, 0, True, {1: DEFAULT_OPTIONS}, items, []))


def dealer(context, endpoint):
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.connect(link_endpoint(endpoint))
    return socket


def send_hellos(context, endpoint):
    while True:
        with dealer(context, endpoint) as socket:
            for _ in range(100):
                socket.send(hello())
            time.sleep(0.01)
        yield


def send_declares(context, endpoint):
    with dealer(context, endpoint) as socket:
        socket.send(hello())
        texts = [f"attack.*.{number}" for number in range(PATTERNS)]
        for revision in itertools.count(1):
            socket.send(declare(revision, texts))
            while socket.poll(0):
                socket.recv()
            yield


def read_nothing(context, endpoint):
    with dealer(context, endpoint) as socket:
        socket.send(hello())
        socket.send(declare(1, [">"]))
        while True:
            yield
            time.sleep(0.1)


KINDS = {"hellos": send_hellos, "declares": send_declares, "silent": read_nothing}

if __name__ == "__main__":
    attack = KINDS[sys.argv[1]](zmq.Context(), sys.argv[2])
    next(attack)
    print("ready", flush=True)
    for _ in attack:
        pass
