"""Forwarder: passes messages between buses by a node on each bus.

Theory of operation
-------------------
`bridge_rules` computes the subscriptions of a forwarder, and the recipients of a message. A `Leg` is the node on one
bus. `BridgeEngine.attend` runs the node of each leg, and handles the events at each leg:

========================= ====================================================================================
event at a leg            action
========================= ====================================================================================
plain message             the forwarder publishes it to the plain subscriptions of the other buses
message of a group        `bridge_groups` sends it to one member, and acknowledges it when it is handled
request                   `bridge_requests` sends it on the other buses, and passes the replies back
loss of messages          the forwarder reports it on the other buses; the report names the original publisher
new interest or forwarder `_ask` computes the subscriptions and the standby of all legs
========================= ====================================================================================

Before a forwarder ends, it stands by until another forwarder has taken over its groups, for at most `HANDOVER_TIME`
seconds. Then it stops receiving, waits until peers have acknowledged its messages, and leaves the buses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from oz.errors import ClosedError, ConfigurationError
from oz.message import Forwarded, Gap
from oz.node.engine import Engine as NodeEngine
from oz.node.requests import inbox_node
from oz.node.trace import Traces
from oz.services import bridge_rules as rules
from oz.services.bridge_groups import Jobs
from oz.services.bridge_leg import LEG_SETTINGS, Leg
from oz.services.bridge_requests import Crossing
from oz.services.service import NodeService
from oz.subscriber.message import Message
from oz.transport.endpoints import as_list
from oz.transport.steps import Steps
from oz.wire.extras import FORWARDER_ID

HANDOVER_TIME = 2.0
"""Maximum seconds that a closing forwarder waits until another forwarder has taken over its groups."""
_DRAIN_INTERVAL = 0.02  # A closing forwarder checks at this interval in seconds whether it may end.
_PACE = 10  # A forwarder spends at most 1/10 of its time on the computation of subscriptions.


@dataclass
class ForwarderStats:
    """Counts of a forwarder since it was created.

    Attributes:
        received: messages and requests that arrived.
        payload_bytes: total bytes of the payloads of these messages and requests.
        passed: messages and requests that were published on another bus. Publications on two buses count twice.
        requests: requests that were published on another bus. Publications on two buses count twice.
        replies: replies that were passed back.
        unwanted: messages that have no subscriber on another bus, or that `allow` refuses.
        looped: messages that have already passed this forwarder, or whose publisher is a peer on the other bus.
        lost: messages that were lost before they reached this forwarder. Losses of unknown size are not counted.
        interests: number of patterns to which the forwarder subscribes at present.
    """

    received: int = 0
    payload_bytes: int = 0
    passed: int = 0
    requests: int = 0
    replies: int = 0
    unwanted: int = 0
    looped: int = 0
    lost: int = 0
    interests: int = 0


class BridgeEngine:
    """Engine of a forwarder, which runs all legs in one thread.

    Attributes:
        id: id of the forwarder.
        legs: legs in the order in which the program gave them.
        stats: counts of the forwarder.
    """

    def __init__(self, legs: list[dict[str, Any]]) -> None:
        self.id = os.urandom(FORWARDER_ID)
        self.stats = ForwarderStats()
        self.legs: list[Leg] = []
        self._is_dirty, self._read_at = True, 0.0
        self._is_leaving = self._is_draining = False
        self._wake: Callable[[], None] = lambda: None
        try:
            for settings in legs:
                self.legs.append(Leg(settings, self.id, self._notify))
        except BaseException:
            self.finish(time.monotonic())
            self.end_context()
            raise
        for leg in self.legs:
            leg.engine.traces.pass_on = self._pass_question
        self.clock = self.legs[0].engine.clock
        self._jobs = Jobs(self.legs, self.id, self.stats, self.clock)

    def _notify(self) -> None:
        self._is_dirty = True

    # Methods of the attending side.

    @property
    def wake(self) -> Callable[[], None]:
        """Function that wakes the attending side."""
        return self._wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        for leg in self.legs:
            leg.engine.wake = wake

    @property
    def is_resting(self) -> bool:
        """Whether the attending side sleeps."""
        return all(leg.engine.is_resting for leg in self.legs)

    @is_resting.setter
    def is_resting(self, is_resting: bool) -> None:
        for leg in self.legs:
            leg.engine.is_resting = is_resting

    @property
    def waiting(self) -> list[Any]:
        """Messages of one leg that wait for further messages of a batch."""
        return next((leg.engine.waiting for leg in self.legs if leg.engine.waiting), [])

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when `attend` has something to read."""
        return tuple(descriptor for leg in self.legs for descriptor in leg.engine.descriptors())

    def attend(self, *, flushes: bool = False) -> bool:
        """Run the nodes of the legs, and pass on their messages; return whether work remains."""
        has_more = False
        for leg in self.legs:
            has_more |= leg.engine.attend(flushes=flushes)
        for leg in self.legs:
            has_more |= self._pass(leg)
        self._jobs.attend()
        now = self.clock()
        if self._is_dirty and now >= self._read_at and not self._is_draining:
            self._is_dirty = False
            self._ask()
            self._read_at = now + _PACE * (self.clock() - now)
        return has_more

    def next_deadline(self) -> float | None:
        """Return the time at which `attend` must run next; None without a deadline."""
        found = [leg.engine.next_deadline() for leg in self.legs]
        found.append(self._read_at if self._is_dirty and not self._is_draining else inf)
        found.append(self._jobs.next_deadline())
        deadline = min(due for due in (*found, inf) if due is not None)
        return None if deadline == inf else deadline

    def _ask(self) -> None:
        for leg in self.legs:
            leg.read()
        sides = [leg.side for leg in self.legs]
        ids = {
            source.forwarder
            for side in sides
            for source in side.sources.values()
            if source.forwarder is not None
        }
        for leg in self.legs:
            leg.find_forwarders(ids)
        self.stats.interests = 0
        for at, leg in enumerate(self.legs):
            leg.is_standby = self._is_leaving or rules.stands_by(self.id, sides, at)
            with suppress(ClosedError):
                self.stats.interests += leg.ask(rules.wanted(sides, at))
            self._jobs.abandon(leg)

    # Messages.

    def _pass(self, leg: Leg) -> bool:
        """Pass on the messages that have arrived at a leg, and report losses; return whether a queue had messages."""
        others = [other for other in self.legs if other is not leg and not other.engine.is_closing]
        found = False
        while leg.losses:
            self._lose(leg, *leg.losses.popleft())
        for stream, asked in [*leg.asked.items()]:
            queue = asked.queue
            if not queue:
                continue
            found = True
            for other in others:
                other.publisher.hold(leg)
            try:
                while queue:
                    item = queue.popleft()
                    if isinstance(item, Gap):
                        self._lose(leg, item, b"")
                    else:
                        self._pass_message(leg, stream.group, item, others)
            finally:
                for other in others:
                    other.publisher.release(leg)
        return found

    def _pass_message(self, leg: Leg, group: str | None, message: Message, others: list[Leg]) -> None:
        stats = self.stats
        stats.received += 1
        stats.payload_bytes += len(message.payload)
        source, raw = rules.source_of_message(message), message.subject_bytes
        if rules.has_passed(source.via, self.id):
            stats.looped += 1
            message.ack()
            return
        targets = [
            other for other in others if other.side.may_enter(raw) and not other.has_peer(source.origin)
        ]
        if not targets:
            is_looped = any(other.has_peer(source.origin) for other in others)
            stats.looped += is_looped
            stats.unwanted += not is_looped
            message.ack()
        elif message.reply_to is not None and inbox_node(message.reply_to) is not None:
            message.ack()
            Crossing(stats, leg, message).begin(self.id, group, targets)
        elif group is None:
            self._publish(leg, message, source, targets)
        else:
            self._jobs.add(leg, group, message)

    def _publish(self, leg: Leg, message: Message, source: Forwarded, targets: list[Leg]) -> None:
        raw, extras, is_wanted = message.subject_bytes, None, False
        excluded = leg.side.forwarders | rules.forwarder_ids(source.via)
        for other in targets:
            publisher = other.publisher
            streams = publisher.recipients(publisher.find_route(message.subject, raw), None, excluded)
            if streams:
                if extras is None:
                    extras = rules.extras_of(message._extras, source, self.id)
                publisher.publish_to(tuple(streams), raw, message.payload, extras)
                self.stats.passed += 1
                is_wanted = True
        self.stats.unwanted += not is_wanted

    def _pass_question(
        self, back: Traces, trace_id: bytes, raw: bytes, via: bytes, peer: bytes
    ) -> list[dict[str, Any]]:
        """Pass on a question of `oz trace`; return a hop for each other bus that the traced message may enter."""
        others = [leg for leg in self.legs if leg.engine.traces is not back and leg.side.may_enter(raw)]
        if any(leg.engine.traces.has_passed(trace_id) for leg in self.legs):
            return []
        source = next(leg for leg in self.legs if leg.engine.traces is back)
        via += self.id
        excluded = source.side.forwarders | rules.forwarder_ids(via)
        return [leg.engine.traces.pass_question(trace_id, raw, via, excluded, back, peer) for leg in others]

    def _lose(self, leg: Leg, gap: Gap, via: bytes) -> None:
        if rules.has_passed(via, self.id):
            return
        self.stats.lost += gap.count or 0
        for other in self.legs:
            if other is not leg and not other.has_peer(gap.origin or b""):
                excluded = leg.side.forwarders | rules.forwarder_ids(via)
                with suppress(ClosedError):
                    other.send_loss(gap, via + self.id, excluded)

    # End of the forwarder.

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Hand over the groups, stop receiving, pass on the received messages, and wait for their acknowledgements."""
        end = self.clock() + (timeout if timeout is not None else inf)
        self._is_leaving = True
        with suppress(ClosedError):
            self._ask()
        revisions = [leg.engine.subscriber.subscriptions.revision for leg in self.legs]
        handover_end = min(end, self.clock() + HANDOVER_TIME)
        while self.clock() < handover_end and self._is_needed(revisions):
            yield min(handover_end, self.clock() + _DRAIN_INTERVAL)
        self._is_draining = True
        drains = []
        for leg in self.legs:
            with suppress(ClosedError):
                drains.append((leg, *leg.engine.subscriber.begin_drain(None)))
        while self.clock() < end:
            is_drained = all(
                leg.engine.subscriber.is_drained(inboxes, revision) for leg, inboxes, revision in drains
            )
            if is_drained and not self._jobs:
                break
            yield min(end, self.clock() + _DRAIN_INTERVAL)
        for leg in self.legs:
            left = None if timeout is None else max(0.0, end - self.clock())
            yield from leg.engine.acknowledgements(left)
        return end

    def _is_needed(self, revisions: Sequence[int]) -> bool:
        """Return whether this forwarder must continue to stand by before it ends.

        It must continue while no parallel forwarder has taken over the groups, and while messages of groups are in
        transit. Without parallel forwarders, it need not stand by.

        Args:
            revisions: revision of the subscriptions of each leg at the start of the standby.
        """
        sides = [leg.side for leg in self.legs]
        if not any(side.active or side.standby for side in sides):
            return False
        if rules.is_needed(sides) or self._jobs:
            return True
        pairs = zip(self.legs, revisions, strict=True)
        return not all(leg.engine.subscriber.is_drained([], revision) for leg, revision in pairs)

    def finish(self, end: float) -> int:
        """Send BYE and close the sockets; return the number of messages that were not acknowledged."""
        return sum(leg.engine.finish(end) for leg in self.legs)

    def end_context(self) -> None:
        """Terminate the contexts."""
        for leg in self.legs:
            leg.engine.end_context()


class Forwarder(NodeService):
    """Connects buses by a node on each bus. It passes a message to each other bus that has a subscription for it."""

    def __init__(
        self, legs: Iterable[Mapping[str, Any]], *, name: str | None = None, security: Any = None
    ) -> None:
        """Join the buses. `run` begins to pass messages on.

        Args:
            legs: a dict for each bus, with `bus` and other arguments of `oz.Node` and `oz.NodeOptions`. `allow` is a
                pattern or a list of patterns of the subjects that may enter the bus. Default: all subjects.
            name: name of the forwarder's nodes. Default: "forwarder" and the process id.
            security: `security=` for the legs whose dict has no `security`.

        Raises:
            ConfigurationError: there are fewer than two legs, or a leg has a wrong setting.
            PatternError: a pattern of `allow` is not valid.
            EndpointError: an endpoint cannot be used.
        """
        given = [] if isinstance(legs, str) else list(legs)
        if len(given) < 2 or not all(isinstance(settings, Mapping) for settings in given):
            rule = 'give a list of two legs or more, such as [{"bus": "lan"}, {"bus": "wan"}]'
            raise ConfigurationError("legs", legs, "argument", rule)
        common = {"name": name or f"forwarder-{os.getpid()}", "security": security}
        for number, settings in enumerate(given, 1):
            _check_leg(settings, f"leg {number}")
            if _network_of(settings) in map(_network_of, given[: number - 1]):
                rule = "another leg joins the same bus: give another bus, or another connect or directory"
                raise ConfigurationError("bus", settings["bus"], f"leg {number}", rule)
        self._engine = BridgeEngine([{**common, **settings} for settings in given])
        super().__init__(self._engine)

    @property
    def _node_engines(self) -> tuple[NodeEngine, ...]:
        return tuple(leg.engine for leg in self.legs)

    @property
    def legs(self) -> list[Leg]:
        """Legs in the order in which the program gave them."""
        return self._engine.legs

    @property
    def stats(self) -> ForwarderStats:
        """Counts of the forwarder."""
        return self._engine.stats

    @property
    def _states(self) -> list[str]:
        return ["standing by for groups" if leg.is_standby else "passing" for leg in self.legs]

    def __repr__(self) -> str:
        return f"<oz.services.Forwarder of {', '.join(leg.bus for leg in self.legs)}>"


def _network_of(leg: Mapping[str, Any]) -> tuple[Any, ...]:
    seeds = as_list(leg["connect"]) if leg.get("connect") else ()
    return leg["bus"], sorted(map(str, seeds)), leg.get("directory")


def _check_leg(leg: Mapping[str, Any], where: str) -> None:
    for wrong in leg.keys() - set(LEG_SETTINGS):
        rule = f"a leg has no such setting; it has {', '.join(LEG_SETTINGS)}"
        raise ConfigurationError(str(wrong), leg[wrong], where, rule)
    if not leg.get("bus"):
        raise ConfigurationError("bus", leg.get("bus"), where, "a leg needs the name of its bus")
