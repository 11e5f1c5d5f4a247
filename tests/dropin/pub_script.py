"""A publisher as pyzmq's users write it: prints its port, and publishes when it is told to."""

import sys

import zmq

with zmq.Context() as ctx:
    sock = ctx.socket(zmq.PUB)
    with sock:
        sock.setsockopt(zmq.SNDHWM, 50_000)
        sock.setsockopt(zmq.LINGER, 20_000)
        port = sock.bind_to_random_port("tcp://127.0.0.1")
        print(port, flush=True)
        sys.stdin.readline()
        assert sock.poll(0, zmq.POLLOUT)
        sock.send_multipart([b"time.us.east", b"1"])
        sock.send_string("time.us.west", zmq.SNDMORE)
        sock.send_string("2")
        sock.send(b"other.topic", zmq.SNDMORE)
        sock.send(b"3", zmq.NOBLOCK)
        for number in range(4, 8):
            sock.send_multipart([b"time.eu.east", b"%d" % number], copy=False)
        poller = zmq.Poller()
        poller.register(sock, zmq.POLLOUT)
        assert dict(poller.poll(1_000)) == {sock: zmq.POLLOUT}
        sock.send_json({"n": 8})
        sock.send_multipart([b"end"])
