"""Links with a delay: `slow_links.py SECONDS COUNT`, in the namespace of a bridge.

The program creates pairs of interfaces (`h1` and `p1`, `h2` and `p2` …) and prints `ready`. It forwards each frame
between the two interfaces of a pair after SECONDS. Kernels of virtual machines and containers often lack netem.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

_SET_INTERFACE = 0x400454CA  # TUNSETIFF, of linux/if_tun.h
_TAP, _NO_HEADER = 0x0002, 0x1000
_LARGEST = 65_536


def _tap(name):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    return descriptor


def _take(arrived, others, waiting, due):
    for descriptor in arrived:
        with suppress(BlockingIOError):
            while True:
                waiting.append((due, others[descriptor], os.read(descriptor, _LARGEST)))


def _give(waiting):
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        _, descriptor, frame = waiting.popleft()
        with suppress(OSError):  # The other end is down, and a cable does not store frames.
            os.write(descriptor, frame)


def main(delay, count):
    others = {}
    for number in range(1, count + 1):
        one, other = _tap(f"h{number}"), _tap(f"p{number}")
        others |= {one: other, other: one}
    print("ready", flush=True)
    # All frames have the same delay, so that they leave in the order of arrival.
    waiting = deque()
    poller = select.poll()
    for descriptor in others:
        poller.register(descriptor, select.POLLIN)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) * 1000 if waiting else None
        arrived = [descriptor for descriptor, event in poller.poll(timeout) if event & select.POLLIN]
        _take(arrived, others, waiting, time.monotonic() + delay)
        _give(waiting)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
