"""Snapshots of the statistics of a node, and questions that request the snapshots of its peers.

Theory of operation
-------------------
A node asks a peer for its statistics with a *question*, a direct message with the subject `STATISTICS` and a number.
The peer then takes a snapshot (`oz.node.snapshot`), and answers with the number and the snapshot. Therefore a node does
no work for statistics until a question arrives. If several questions arrive between two calls of `turn`, one snapshot
answers them. A snapshot of 1,000 links takes 2 to 5 ms.

With a file of permissions, the key of the asking node needs `request` for the subject `_OZ.STATISTICS`. If this
permission is missing, the answer contains the reason instead of a snapshot.

A question ends at its deadline, or earlier when each peer has answered or has gone down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

import msgpack

from oz.errors import ClosedError, NoResponders, PermissionDenied
from oz.node import roster
from oz.node.handler_times import Stopwatch, sum_of
from oz.node.handlers import InlineRunner, Runner
from oz.node.snapshot import (
    HandlerTimes,
    LinkStatus,
    Snapshot,
    SubscriptionStatus,
    bounded_links,
    bounded_subscriptions,
    decode,
    encode,
)
from oz.node.stats import NodeStats
from oz.publisher.session import DOWN, UP, Session
from oz.publisher.stats import REASONS
from oz.security.access import denial_of
from oz.subscriber.link import Link
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox
from oz.system import open_descriptors, resident_bytes
from oz.transport.steps import Steps

if TYPE_CHECKING:
    from oz.node.engine import Engine

STATISTICS = "_OZ.STATISTICS"
"""Subject of questions and answers. A file of permissions can allow requests for this subject."""
TIMES_SECONDS = 60.0
"""The times of handlers are measured for this number of seconds after a snapshot. Prometheus asks every 15 to 60 s."""
_MAX_QUESTIONS = 1_000
_MAX_ANSWER = 4 << 20  # Maximum bytes of an answer.
_COUNTERS = tuple(counter.name for counter in fields(NodeStats) if counter.name != "dropped")


class _Question:
    """Question whose caller waits: ids of peers that have not answered, snapshots, and denials from other peers."""

    def __init__(self, peers: set[bytes]) -> None:
        self.missing = peers
        self.found: list[Snapshot] = []
        self.denials: list[str] = []


class Sampling:
    """Snapshots of one node, answers to questions of its peers, and questions to its peers."""

    def __init__(self, node: Engine) -> None:
        self._node = node
        self._began = node.clock()
        self._asked: deque[tuple[bytes, int, str]] = deque(maxlen=_MAX_QUESTIONS)
        self._answers: deque[tuple[bytes, list[Any]]] = deque()
        self._open: dict[int, _Question] = {}
        self._numbers = count(1)
        self._times_until = inf

    def snapshot(self) -> Snapshot:
        """Return the current statistics, and measure the times of handlers for the next `TIMES_SECONDS`."""
        node = self._node
        now = node.clock()
        stats = node.stats()
        with node.publisher.lock:
            all_links = [
                _link_status(session, self._name(session.member), now)
                for session in node.publisher.sessions()
            ]
        subscriber = node.subscriber
        with subscriber.lock:
            self.measure_times()
            active = [inbox for inbox in subscriber.dispatcher.inboxes if inbox.is_active and inbox.entries]
            subscriptions = [self._subscription_status(inbox, now) for inbox in active]
            lost, unknown = dict(subscriber.dispatcher.lost), dict(subscriber.dispatcher.unknown_losses)
        links, kept = bounded_links(all_links), bounded_subscriptions(subscriptions)
        return Snapshot(
            name=node.name,
            id=node.id.hex(),
            bus=node.bus,
            host=node.card.host,
            pid=node.card.pid,
            kind=node.kind,
            time=node.runtime.time_ns() / 1e9,
            uptime=now - self._began,
            memory=resident_bytes(),
            descriptors=open_descriptors(),
            dropped=stats.dropped,
            counters={name: getattr(stats, name) for name in _COUNTERS},
            lost=lost,
            unknown_losses=unknown,
            links=links,
            subscriptions=kept,
            omitted=len(all_links) - len(links) + len(subscriptions) - len(kept),
        )

    def _name(self, node: bytes) -> str:
        """Return the name of a node; empty if the name is unknown. Reading one entry of the roster needs no lock."""
        peer = self._node.roster.by_id.get(node)
        if peer is not None and peer.card is not None:
            return peer.card.name
        return self._node.name if node == self._node.id else ""

    def measure_times(self) -> None:
        """Measure the times of handlers for the next `TIMES_SECONDS`. The caller has the lock of the subscriber."""
        self._times_until = self._node.clock() + TIMES_SECONDS

    def _subscription_status(self, inbox: Inbox, now: float) -> SubscriptionStatus:
        handler, queue = inbox.handler, inbox.queue
        options = inbox.entries[0].options
        dropped = inbox.dropped + (0 if queue is None else queue.dropped)
        pending, oldest_ns, now_ns = 0, None, self._node.runtime.time_ns()
        if isinstance(handler, Runner):
            pending, oldest_ns = handler.lanes.pending, handler.lanes.oldest_ns
            dropped += handler.lanes.dropped
        elif queue is not None:
            # Copy the queue, because other threads may remove items during the loop. A queue also contains gaps.
            waiting = [item for item in queue.items.copy() if isinstance(item, Message)]
            pending = len(waiting)
            oldest_ns = waiting[0].time_ns if waiting else None
        return SubscriptionStatus(
            tuple(_text(entry.pattern.text) for entry in inbox.entries),
            options.group,
            "handled" if options.handled else "received",
            pending,
            None if oldest_ns is None else max(0.0, (now_ns - oldest_ns) / 1e9),
            dropped,
            self._handler_times(handler, now),
        )

    def _handler_times(self, handler: Any, now: float) -> HandlerTimes | None:
        clock = self._node.clock
        if isinstance(handler, InlineRunner):
            handler.watch.start(clock, is_running=False)
            return sum_of([handler.watch], [handler.watch], now)
        if not isinstance(handler, Runner):
            return None
        lanes = handler.lanes.all
        for lane in lanes:
            lane.watch.start(clock, is_running=lane.is_scheduled)
        watches = [lane.watch for lane in lanes]
        return sum_of(watches, [lane.watch for lane in lanes if lane.is_scheduled], now)

    def watches(self) -> Iterator[Stopwatch]:
        """Return the stopwatches of all handlers."""
        for inbox in tuple(self._node.subscriber.dispatcher.inboxes):
            if isinstance(inbox.handler, Runner):
                yield from (lane.watch for lane in inbox.handler.lanes.all)
            elif isinstance(inbox.handler, InlineRunner):
                yield inbox.handler.watch

    # The subscriber holds its lock when it calls this method.

    def on_direct(self, link: Link, payload: bytes) -> None:
        """Queue a question or an answer of a peer, which `turn` handles."""
        content = unpack(payload, _MAX_ANSWER)
        if link.origin is None or type(content) is not list:
            return
        if len(content) >= 3:
            if self._question(link.origin, content[0]):
                self._answers.append((link.origin, content))
        elif len(content) == 1 and type(content[0]) is int:
            self._asked.append((link.origin, content[0], request_denial(self._node, link, STATISTICS)))

    def _question(self, peer: bytes, number: Any) -> _Question | None:
        """Return the open question with a number, if the peer has not answered it; else None."""
        question = self._open.get(number) if type(number) is int else None
        return question if question is not None and peer in question.missing else None

    # Methods of the attending side.

    def turn(self, now: float) -> None:
        """Answer the questions of peers, and pass answers from peers to the callers of `ask`."""
        if self._asked:
            self._answer()
        while self._answers:
            self._on_answer(*self._answers.popleft())
        if now >= self._times_until:
            self._stop_times(now)

    def _stop_times(self, now: float) -> None:
        with self._node.subscriber.lock:
            # Another thread may have called `measure_times` before this thread acquired the lock.
            if now >= self._times_until:
                self._times_until = inf
                for watch in self.watches():
                    watch.stop()

    def _answer(self) -> None:
        snapshot = encode(self.snapshot())
        while self._asked:
            peer, number, denial = self._asked.popleft()
            payload = b"" if denial else snapshot
            with suppress(ClosedError, ValueError):
                self._node.publisher.direct(peer, STATISTICS, msgpack.packb([number, payload, denial]))

    def _on_answer(self, peer: bytes, content: list[Any]) -> None:
        number, payload, denial = content[:3]
        question = self._question(peer, number)
        if question is None:
            return
        snapshot = decode(payload) if payload else None
        if snapshot is not None and snapshot.id == peer.hex():
            question.found.append(snapshot)
        elif type(denial) is str and denial:
            question.denials.append(denial)
        # Do this last, because a waiting `ask` returns as soon as no answer is missing.
        question.missing.discard(peer)
        if not question.missing:
            self._node._notify_waiters()

    # Calls of the program.

    def ask(self, names: Sequence[str], timeout: float | None) -> Steps[list[Snapshot]]:
        """Request snapshots from peers, and wait for the answers.

        Args:
            names: names of peers; empty for all peers that are up.
            timeout: seconds to wait; None waits as long as the peers are up.

        Raises:
            NoResponders: a named peer is not up.
            PermissionDenied: no peer has sent a snapshot, and at least one peer denies the question.
            ClosedError, OwnershipError: the node is closed, or was created before a fork.
        """
        node = self._node
        node.check_usable()
        end = None if timeout is None else node.clock() + timeout
        peers = self._up(names)
        question = _Question(set(peers))
        number = next(self._numbers)
        self._open[number] = question
        try:
            payload = msgpack.packb([number])
            for peer in peers:
                if not node.publisher.direct(peer, STATISTICS, payload, is_alone=False):
                    question.missing.discard(peer)
            while question.missing and (end is None or node.clock() < end):
                yield end
                node.check_usable()
                question.missing.intersection_update(self._up(()))
        finally:
            del self._open[number]
        if question.denials and not question.found:
            raise PermissionDenied(question.denials[0], rule=None, subject=STATISTICS)
        return sorted(question.found, key=lambda snapshot: (snapshot.name, snapshot.id))

    def _up(self, names: Sequence[str]) -> dict[bytes, str]:
        """Return a dict from the id to the name of each peer that is up. Name servers are included.

        Args:
            names: names of the wanted peers; empty for all peers.

        Raises:
            NoResponders: a named peer is not up.
        """
        with self._node.lock:
            found = {
                node: peer.card.name
                for node, peer in self._node.roster.by_id.items()
                if peer.card is not None
                and peer.state == roster.UP
                and (not names or peer.card.name in names)
            }
        missing = set(names).difference(found.values())
        if missing:
            raise NoResponders(f"no peer {min(missing)!r} is up; node.peers has the names")
        return found


def unpack(payload: bytes, max_bytes: int) -> Any:
    """Return the decoded payload of a direct message; None if the payload is malformed or too large."""
    if len(payload) > max_bytes:
        return None
    try:
        return msgpack.unpackb(payload, unicode_errors="surrogateescape")
    except Exception:
        # MessagePack raises exceptions of several classes.
        return None


def request_denial(node: Engine, link: Link, subject: str) -> str:
    """Return the reason why permissions deny a question of a peer; empty if they permit the question.

    Args:
        node: node that is asked.
        link: link to the peer.
        subject: subject of the question.
    """
    subscriber = node.subscriber
    permissions = None if subscriber.keys is None else subscriber.keys.credentials.rights().permissions
    if permissions is None or link.origin == node.id:
        return ""
    key = subscriber.key_of(link) or ""
    if permissions.allows(permissions.user_of(key), "request", subject.encode()):
        return ""
    denial = denial_of(permissions, key, "request", subject)
    return f"node {node.name!r} denies the request to {subject!r}: {denial}"


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def _link_status(session: Session, name: str, now: float) -> LinkStatus:
    # Most links are idle and have no messages.
    pending = session.unreceived if session.bytes or session.acked != session.following else 0
    drops = [0] * len(REASONS)
    groups: dict[str, int] = {}
    for stream in session.streams.values():
        if any(stream.drops):
            drops = [one + other for one, other in zip(drops, stream.drops, strict=True)]
        if stream.group is not None and stream.patterns:
            groups[stream.group.name] = groups.get(stream.group.name, 0) + stream.load
    oldest = session.oldest if pending else None
    return LinkStatus(
        name,
        session.member.hex(),
        UP if session.is_up else DOWN,
        len(session.patterns),
        pending,
        session.bytes,
        None if oldest is None else max(0.0, now - oldest),
        dict(zip(REASONS, drops, strict=True)) if any(drops) else {},
        groups,
    )
