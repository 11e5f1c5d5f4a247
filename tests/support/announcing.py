"""Announcements of nodes that are not there, and DEALERs that announce them."""

import time
from contextlib import suppress
from dataclasses import replace

import zmq

from oz.protocol.node.discovery_client import DiscoveryClient
from oz.wire.discovery import Announcement, unpack_reply
from support.waiting import DEADLINE

PRICING = Announcement(
    uuid=bytes(range(0xA0, 0xB0)),
    name="pricing",
    bus="md",
    host="lab1",
    host_id=b"\xb1\xb2",
    pid=4711,
    endpoints=("tcp://192.0.2.7:5757",),
    local_endpoint="ipc:///run/oz/a0",
    version="0.1.0",
    started_ns=1_790_000_000_000_000_000,
)


def announcement(number=0, **changes):
    """One that differs from all others by its uuid and its name."""
    return replace(PRICING, uuid=b"%016d" % number, name=f"node {number}", **changes)


class Dealer:
    """A node as its name server sees it: a DEALER and a discovery client."""

    def __init__(self, context, endpoint, announced):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 4)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self.socket.connect(endpoint)
        self.discovery_client = DiscoveryClient(announced, endpoint)
        self.events = []
        self.frames = []

    def turn(self):
        now = time.monotonic()
        for frame in self.discovery_client.tick(now):
            self.send(frame)
        # Not all at once: others in this thread have beacons to send meanwhile.
        for _ in range(50):
            if not self.socket.poll(0):
                break
            frame = self.socket.recv()
            self.frames.append(frame)
            self.events += self.discovery_client.receive(frame, now)

    def send(self, frame):
        with suppress(zmq.Again):  # it is said again
            self.socket.send(frame, zmq.NOBLOCK)

    @property
    def is_registered(self):
        return self.discovery_client.is_registered(time.monotonic())

    @property
    def replies(self):
        return [unpack_reply(frame) for frame in self.frames]

    @property
    def heard(self):
        """Of whom it was told, in any of its lives."""
        return {event.announcement for event in self.events if hasattr(event, "announcement")}


def turn_until(condition, dealers, timeout=DEADLINE):
    """Let DEALERs announce and listen until something is so; its last value."""
    ends = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < ends, f"still not so after {timeout:g} s"
        for dealer in dealers:
            dealer.turn()
        time.sleep(0.002)
    return value


def all_registered(dealers, timeout=DEADLINE):
    turn_until(lambda: all(dealer.is_registered for dealer in dealers), dealers, timeout)
