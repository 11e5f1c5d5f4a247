"""Subscribers that begin frames of a size which nobody takes: `claiming.py ENDPOINT`, until it is killed.

Each is cut off, and another one comes. It says when the first was.
"""

import struct
import sys
import time

from subscribing import Peer

SIZES = (131_073, (64 << 20) + 1, 8 << 30, 2**63 - 1)


def claim(endpoint, size):
    """Claim that a frame has so many bytes, and send of it what is taken; return when cut off."""
    peer = Peer(endpoint, reads=False)
    try:
        peer.send_raw(b"\2" + struct.pack(">Q", size))
        for _ in range(1_000):
            peer.send_raw(b"\1" + bytes(65_535))
    except OSError:
        return True
    return False


def main(endpoint):
    assert all(claim(endpoint, size) for size in SIZES)
    print("ready", flush=True)
    while True:
        for size in SIZES:
            claim(endpoint, size)
            time.sleep(0.01)


main(*sys.argv[1:])
