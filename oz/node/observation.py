"""Functions with which commands and the explorer observe a bus: statistics of its nodes, and messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from oz.node.bus_view import Sample
from oz.node.sync import Node, Subscription
from oz.options import Delivery
from oz.subjects.pattern import PatternLike

_MAX_PENDING = 10_000


def take_sample(node: Node, timeout: float) -> Sample:
    """Return the statistics of all peers of a node, and the names of peers that did not answer.

    Args:
        node: node that requests the statistics.
        timeout: seconds to wait for the peers.

    Raises:
        PermissionDenied: no peer sends statistics, and at least one peer denies the request.
        ClosedError: the node is closed.
    """
    now = time.monotonic()
    snapshots = node.request_snapshots(timeout=timeout)
    answered = {snapshot.id for snapshot in snapshots}
    silent = {peer.id: peer.name for peer in node.peers if peer.id not in answered}
    # This node does not know the name of a node that has never answered, but the peers may.
    names = {link.member: link.peer for snapshot in snapshots for link in snapshot.links if link.peer}
    for name, node_id in node._node.unanswered():
        silent.setdefault(node_id or name, names.get(node_id or "", name))
    return Sample(now, snapshots, [*silent.values()])


def observe(node: Node, patterns: Sequence[PatternLike], handler: Callable[[Any], object]) -> Subscription:
    """Subscribe without slowing publishers. Messages are dropped when the queue is full.

    Args:
        node: node that subscribes.
        patterns: patterns of the subjects.
        handler: function that the node calls inline with each message.
    """
    delivery = Delivery(inline=True, max_pending=_MAX_PENDING)
    return node.subscribe(list(patterns), handler, overflow="drop_newest", delivery=delivery)
