"""The notices of a node: advisories to those who ask for them, and what its `on_peer` is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oz.logs import peer_logger
from oz.protocol.messages import Gap, Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.advisories import Advisory, Throttle, advise
from oz.protocol.node.membership import Act
from oz.protocol.node.subscription import NodeStats, Pending, Refusable
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.pattern import Pattern
from oz.transport.backend import Backend
from oz.transport.node.publisher import NodePublisher
from oz.transport.node.subscriber import NodeSubscriber
from oz.wire.discovery import Announcement

_log = peer_logger("oz.node")

MOST_NOTICES = 10_000
"""Advisories that wait for the I/O side at most."""

_WORDS = {Act.UP: ("peer_up", "joined"), Act.LEFT: ("peer_left", "left"), Act.LOST: ("peer_lost", "is lost")}

_REFUSED: dict[Refusable, tuple[str, str]] = {
    "announcement": ("refused_announcements", "announcements"),
    "introduction": ("refused_introductions", "introductions"),
    "reply": ("refused_replies", "replies"),
}
"""The counter of what is refused, and what advisories say that they are about."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Those who are told of what happens to a node that they have; any of its threads calls them.

    Attributes:
        on_change: called when peers may ask for something else, or have fallen silent, or speak again.
        on_gap: called when messages were lost on their way here.
    """

    on_change: Callable[[], None]
    on_gap: Callable[[Gap], None]


class Notices:
    """The notices of one node, of itself and its peers. Any thread may add to them.

    Attributes:
        waiting: advisories that wait to be published.
    """

    __slots__ = (
        "_advised",
        "_counted",
        "_stats",
        "_throttle",
        "_time_ns",
        "_wake",
        "waiting",
    )

    def __init__(self, stats: NodeStats, wake: Callable[[], None], backend: Backend) -> None:
        """Start with none.

        Args:
            stats: what advisories are counted in.
            wake: has the I/O side publish them; called by any thread.
            backend: what the sockets of the node are called by.
        """
        self._time_ns = backend.time_ns
        self._stats = stats
        self._wake = wake
        self._advised = reserved_subjects.ReservedIndex()
        self.waiting: deque[Advisory] = deque()
        self._throttle = Throttle()
        self._counted = (0, 0, 0, 0)

    # what happens ----------------------------------------------------------------------------------------

    def peer_changed(self, act: Act, peer: Announcement) -> str:
        """Record that a peer is up, has left or is lost; give the word for it that `on_peer` is told."""
        kind, word = _WORDS[act]
        _log.info("%s of %s (pid %d) %s", peer.name, peer.host, peer.pid, word)
        self._advise(advise(kind, f"{peer.name} of {peer.host} {word}", about=peer.name, origin=peer.uuid))
        return kind.removeprefix("peer_")

    def server_changed(self, endpoint: str, *, is_there: bool) -> None:
        """Record that a name server answers, or does not any more."""
        if is_there:
            self._advise(advise("nameserver_found", f"the name server at {endpoint} answers", about=endpoint))
        else:
            text = f"the name server at {endpoint} does not answer; traffic goes on without it"
            _log.warning("%s", text)
            self._advise(advise("nameserver_lost", text, about=endpoint))

    def lost(self, gap: Gap, whose: str) -> None:
        """Record that messages of somebody were lost on their way here."""
        how_many = "some" if gap.count is None else f"{gap.count:,}"
        text = f"{how_many} messages of {whose} did not arrive"
        self._advise(advise("gap", text, about=whose, count=gap.count, origin=gap.origin))

    def failed(self, subject: object, error: BaseException) -> None:
        """Record that a handler raised."""
        _log.error("a handler raised at %r", subject, exc_info=error)
        text = f"a handler raised {type(error).__name__} at {subject!r}: {error}"
        self._advise(advise("handler_failed", text, about=str(subject)))

    def dropped(self, subject: object, count: int) -> None:
        """Record that messages were dropped whose handler is too slow."""
        what = "a message was dropped" if count == 1 else f"{count:,} messages were dropped"
        text = f"{what} whose handler is too slow, the last at {subject!r}"
        self._advise(advise("slow_consumer", text, about=str(subject), count=count))

    def refused(self, what: Refusable, text: str) -> None:
        """Record that something of others was not believed."""
        counter, about = _REFUSED[what]
        setattr(self._stats, counter, getattr(self._stats, counter) + 1)
        # About what, and not about whom: others may call themselves what they like.
        self._advise(advise("refused", text, about=about))

    def denied(self, text: str, *, about: str | None, is_logged: bool = False) -> None:
        """Record that this node, or somebody else, is denied something.

        Args:
            text: what, and why, in words.
            about: what it is about: a subject, or where.
            is_logged: somebody has logged it already.
        """
        if not is_logged:
            _log.warning("%s", text)
        self._advise(advise("permission_denied", text, about=about))

    def count_losses(self, publishers: Sequence[NodePublisher], sub: NodeSubscriber) -> None:
        """Record what publishers and the subscriber have lost since this was called last."""
        counts = [one.engine.stats for one in publishers]
        missed = sum(one.missed for one in counts)
        timed_out = sub.stats.timed_out + sum(one.timed_out for one in counts)
        denied = [*(one.engine.stats.denied for one in publishers), sub.stats.denied]
        before, self._counted = self._counted, (missed, timed_out, sub.stats.contradictions, sum(denied))
        if missed > before[0]:
            count = missed - before[0]
            text = f"peers had no room for {count:,} messages; each learns what it missed"
            self._advise(advise("slow_consumer", text, about="peers", count=count))
        if timed_out > before[1]:
            count = timed_out - before[1]
            text = f"patterns ran out of time on {count:,} messages"
            self._advise(advise("pattern_timeout", text, about="patterns", count=count))
        if sub.stats.contradictions > before[2]:
            count = sub.stats.contradictions - before[2]
            text = f"{count:,} frames contradict what their publisher said before: its name may be in use"
            self._advise(advise("contradiction", text, about="publishers", count=count))
        if sum(denied) > before[3]:
            count = sum(denied) - before[3]
            last = [*(one.denied for one in publishers), sub.denied]
            said = "; ".join(one for one in last if one)
            self._advise(advise("permission_denied", f"denied to peers: {said}", about="peers", count=count))

    def _advise(self, advisory: Advisory) -> None:
        if len(self.waiting) < MOST_NOTICES:
            self.waiting.append(advisory)
            self._wake()

    # who is told; on the I/O side ------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when one that was held back is due, in monotonic seconds; None for never."""
        return self._throttle.next_deadline()

    def add(self, pattern: Pattern, subscription: Subscribed) -> None:
        """Hand a subscription the advisories that match from now on."""
        self._advised.add(pattern, subscription)

    def discard(self, pattern: Pattern, subscription: Subscribed) -> None:
        """Hand none of them to it any more."""
        self._advised.discard(pattern, subscription)

    def publish(self, now: float) -> None:
        """Hand what waits to those who ask for it."""
        notified = self._throttle.due(now)
        while self.waiting:
            advisory = self._throttle.offer(self.waiting.popleft(), now)
            if advisory is not None:
                notified.append(advisory)
        for advisory in notified:
            self._stats.advisories += 1
            found = self._advised.find(advisory.subject)
            if found.values:
                route = _Local(tuple(found.values))
                message = Message(advisory.subject, advisory, [], route, self._time_ns())
                for subscription in found.values:
                    subscription.handler(message)


class _Local:
    """The route of an advisory."""

    handled: tuple[Any, ...] = ()
    is_counted = False
    is_listed = False
    is_only_listed = False

    def __init__(self, subscriptions: tuple[Any, ...]) -> None:
        self.subscriptions = subscriptions


def count_all(
    stats: NodeStats, publishers: Iterable[NodePublisher], sub: SubscriberStats, queues: Iterable[Pending]
) -> NodeStats:
    """Add to the counts of a node what its publishers, its subscriber and the queues of handlers count."""
    pubs, queues = [one.engine.stats for one in publishers], list(queues)
    return replace(
        stats,
        published=sum(one.published for one in pubs),
        unwanted=sum(one.unwanted for one in pubs),
        missed=sum(one.missed for one in pubs),
        received=sub.received,
        lost=sub.lost,
        handled=stats.handled + sum(one.handled for one in queues),
        failed=stats.failed + sum(one.failed for one in queues),
        dropped=stats.dropped + sum(one.dropped for one in queues),
        waiting=sum(one.waiting for one in queues),
        malformed=sub.malformed + sum(one.malformed for one in pubs),
        contradictions=sub.contradictions,
        denied=sub.denied + sum(one.denied for one in pubs),
    )
