"""Statistics of a node at one time, and their encoding as MessagePack.

A snapshot has counters since the start of the node, and current values. A reader computes rates from two snapshots. The
encoding is an array whose first element is the version. Later versions may append elements, which an older reader
ignores.

Each link is encoded separately, as bytes that contain MessagePack. Most links of a bus are idle, and an idle link has
the same bytes in each snapshot. The reader caches the status of a link by these bytes.

The size of a snapshot is limited. It contains the links and subscriptions with the most pending messages. `omitted` is
the number of links and subscriptions that it does not contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple

import msgpack

VERSION = 1
MAX_LINKS = 1_000
"""Maximum number of links in a snapshot, and maximum number of subscriptions."""
MAX_PATTERNS = 1_000
"""Maximum number of patterns in a snapshot. The first pattern of each subscription is always included."""
MAX_TEXT = 200
"""Maximum length of a pattern in characters."""
CACHED_LINKS = 10_000
"""Maximum number of links whose status is cached. This number suffices for 100 nodes with 100 links each."""
CACHED_BYTES = 256
"""A link whose encoding has more bytes is not cached, because large entries could fill the memory."""


class LinkStatus(NamedTuple):
    """Link of one subscriber at its publisher.

    Attributes:
        peer: name of the node that subscribes; empty if the name is unknown, or if the subscriber is not a node.
        member: id of the subscriber, 32 hexadecimal digits.
        state: "up", or "down" without a connection.
        patterns: number of patterns that the publisher has applied.
        pending: messages that the subscriber has not acknowledged.
        pending_bytes: size in bytes of the pending messages.
        oldest: age of the oldest pending message in seconds; None without pending messages.
        dropped: messages dropped for this subscriber, by reason; see `PublisherStats.dropped`.
        groups: dict from the name of a queue group to the number of messages that this member has not received. With
            `ack="handled"`, it is the number of messages that the member has not handled.
    """

    peer: str
    member: str
    state: str
    patterns: int
    pending: int
    pending_bytes: int
    oldest: float | None
    dropped: Mapping[str, int]
    groups: Mapping[str, int]


class HandlerTimes(NamedTuple):
    """Times of one handler. They are measured only while snapshots are requested.

    Attributes:
        calls: number of calls that have ended.
        seconds: total seconds of these calls.
        longest: seconds of the longest of these calls.
        running: seconds since the start of the oldest call that has not ended; None without such a call.
    """

    calls: int
    seconds: float
    longest: float
    running: float | None


class SubscriptionStatus(NamedTuple):
    """Subscription of a node.

    Attributes:
        patterns: texts of the patterns; see `MAX_PATTERNS`.
        group: name of the queue group, or None.
        ack: "received" or "handled".
        pending: messages that have arrived and wait for the program.
        oldest: seconds since the arrival of the oldest pending message; None without pending messages.
        dropped: messages that a publisher or the queue of the subscription dropped.
        handler: times of the handler; None without a handler.
    """

    patterns: tuple[str, ...]
    group: str | None
    ack: str
    pending: int
    oldest: float | None
    dropped: int
    handler: HandlerTimes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Statistics of a node at one time.

    Attributes:
        name, id, bus, host, pid: identity of the node, as in `Peer`.
        kind: "node", "forwarder" or "nameserver".
        time: time of the snapshot in seconds since 1970, by the clock of the node's host.
        uptime: seconds since the node was created.
        memory: resident memory of the node's process in bytes; None if the system does not report it.
        descriptors: number of open file descriptors in the node's process; None if the system does not report it.
        counters: the integers of `NodeStats`, by name.
        dropped: messages that the node dropped for its subscribers, by reason; see `NodeStats.dropped`.
        lost: messages that did not reach the node, by the reason of their `Gap`.
        unknown_losses: gaps with an unknown number of messages, by reason.
        links: links of the subscribers at this node.
        subscriptions: subscriptions of this node.
        omitted: number of links and subscriptions that this snapshot does not contain.
    """

    name: str
    id: str
    bus: str
    host: str
    pid: int
    kind: str
    time: float
    uptime: float
    memory: int | None
    descriptors: int | None
    counters: Mapping[str, int]
    dropped: Mapping[str, int]
    lost: Mapping[str, int]
    unknown_losses: Mapping[str, int]
    links: tuple[LinkStatus, ...]
    subscriptions: tuple[SubscriptionStatus, ...]
    omitted: int

    @property
    def pending(self) -> int:
        """Messages that have arrived at this node and wait for its program."""
        return sum(subscription.pending for subscription in self.subscriptions)

    @property
    def oldest(self) -> float | None:
        """Age in seconds of the oldest message that waits for the program; None without such a message."""
        return max(
            (subscription.oldest for subscription in self.subscriptions if subscription.oldest is not None),
            default=None,
        )


def bounded_links(links: Iterable[LinkStatus]) -> tuple[LinkStatus, ...]:
    """Return the links that fit into a snapshot. The link with the most pending messages is first."""
    return tuple(sorted(links, key=_pending_first)[:MAX_LINKS])


def bounded_subscriptions(subscriptions: Iterable[SubscriptionStatus]) -> tuple[SubscriptionStatus, ...]:
    """Return the subscriptions that fit into a snapshot. The subscription with the most pending messages is first."""
    kept, left = [], MAX_PATTERNS
    for subscription in sorted(subscriptions, key=_pending_first)[:MAX_LINKS]:
        texts = tuple(text[:MAX_TEXT] for text in subscription.patterns[: max(left, 1)])
        left -= len(texts)
        kept.append(subscription._replace(patterns=texts))
    return tuple(kept)


def _pending_first(status: LinkStatus | SubscriptionStatus) -> int:
    return -status.pending


def _rows(*types: tuple[type, ...] | type) -> frozenset[tuple[type, ...]]:
    """Return all allowed rows of element types. Each argument has the allowed types of one element."""
    return frozenset(product(*(allowed if isinstance(allowed, tuple) else (allowed,) for allowed in types)))


_new = tuple.__new__
_FIELDS = tuple(field.name for field in fields(Snapshot))
_SECONDS, _NUMBER = (float, NoneType), (int, NoneType)
_TYPES = _rows(
    int, str, str, str, str, int, str, float, float, _NUMBER, _NUMBER, dict, dict, dict, dict, list, list, int
)  # fmt: skip
_LINK_TYPES = _rows(str, str, str, int, int, int, _SECONDS, dict, dict)
_SUBSCRIPTION_TYPES = _rows(list, (str, NoneType), str, int, _SECONDS, int, (list, NoneType))
_TIMES_TYPES = _rows(int, float, float, _SECONDS)


def encode(snapshot: Snapshot) -> bytes:
    """Return a snapshot as MessagePack."""
    pack = msgpack.Packer(unicode_errors="surrogateescape").pack
    values = {name: getattr(snapshot, name) for name in _FIELDS} | {"links": list(map(pack, snapshot.links))}
    packed: bytes = pack([VERSION, *values.values()])
    return packed


def decode(payload: Any) -> Snapshot | None:
    """Return a snapshot from untrusted MessagePack; None if it is malformed."""
    try:
        found = _unpack(payload)
        version, *known = _checked(found, _TYPES, 1 + len(_FIELDS))
        if version < VERSION:
            return None
        values: dict[str, Any] = dict(zip(_FIELDS, known, strict=True))
        for name in ("counters", "dropped", "lost", "unknown_losses"):
            _check_counts(values[name])
        links = values["links"][:MAX_LINKS]
        is_short = max(map(len, links), default=0) <= CACHED_BYTES
        values["links"] = tuple(map(_copy_cached if is_short else _decode_link, links))
        values["subscriptions"] = tuple(map(_decode_subscription, values["subscriptions"][:MAX_LINKS]))
        return Snapshot(**values)
    except Exception:
        # MessagePack raises exceptions of several classes.
        return None


def _unpack(packed: bytes) -> Any:
    return msgpack.unpackb(packed, unicode_errors="surrogateescape", strict_map_key=False)


def _decode_link(packed: bytes) -> LinkStatus:
    known = _checked(_unpack(packed), _LINK_TYPES, 9)
    for counts in known[7:]:
        if counts:
            _check_counts(counts)
    return LinkStatus(*known)


_cached_link = lru_cache(maxsize=CACHED_LINKS)(_decode_link)


def _copy_cached(packed: bytes) -> LinkStatus:
    """Return the cached status of a link. Its dicts are copies, because the program may change them."""
    link = _cached_link(packed)
    # `_replace` takes several times as long.
    return _new(LinkStatus, (*link[:7], {**link[7]}, {**link[8]}))


def _decode_subscription(row: Any) -> SubscriptionStatus:
    patterns, group, ack, pending, oldest, dropped, times = _checked(row, _SUBSCRIPTION_TYPES, 7)
    if not all(type(text) is str for text in patterns):
        raise ValueError("a pattern is no text")
    handler = None if times is None else HandlerTimes(*_checked(times, _TIMES_TYPES, 4))
    return SubscriptionStatus(tuple(patterns), group, ack, pending, oldest, dropped, handler)


def _checked(row: Any, types: frozenset[tuple[type, ...]], count: int) -> list[Any]:
    """Return the first `count` elements of an array.

    Raises:
        ValueError: an element has a wrong type, or is a number that is not finite.
    """
    known: list[Any] = row[:count]
    if tuple(map(type, known)) not in types:
        raise ValueError("an element has a wrong type")
    if not all(isfinite(value) for value in known if type(value) is float):
        raise ValueError("a number of seconds is not finite")
    return known


def _check_counts(counts: Any) -> None:
    if type(counts) is not dict:
        raise ValueError("counters are no map")
    if not ({*map(type, counts)} <= {str} and {*map(type, counts.values())} <= {int}):
        raise ValueError("a counter is no integer")
