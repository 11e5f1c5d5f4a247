"""Metrics for Prometheus, computed from snapshots, and the text format of these metrics.

The name of a metric ends with its unit, and the name of a counter ends with `_total`. The value of a label is the name
of a bus, node, peer or queue group, or a reason. Subjects and patterns are not used as labels, because Prometheus
stores a time series for each value of a label.

Source of the format: "Exposition formats" of Prometheus, text format 0.0.4.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from oz.node.snapshot import Snapshot, SubscriptionStatus

COUNTER, GAUGE = "counter", "gauge"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """Metric, with one time series for each combination of labels.

    Attributes:
        name: name of the metric.
        kind: type of the metric, `COUNTER` or `GAUGE`.
        help: one sentence that explains the metric.
        samples: dict from a combination of labels to its value.
    """

    name: str
    kind: str
    help: str
    samples: dict[Labels, float]


_OF_COUNTERS = {
    "published": ("oz_messages_published_total", "Messages that the node published."),
    "sent": ("oz_messages_sent_total", "Published messages for at least one subscriber."),
    "unmatched": ("oz_messages_unmatched_total", "Published messages without a subscriber."),
    "refused": ("oz_messages_refused_total", "Messages that publish refused with WouldBlock."),
    "given_up": (
        "oz_messages_given_up_total",
        "Messages that were lost because a link ended, counted for each link.",
    ),
    "redelivered": ("oz_messages_redelivered_total", "Messages that moved to another member of their group."),
    "received": ("oz_messages_received_total", "Messages that arrived, without repeats."),
    "delivered": ("oz_messages_delivered_total", "Messages that a queue or a handler received."),
    "malformed": ("oz_messages_malformed_total", "Messages and frames that do not decode."),
    "repeated": ("oz_messages_repeated_total", "Messages that arrived again."),
    "unwanted": ("oz_messages_unwanted_total", "Messages whose subscription has ended."),
    "overflowed": ("oz_messages_overflowed_total", "Messages that full queues of subscriptions dropped."),
    "denied": ("oz_denied_total", "Subscriptions and messages that permissions refused."),
    "rejected": ("oz_frames_rejected_total", "Frames of subscribers that the protocol does not allow."),
    "failed": ("oz_handler_failures_total", "Calls of handlers that raised an exception."),
    "late_replies": ("oz_replies_late_total", "Replies whose request had ended."),
    "lost_replies": ("oz_replies_lost_total", "Replies that could not be sent."),
}


def families(snapshots: Iterable[Snapshot]) -> list[Family]:
    """Return the metrics of nodes."""
    found = _Families()
    for snapshot in snapshots:
        _add_node(found, snapshot)
    return list(found.by_name.values())


class _Families:
    def __init__(self) -> None:
        self.by_name: dict[str, Family] = {}

    def add(
        self,
        kind: str,
        name: str,
        text: str,
        value: float | None,
        labels: Labels,
        combine: Callable[[float, float], float] = operator.add,
    ) -> None:
        """Add a value. Values with the same labels are combined, because Prometheus allows only one such value."""
        if value is None:
            return
        family = self.by_name.get(name)
        if family is None:
            family = self.by_name[name] = Family(name, kind, text, {})
        known = family.samples.get(labels)
        family.samples[labels] = value if known is None else combine(known, value)

    def add_each(
        self, name: str, text: str, label: str, values: Mapping[str, int], labels: Labels, kind: str = COUNTER
    ) -> None:
        """Add the values of a mapping. The keys of the mapping become the values of one label."""
        for key, value in values.items():
            self.add(kind, name, text, value, (*labels, (label, key)))


def _add_node(found: _Families, snapshot: Snapshot) -> None:
    node: Labels = (("bus", snapshot.bus), ("node", snapshot.name), ("id", snapshot.id[:8]))
    for field, (name, text) in _OF_COUNTERS.items():
        found.add(COUNTER, name, text, snapshot.counters.get(field), node)
    found.add_each("oz_messages_dropped_total", "Messages dropped for subscribers, by reason.", "reason",
                   snapshot.dropped, node)  # fmt: skip
    found.add_each("oz_messages_lost_total", "Messages that did not reach the node, by reason.", "reason",
                   snapshot.lost, node)  # fmt: skip
    found.add_each("oz_losses_unknown_total", "Gaps with an unknown number of messages, by reason.", "reason",
                   snapshot.unknown_losses, node)  # fmt: skip
    for name, text, value in (
        ("oz_peers", "Peers that are up.", snapshot.counters.get("peers")),
        ("oz_requests_waiting", "Requests that wait for a reply.", snapshot.counters.get("requests")),
        ("oz_uptime_seconds", "Seconds since the node was created.", snapshot.uptime),
        ("oz_process_resident_memory_bytes", "Resident memory of the process of the node.", snapshot.memory),
        ("oz_process_open_descriptors", "Open file descriptors of the process of the node.", snapshot.descriptors),
    ):  # fmt: skip
        found.add(GAUGE, name, text, value, node)
    _add_subscriptions(found, snapshot.subscriptions, node)
    for link in snapshot.links:
        labels = (*node, ("peer", link.peer), ("peer_id", link.member[:8]))
        # A member may have two sessions, because an older session waits for a reconnect. Their values are combined.
        for name, text, value, combine in (
            ("oz_link_up", "Whether a link of a subscriber has a connection.", link.state == "up", max),
            (
                "oz_link_pending_messages",
                "Messages that a subscriber has not received.",
                link.pending,
                operator.add,
            ),
            (
                "oz_link_pending_bytes",
                "Bytes of the messages that a subscriber has not received.",
                link.pending_bytes,
                operator.add,
            ),
            (
                "oz_link_oldest_seconds",
                "Age of the oldest message that a subscriber has not received.",
                link.oldest or 0.0,
                max,
            ),
        ):
            found.add(GAUGE, name, text, value, labels, combine)
        found.add(COUNTER, "oz_link_dropped_total", "Messages dropped for a subscriber.",
                  sum(link.dropped.values()), labels)  # fmt: skip
        found.add_each("oz_group_pending_messages", _GROUP_TEXT, "group", link.groups, node, GAUGE)


_GROUP_TEXT = "Messages of a queue group that its members have not handled."


def _add_subscriptions(found: _Families, subscriptions: Sequence[SubscriptionStatus], node: Labels) -> None:
    for subscription in subscriptions:
        found.add(GAUGE, "oz_subscription_pending_messages", "Messages that wait for the program.",
                  subscription.pending, node)  # fmt: skip
        if subscription.group is not None and subscription.ack == "received":
            # With `ack="handled"`, the publisher counts these messages already.
            found.add_each(
                "oz_group_pending_messages",
                _GROUP_TEXT,
                "group",
                {subscription.group: subscription.pending},
                node,
                GAUGE,
            )
    oldest = max((subscription.oldest or 0.0 for subscription in subscriptions), default=None)
    found.add(GAUGE, "oz_subscription_oldest_seconds", "Age of the oldest message that waits for the program.",
              oldest, node)  # fmt: skip
    times = [subscription.handler for subscription in subscriptions if subscription.handler is not None]
    if not times:
        return
    running = max(time.running or 0.0 for time in times)
    for kind, name, text, value in (
        (COUNTER, "calls_total", "Calls of handlers that were measured.", sum(time.calls for time in times)),
        (COUNTER, "seconds_total", "Seconds of all measured calls.", sum(time.seconds for time in times)),
        (GAUGE, "longest_seconds", "Seconds of the longest call.", max(time.longest for time in times)),
        (GAUGE, "running_seconds", "Seconds of the oldest call that has not ended.", running),
    ):
        found.add(kind, f"oz_handler_{name}", text, value, node)


def exposition(given: Iterable[Family]) -> str:
    """Return metrics in the text format of Prometheus."""
    lines = []
    for family in given:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples.items():
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(
                f"{family.name}{{{named}}} {_number(value)}" if named else f"{family.name} {_number(value)}"
            )
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return escaped.encode(errors="backslashreplace").decode()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
