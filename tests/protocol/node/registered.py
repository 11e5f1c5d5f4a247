"""What tests of registries have in common: nodes that join and beat, and what they are told."""

from oz.wire.discovery import (
    Announce,
    Welcome,
    pack,
    unpack_reply,
)
from support.announcing import announcement

ID = b"s" * 16
WELCOME = Welcome(ID, "ns1", 1.0, 3.5)
A, B, C = (announcement(number) for number in range(3))


def said(sends):
    """What is sent, unpacked, to whom."""
    return [(peer, unpack_reply(frame)) for peer, frame in sends]


def tell(registry, peer, request, now=0.0):
    return said(registry.receive(peer, pack(request), now))


def join(registry, peer, one, now=0.0, *, has_heard=False):
    return tell(registry, peer, Announce(one, has_heard), now)
