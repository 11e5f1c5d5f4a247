"""Rules of forwarders between buses: the subscriptions of a forwarder, and the recipients of a message.

Theory of operation
-------------------
A forwarder has one node on each bus, called its *leg*. The *interest* of a bus is the set of patterns that the peers on
this bus have declared to the leg. The forwarder subscribes to these patterns on the other buses. When a message arrives
on another bus, the forwarder publishes the message on this bus.

Two forwarders are *parallel* if both have legs on the same two buses. A forwarder ignores the patterns of a parallel
forwarder, because the parallel forwarder receives the messages of the other bus with its own leg.

=================== ==========================================================================================
message             rule for parallel forwarders
=================== ==========================================================================================
plain               each forwarder passes the message on. Subscribers drop repeats, which have the same origin and
                    position
group               each forwarder is a member of the group. A forwarder *stands by* while a parallel forwarder with a
                    smaller id is up and does not stand by. Publishers pick a forwarder that stands by only if no
                    other member matches. Therefore only one forwarder passes the messages on, in order. It
                    acknowledges a message when the member on the other bus has acknowledged the message. If this
                    forwarder dies, another forwarder receives the message and picks the same member by rank. If the
                    member has the message already, it drops the repeat. When the last member on the other bus ends,
                    the forwarder unsubscribes, and the publisher sends the waiting messages to other members
request             as a plain message or a message of a group. All copies of a request have the same position
=================== ==========================================================================================

Before a forwarder ends, it stands by. Then a parallel forwarder takes over the groups. The first forwarder ends when
its messages are acknowledged. If two parallel forwarders cannot reach each other, neither stands by. Each message of a
group still passes only one forwarder, but messages of one subject may be out of order.

A message carries the ids of the forwarders that have passed it on. A forwarder drops a message that carries its own id,
because it has already passed the message on. If the first publisher of a message is a peer on a bus, a forwarder does
not pass the message to this bus. The peers on this bus receive the message directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from oz.errors import OzError, Undecidable
from oz.message import Extras, Forwarded
from oz.node.requests import inbox_node
from oz.publisher.groups import rank
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.extras import FORWARDED, FORWARDER_ID, MAX_FORWARDERS, REDELIVERED, encode_extras

if TYPE_CHECKING:
    from oz.subscriber.message import Message

_RESERVED = (b"_LOCAL.", b"_INBOX.", b"_OZ.")
"""Prefixes of the subjects whose messages stay on their bus."""
REQUEST_POSITION = 1 << 62
"""Position of the request with number 0. The number of a request is added. Positions of other messages are smaller."""
_MAX_DIGITS = 19  # Numbers of requests have fewer digits, so that positions of requests fit into 63 bits.


class Interest(NamedTuple):
    """Subscription of a peer on a bus.

    Attributes:
        pattern: pattern of the subscription.
        group: name of the subscription's queue group; None for a plain subscription.
        policy: policy of the group.
    """

    pattern: Pattern
    group: str | None = None
    policy: str = "round_robin"


class Source(NamedTuple):
    """Interest of one session at a leg.

    Attributes:
        forwarder: id of the forwarder to which the session belongs; None for a session of another node.
        interests: subscriptions of the session.
        is_standby: whether the forwarder stands by.
    """

    forwarder: bytes | None
    interests: frozenset[Interest]
    is_standby: bool = False


class Side:
    """State of one leg that the rules of forwarders read.

    Attributes:
        allowed: patterns of the subjects that may enter the bus; empty if all subjects may enter.
        sources: dict from a session to its interest.
        forwarders: ids of the other forwarders on the bus, including forwarders that this leg cannot reach.
        active: ids of the forwarders that are up and do not stand by.
        standby: ids of the forwarders that are up and stand by.
    """

    def __init__(self, allowed: Iterable[Pattern] = ()) -> None:
        self.allowed = tuple(allowed)
        self.sources: dict[Any, Source] = {}
        self.forwarders: frozenset[bytes] = frozenset()
        self.active: frozenset[bytes] = frozenset()
        self.standby: frozenset[bytes] = frozenset()
        self._index: PatternIndex[None] = PatternIndex()
        for pattern in self.allowed:
            self._index.add(pattern, None)

    def may_enter(self, subject: bytes) -> bool:
        """Return whether messages with a subject may enter the bus."""
        if subject.startswith(_RESERVED):
            return False
        return not self.allowed or bool(self._index._find(subject).values)


def stands_by(own: bytes, sides: Sequence[Side], at: int) -> bool:
    """Return whether a forwarder stands by on one bus.

    Args:
        own: id of the forwarder.
        sides: states of the forwarder's legs.
        at: index of the leg on that bus.
    """
    here = sides[at]
    return any(leg < own for side in sides if side is not here for leg in here.active & side.active)


def is_needed(sides: Sequence[Side]) -> bool:
    """Return whether two buses have parallel forwarders that all stand by."""
    pairs = list(combinations(sides, 2))
    return any(
        (pair.active | pair.standby) & (two.active | two.standby) and not pair.active & two.active
        for pair, two in pairs
    )


def wanted(sides: Sequence[Side], at: int) -> set[Interest]:
    """Return the subscriptions of a forwarder on one bus.

    Args:
        sides: states of the forwarder's legs.
        at: index of the leg on that bus.
    """
    here = sides[at]
    return {
        interest._replace(pattern=pattern)
        for side in sides
        if side is not here
        for source in side.sources.values()
        if source.forwarder not in here.forwarders
        for interest in source.interests
        for pattern in narrow(interest.pattern, side.allowed)
    }


@lru_cache(maxsize=65_536)
def narrow(pattern: Pattern, allowed: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Return the patterns with which a forwarder receives the allowed subjects of a pattern.

    The result is `pattern` itself, patterns of `allowed`, or empty. It may match more subjects than necessary.

    Args:
        pattern: pattern of a subscription.
        allowed: patterns of the subjects that may enter the bus of the subscription.
    """
    if all(prefix.startswith(_RESERVED) for prefix in pattern.prefixes):
        return ()
    if not allowed:
        return (pattern,)
    found: dict[Pattern, None] = {}
    for item in allowed:
        try:
            if item.covers(pattern):
                return (pattern,)
            if pattern.covers(item):
                found[item] = None
            elif pattern.overlaps(item):
                found[pattern] = None
        except Undecidable:
            found[pattern] = None
    return (pattern,) if pattern in found else tuple(found)


def matches_any(patterns: Iterable[Pattern], subject: bytes) -> bool:
    """Return whether any of the patterns matches a subject. A pattern that exceeds its time does not match."""
    for pattern in patterns:
        with suppress(OzError):
            if pattern.matches(subject):
                return True
    return False


def forwarder_ids(via: bytes) -> set[bytes]:
    """Return the ids of the forwarders that have passed a message on."""
    return {via[at : at + FORWARDER_ID] for at in range(0, len(via), FORWARDER_ID)}


def has_passed(via: bytes, own: bytes) -> bool:
    """Return whether a forwarder, or the maximum number of forwarders, has passed a message on.

    Args:
        via: concatenated ids of the forwarders that have passed the message on.
        own: id of the forwarder.
    """
    return len(via) >= FORWARDER_ID * MAX_FORWARDERS or own in forwarder_ids(via)


def source_of(
    forwarded: Forwarded | None,
    origin: bytes | None,
    position: int | None,
    reply_to: str | None = None,
) -> Forwarded:
    """Return the source of a message: its first publisher, its position there, and the forwarders that passed it on.

    Args:
        forwarded: source that another forwarder has put into the message; None if no forwarder has passed it on.
        origin: id of the node that published the message.
        position: position of the message at that node.
        reply_to: inbox for the replies to a request. The number in the inbox replaces the position, because all copies
            of a request have the same number, but different positions.
    """
    if forwarded is not None:
        return forwarded
    node, position = origin or b"", position or 0
    number = reply_to.rpartition(".")[2] if reply_to is not None and inbox_node(reply_to) == node else ""
    if number.isdecimal() and len(number) < _MAX_DIGITS:
        position = REQUEST_POSITION + int(number)
    return Forwarded(node, position, b"")


def source_of_message(message: Message) -> Forwarded:
    """Return the source of a message; see `source_of`."""
    forwarded = message._extras.forwarded if message._extras is not None else None
    return source_of(forwarded, message.origin, message.position, message.reply_to)


def extras_of(
    extras: Extras | None,
    source: Forwarded,
    own: bytes,
    *,
    is_redelivered: bool = False,
    is_request: bool = False,
) -> dict[str, Any]:
    """Return the extras with which a forwarder publishes a message.

    Args:
        extras: extras of the message that arrived.
        source: source of the message.
        own: id of the forwarder.
        is_redelivered: whether another member of the group may have received the message.
        is_request: whether the message is a request. The extras of a request have no `reply_to`, because the forwarder
            adds its own.
    """
    if extras is not None and is_request:
        extras = extras._replace(reply_to=None, to_all=None)
    found = {} if extras is None else encode_extras(extras)
    found[FORWARDED] = source.origin, source.position, source.via + own
    if is_redelivered:
        found[REDELIVERED] = True
    return found


def by_rank(streams: Sequence[Any], subject: bytes, source: Forwarded) -> list[Any]:
    """Return the members of a group that may receive a message. The preferred member is first.

    Parallel forwarders prefer the same member. All members have the same policy.

    Args:
        streams: streams of the members, in the order in which the members joined.
        subject: subject of the message.
        source: source of the message.
    """
    policy = streams[0].options.policy if streams else ""
    if policy == "failover":
        return list(streams)
    # A message does not carry the `key=` of `publish`. Therefore the subject is the key of sticky groups.
    key = subject if policy == "sticky" else source.origin + source.position.to_bytes(8, "big")
    found = sorted(streams, key=lambda item: rank(key, item.session.member), reverse=True)
    return found[:1] if policy == "sticky" else found
