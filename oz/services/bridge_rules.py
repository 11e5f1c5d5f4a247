"""Rules of forwarders between buses: which patterns a forwarder subscribes to, and where a message goes.

Theory of operation
-------------------
A forwarder has a node on each bus, its *leg*. The patterns of the sessions at the publisher of a leg are the interest
of that bus. The forwarder subscribes to them on the other buses, and publishes the messages that arrive.

Forwarders are *parallel* between two buses if each has a leg on both. Parallel forwarders do not serve each other:
the patterns of a forwarder do not count for a bus on which it has a leg itself.

=================== ==========================================================================================
message             parallel forwarders
=================== ==========================================================================================
plain               all pass it. Subscribers drop the repeat: origin and position are the same
group               the forwarder with the smallest id subscribes. It acknowledges a message when the member on the
                    other bus has done so. After its death the next forwarder receives the message again, and
                    picks the same member by rank, which drops a repeat. A forwarder with a smaller id that
                    starts takes the group over: the former one goes on until the new one has subscribed
request             the forwarder that received it, because a request goes to one peer
request to all      the forwarder with the smallest id
=================== ==========================================================================================

A message carries the ids of the forwarders that it has passed. A forwarder drops a message with its own id, and a
message whose origin is a peer on the other bus: that bus has it already.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from oz.errors import Undecidable
from oz.message import Extras, Forwarded
from oz.publisher.groups import rank
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire.extras import FORWARDED, FORWARDER_ID, MAX_FORWARDERS, encode_extras

_RESERVED = (b"_LOCAL.", b"_INBOX.", b"_OZ.")
"""Subjects that stay on their bus."""


class Interest(NamedTuple):
    """Subscription of a bus.

    Attributes:
        pattern: of the subscription.
        group: name of its queue group; None for a plain subscription.
        policy: of the group.
    """

    pattern: Pattern
    group: str | None = None
    policy: str = "round_robin"


class Source(NamedTuple):
    """Interest of one session at a leg.

    Attributes:
        forwarder: id of the forwarder whose session it is, or None.
        interests: of the session.
    """

    forwarder: bytes | None
    interests: frozenset[Interest]


class Side:
    """State of one leg that the rules read.

    Attributes:
        allowed: patterns of the messages that may enter the bus; all without a pattern.
        sources: interest of each session.
        forwarders: ids of the other forwarders that are up on the bus.
    """

    def __init__(self, allowed: Iterable[Pattern] = ()) -> None:
        """Start without sessions.

        Args:
            allowed: patterns of the messages that may enter the bus.
        """
        self.allowed = tuple(allowed)
        self.sources: dict[Hashable, Source] = {}
        self.forwarders: frozenset[bytes] = frozenset()
        self._index: PatternIndex[None] = PatternIndex()
        for one in self.allowed:
            self._index.add(one, None)

    def may_enter(self, subject: bytes) -> bool:
        """Return whether a message may enter the bus."""
        if subject.startswith(_RESERVED):
            return False
        return not self.allowed or bool(self._index.find(subject).values)


def leads(own: bytes, one: Side, other: Side) -> bool:
    """Return whether a forwarder has the smallest id of the parallel forwarders between two buses."""
    return all(own < parallel for parallel in one.forwarders & other.forwarders)


def is_taken_over(own: bytes, side: Side, interest: Interest) -> bool:
    """Return whether a forwarder with a smaller id serves a group on a bus.

    Args:
        own: id of this forwarder.
        side: its leg on that bus.
        interest: of the group.
    """
    return any(
        source.forwarder in side.forwarders and source.forwarder < own and interest in source.interests
        for source in side.sources.values()
        if source.forwarder is not None
    )


def wanted(
    own: bytes, sides: Sequence[Side], at: int, kept: Collection[Interest] = frozenset()
) -> set[Interest]:
    """Return what a forwarder subscribes to on one bus.

    Args:
        own: id of the forwarder.
        sides: its legs.
        at: index of the leg on that bus.
        kept: groups that it serves until the forwarder with the smallest id serves them.
    """
    here = sides[at]
    found: set[Interest] = set()
    for side in sides:
        if side is here:
            continue
        is_leader = leads(own, here, side)
        for source in side.sources.values():
            if source.forwarder is not None and source.forwarder in here.forwarders:
                continue
            for interest in source.interests:
                narrowed = {interest._replace(pattern=one) for one in narrow(interest.pattern, side.allowed)}
                found |= narrowed if interest.group is None or is_leader else narrowed.intersection(kept)
    return found


@lru_cache(maxsize=65_536)
def narrow(pattern: Pattern, allowed: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Return existing patterns that match each allowed subject of a pattern, and few others.

    Args:
        pattern: of a subscription.
        allowed: patterns of the messages that may enter the bus of the subscription.
    """
    if all(prefix.startswith(_RESERVED) for prefix in pattern.prefixes):
        return ()
    if not allowed:
        return (pattern,)
    found: dict[Pattern, None] = {}
    for one in allowed:
        try:
            if one.covers(pattern):
                return (pattern,)
            if pattern.covers(one):
                found[one] = None
            elif pattern.overlaps(one):
                found[pattern] = None
        except Undecidable:
            found[pattern] = None
    return (pattern,) if pattern in found else tuple(found)


def forwarder_ids(via: bytes) -> set[bytes]:
    """Return the ids of the forwarders that a message has passed."""
    return {via[at : at + FORWARDER_ID] for at in range(0, len(via), FORWARDER_ID)}


def has_passed(via: bytes, own: bytes) -> bool:
    """Return whether a message has passed a forwarder, or the largest number of forwarders."""
    return len(via) >= FORWARDER_ID * MAX_FORWARDERS or own in forwarder_ids(via)


def extras_of(extras: Extras | None, source: Forwarded, own: bytes, *, is_request: bool) -> dict[str, Any]:
    """Return the extras with which a forwarder publishes a message.

    Args:
        extras: of the message.
        source: of the message.
        own: id of the forwarder.
        is_request: whether the forwarder asks in its own name, so that `reply_to` is its own.
    """
    if extras is not None and is_request:
        extras = extras._replace(reply_to=None, to_all=None)
    found = {} if extras is None else encode_extras(extras)
    found[FORWARDED] = source.origin, source.position, source.via + own
    return found


def by_rank(streams: Iterable[Any], source: Forwarded) -> list[Any]:
    """Return members of a group, the member for a message first.

    Parallel forwarders pick the same member, as long as the member is up.

    Args:
        streams: of sessions.
        source: of the message.
    """
    key = source.origin + source.position.to_bytes(8, "big")
    return sorted(streams, key=lambda one: rank(key, one.session.member), reverse=True)


def is_for(forwarder: bytes | None, excluded: Collection[bytes]) -> bool:
    """Return whether a session receives a message.

    Args:
        forwarder: id of the forwarder whose session it is, or None.
        excluded: forwarders that have the message, or receive it on its bus.
    """
    return forwarder is None or forwarder not in excluded
