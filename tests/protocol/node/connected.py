"""A peer that a node connects to, and what tests of its connections do again and again."""

from oz.protocol.node.connections import (
    CHECK_EVERY,
)
from oz.protocol.node.presence import network_origin
from support.announcing import announcement

OWN = announcement(2, local_endpoint="ipc://own")
PEER = announcement(4, local_endpoint=None, endpoints=("tcp://127.0.0.1:4",))
ORIGIN = network_origin(PEER.uuid)
ENDPOINT = PEER.endpoints[0]


def check(connections, *peers, looks=1, now=0.0, hear=lambda: None):
    """Look so many times who is silent; the steps of all looks, and the time of the last."""
    steps = []
    for _ in range(looks):
        now += CHECK_EVERY
        hear()
        steps += connections.check(peers, now)
    return steps, now


def drain(connections, now):
    """Look for as long as there is something to drain; the steps, and the time of the last."""
    steps = []
    while not steps:
        deadline = connections.next_deadline(has_peers=False)
        assert deadline > now
        now = deadline
        steps = connections.drain(now)
    return steps, now
