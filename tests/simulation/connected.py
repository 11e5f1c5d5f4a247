"""Connections of a run as ZeroMQ has them, what they ask for, and how much they may."""

from __future__ import annotations

from oz.protocol.publisher.accounts import Peer
from oz.security.limits import Limits
from oz.wire.keys import ID_SIZE, Declaration, Declared, stream_key

LIMITS = Limits(
    streams=2, patterns=5, plain_subscriptions=3, plain_size=8, plain_bytes=12, all_plain_bytes=20,
    refused_bytes=60, key_bytes=400, waiting_keys=300,
)  # fmt: skip
"""So little that somebody asks for more."""

PLAIN = b"a", b"b", b"bb", b"c", b"c.c.c", b"longer", b"eight...", b"longest..", b"a.b.c.d"
PATTERNS = b"a.*", b"b.>", b"c", b"*.d"
SUBJECTS = b"a", b"bb", b"longer", b"longest..", b"a.b.c.d", b"c.x", b"a.d", b"b.c", b"c"
DESCRIPTORS, MOST_LEFT = 4, 4
"""Descriptors, and entries of dictionaries, sets and lists that are left of those who have gone."""

BOTH, TWICE = b"both", (2, 3)
"""The name of a stream that the same subscriber has over two connections, which have these descriptors."""

OVERHEAD = 11
"""Bytes of a frame on the wire beside its own."""


class Link:
    """A connection, as ZeroMQ has it.

    Attributes:
        held: what it has asked for, and not taken back, as often as it has: a verbose proxy asks each time.
        refusals: the keys that it was refused.
        returned: the keys of streams on which it did not listen for a moment, whose patterns end later then.
        left: the names of the streams to which it has said goodbye.
        ended: what it has declared on a stream to which another said goodbye while it did not listen there.
        early: the goodbyes that it said to streams on which it did not listen.
        in_zmq: of that what ZeroMQ takes back when it ends: once, and nothing of what was taken back once.
        is_inside: it is inside the process, and ZeroMQ tells nothing of it.
    """

    def __init__(self, descriptor, inode, *, is_inside=False):
        self.peer, self.is_inside = Peer(descriptor, inode), is_inside
        self.names = [(b"%d.%d" % (inode, number)).ljust(ID_SIZE) for number in range(2)]
        # One subscriber may be connected twice.
        self.names.append((BOTH if descriptor in TWICE else b"%d" % inode).ljust(ID_SIZE))
        self.held, self.granted, self.streams, self.in_zmq = [], set(), set(), set()
        self.refusals, self.left, self.returned, self.ended = set(), set(), set(), set()
        self.early = set()
        self.refused = self.bytes = 0

    def keys(self, random, plain, number):
        """Return something that it may ask for; a declaration has a number."""
        name = random.choice(self.names)
        patterns = tuple(Declared(1, text) for text in random.sample(PATTERNS, random.choice((1, 2, 3))))
        return random.choice(
            (
                random.choice(plain),
                random.choice(plain),
                stream_key(name),
                Declaration(name, number, patterns=patterns).encode(),
            )
        )
