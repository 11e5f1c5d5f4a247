"""The process that publishes when `oz bench` measures on this machine alone."""

from __future__ import annotations

import sys

import zmq

from oz.cli.measuring.child import answer, orders
from oz.cli.measuring.server import Server

if __name__ == "__main__":
    orders()
    try:
        server = Server(sys.argv[1])
    except zmq.ZMQError as error:
        sys.exit(str(error))
    answer({"endpoint": server.endpoint})
    server.serve()
