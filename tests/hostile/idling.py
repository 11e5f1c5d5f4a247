"""Connects many times, shakes hands and says nothing: `idling.py ENDPOINT TIMES TYPE ADDRESS`.

Writes "ready", and for each line that it is sent how many of its connections are still open.
"""

import resource
import socket
import struct
import sys

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\x00" + bytes(31)


def connected(host, port, kind, address):
    there = socket.create_connection((host, int(port)), source_address=(address, 0))
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    there.sendall(GREETING + b"\x04" + bytes([len(ready)]) + ready)
    there.setblocking(False)
    return there


def is_open(there):
    try:
        while there.recv(4_096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def main(endpoint, times, kind, address):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = endpoint.removeprefix("tcp://").split(":")
    connections = [connected(host, port, kind.encode(), address) for _ in range(int(times))]
    print("ready", flush=True)
    for _ in sys.stdin:
        print(sum(map(is_open, connections)), flush=True)


main(*sys.argv[1:])
