"""Rules of forwarders between buses: the subscriptions of a forwarder, and the recipients of a message.

Theory of operation
-------------------
A forwarder has a node on each bus, its *leg*. The patterns of the sessions at the publisher of a leg are the interest
of that bus. The forwarder subscribes to them on the other buses, and publishes the messages that arrive.

Forwarders are *parallel* between two buses if each has a leg on both. Parallel forwarders do not serve each other:
the patterns of a forwarder do not count for a bus on which it has a leg itself.

=================== ==========================================================================================
message             rule for parallel forwarders
=================== ==========================================================================================
plain               all of them pass it. Subscribers drop the repeat, because origin and position are the same
group               all of them are members of the group. A forwarder *stands by* while a parallel forwarder with a
                    smaller id is up and does not stand by. Publishers pick a forwarder that stands by only if no
                    other member matches. So one forwarder passes the messages in order. It acknowledges a message
                    when the member on the other bus has acknowledged it. After the death of this forwarder another
                    one receives the message again, and picks the same member by rank, which drops a repeat. If the
                    last member on the other bus ends, the subscription of the forwarder ends, and the publisher
                    gives its messages to other members
request             as for a message. All copies of a request have the same position (`source_of`)
=================== ==========================================================================================

Before a forwarder ends, it stands by. Then a parallel forwarder takes over, and the first forwarder ends when its
messages are acknowledged. If two parallel forwarders cannot reach each other, neither stands by. Each
message of a group still passes one of them, but one subject may be out of order.

A message carries the ids of the forwarders that it has passed. A forwarder drops a message with its own id, because it
has passed the message before. It does not pass a message to a bus on which the origin of the message is a peer, because
that bus has the message already.
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
"""Position that stands for request 0 of a node. The positions of other messages are smaller."""
_MAX_DIGITS = 19  # Shorter numbers are below `REQUEST_POSITION`, so that positions fit into 63 bits.


class Interest(NamedTuple):
    """Subscription of a bus.

    Attributes:
        pattern: pattern of the subscription.
        group: name of its queue group; None for a plain subscription.
        policy: policy of the group.
    """

    pattern: Pattern
    group: str | None = None
    policy: str = "round_robin"


class Source(NamedTuple):
    """Interest of one session at a leg.

    Attributes:
        forwarder: id of the forwarder to which the session belongs, or None.
        interests: subscriptions of the session.
        is_standby: whether this forwarder stands by.
    """

    forwarder: bytes | None
    interests: frozenset[Interest]
    is_standby: bool = False


class Side:
    """State of one leg, as the rules of forwarders need it.

    Attributes:
        allowed: patterns of the messages that may enter the bus. Without patterns, all messages may enter.
        sources: interest of each session.
        forwarders: ids of the other forwarders on the bus, including forwarders that this leg cannot reach.
        active: ids of the forwarders that are up and do not stand by.
        standby: ids of the forwarders that are up and stand by.
    """

    def __init__(self, allowed: Iterable[Pattern] = ()) -> None:
        """Start without sessions.

        Args:
            allowed: patterns of the messages that may enter the bus.
        """
        self.allowed = tuple(allowed)
        self.sources: dict[Any, Source] = {}
        self.forwarders: frozenset[bytes] = frozenset()
        self.active: frozenset[bytes] = frozenset()
        self.standby: frozenset[bytes] = frozenset()
        self._index: PatternIndex[None] = PatternIndex()
        for pattern in self.allowed:
            self._index.add(pattern, None)

    def may_enter(self, subject: bytes) -> bool:
        """Return whether a message may enter the bus."""
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
    """Return whether parallel forwarders exist, and all of them stand by."""
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
    """Return the patterns by which a forwarder receives the allowed subjects of a pattern.

    They are `pattern` itself or patterns of `allowed`, and may match a few other subjects.

    Args:
        pattern: pattern of a subscription.
        allowed: patterns of the messages that may enter the bus of the subscription.
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
    """Return whether a pattern matches a subject. A pattern that exceeds its time does not match."""
    for pattern in patterns:
        with suppress(OzError):
            if pattern.matches(subject):
                return True
    return False


def forwarder_ids(via: bytes) -> set[bytes]:
    """Return the ids of the forwarders that a message has passed."""
    return {via[at : at + FORWARDER_ID] for at in range(0, len(via), FORWARDER_ID)}


def has_passed(via: bytes, own: bytes) -> bool:
    """Return whether a message has passed a forwarder with this id, or has passed the maximum number of forwarders."""
    return len(via) >= FORWARDER_ID * MAX_FORWARDERS or own in forwarder_ids(via)


def source_of(
    forwarded: Forwarded | None,
    origin: bytes | None,
    position: int | None,
    reply_to: str | None = None,
) -> Forwarded:
    """Return the source of a message.

    Args:
        forwarded: source that another forwarder has put into the message, or None.
        origin: id of the node that published the message.
        position: position of the message at that node.
        reply_to: inbox for the replies to a request. Its number replaces the position, because the copies of a request
            have different positions and one number.
    """
    if forwarded is not None:
        return forwarded
    node, position = origin or b"", position or 0
    number = reply_to.rpartition(".")[2] if reply_to is not None and inbox_node(reply_to) == node else ""
    if number.isdecimal() and len(number) < _MAX_DIGITS:
        position = REQUEST_POSITION + int(number)
    return Forwarded(node, position, b"")


def source_of_message(message: Message) -> Forwarded:
    """Return the source of a message."""
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
        is_request: whether the message is a request that the forwarder sends with its own `reply_to`.
    """
    if extras is not None and is_request:
        extras = extras._replace(reply_to=None, to_all=None)
    found = {} if extras is None else encode_extras(extras)
    found[FORWARDED] = source.origin, source.position, source.via + own
    if is_redelivered:
        found[REDELIVERED] = True
    return found


def by_rank(streams: Sequence[Any], subject: bytes, source: Forwarded) -> list[Any]:
    """Return the members of a group that may receive a message, the preferred member first.

    Parallel forwarders prefer the same member, as long as this member is up. All members have the same policy.

    Args:
        streams: streams of the members, in the order in which their sessions joined.
        subject: subject of the message.
        source: source of the message.
    """
    policy = streams[0].options.policy if streams else ""
    if policy == "failover":
        return list(streams)
    # Publishers do not send the `key=` of a message. Therefore the subject is the key here.
    key = subject if policy == "sticky" else source.origin + source.position.to_bytes(8, "big")
    found = sorted(streams, key=lambda item: rank(key, item.session.member), reverse=True)
    return found[:1] if policy == "sticky" else found
