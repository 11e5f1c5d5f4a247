"""Statistics of a node at one time, and their encoding as MessagePack.

A snapshot has counters since the start of the node, and current values. The reader of two snapshots computes rates. The
encoding is an array with a version. A later version only appends elements, so that a reader ignores elements that it
does not know.

A reader that names the version of its newest snapshot of a node receives only the parts that have changed since,
because most links of a bus are idle most of the time.

The size is bounded: the links with the most pending messages come first, and `omitted` counts the links and
subscriptions that are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple

import msgpack

VERSION = 1
MAX_LINKS = 1_000
"""Maximum number of links in a snapshot, and of subscriptions."""
MAX_PATTERNS = 1_000
"""Maximum number of patterns in a snapshot. Each subscription has its first pattern anyway."""
MAX_TEXT = 200
"""Maximum length of a pattern in characters."""


class LinkStatus(NamedTuple):
    """Link of one subscriber at its publisher.

    Attributes:
        peer: name of the node that subscribes; empty for another subscriber.
        member: id of the subscriber, 32 hexadecimal digits.
        state: "up", or "down" without a connection.
        patterns: number of patterns that the publisher has applied.
        pending: messages that the subscriber has not acknowledged.
        pending_bytes: bytes of them.
        oldest: age of the oldest of these messages in seconds; None without messages.
        dropped: messages dropped for this subscriber, by reason; see `PublisherStats.dropped`.
        groups: for each queue group, its messages that this member has not received, or not handled with
            `ack="handled"`.
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
    """Times of one handler, measured while statistics are requested.

    Attributes:
        calls: that have ended.
        seconds: of all these calls together.
        longest: seconds of the longest of these calls.
        running: seconds since the start of the oldest call that has not ended; None without one.
    """

    calls: int
    seconds: float
    longest: float
    running: float | None


class SubscriptionStatus(NamedTuple):
    """Subscription of a node.

    Attributes:
        patterns: the first ones.
        group: queue group, or None.
        ack: "received" or "handled".
        pending: messages that have arrived and wait for the program.
        oldest: seconds since the oldest of these messages was published; None without messages.
        dropped: messages that a publisher or the queue of the subscription dropped.
        handler: its times; None without a handler.
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
        name, id, bus, host, pid: of the node, as in `Peer`.
        kind: "node", "forwarder" or "nameserver".
        time: in seconds since 1970, by the clock of its host.
        uptime: seconds since the node was created.
        memory: resident bytes of its process; None if the system does not report it.
        descriptors: open file descriptors of its process; None if the system does not report them.
        counters: the integers of `NodeStats`, by name.
        dropped: messages that the node dropped for its subscribers, by reason; see `NodeStats.dropped`.
        lost: messages that did not reach the node, by the reason of their `Gap`.
        unknown_losses: gaps with an unknown number of messages, by reason.
        links: subscribers of the node.
        subscriptions: of the node.
        omitted: links and subscriptions that are left out.
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
        """Age of the oldest of these messages in seconds; None without messages."""
        return max(
            (subscription.oldest for subscription in self.subscriptions if subscription.oldest is not None),
            default=None,
        )


def bounded_links(links: Iterable[LinkStatus]) -> tuple[LinkStatus, ...]:
    """Return the links that fit into a snapshot, the most pending messages first."""
    return tuple(sorted(links, key=_pending_first)[:MAX_LINKS])


def bounded_subscriptions(subscriptions: Iterable[SubscriptionStatus]) -> tuple[SubscriptionStatus, ...]:
    """Return the subscriptions that fit into a snapshot, the most pending messages first."""
    kept, left = [], MAX_PATTERNS
    for subscription in sorted(subscriptions, key=_pending_first)[:MAX_LINKS]:
        texts = tuple(text[:MAX_TEXT] for text in subscription.patterns[: max(left, 1)])
        left -= len(texts)
        kept.append(subscription._replace(patterns=texts))
    return tuple(kept)


def _pending_first(status: LinkStatus | SubscriptionStatus) -> int:
    return -status.pending


_HEAD = ("name", "id", "bus", "host", "pid", "kind")
_PARTS = ("memory", "descriptors", "counters", "dropped", "lost", "unknown_losses", "subscriptions")
_HEAD_PART = len(_PARTS)
_COMPLETE = 0  # `known` of a payload that needs no snapshot before it.


def _rows(*types: tuple[type, ...] | type) -> frozenset[tuple[type, ...]]:
    """Return the allowed types of the elements of an array, from the allowed types of each element."""
    return frozenset(product(*(allowed if isinstance(allowed, tuple) else (allowed,) for allowed in types)))


_SECONDS = (float, NoneType)
_TYPES = _rows(int, int, int, float, float, dict, bool, list, int)
_HEAD_TYPES = _rows(str, str, str, str, int, str)
_LINK_TYPES = _rows(str, str, str, int, int, int, _SECONDS, dict, dict)
_SUBSCRIPTION_TYPES = _rows(list, (str, NoneType), str, int, _SECONDS, int, (list, NoneType))
_TIMES_TYPES = _rows(int, float, float, _SECONDS)


class Received(NamedTuple):
    """Newest snapshot of a peer, to which the next payload is applied.

    Attributes:
        version: of the snapshot at the peer.
        snapshot: of the peer.
    """

    version: int
    snapshot: Snapshot


class Changes:
    """Versions of the parts of the snapshots of one node, so that a payload has only the parts that have changed.

    Attributes:
        version: of the newest snapshot.
    """

    def __init__(self, first: int) -> None:
        """Start without a snapshot.

        Args:
            first: version before the first snapshot, at least 1. A node that starts again with its old id begins at
                another version.
        """
        self.version = self._first = self._complete_from = first
        self._snapshot: Snapshot | None = None
        self._parts: list[tuple[Any, int]] = [(None, first)] * (len(_PARTS) + 1)
        self._links: dict[str, tuple[LinkStatus, int]] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Compare a snapshot with the one before it, and give changed parts its version."""
        self.version += 1
        before, self._snapshot = self._snapshot, snapshot
        values = [getattr(snapshot, name) for name in _PARTS]
        values.append([getattr(snapshot, name) for name in _HEAD])
        for index, value in enumerate(values):
            if before is None or self._parts[index][0] != value:
                self._parts[index] = value, self.version
        if before is None or snapshot.links is not before.links:
            self._record_links(snapshot.links)

    def _record_links(self, links: tuple[LinkStatus, ...]) -> None:
        old, new = self._links, {}
        for link in links:
            known = old.get(link.member)
            new[link.member] = known if known is not None and known[0] == link else (link, self.version)
        if old.keys() - new.keys() or len(new) != len(links):
            # Two links of one member cannot be told apart.
            self._complete_from = self.version
        self._links = new

    def encode(self, known: int = _COMPLETE) -> bytes:
        """Return the newest snapshot as MessagePack.

        Args:
            known: version that the reader has. The payload has the parts that have changed since.
        """
        snapshot = self._snapshot
        assert snapshot is not None
        if not self._first < known <= self.version:
            known = _COMPLETE
        parts = {index: value for index, (value, version) in enumerate(self._parts) if version > known}
        has_all_links = known < self._complete_from
        links: Iterable[LinkStatus] = snapshot.links
        if not has_all_links:
            links = [link for link, version in self._links.values() if version > known]
        packed: bytes = msgpack.packb(
            [VERSION, self.version, known, snapshot.time, snapshot.uptime, parts, has_all_links, links,
             snapshot.omitted],
            unicode_errors="surrogateescape",
        )  # fmt: skip
        return packed


def decode(payload: Any, before: Received | None = None) -> Received | None:
    """Return a snapshot from untrusted MessagePack; None if it is malformed.

    Args:
        payload: result of `Changes.encode`.
        before: newest snapshot of the peer that the reader has.
    """
    try:
        found = msgpack.unpackb(payload, unicode_errors="surrogateescape", strict_map_key=False)
        version, number, known, time, uptime, parts, has_all_links, links, omitted = _checked(
            found, _TYPES, 9
        )
        if version < VERSION:
            return None
        if known == _COMPLETE:
            values: dict[str, Any] = {"links": ()}
        elif before is not None and known <= before.version <= number:
            old = before.snapshot
            values = {name: getattr(old, name) for name in (*_HEAD, *_PARTS, "links")}
        else:
            return None
        for index, value in parts.items():
            _read_part(values, index, value)
        if links or has_all_links:
            values["links"] = _merged(() if has_all_links else values["links"], links)
        return Received(number, Snapshot(**values, time=time, uptime=uptime, omitted=omitted))
    except Exception:
        # MessagePack raises several classes.
        return None


def _read_part(values: dict[str, Any], index: Any, value: Any) -> None:
    """Read one part of a payload. A later version may have more parts.

    Raises:
        ValueError, TypeError: the part has a wrong type.
    """
    if type(index) is not int or not 0 <= index <= _HEAD_PART:
        return
    if index == _HEAD_PART:
        values.update(zip(_HEAD, _checked(value, _HEAD_TYPES, len(_HEAD)), strict=True))
        return
    name = _PARTS[index]
    if name == "subscriptions":
        value = tuple(map(_decode_subscription, value[:MAX_LINKS]))
    elif name in ("memory", "descriptors"):
        if type(value) not in (int, NoneType):
            raise ValueError("a number has a wrong type")
    else:
        _check_counts(value)
    values[name] = value


def _merged(old: tuple[LinkStatus, ...], rows: list[Any]) -> tuple[LinkStatus, ...]:
    """Return links with changed links in the place of older ones, the most pending messages first."""
    changed = [_decode_link(row) for row in rows[:MAX_LINKS]]
    if old:
        members = {link.member for link in changed}
        changed += [link for link in old if link.member not in members]
    changed.sort(key=_pending_first)
    return tuple(changed[:MAX_LINKS])


def _decode_link(row: Any) -> LinkStatus:
    known = _checked(row, _LINK_TYPES, 9)
    for counts in known[7:]:
        if counts:
            _check_counts(counts)
    return LinkStatus(*known)


def _decode_subscription(row: Any) -> SubscriptionStatus:
    patterns, group, ack, pending, oldest, dropped, times = _checked(row, _SUBSCRIPTION_TYPES, 7)
    if not all(type(text) is str for text in patterns):
        raise ValueError("a pattern is no text")
    handler = None if times is None else HandlerTimes(*_checked(times, _TIMES_TYPES, 4))
    return SubscriptionStatus(tuple(patterns), group, ack, pending, oldest, dropped, handler)


def _checked(row: Any, types: frozenset[tuple[type, ...]], count: int) -> list[Any]:
    """Return the first elements of an array.

    Raises:
        ValueError: one has a wrong type, or is not finite.
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
    for name, count in counts.items():
        if type(name) is not str or type(count) is not int:
            raise ValueError("a counter is no integer")
