"""A subscriber as pyzmq's users write it: `sub_script.py ENDPOINT PATTERN`."""

import sys

import zmq
from zmq.utils.monitor import recv_monitor_message

endpoint, pattern = sys.argv[1:]
ctx = zmq.Context()
sock = ctx.socket(zmq.SUB)
monitor = sock.get_monitor_socket()
sock.setsockopt(zmq.RCVTIMEO, 20_000)
sock.setsockopt(zmq.RCVHWM, 10_000)
sock.setsockopt(zmq.LINGER, 0)
with sock:
    sock.setsockopt_string(zmq.SUBSCRIBE, pattern)
    sock.setsockopt(zmq.SUBSCRIBE, b"end")
    with sock.connect(endpoint):
        while recv_monitor_message(monitor)["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            pass
        sock.disable_monitor()
        monitor.close()

        print("multipart", sock.recv_multipart())

        while not sock.poll(1_000, zmq.POLLIN):
            pass
        parts = [sock.recv_string()]
        while sock.getsockopt(zmq.RCVMORE):
            parts.append(sock.recv_string())
        print("strings", parts)

        parts = [sock.recv()]
        while sock.rcvmore:
            parts.append(sock.recv())
        print("frames", parts)

        poller = zmq.Poller()
        poller.register(sock, zmq.POLLIN)
        last = None
        while last != b"end":
            for ready, event in poller.poll(20_000):
                assert ready is sock
                assert event == zmq.POLLIN
                try:
                    frames = sock.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    continue
                last = frames[0]
                print("polled", frames)

        sock.setsockopt(zmq.RCVTIMEO, 10)
        try:
            sock.recv()
        except zmq.Again:
            print("nothing more", sock.getsockopt(zmq.RCVTIMEO), sock.getsockopt(zmq.TYPE) == zmq.SUB)
print(sock.closed)
ctx.term()
