"""Messages of queue groups that a forwarder passes on.

Theory of operation
-------------------
A publisher treats the forwarder as one member of a group. The forwarder treats the members on all other buses as one
group. The forwarder keeps each message of a group until a member has handled the message. Until then, the message is a
*job*. A job that the forwarder has sent to a member is *placed*.

A *leg* is the node of the forwarder on one bus. If a member is lost, the leg on the bus of that member returns the job
to the forwarder, and the forwarder picks another member. In an ordinary node, the publisher would move the message to
another member on the same bus.

========= ================================================= ============================================
state     event                                             next state
========= ================================================= ============================================
–         a message of a group arrives                      placed, or waiting if no member has space
waiting   a member has space                                placed
waiting   the subscription of the forwarder ends            abandoned: its publisher picks another member
placed    the member has handled the message                acknowledged to its publisher
placed    the member has ended, or unsubscribes             waiting, marked `redelivered`
placed    the member is DOWN for 3 s, and another is UP     waiting, marked `redelivered`
========= ================================================= ============================================

A member handles its messages in order. Therefore all jobs before the first unhandled message of a member are handled.
With `ack="received"`, a message counts as handled when it is acknowledged.

Jobs with the same subject wait in order. While a job waits, later jobs with its subject wait too. A returned job is put
before them.

A request is not a job. It is not sent to another member: if the member is lost, the requester receives an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from oz.publisher.session import Stream
from oz.services import bridge_rules as rules
from oz.subscriber.message import Message

if TYPE_CHECKING:
    from oz.services.bridge import ForwarderStats
    from oz.services.bridge_leg import Leg

RETRY_INTERVAL = 0.1
"""Seconds between two attempts to place the waiting jobs."""


class Job:
    """Message of a group that no member has handled yet.

    Attributes:
        leg: leg at which the message arrived.
        group: name of the group.
        message: the message.
        is_redelivered: whether another member may have received the message.
    """

    __slots__ = ("group", "is_redelivered", "leg", "message")

    def __init__(self, leg: Leg, group: str, message: Message) -> None:
        self.leg, self.group, self.message = leg, group, message
        self.is_redelivered = message.redelivered


class Jobs:
    """Jobs of a forwarder. This class keeps the waiting jobs, and `Leg.held` contains the placed jobs."""

    def __init__(
        self, legs: Sequence[Leg], own: bytes, stats: ForwarderStats, clock: Callable[[], float]
    ) -> None:
        self._legs, self._own, self._stats, self._clock = legs, own, stats, clock
        self._waiting: dict[tuple[Leg, str, bytes], deque[Job]] = {}
        self._retry_at = inf
        for leg in legs:
            leg.publisher.reclaim = partial(self._reclaim, leg)

    def __bool__(self) -> bool:
        """Return whether the forwarder has a job that is not acknowledged."""
        return bool(self._waiting) or any(leg.held for leg in self._legs)

    def next_deadline(self) -> float:
        """Return the time of the next attempt to place the waiting jobs; infinity if no job waits."""
        return self._retry_at if self._waiting else inf

    def add(self, leg: Leg, group: str, message: Message) -> None:
        """Place a message that has arrived."""
        job = Job(leg, group, message)
        waiting = self._waiting.get((leg, group, message.subject_bytes))
        if waiting is not None:
            waiting.append(job)
        elif not self._place(job):
            self._wait(job)
            self._retry_at = min(self._retry_at, self._clock() + RETRY_INTERVAL)

    def attend(self) -> None:
        """Acknowledge handled jobs, and try to place the waiting jobs if a retry is due."""
        for leg in self._legs:
            self._acknowledge(leg)
        if self._waiting and self._clock() >= self._retry_at:
            self._retry()

    def abandon(self, leg: Leg) -> None:
        """Abandon the waiting jobs of a leg if their subscription has ended. Then the publisher picks another member.

        Call this method directly after each change of the subscriptions. Later the forwarder may have subscribed again,
        and then the jobs would wait for ever.
        """
        for key, waiting in [*self._waiting.items()]:
            source, group, raw = key
            if source is leg and not leg.is_asked(group, raw):
                self._stats.unwanted += len(waiting)
                for job in waiting:
                    leg.abandon(job.message)
                del self._waiting[key]

    def _wait(self, job: Job, *, is_first: bool = False) -> None:
        waiting = self._waiting.setdefault((job.leg, job.group, job.message.subject_bytes), deque())
        (waiting.appendleft if is_first else waiting.append)(job)

    def _members(self, job: Job) -> dict[Stream, Leg]:
        """Return a dict from each member that may receive a job to the leg of that member."""
        message = job.message
        raw, source = message.subject_bytes, rules.source_of_message(message)
        excluded = job.leg.side.forwarders | rules.forwarder_ids(source.via)
        found: dict[Stream, Leg] = {}
        for leg in self._legs:
            if leg is job.leg or leg.engine.is_closing:
                continue
            if leg.side.may_enter(raw) and not leg.has_peer(source.origin):
                publisher = leg.publisher
                route = publisher.find_route(message.subject, raw)
                found.update((member, leg) for member in publisher.recipients(route, job.group, excluded))
        return found

    def _place(self, job: Job) -> bool:
        """Send a job to one member. Return False if no member has space."""
        message = job.message
        raw, source = message.subject_bytes, rules.source_of_message(message)
        members = self._members(job)
        extras = rules.extras_of(message._extras, source, self._own, is_redelivered=job.is_redelivered)
        for stream in rules.by_rank([*members], raw, source):
            leg = members[stream]
            position = leg.publisher.send_job(stream, raw, message.payload, extras)
            if position is not None:
                leg.held.setdefault(stream, {})[position] = job
                self._stats.passed += 1
                return True
        return False

    def _retry(self) -> None:
        self._retry_at = self._clock() + RETRY_INTERVAL
        for key, waiting in [*self._waiting.items()]:
            while waiting and self._place(waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[key]

    def _acknowledge(self, leg: Leg) -> None:
        for stream, jobs in [*leg.held.items()]:
            with leg.publisher.lock:
                # Messages from `batcher.position` on are not sent yet. They wait for a batch.
                first = stream.first_unhandled
                end = leg.publisher.batcher.position if first is None else first
            for position in [*jobs]:
                if position >= end:
                    break
                jobs.pop(position).message.ack()
            if stream.session.has_ended:
                # After an error, the publisher has replaced its sessions and has not moved their messages.
                self._reclaim(leg, stream, [*jobs], True)
            if not jobs:
                del leg.held[stream]

    def _reclaim(self, leg: Leg, stream: Stream, positions: Sequence[int], is_final: bool) -> bool:
        """Move jobs of a member to the waiting jobs; return False if the jobs stay with the member."""
        jobs = leg.held.get(stream, {})
        found = [position for position in positions if position in jobs]
        if not is_final and not all(self._has_other(jobs[position], stream) for position in found):
            return False
        # Begin with the last job, because each job is put before the other waiting jobs.
        for position in reversed(found):
            job = jobs.pop(position)
            job.is_redelivered = True
            self._wait(job, is_first=True)
            self._retry_at = self._clock()
        return bool(found)

    def _has_other(self, job: Job, stream: Stream) -> bool:
        return any(member is not stream and member.session.is_up for member in self._members(job))
