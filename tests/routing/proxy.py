"""A plain proxy, as any user would write it, with ZeroMQ's default limits; killed from outside.

Two ports, 0 for any; prints those it has: publishers connect to the first, subscribers to the second.
"""

import sys

import zmq

assert "oz" not in sys.modules
context = zmq.Context()
publishers, subscribers = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
for socket, port in zip((publishers, subscribers), sys.argv[1:], strict=True):
    socket.bind(f"tcp://127.0.0.1:{'*' if port == '0' else port}")
print(*(socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in (publishers, subscribers)), flush=True)
zmq.proxy(publishers, subscribers)
