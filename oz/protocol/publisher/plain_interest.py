"""Plain subscriptions at a publisher, and what ZeroMQ is told in their place.

Keys are subscriptions too, and what is sent on them begins with the key. So a plain subscription to what a
key begins with, which is the empty one or a zero byte, is replaced by all that may begin a subject.
"""

from __future__ import annotations

from typing import NamedTuple

from oz.protocol.prefix_counts import PeerInterest
from oz.wire.keys import OWN

ALL_PLAIN = tuple(bytes((first,)) for first in range(1, 256)) + tuple(
    bytes((0, second)) for second in range(256) if second != OWN[1]
)
"""What stands for the empty subscription: all that may begin a subject, but not what begins a key."""

_ALL_PLAIN = frozenset(ALL_PLAIN)

_ZERO = b"\x00"
_PLAIN_ZERO = tuple(one for one in ALL_PLAIN if one[:1] == _ZERO)
"""What stands for the subscription to a zero byte, which would let the keys through too."""

UNREACHABLE = (b"", b"\x00")
"""The subjects that no key in `ALL_PLAIN` begins."""


class Keys(NamedTuple):
    """The keys to set in ZeroMQ for the connection that a key came from."""

    wanted: tuple[bytes, ...] = ()
    dropped: tuple[bytes, ...] = ()


NOTHING = Keys()


class PlainInterest(PeerInterest):
    """The plain subscriptions that a publisher has learned of."""

    __slots__ = ()

    def keys(self, key: bytes, *, comes: bool) -> Keys:
        """Say what a subscription that was learned just now means for ZeroMQ.

        What stands for the empty one may be asked for by itself too, and over which connections is not
        known. So it is rather kept too long: a subscriber passes over what it did not ask for.
        """
        stands_for = (key,) if key not in UNREACHABLE else _PLAIN_ZERO if key else ALL_PLAIN
        if comes:
            return Keys(wanted=stands_for)
        kept = {one for one in stands_for if self.has(one)}
        if self.has(b""):
            kept |= _ALL_PLAIN
        if self.has(_ZERO):
            kept.update(_PLAIN_ZERO)
        return Keys(dropped=tuple(one for one in stands_for if one not in kept))
