"""The common part of nodes for threads and for asyncio: all but the waiting.

What is called "the I/O side" here is the node's one thread, or the loop: only it touches the subscriber, the
name servers and the mesh. `publish` and `message.reply` may come from anywhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from oz.errors import ClosedError, NoResponders, OwnershipError
from oz.message import Gap, Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.advisories import Advisory, advise
from oz.protocol.node.inquiry import Inquiry
from oz.protocol.node.membership import Act
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.subscription import NodeStats, NodeSubscription
from oz.transport.ending import end_context
from oz.transport.node.dialler import BusListener
from oz.transport.node.inquiring import SAY_AGAIN
from oz.transport.node.subscriptions import Interested
from oz.wire.discovery import Announcement
from oz.wire.node_codec import Introduction

_log = logging.getLogger("oz.node")

NEWS_EVERY = 0.01
"""Seconds between two looks of those who wait, while more and more comes."""

_WORDS = {Act.UP: ("peer_up", "joined"), Act.LEFT: ("peer_left", "left"), Act.LOST: ("peer_lost", "is lost")}


@dataclass(frozen=True, slots=True)
class Watcher:
    """Those who are told of what happens to a node that they have; any of its threads calls them.

    Attributes:
        on_change: called when peers may ask for something else, or have fallen silent, or speak again.
        on_gap: called when messages were lost on their way here.
    """

    on_change: Callable[[], None]
    on_gap: Callable[[Gap], None]


class _Reports:
    """Tells a node what becomes of its links."""

    __slots__ = ("_node",)

    def __init__(self, node: NodeBase) -> None:
        self._node = node

    def peer_changed(self, act: Act, peer: Announcement) -> None:
        self._node._peer_changed(act, peer)

    def server_changed(self, endpoint: str, *, is_there: bool) -> None:
        self._node._server_changed(endpoint, is_there=is_there)

    def introduce(self, peer: Announcement, text: str) -> None:
        self._node._introduce(peer, text)


class NodeBase(Interested):
    """A node without its thread or loop."""

    _notifications: Any
    _watcher: Watcher | None = None

    # what the shells do ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have the I/O side look at what is due soon; any thread may ask for it."""
        raise NotImplementedError

    def _changed(self) -> None:
        """Tell those who wait for peers or readiness to look again."""
        raise NotImplementedError

    # the I/O side ----------------------------------------------------------------------------------------

    def _watch(self, watcher: Watcher) -> None:
        """Tell somebody of what happens from now on."""
        self._watcher = watcher
        watcher.on_change()

    def _on_interest(self) -> None:
        if self._has_links:
            self._links.wake()
            self._wake()
        if self._watcher is not None:
            self._watcher.on_change()

    def _hear_of(self, message: Message) -> None:
        if isinstance(message.payload, Introduction):
            self._dialler.hear_of(message.payload, time.monotonic())
            self._links.wake()

    def _hear_about_interest(self, message: Message) -> None:
        if self._inquiries.take(message):
            self._note_news(time.monotonic())

    def _tell_bus(self, subject: str, value: Any) -> bool:
        has_room = self._main.engine.sender.publish(self._main.engine.socket, subject, value) is None
        self._said += has_room
        return has_room

    def _on_gap(self, gap: Gap) -> None:
        how_many = "some" if gap.count is None else f"{gap.count:,}"
        sender = self._peer_of(gap.origin)
        whose = sender.name if sender is not None else gap.origin.hex()
        text = f"{how_many} messages of {whose} did not arrive"
        self._advise(advise("gap", text, about=whose, count=gap.count, origin=gap.origin))
        if self._watcher is not None:
            self._watcher.on_gap(gap)

    def _tick(self, now: float) -> list[tuple[str, bytes]]:
        """Do what is due; give the frames for name servers."""
        self._is_due = False
        if now >= self._look_at:
            self._look_at = inf
        silent = self._links.silent
        frames = self._dialler.tick(now)
        if self._watcher is not None and self._links.silent != silent:
            self._watcher.on_change()
        self._tell_untold()
        self._send_parked(now)
        self._settle_ended()
        self._count_losses()
        self._publish_notices(now)
        self._notified_at = now
        self._tick_at = self._next_deadline(now)
        self._changed()
        return frames

    def _next_deadline(self, now: float) -> float:
        """Return when `_tick` has something to do, if nothing comes before; `inf` for never."""
        deadlines = [self._look_at, self._links.next_deadline(now), self._throttle.next_deadline()]
        if self._untold:
            deadlines.append(now + SAY_AGAIN)
        with suppress(IndexError):
            deadlines.append(self._parked[0][0])
        return min(at for at in deadlines if at is not None)

    def _seconds_left(self) -> float | None:
        """Return how long to wait at most for something to come; None for ever."""
        now = time.monotonic()
        if self._has_due(now) or self._sub.has_some:
            return 0.0
        at = min(self._tick_at, self._sub.engine.declarer.due_at)
        return None if at == inf else max(0.0, at - now)

    def _has_due(self, now: float) -> bool:
        """Tell whether `_tick` has something to do."""
        return now >= self._tick_at or self._is_due or self._links.is_stale or bool(self._notices)

    def _expect(self, at: float) -> None:
        """Wake those who wait at a time of the monotonic clock; on the I/O side."""
        self._look_at = min(self._look_at, at)
        self._tick_at = min(self._tick_at, at)

    def _note_news(self, now: float) -> None:
        """Wake those who wait, though not too often; on the I/O side."""
        if self._number_of_waits:
            self._expect(max(now, self._notified_at + NEWS_EVERY))

    def _note_due(self) -> None:
        self._is_due = True
        self._wake()

    def _count_losses(self) -> None:
        publishers = self._publishers()
        missed = sum(one.engine.stats.missed for one in publishers)
        timed_out = self._sub.stats.timed_out + sum(one.engine.stats.timed_out for one in publishers)
        dropped = self._sub.stats.dropped
        before, self._counted = self._counted, (missed, timed_out, dropped)
        if dropped > before[2] and self._sub.may_drop:
            count = dropped - before[2]
            text = f"{count:,} messages were dropped that came at once with others: see max_pending"
            self._advise(advise("slow_consumer", text, about="subscriptions", count=count))
        if missed > before[0]:
            count = missed - before[0]
            text = f"peers had no room for {count:,} messages; each learns what it missed"
            self._advise(advise("slow_consumer", text, about="peers", count=count))
        if timed_out > before[1]:
            count = timed_out - before[1]
            text = f"patterns ran out of time on {count:,} messages"
            self._advise(advise("pattern_timeout", text, about="patterns", count=count))

    # what becomes of links -------------------------------------------------------------------------------

    def _bus_listener(self) -> BusListener:
        return _Reports(self)

    def _peer_changed(self, act: Act, peer: Announcement) -> None:
        kind, word = _WORDS[act]
        _log.info("%s of %s (pid %d) %s", peer.name, peer.host, peer.pid, word)
        self._advise(advise(kind, f"{peer.name} of {peer.host} {word}", about=peer.name, origin=peer.uuid))
        self._tell_peer(peer, kind.removeprefix("peer_"))

    def _server_changed(self, endpoint: str, *, is_there: bool) -> None:
        if self._closed:
            # It was this node that took its leave.
            return
        if is_there:
            self._advise(advise("nameserver_found", f"the name server at {endpoint} answers", about=endpoint))
        else:
            text = f"the name server at {endpoint} does not answer; traffic goes on without it"
            _log.warning(text)
            self._advise(advise("nameserver_lost", text, about=endpoint))

    def _introduce(self, peer: Announcement, text: str) -> None:
        # Only once is a peer told, so what finds no room is to be said again.
        self._untold[peer.uuid] = text
        self._tell_untold()

    def _tell_untold(self) -> None:
        for uuid, text in list(self._untold.items()):
            subject = f"_OZ.NAMING.{uuid.hex()}"
            if not self._membership.is_linked(uuid) or self._tell_bus(subject, Introduction(text)):
                del self._untold[uuid]

    def _tell_peer(self, peer: Announcement, what: str) -> None:
        """Have the application's `on_peer` called, one call after the other."""
        if self._tells_peer is not None:
            self._notifications.put((peer, what))

    def _call_on_peer(self, notified: Any) -> Any:
        assert self._tells_peer is not None
        return self._tells_peer(*notified)

    def _on_failed(self, message: Any, error: BaseException) -> None:
        subject = getattr(message, "subject", "on_peer")
        _log.error("a handler raised at %r", subject, exc_info=error)
        text = f"a handler raised {type(error).__name__} at {subject!r}: {error}"
        self._advise(advise("handler_failed", text, about=str(subject)))
        if self._error_replies and isinstance(message, Message):
            with suppress(ClosedError):
                self._answer_failure(message, error)

    def _on_dropped(self, count: int, message: Any) -> None:
        subject = getattr(message, "subject", "on_peer")
        text = f"{count:,} messages like {subject!r} were dropped: their handler is too slow"
        self._advise(advise("slow_consumer", text, about=str(subject), count=count))

    def _peer_of(self, origin: bytes | None) -> Announcement | None:
        if origin is None:
            return None
        for peer in (*self._membership.known, self.announcement):
            if origin in (network_origin(peer.uuid), local_origin(peer.uuid)):
                return peer
        return self._links.connections.gone_peer(origin)

    # advisories ------------------------------------------------------------------------------------------

    def _advise(self, advisory: Advisory) -> None:
        """Take an advisory, from any thread; the I/O side publishes it."""
        if len(self._notices) < 10_000:
            self._notices.append(advisory)
            self._wake()

    def _publish_notices(self, now: float) -> None:
        notified = self._throttle.due(now)
        while self._notices:
            advisory = self._throttle.offer(self._notices.popleft(), now)
            if advisory is not None:
                notified.append(advisory)
        for advisory in notified:
            self._stats.advisories += 1
            found = self._advised.find(advisory.subject)
            if found.values:
                route = _Local(tuple(found.values))
                message = Message(advisory.subject, advisory, [], route, time.time_ns())
                for subscription in found.values:
                    subscription.handler(message)

    # publishing ------------------------------------------------------------------------------------------

    def _publisher_for(self, subject: Any) -> Any:
        """Say which publisher a subject goes out by.

        Raises:
            SubjectError: it is one of oz's own.
            ClosedError: the node is closed.
        """
        self._check_open()
        if self._is_unheard:
            self._hear_own()
        if isinstance(subject, (str, bytes)) and subject[:1] in ("_", b"_"):
            reserved_subjects.check_published(subject, self.configuration.dialect)
            local = reserved_subjects.LOCAL if isinstance(subject, str) else reserved_subjects.LOCAL.encode()
            if subject.startswith(local):  # type: ignore[arg-type]
                return self._local
        return self._main

    def _hear_own(self) -> None:
        """Tell this node's publishers its own subscriptions: it may publish right after that.

        Not in a signal handler that interrupts a publisher, for which the I/O side would wait in vain.
        """
        if not any(one.engine.guard.is_mine for one in self._publishers()):
            self._call(self._take_in_own)

    def _take_in_own(self) -> None:
        self._sub.flush()
        for publisher in self._publishers():
            # What goes over inproc is there as soon as it is asked for.
            publisher.engine.listen()
        self._is_unheard = False

    def _has_responders(self, subject: Any) -> bool | None:
        """Tell whether a request would be answered; None when not every peer has had its say yet.

        Raises:
            SubjectError, ClosedError: see `_publisher_for`.
        """
        if self._publisher_for(subject).engine.interest(subject):
            return True
        return None if self._links.unready() else False

    def _no_responders(self, subject: Any) -> NoResponders:
        self._stats.no_responders += 1
        return NoResponders(
            f"nobody on bus {self.bus!r} has a subscription for {subject!r}; "
            f"{len(self._membership.up)} peers are up"
        )

    # presence --------------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str | None:
        """The endpoint for the `peers=` of other nodes, with its port; the first of several.

        None for a node that binds no endpoint, as those that meet in a directory, before it has joined, and
        once it is closed. Not the bound address where that is all of the host's: then one that others see.
        """
        return None if self._closed else self._endpoint

    def _missing(self, wanted: int | str | Iterable[str]) -> Callable[[], str | None]:
        """Make what says which peers are missing: one whose link is down is, also before it counts as lost.

        Raises:
            TypeError: it is neither a number nor names.
        """
        if isinstance(wanted, int):
            count = wanted

            def too_few() -> str | None:
                up = len(self._linked())
                return None if up >= count else f"{up} of {count} peers are up"

            return too_few
        if isinstance(wanted, str):
            wanted = [wanted]
        names = set(wanted) if isinstance(wanted, Iterable) else {wanted}
        if not all(isinstance(one, str) for one in names):
            raise TypeError(f"wait for a number of peers, for a name, or for several, not for {wanted!r}")

        def absent() -> str | None:
            missing = names - {one.name for one in self._linked()}
            return f"{', '.join(sorted(missing))} are not up" if missing else None

        return absent

    def _unready(self) -> Callable[[], str | None]:
        """Make what says what is missing until peers can be spoken with, and all they want now is known."""
        inquiry = Inquiry()

        def missing() -> str | None:
            now = time.monotonic()
            unknown = self._inquiries.unknown(inquiry, self._dialler.there(), now)
            if unknown:
                self._expect(self._inquiries.next_deadline(inquiry, now))
            return "; ".join(self._links.unready() + unknown) or None

        return missing

    def _linked(self) -> list[Announcement]:
        """Return the peers whose link stands as far as is known now; on the I/O side."""
        for publisher in self._publishers():
            publisher.engine.listen()
        self._dialler.look(time.monotonic())
        return [one for one in self._membership.up if self._membership.is_linked(one.uuid)]

    def _check_owner(self) -> None:
        if self._local.engine.guard.is_foreign:
            raise OwnershipError(
                "this node was made before a fork, in the parent process; make one in the child"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the node {self.name} is closed")

    # closing ---------------------------------------------------------------------------------------------

    def _say_goodbye(self) -> Iterable[tuple[str, bytes]]:
        """Return the frames that take leave of name servers."""
        return [(endpoint, one.goodbye()) for endpoint, one in self._links.discovery_clients.items()]

    def _still_closing(self) -> str | None:
        """Say whose answer to this node's goodbye is still to come; None when nothing is on its way."""
        # Those who have left meanwhile do not answer.
        return None if self._sub.has_left(self._links.heard()) else "publishers"

    def _still_draining(self, subscription: NodeSubscription) -> str | None:
        """Say whose answer to the end of a subscription is still to come; None when nothing is on its way."""
        return None if self._sub.has_drained(subscription, self._links.heard()) else "publishers"

    def _publishers(self) -> list[Any]:
        return [one for one in (self._network, self._local) if one is not None]

    def _end_context(self, timeout: float, closed_at: float) -> None:
        if self._local_directory is not None:
            self._local_directory.remove()
        end_context(self._context, timeout, closed_at)

    def _count_stats(self) -> NodeStats:
        """Count what its parts count."""
        if not self._has_links:
            # One for asyncio that has not joined yet.
            return replace(self._stats)
        stats, sub = self._stats, self._sub.stats
        pubs = [one.engine.stats for one in self._publishers()]
        queues = self._queues()
        return replace(
            stats,
            published=sum(one.published for one in pubs) - self._said,
            unwanted=sum(one.unwanted for one in pubs),
            missed=sum(one.missed for one in pubs),
            received=sub.received,
            lost=sub.lost,
            handled=stats.handled + sum(one.handled for one in queues),
            failed=stats.failed + sum(one.failed for one in queues),
            dropped=stats.dropped + sub.dropped + sum(one.dropped for one in queues),
            waiting=sum(one.waiting for one in queues),
            late_replies=self._requests.late,
            malformed=sub.malformed + sum(one.malformed for one in pubs),
        )

    def __repr__(self) -> str:
        """Show name, bus and state."""
        return f"<oz.Node {self.name!r} on bus {self.bus!r}{' closed' if self._closed else ''}>"


class _Local:
    """The route of an advisory."""

    handled: tuple[Any, ...] = ()
    is_counted = False
    is_listed = False
    is_only_listed = False

    def __init__(self, subscriptions: tuple[Any, ...]) -> None:
        self.subscriptions = subscriptions
