"""A publisher of plain pyzmq: sends one message for each line "subject payload" of its input."""

import sys

import zmq

assert "oz" not in sys.modules
with zmq.Context() as ctx, ctx.socket(zmq.XPUB) as sock:
    port = sock.bind_to_random_port("tcp://127.0.0.1")
    print(port, flush=True)
    for _ in range(int(sys.argv[1])):
        sock.recv()
    for line in sys.stdin:
        sock.send_multipart([part.encode() for part in line.split()])
    sock.close(10_000)
