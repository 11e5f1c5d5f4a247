"""Try what a user might pass: reads cases as lines of JSON, and says of each what came of it.

A case is a kind of socket, an endpoint, options of `oz.Multicast`, of the socket, and of ZeroMQ to be set
before the endpoint is given, and who holds the port.
"""

import json
import os
import resource
import socket
import sys
import time
import warnings
from contextlib import suppress

import zmq

import oz

IN_THE_BACKGROUND = 0.03
"""Seconds in which libzmq's thread opens the PGM socket, or ends the process."""


def hold(who, port):
    if who is None:
        return None
    if who in ("Publisher", "Subscriber"):
        return getattr(oz, who)(f"epgm://127.0.0.1;239.192.7.9:{port}")
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if who == "reuse":
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1" if who == "loopback" else "0.0.0.0", port))
    return holder


def value_of(value):
    return value.encode() if isinstance(value, str) and value.startswith("b:") else value


def try_one(kind, endpoint, multicast=None, options=None, sockopts=(), holder=None, port=0, files=None):
    held = hold(holder, port)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, limits[1]))
    try:
        chosen = None if multicast is None else oz.Multicast(**multicast)
        made = getattr(oz, kind)(multicast=chosen or oz.Multicast(), **(options or {}))
        try:
            for name, value in sockopts:
                with suppress(ValueError, TypeError, zmq.ZMQError, OverflowError):
                    made.setsockopt(getattr(zmq, name), value_of(value))
            made.connect(endpoint)
            if kind == "Publisher":
                made.publish("md.x", b"x" * 5000)
            else:
                made.subscribe("md.>")
            time.sleep(IN_THE_BACKGROUND)
        finally:
            made.close(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if held is not None:
            held.close(*([0] if isinstance(held, zmq.Socket) else []))


def main():
    warnings.simplefilter("ignore")
    if "nobody" in sys.argv:
        # Only now: nobody may not be allowed to read the modules.
        for kind in ("Publisher", "Subscriber"):
            try_one(kind, "epgm://127.0.0.1;239.192.7.9:65535")
        os.setgroups([])
        os.setgid(65_534)
        os.setuid(65_534)
    for line in sys.stdin:
        try:
            try_one(**json.loads(line))
            print("used", flush=True)
        except (oz.OzError, ValueError, TypeError, zmq.ZMQError) as error:
            print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main()
