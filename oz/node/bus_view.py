"""Tables of the nodes, subscribers, groups and losses of a bus, computed from the snapshots of its nodes.

A row is a dict from column names to values. `oz top --json` prints these rows. A rate is the difference between the
values in two samples, divided by the seconds between the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oz.node.snapshot import LinkStatus, Snapshot

SLOW_SECONDS = 1.0
"""A subscriber counts as slow when its oldest pending message is at least this number of seconds old."""

MAX_SUBJECTS = 100_000
"""Maximum number of subjects that are counted separately. Without a limit, many subjects would fill the memory."""

Row = dict[str, Any]


class Sample(NamedTuple):
    """Snapshots of all nodes from one call of `take_sample`.

    Attributes:
        at: time of the sample in seconds, by a monotonic clock.
        snapshots: snapshots of the nodes that answered.
        unanswered: name of each node that did not answer, or its endpoint if the name is unknown.
    """

    at: float
    snapshots: Sequence[Snapshot]
    unanswered: Sequence[str] = ()


class _Subscriber:
    """One subscriber: the snapshot of its node, and its links to all publishers."""

    def __init__(self) -> None:
        self.name = ""
        self.links: list[LinkStatus] = []
        self.snapshot: Snapshot | None = None

    @property
    def dropped(self) -> int:
        """Messages that publishers or the node dropped."""
        own = 0 if self.snapshot is None else self.snapshot.counters.get("overflowed", 0)
        return own + sum(sum(link.dropped.values()) for link in self.links)

    @property
    def pending(self) -> int:
        """Messages that wait at publishers, and in the queues of the node."""
        return sum(link.pending for link in self.links) + (
            0 if self.snapshot is None else self.snapshot.pending
        )


def tables(now: Sample, before: Sample | None, own: str) -> dict[str, list[Row]]:
    """Return the rows of each table. The most important row is first.

    Args:
        now: newest sample.
        before: older sample, from which rates are computed. If it is None, all rates are 0.
        own: id of the node that takes the samples. The table of subscribers leaves out its links.
    """
    seconds = max(now.at - before.at, 1e-9) if before is not None else 0.0
    past = {snapshot.id: snapshot for snapshot in before.snapshots} if before is not None else {}
    subscribers = _subscribers(now, own)
    past_drops = (
        {key: subscriber.dropped for key, subscriber in _subscribers(before, own).items()}
        if before is not None
        else {}
    )

    def rate(value: int, old: int | None) -> float:
        return 0.0 if old is None or not seconds else round(max(0, value - old) / seconds, 3)

    return {
        "nodes": sorted(
            (_node(snapshot, past.get(snapshot.id), rate) for snapshot in now.snapshots),
            key=lambda row: -row["in"],
        ),
        "subscribers": sorted(
            (
                _subscriber(key, subscriber, past_drops.get(key), rate)
                for key, subscriber in subscribers.items()
            ),
            key=lambda row: (not row["slow"], -row["pending"]),
        ),
        "groups": sorted(_groups(now), key=lambda row: -row["pending"]),
        "losses": sorted(_losses(now, past, rate), key=lambda row: (-row["rate"], -row["count"])),
    }


def _subscribers(sample: Sample, own: str) -> dict[str, _Subscriber]:
    found: dict[str, _Subscriber] = {}
    for snapshot in sample.snapshots:
        if snapshot.subscriptions:
            subscriber = found.setdefault(snapshot.id, _Subscriber())
            subscriber.name, subscriber.snapshot = snapshot.name, snapshot
        for link in snapshot.links:
            if link.member != own and (link.patterns or link.pending):
                subscriber = found.setdefault(link.member, _Subscriber())
                subscriber.name = subscriber.name or link.peer
                subscriber.links.append(link)
    return found


def _node(snapshot: Snapshot, old: Snapshot | None, rate: Any) -> Row:
    def of(name: str) -> float:
        found: float = rate(
            snapshot.counters.get(name, 0), None if old is None else old.counters.get(name, 0)
        )
        return found

    return {
        "node": snapshot.name,
        "id": snapshot.id,
        "kind": snapshot.kind,
        "host": snapshot.host,
        "pid": snapshot.pid,
        "in": of("received"),
        "out": of("published"),
        "peers": snapshot.counters.get("peers", 0),
        "memory": snapshot.memory,
        "descriptors": snapshot.descriptors,
        "uptime": round(snapshot.uptime, 3),
    }


def _subscriber(key: str, subscriber: _Subscriber, old_drops: int | None, rate: Any) -> Row:
    snapshot = subscriber.snapshot
    ages = [link.oldest for link in subscriber.links if link.oldest is not None]
    if snapshot is not None and snapshot.oldest is not None:
        ages.append(snapshot.oldest)
    oldest = max(ages, default=None)
    subscriptions = () if snapshot is None else snapshot.subscriptions
    running = [
        sub.handler.running for sub in subscriptions if sub.handler is not None and sub.handler.running
    ]
    dropping = rate(subscriber.dropped, old_drops)
    return {
        "node": subscriber.name or key,
        "id": key,
        "slow": dropping > 0 or (oldest or 0.0) >= SLOW_SECONDS,
        "pending": subscriber.pending,
        "pending_bytes": sum(link.pending_bytes for link in subscriber.links),
        "oldest": None if oldest is None else round(oldest, 3),
        "dropped": subscriber.dropped,
        "dropped_rate": dropping,
        "handler_running": round(max(running), 3) if running else None,
        "state": "down" if any(link.state != "up" for link in subscriber.links) else "up",
        "patterns": [text for sub in subscriptions for text in sub.patterns],
    }


def _groups(sample: Sample) -> Iterable[Row]:
    members: dict[str, set[str]] = {}
    pending: dict[str, int] = {}
    for snapshot in sample.snapshots:
        for link in snapshot.links:
            for name, count in link.groups.items():
                members.setdefault(name, set()).add(link.member)
                pending[name] = pending.get(name, 0) + count
        for subscription in snapshot.subscriptions:
            if subscription.group is not None:
                members.setdefault(subscription.group, set()).add(snapshot.id)
                # With `ack="handled"`, the publisher counts these messages already.
                own = subscription.pending if subscription.ack == "received" else 0
                pending[subscription.group] = pending.get(subscription.group, 0) + own
    return ({"group": name, "members": len(members[name]), "pending": pending[name]} for name in members)


def _losses(sample: Sample, past: Mapping[str, Snapshot], rate: Any) -> Iterable[Row]:
    for snapshot in sample.snapshots:
        old = past.get(snapshot.id)
        for kind in ("lost", "unknown_losses", "dropped"):
            counts: Mapping[str, int] = getattr(snapshot, kind)
            for reason, count in counts.items():
                if count:
                    before = None if old is None else getattr(old, kind).get(reason, 0)
                    yield {
                        "node": snapshot.name,
                        "id": snapshot.id,
                        "kind": kind.replace("_", " "),
                        "reason": reason,
                        "count": count,
                        "rate": rate(count, before),
                    }
