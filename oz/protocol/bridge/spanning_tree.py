"""The spanning tree of forwarders: which legs are open, so that one way leads between any two buses.

Forwarders agree on a tree of buses as bridges do of networks: each tells, on every bus it is on, over which
forwarders it reaches the root, the senior of them all. Each forwarder is open towards the root, and to each
bus the one that is nearest to the root; all else is closed. What is told is a whole path, so that a root that
has died is not heard of for ever. Source: IEEE 802.1D, the spanning tree protocol.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgpack

from oz.errors import ProtocolError
from oz.protocol.node.reserved_subjects import OWN

PREFIX = f"{OWN}FORWARDER."
"""What the pattern begins with by which a forwarder tells its offer to those it is connected to."""

RANK_SIZE = 16
"""Bytes that name a forwarder: those of the senior one come first in order."""

TIME_SIZE = 8
"""The bytes of a rank that tell a time; the others name the forwarder."""

MAX_PATH = 16
"""Forwarders from one bus to another at most."""

LAST = b"\xff" * RANK_SIZE
"""The rank of nobody, behind all others: a forwarder that is about to end tells that as its root."""

_VERSION = 1
_MOST = 2**32 - 1


class Offer(NamedTuple):
    """The offer that a forwarder makes on one bus.

    Attributes:
        path: the ranks of forwarders, from the root to whoever tells it.
        leg: which of its legs this is, from 0.
        serial: counts what it told before.
    """

    path: tuple[bytes, ...]
    leg: int
    serial: int


class Settled(NamedTuple):
    """The result of the offers of others for one forwarder.

    Attributes:
        path: how it reaches the root; its own rank is the last.
        is_open: for each leg, whether messages pass it.
    """

    path: tuple[bytes, ...]
    is_open: tuple[bool, ...]


def settle(rank: bytes, heard: Sequence[Iterable[Offer]]) -> Settled:
    """Find the way to the root, and which legs are open.

    Args:
        rank: that of this forwarder.
        heard: for each leg, the offers of other forwarders there, and of other legs of this one.
    """
    offers = [list(several) for several in heard]
    best: tuple[tuple[bytes, int, bytes, int], int, tuple[bytes, ...]] | None = None
    for leg, several in enumerate(offers):
        for offer in several:
            if rank in offer.path or offer.path[0] > rank or len(offer.path) >= MAX_PATH:
                continue
            found = _order(offer.path, offer.leg), leg, offer.path
            best = found if best is None else min(best, found)
    path = (rank,) if best is None else (*best[2], rank)
    towards_root = None if best is None else best[1]
    return Settled(
        path,
        tuple(
            leg == towards_root or all(_order(path, leg) < _order(one.path, one.leg) for one in several)
            for leg, several in enumerate(offers)
        ),
    )


def _order(path: tuple[bytes, ...], leg: int) -> tuple[bytes, int, bytes, int]:
    return path[0], len(path), path[-1], leg


def newest(offers: Iterable[Offer]) -> list[Offer]:
    """Keep of each leg of each forwarder the offer that it told last; its rank may have changed."""
    kept: dict[tuple[bytes, int], Offer] = {}
    for offer in offers:
        place = offer.path[-1][TIME_SIZE:], offer.leg
        if place not in kept or kept[place].serial < offer.serial:
            kept[place] = offer
    return list(kept.values())


def to_text(offer: Offer) -> str:
    """Write an offer as one token of a subject."""
    packed: bytes = msgpack.packb([_VERSION, offer.leg, offer.serial, *offer.path])
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def from_text(token: str) -> Offer:
    """Read what `to_text` wrote.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        parts = msgpack.unpackb(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"an offer of a forwarder is no MessagePack in base64: {error}") from None
    if not isinstance(parts, list) or not 4 <= len(parts) <= 3 + MAX_PATH or parts[0] != _VERSION:
        raise ProtocolError(f"this is no offer of a forwarder of version {_VERSION}: {token[:100]!r}")
    _, leg, serial, *path = parts
    if any(type(one) is not int or not 0 <= one <= _MOST for one in (leg, serial)):
        raise ProtocolError(f"an offer of a forwarder has a leg and a serial number, not {parts[1:3]!r:.100}")
    if any(type(one) is not bytes or len(one) != RANK_SIZE for one in path) or len(set(path)) < len(path):
        raise ProtocolError(f"the path of a forwarder is different ranks of {RANK_SIZE} bytes")
    return Offer(tuple(path), leg, serial)
