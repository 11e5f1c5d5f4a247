"""A subscriber whose patterns cost its publisher much: `costing.py ENDPOINT dear|heavy|fat`.

It prints `ready` once it has asked, and with `dear` then what the publisher refuses, once that is told.
"""

import sys
from contextlib import suppress

import zmq
from oz.wire.keys import Declaration, Declared, stream_key

import oz
from support.waiting import DEADLINE, until

REGEX = 8
DEAR = 400
HEAVY = 100
FAT = 300


def ask(endpoint, texts):
    """Declare patterns without compiling them first, a few in each key."""
    name = b"attackers-name-1"
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.connect(endpoint)
        sub.subscribe(stream_key(name))
        for number, at in enumerate(range(0, len(texts), 10)):
            patterns = tuple(Declared(REGEX, text.encode()) for text in texts[at : at + 10])
            sub.subscribe(Declaration(name, number + 1, patterns=patterns).encode())
        print("ready", flush=True)
        sys.stdin.read()


def be_dear(endpoint):
    with oz.Subscriber(endpoint, filtering="publisher") as sub:
        sub.subscribe([f"md.(?:a|a|aa)*[.0-9]*N?[xy!]{number}" for number in range(DEAR)], dialect="regex")
        sub.wait_ready(timeout=DEADLINE)
        print("ready", flush=True)
        sys.stdin.readline()

        def refused():
            try:
                # No message is for it; it takes in what it is told.
                with suppress(TimeoutError):
                    sub.receive(timeout=0.01)
                sub.wait_ready(timeout=DEADLINE)
            except oz.ProtocolError as error:
                return error

        print(until(refused), flush=True)
        sys.stdin.read()


endpoint, kind = sys.argv[1:]
if kind == "dear":
    be_dear(endpoint)
elif kind == "heavy":
    ask(endpoint, [f"a{{{190_000 + number}}}" for number in range(HEAVY)])
else:
    ask(endpoint, [f"a{{3900}}{number}" for number in range(FAT)])
