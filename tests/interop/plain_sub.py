"""A subscriber of plain pyzmq: prints what comes, until the subject is "end"."""

import sys

import zmq

assert "oz" not in sys.modules
endpoint, *prefixes = sys.argv[1:]
with zmq.Context() as ctx, ctx.socket(zmq.SUB) as sock:
    sock.setsockopt(zmq.RCVHWM, 0)
    sock.setsockopt(zmq.RCVTIMEO, 20_000)
    sock.connect(endpoint)
    for prefix in prefixes:
        sock.setsockopt(zmq.SUBSCRIBE, prefix.encode())
    while True:
        frames = sock.recv_multipart()
        if frames[0] == b"end":
            break
        print(b" ".join(frames).decode())
assert "oz" not in sys.modules
