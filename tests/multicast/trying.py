"""Read cases as lines of JSON, try each with a publisher or subscriber, and print the outcome.

A case is a class, an endpoint, options of `Multicast`, options of the class, and a holder of the port.
"""

import json
import os
import resource
import socket
import sys
import time
import warnings

import zmq

from oz.errors import OzError
from oz.options import Multicast, Options
from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber

KINDS = {"Publisher": Publisher, "Subscriber": Subscriber}
IN_THE_BACKGROUND = 0.03
"""Seconds in which libzmq's thread opens the PGM socket, or ends the process."""


def hold(who, port):
    if who is None:
        return None
    if who in KINDS:
        return KINDS[who](f"epgm://127.0.0.1;239.192.7.9:{port}")
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if who == "reuse":
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1" if who == "loopback" else "0.0.0.0", port))
    return holder


def close(made):
    if isinstance(made, Publisher):
        made.close(timeout=0)
    else:
        made.close()


def try_one(kind, endpoint, multicast=None, options=None, holder=None, port=0, files=None):
    held = hold(holder, port)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, limits[1]))
    try:
        options = dict(options or {})
        fields = dict(multicast or {}, plain=options.pop("plain", False))
        codec = options.pop("codec", None)
        made = KINDS[kind](codec=codec, options=Options(multicast=Multicast(**fields), **options))
        try:
            made.connect(endpoint)
            if kind == "Publisher":
                made.publish("md.x", b"x" * 5000)
            else:
                made.subscribe("md.>")
            time.sleep(IN_THE_BACKGROUND)
        finally:
            close(made)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if held is not None:
            close(held)


def main():
    warnings.simplefilter("ignore")
    if "nobody" in sys.argv:
        # After the imports, because the user `nobody` may not be allowed to read the modules.
        for kind in ("Publisher", "Subscriber"):
            try_one(kind, "epgm://127.0.0.1;239.192.7.9:65535")
        os.setgroups([])
        os.setgid(65_534)
        os.setuid(65_534)
    for line in sys.stdin:
        try:
            try_one(**json.loads(line))
            print("used", flush=True)
        except (OzError, ValueError, TypeError, zmq.ZMQError) as error:
            print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main()
