"""Receive what `publishing.py` sends as plain ZeroMQ does: `raw.py '{"endpoint": …}'`.

It is a SUB socket with the same options and no watchdog, to be compared with `subscribing.py` beside it. It
reads the frames only to count them. Says `ready`, and reads a line that says what publishers have sent. When
all of it is there, or nothing has come for a while, it says how much was delivered, and which message was the
first, by publisher.
"""

import json
import struct
import sys
import threading
import time

import zmq

from oz.errors import ProtocolError
from oz.multicast.group import configure
from oz.options import Multicast
from oz.wire.datagrams import Record, decode

SETTLES = 15.0


def messages(frame):
    _, flat = decode(frame)
    if isinstance(flat, Record):
        return
    for subject, payload in zip(flat[0::3], flat[1::3], strict=True):
        yield subject.decode().split(".")[1], struct.unpack_from(">Q", payload)[0]


def listen(expected):
    for line in sys.stdin:
        expected.append(json.loads(line))


def is_all(seen, expected):
    return all(
        len(seen.get(one["name"], ())) >= one["sent"] - min(seen.get(one["name"], {0})) for one in expected
    )


def main(endpoint, pattern="", **options):
    seen, broken, expected = {}, 0, []
    threading.Thread(target=listen, args=(expected,), daemon=True).start()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        configure(sub, Multicast(**options), is_publisher=False)
        sub.setsockopt(zmq.LINGER, 0)
        sub.setsockopt(zmq.RCVHWM, 0)
        sub.subscribe("")
        sub.connect(endpoint)
        print("ready", flush=True)
        came_at = time.monotonic()
        while not expected or (not is_all(seen, expected[-1]) and time.monotonic() < came_at + SETTLES):
            if not sub.poll(200):
                continue
            try:
                for name, number in messages(sub.recv()):
                    came_at = time.monotonic()
                    seen.setdefault(name, set()).add(number)
            except ProtocolError:
                broken += 1
    rows = {name: {"delivered": len(numbers), "first": min(numbers)} for name, numbers in seen.items()}
    print(json.dumps({"publishers": rows, "broken": broken}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
